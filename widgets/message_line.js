// The line that says what is wrong with the last input, or what the result has to be told about.

import { make, setText } from "./elements.js";

/** Of these states the numbers on the screen are those of the present inputs. */
export const isCurrent = (state) => state === "ready" || state === "stopped";

export function messageLine(words, id) {
  const line = make("div", "attnlab-message");
  line.id = id;
  line.setAttribute("role", "status");
  return {
    element: line,
    paint({ answer, state }) {
      const text = state === "disconnected" ? words.disconnected : answer.message;
      const stale = text && !isCurrent(state) && state !== "disconnected";
      const shown = stale ? `${text} ${words.stale}` : text;
      setText(line, shown);
      line.dataset.state = text ? state : "";
    },
  };
}
