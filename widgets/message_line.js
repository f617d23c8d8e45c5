// The line that says what is wrong with the last input, or what the result has to be told about.

import { make, setText } from "./elements.js";

export function messageLine(words, id) {
  const line = make("div", "attnlab-message");
  line.id = id;
  line.setAttribute("role", "status");
  return {
    element: line,
    paint({ answer, state }) {
      const text = state === "disconnected" ? words.disconnected : answer.message;
      setText(line, text && answer.stale && state !== "disconnected" ? `${text} ${words.stale}` : text);
      line.dataset.state = text ? state : "";
    },
  };
}
