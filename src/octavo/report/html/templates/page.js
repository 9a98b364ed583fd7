"use strict";
// Tables: sorting by a click on a heading, searching, and the first rows of long ones.
(() => {
  const SHOWN = 25;
  const SEARCHED = 8; // fewer rows need no search
  const key = (cell) => {
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    return cell.textContent.toLowerCase();
  };
  const collator = new Intl.Collator("en", { numeric: true });
  // Rows without an entry come last, whichever way the table is sorted.
  const compare = (a, b, down) => {
    const empty = (a === "") - (b === "");
    if (empty || a === "") return empty;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    const order = typeof a === "number" ? a - b || 0 : collator.compare(a, b);
    return down ? -order : order;
  };
  for (const box of document.querySelectorAll(".sortable")) {
    const body = box.querySelector("tbody");
    const controls = box.querySelector(".controls");
    const search = box.querySelector("input");
    const found = box.querySelector("output");
    const all = box.querySelector(".all");
    const heads = [...box.querySelectorAll("th")];
    const original = [...body.rows];
    let texts;
    // Narrow screens show rows as cards: what they are must be said then.
    for (const row of original) {
      row.setAttribute("role", "row");
      for (const cell of row.cells) cell.setAttribute("role", "cell");
    }
    let rows = original;
    let open = original.length <= SHOWN + 5;
    const show = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (words.length && !texts) texts = new Map(original.map((row) => [row, row.textContent.toLowerCase()]));
      let hits = 0;
      for (const row of rows) {
        const hit = words.every((word) => texts.get(row).includes(word));
        row.hidden = !hit;
        hits += hit;
        row.classList.toggle("over", hit && !open && hits > SHOWN);
      }
      found.textContent = words.length ? `${hits} of ${rows.length} ${box.dataset.noun}` : `${rows.length} ${box.dataset.noun}`;
      all.hidden = open || hits <= SHOWN;
      all.textContent = `Show all ${hits}`;
    };
    heads.forEach((head, i) => {
      const button = head.querySelector("button");
      button.disabled = false;
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        rows = original
          .map((row) => [key(row.cells[i]), row])
          .sort(([a], [b]) => compare(a, b, down))
          .map(([, row]) => row);
        body.append(...rows);
        show();
      });
    });
    search.addEventListener("input", show);
    all.addEventListener("click", () => { open = true; show(); });
    controls.hidden = original.length < SEARCHED;
    show();
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      details.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-printed]")) {
      details.open = false;
      delete details.dataset.printed;
    }
  });
})();
