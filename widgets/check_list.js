// What holds and what doesn't, with the measured number.

import { make, replaceLike } from "./elements.js";

export function checkList(words) {
  const list = make("ul", "attnlab-checks");
  list.setAttribute("aria-label", words.checks);
  let told = "";

  function item({ name, text, how, holds, step: from }, step) {
    const element = make("li", "attnlab-check");
    const reached = !step || !from || from <= step;
    element.dataset.holds = reached ? String(holds) : "unreached";
    const verdict = reached ? (holds ? words.holds : words.fails) : words.looks.unreached;
    element.append(make("span", "attnlab-verdict", verdict), " ", make("span", "attnlab-check-name", name));
    if (reached) element.append(` · ${text}`);
    element.title = how;
    return element;
  }

  return {
    element: list,
    paint({ answer: { checks }, step }) {
      const now = JSON.stringify([checks, step]);
      // What stays as it is isn't laid out again: every element counts, on every move of a drag.
      if (told === now) return;
      told = now;
      replaceLike(list, checks.map((check) => item(check, step)));
    },
  };
}
