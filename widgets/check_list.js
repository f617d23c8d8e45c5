// What holds and what doesn't, with the measured number.

import { make, setText } from "./elements.js";

export function checkList(words) {
  const list = make("ul", "attnlab-checks");
  list.setAttribute("aria-label", words.checks);
  let told = "";

  function item() {
    const element = make("li", "attnlab-check");
    element.append(make("span", "attnlab-verdict"), " ", make("span", "attnlab-check-name"), make("span"));
    list.append(element);
    return element;
  }

  function paintItem(element, { name, text, how, holds, step: from }, step) {
    const reached = !step || !from || from <= step;
    const [verdict, title, measured] = element.children;
    element.dataset.holds = reached ? String(holds) : "unreached";
    setText(verdict, reached ? (holds ? words.holds : words.fails) : words.looks.unreached);
    setText(title, name);
    setText(measured, reached ? ` · ${text}` : "");
    element.title = how;
  }

  return {
    element: list,
    paint({ answer: { checks }, step }) {
      const now = JSON.stringify([checks, step]);
      // What stays as it is isn't laid out again: every element counts, on every move of a drag.
      if (told === now) return;
      told = now;
      while (list.children.length > checks.length) list.lastChild.remove();
      checks.forEach((check, i) => paintItem(list.children[i] ?? item(), check, step));
    },
  };
}
