// Sorting the rows of a table by one of its columns: only their order on the screen changes.

import { make } from "./elements.js";

/**
 * Puts a button into each column header. `valueOf(cell)` gives the numbers to sort by; NaN comes last.
 * Returns what sorts the rows again when their numbers have changed.
 * @param {{grid: HTMLTableElement, rows: object[][]}} built
 */
export function sortable({ grid, rows }, valueOf, label) {
  const heads = [...grid.tHead.rows[0].cells].slice(1);
  let by = null;
  let down = false;

  function order() {
    if (by === null) return;
    const key = (cells) => valueOf(cells[by]);
    const sorted = [...rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1) || a.position - b.position);
    if (sorted.every((cells, i) => cells === rows[i])) return;
    rows.splice(0, rows.length, ...sorted);
    const held = grid.getRootNode().activeElement;
    grid.tBodies[0].append(...rows.map((cells) => cells[0].td.parentElement));
    // A row that is moved loses the keyboard.
    if (grid.contains(held)) held.focus({ preventScroll: true });
  }

  heads.forEach((head, column) => {
    const button = make("button", "attnlab-sort", head.textContent);
    button.type = "button";
    button.title = label;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      // The first click shows the largest on top.
      down = by === column ? !down : true;
      by = column;
      order();
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
  return order;
}

/** NaN is smaller than every number, so that it is last from the largest down. */
export function compare(a, b) {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(b) - Number.isNaN(a) && (Number.isNaN(a) ? -1 : 1);
  return a - b;
}
