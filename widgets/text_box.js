// A matrix as text: for pasting whole matrices, and where refused text waits to be mended.

import { matrixText } from "./editing.js";
import { fill, make } from "./elements.js";

/**
 * The text boxes of a view, kept by input while grids are built anew.
 * `send(name, text)` returns the number of its request, `revert()` gives refused text up.
 */
export function createTextBoxes({ send, revert, messageId }) {
  const boxes = new Map();

  function build(name, title, words, repaint) {
    const details = make("details", "attnlab-text");
    const known = boxes.get(name);
    details.open = known?.details.open ?? false;
    const summary = make("summary", "", words.asText);
    summary.setAttribute("aria-label", fill(words.asTextOf, title));
    const area = make("textarea", "attnlab-area");
    area.rows = 3;
    area.spellcheck = false;
    area.setAttribute("aria-label", fill(words.textOf, title));
    const apply = make("button", "attnlab-button attnlab-small", words.apply);
    apply.type = "button";
    apply.setAttribute("aria-label", fill(words.applyTo, title));
    const box = { details, area, dirty: known?.dirty ?? false, sent: known?.sent };
    area.value = known?.dirty ? known.area.value : "";
    boxes.set(name, box);
    const submit = () => (box.sent = send(name, area.value));
    details.addEventListener("toggle", repaint);
    area.addEventListener("input", () => (box.dirty = true));
    area.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
      if (event.key === "Escape") {
        box.dirty = false;
        revert();
        repaint();
      }
    });
    for (const type of ["paste", "copy"]) area.addEventListener(type, (event) => event.stopPropagation());
    apply.addEventListener("click", submit);
    details.append(summary, area, apply);
    return details;
  }

  /** What was typed in the box is given up for what comes now, such as a paste into the grid. */
  function giveUp(name) {
    const box = boxes.get(name);
    if (box) box.dirty = false;
  }

  function paint(answer, values, shapes) {
    for (const [name, box] of boxes) {
      if (!values[name] || !box.details.isConnected) continue;
      const refused = answer.refused?.input === name && !answer.refused.index ? answer.refused : null;
      if (refused && !box.dirty) {
        box.area.value = refused.text;
        box.details.open = true;
        box.dirty = true;
      } else if (!refused && box.sent !== undefined && box.sent <= answer.ack) {
        box.dirty = false;
        box.sent = undefined;
      }
      if (refused) {
        box.area.setAttribute("aria-invalid", "true");
        box.area.setAttribute("aria-describedby", messageId);
      } else {
        box.area.removeAttribute("aria-invalid");
        box.area.removeAttribute("aria-describedby");
      }
      if (box.details.open && !box.dirty) {
        const text = matrixText(values[name], shapes[name].at(-1), " ");
        if (box.area.value !== text) box.area.value = text;
      }
    }
  }

  return { build, giveUp, paint };
}
