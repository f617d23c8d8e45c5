// Grabbing a number: scrub with the pointer, step with keys, type, paste. Knows nothing of the kernel;
// it calls `change` with an edit and `done` when a gesture ends.

import { keepKeys } from "./elements.js";
import { plainNumber, stepped } from "./numbers.js";

const PIXELS_PER_STEP = 4;
const DRAG_THRESHOLD = 3;

/** Step of one notch: a tenth, ten times that with Shift, a tenth of it with Alt held while dragging. */
export function stepFor(event, base) {
  if (event.shiftKey) return base * 10;
  return event.altKey && event.type.startsWith("pointer") ? base / 10 : base;
}

/**
 * Follows a pointer that went down on an editable cell. Sideways movement changes the number, Escape
 * puts it back; a press without movement selects the cell.
 */
export function scrub(event, cell, { value, step, limit, least, change, done, tap, signal }) {
  if (event.button !== 0) return;
  const start = event.clientX;
  let moved = false;
  let last = value;
  const controller = new AbortController();
  const options = { signal: AbortSignal.any([controller.signal, signal]) };
  cell.setPointerCapture(event.pointerId);
  cell.addEventListener(
    "pointermove",
    (move) => {
      const distance = move.clientX - start;
      if (!moved && Math.abs(distance) < DRAG_THRESHOLD) return;
      moved = true;
      const next = stepped(value, Math.trunc(distance / PIXELS_PER_STEP), stepFor(move, step), limit, least);
      if (next === last) return;
      last = next;
      change(next);
    },
    options,
  );
  const end = (last) => {
    controller.abort();
    if (moved) done();
    else if (last.type === "pointerup") tap();
  };
  cell.addEventListener(
    "keydown",
    (key) => {
      if (key.key !== "Escape" || !moved) return;
      key.stopPropagation();
      controller.abort();
      if (last !== value) change(value);
      done();
    },
    options,
  );
  cell.addEventListener("pointerup", end, options);
  cell.addEventListener("pointercancel", end, options);
}

/** Keys that step a number: Alt+arrows, Page Up and Page Down for ten notches. Returns the step or 0. */
export function keyStep(event, base) {
  if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowRight")) return stepFor(event, base);
  if (event.altKey && (event.key === "ArrowDown" || event.key === "ArrowLeft")) return -stepFor(event, base);
  if (event.key === "PageUp") return 10 * base;
  if (event.key === "PageDown") return -10 * base;
  return 0;
}

/** Does this key begin to type a number? */
export const startsTyping = (event) =>
  !event.ctrlKey && !event.metaKey && !event.altKey && /^[0-9.+\-−]$/.test(event.key);

/**
 * An input laid over a cell. `commit(text)` is called with what was typed; the input stays, marked
 * as wrong, until the kernel has accepted it (`accept`) or Escape is pressed.
 */
export function openEditor(td, { text, label, selectAll, held, commit, cancel, leave }) {
  const input = document.createElement("input");
  input.className = "attnlab-input";
  input.type = "text";
  input.inputMode = "text";
  input.spellcheck = false;
  input.autocomplete = "off";
  input.value = text;
  input.setAttribute("aria-label", label);
  td.append(input);
  keepKeys(td, "input");
  td.classList.add("attnlab-editing");
  input.focus();
  if (selectAll) input.select();
  if (held) input.setSelectionRange(...held.selection);
  let committed = held ? held.committed : text;
  let open = true;
  const editor = {
    /** What has to be kept when the grid around the cell is built anew. */
    get held() {
      const selection = [input.selectionStart, input.selectionEnd];
      return { text: input.value, committed, selection, refused: input.hasAttribute("aria-invalid") };
    },
    /** Wrong input: keeps it on the screen, named by the message that the input points at. */
    refuse(messageId) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", messageId);
    },
    close() {
      if (!open) return;
      open = false;
      td.classList.remove("attnlab-editing");
      input.remove();
    },
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter" || event.key === "Tab") {
      event.preventDefault();
      committed = input.value;
      commit(input.value, event.key === "Tab" ? (event.shiftKey ? -1 : 1) : 0);
    } else if (event.key === "Escape") {
      event.preventDefault();
      cancel();
    }
  });
  input.addEventListener("input", () => input.removeAttribute("aria-invalid"));
  input.addEventListener("blur", () => {
    if (!open) return;
    if (input.value !== committed) commit(input.value, 0);
    else leave();
  });
  for (const type of ["paste", "copy", "cut", "pointerdown", "dblclick"])
    input.addEventListener(type, (event) => event.stopPropagation());
  return editor;
}

/** Tab-separated text of a matrix, as spreadsheets take it. */
export function matrixText(values, columns, separator = "\t") {
  const lines = [];
  for (let i = 0; i < values.length; i += columns)
    lines.push(Array.from(values.subarray(i, i + columns), plainNumber).join(separator));
  return lines.join("\n");
}
