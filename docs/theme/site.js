// A wide table scrolls in a frame that the theme puts around it: by keyboard too.
new MutationObserver(() => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach(frame => {
    frame.tabIndex = 0
    frame.setAttribute("role", "group")
    frame.setAttribute("aria-label", "A table")
  })
}).observe(document.documentElement, { childList: true, subtree: true })
