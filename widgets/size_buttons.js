// Buttons that make the inputs one longer or one shorter along an axis.

import { fill, make, setAttribute, setText } from "./elements.js";
import { axisName } from "./stage_grid.js";

/** `resize(axis, by)` is called with 1 or −1. */
export function sizeButtons(axes, words, resize) {
  const section = make("div", "attnlab-sizes");
  section.setAttribute("role", "group");
  section.setAttribute("aria-label", words.sizes);
  const sizes = axes.map((axis) => {
    const group = make("span", "attnlab-size");
    const count = make("output", "attnlab-size-count");
    const [less, more] = [
      [-1, "−", words.shrink],
      [1, "+", words.grow],
    ].map(([by, sign, label]) => {
      const button = make("button", "attnlab-button attnlab-small", sign);
      button.type = "button";
      button.setAttribute("aria-label", fill(label, axisName(words, axis)));
      button.dataset.axis = axis;
      button.dataset.by = by;
      button.addEventListener("click", () => button.getAttribute("aria-disabled") !== "true" && resize(axis, by));
      return button;
    });
    group.append(make("span", "attnlab-size-name", axisName(words, axis)), less, count, more);
    section.append(group);
    return { axis, count, less, more };
  });

  return {
    element: section,
    paint({ stages, shapes }) {
      for (const { axis, count, less, more } of sizes) {
        const name = Object.keys(stages).find((stage) => stages[stage].editable && stages[stage].axes.includes(axis));
        const dim = stages[name].axes.indexOf(axis);
        const size = shapes[name][dim];
        setText(count, String(size));
        setAttribute(less, "aria-disabled", String(size <= 1));
        setAttribute(more, "aria-disabled", String(size >= stages[name].maxSizes[dim]));
      }
    },
  };
}
