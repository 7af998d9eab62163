"use strict";
(function () {
  document.documentElement.classList.add("scripted");

  // Tables: a click on a heading sorts by it, a second one the other way round.
  document.querySelectorAll("table.sortable").forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      head.querySelector("button").addEventListener("click", function () {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const value = function (row) {
          const number = parseFloat(row.cells[column].dataset.value);
          return isNaN(number) ? (up ? Infinity : -Infinity) : number;
        };
        Array.from(body.rows)
          .sort(function (a, b) { return up ? value(a) - value(b) : value(b) - value(a); })
          .forEach(function (row) { body.appendChild(row); });
      });
    });
  });

  // What is wider than the screen says so.
  function hint() {
    document.querySelectorAll(".scroll").forEach(function (box) {
      box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
    });
  }
  document.querySelectorAll(".scroll").forEach(function (box) {
    const words = document.createElement("p");
    words.className = "hint";
    words.textContent = "Wider than the screen: it scrolls sideways →";
    box.before(words);
  });
  hint();
  window.addEventListener("resize", hint);

  // Switches: of the figures that differ in a metric or a size, one is shown.
  const chosen = {};
  const figures = document.querySelectorAll(".switched");
  function show() {
    figures.forEach(function (figure) {
      figure.hidden = Object.keys(chosen).some(function (key) {
        return figure.dataset[key] !== chosen[key];
      });
    });
  }
  document.querySelectorAll(".switch").forEach(function (group) {
    group.querySelectorAll("input").forEach(function (input) {
      if (input.checked) { chosen[group.dataset.key] = input.value; }
      input.addEventListener("change", function () {
        chosen[group.dataset.key] = input.value;
        show();
      });
    });
  });
  show();

  // Charts: the values under the pointer.
  const tip = document.getElementById("tip");
  document.querySelectorAll("svg[data-hover]").forEach(function (svg) {
    const data = JSON.parse(svg.dataset.hover);
    const box = svg.viewBox.baseVal;
    const first = data.x[0], span = data.x[1] - first, wide = data.right - data.left;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.appendChild(cursor);
    svg.addEventListener("pointermove", function (event) {
      const place = svg.getBoundingClientRect();
      const across = (event.clientX - place.left) / place.width * box.width;
      const share = Math.min(1, Math.max(0, (across - data.left) / wide));
      const wanted = first + share * span;
      const known = data.series.flatMap(function (one) { return one.x; });
      const at = known.reduce(function (best, x) {
        return Math.abs(x - wanted) < Math.abs(best - wanted) ? x : best;
      });
      const lines = data.series.map(function (one) {
        const value = one.y[one.x.indexOf(at)]; // a run that diverged has no later epochs
        return one.name + "  " + (value === undefined || value === null ? "–" : value);
      });
      const x = data.left + (at - first) / span * wide;
      cursor.setAttribute("d", "M" + x + " " + data.top + "V" + data.bottom);
      tip.textContent = data.what + " " + at + "\n" + lines.join("\n");
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, room - 8)) + "px";
      tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 4) + "px";
    });
    svg.addEventListener("pointerleave", function () {
      tip.hidden = true;
      cursor.removeAttribute("d");
    });
  });
})();
