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
  const left = 46, right = 10;
  document.querySelectorAll("svg[data-hover]").forEach(function (svg) {
    const data = JSON.parse(svg.dataset.hover);
    const box = svg.viewBox.baseVal;
    const first = 1;
    const last = Math.max(2, ...data.series.map(function (s) { return s.x[s.x.length - 1]; }));
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.appendChild(cursor);
    svg.addEventListener("pointermove", function (event) {
      const place = svg.getBoundingClientRect();
      const across = (event.clientX - place.left) / place.width * box.width;
      const share = Math.min(1, Math.max(0, (across - left) / (box.width - left - right)));
      const wanted = first + share * (last - first);
      const lines = [];
      let at = Math.round(wanted);
      data.series.forEach(function (one) {
        let best = 0;
        one.x.forEach(function (x, k) {
          if (Math.abs(x - wanted) < Math.abs(one.x[best] - wanted)) { best = k; }
        });
        at = one.x[best];
        lines.push(one.n + "  " + (one.y[best] === null ? "–" : one.y[best]));
      });
      const x = left + (at - first) / (last - first) * (box.width - left - right);
      cursor.setAttribute("d", "M" + x + " 10V" + (box.height - 34));
      tip.textContent = data.x + " " + at + "\n" + lines.join("\n");
      tip.hidden = false;
      const wide = tip.offsetWidth, room = document.documentElement.clientWidth;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, room - wide - 8)) + "px";
      tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 4) + "px";
    });
    svg.addEventListener("pointerleave", function () {
      tip.hidden = true;
      cursor.removeAttribute("d");
    });
  });
})();
