// The panel of one number: its formula with its own numbers, and the line that computed it.

import { make, replaceLike, setShown, setText, textOf } from "./elements.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const TAGS = new Set("math mrow mi mn mo mtext mfrac msub msup msubsup msqrt munder mover munderover".split(" "));

/** MathML text as elements: only the tags of formulas, only text in them, whatever the text says. */
export function formulaElement(text) {
  const parsed = new DOMParser().parseFromString(text, "application/xml").documentElement;
  return copied(parsed);
}

function copied(node) {
  if (!TAGS.has(node.localName)) return document.createTextNode("");
  const element = document.createElementNS(MATHML, node.localName);
  for (const name of ["display", "aria-label"])
    if (node.hasAttribute(name)) element.setAttribute(name, node.getAttribute(name));
  for (const child of node.childNodes)
    element.append(child.nodeType === Node.TEXT_NODE ? child.data : copied(child));
  return element;
}

/**
 * The two columns of the panel. `paint` gets the explanation of the answer, or null. While a number is chosen the
 * panel stays at the lower edge of the window, however far below its place is; `letGo` lets the number go.
 */
export function explanationPanel(words, letGo) {
  const panel = make("div", "attnlab-panel");
  const number = make("div", "attnlab-this");
  const title = make("div", "attnlab-this-title");
  const close = make("button", "attnlab-button attnlab-small attnlab-let-go", "×");
  close.type = "button";
  close.dataset.name = "let-go";
  close.setAttribute("aria-label", words.letGo);
  close.addEventListener("click", letGo);
  const formula = make("div", "attnlab-formula");
  formula.tabIndex = 0;
  formula.setAttribute("role", "group");
  formula.setAttribute("aria-label", words.formula);
  const note = make("div", "attnlab-this-note");
  number.append(title, formula, note, close);
  const source = make("div", "attnlab-source");
  const sourceTitle = make("div", "attnlab-this-title", words.sourceTitle);
  const file = make("span", "attnlab-file");
  sourceTitle.append(" ", file);
  const code = make("pre", "attnlab-code");
  code.tabIndex = 0;
  source.append(sourceTitle, code);
  panel.append(number, source);
  let shownFormula = "";
  let shownSource = "";

  return {
    panel,
    paint(explanation, heading) {
      panel.classList.toggle("attnlab-chosen", heading.length > 0);
      setShown(close, heading.length);
      if (title.textContent !== textOf(heading)) title.replaceChildren(...heading);
      const math = explanation?.mathml ?? "";
      if (math !== shownFormula) {
        replaceLike(formula, math ? [formulaElement(math)] : []);
        shownFormula = math;
      }
      setShown(formula, math);
      const inputs = explanation?.inputs?.length ? ` ${words.madeFrom} ${explanation.inputs.join(", ")}` : "";
      setText(note, explanation ? explanation.note + inputs : words.explainHint);
      setShown(note, note.textContent);
      const from = explanation?.source ?? null;
      setShown(source, from);
      const drawn = JSON.stringify(from);
      if (from && drawn !== shownSource) {
        file.textContent = `${from.file}:${from.line}`;
        code.setAttribute("aria-label", words.sourceTitle);
        code.replaceChildren(
          ...from.lines.map(([line, text]) => {
            const ran = line === from.line;
            const element = make(ran ? "mark" : "span", ran ? "attnlab-code-line attnlab-ran" : "attnlab-code-line");
            element.append(make("span", "attnlab-line-number", String(line)), `${text}\n`);
            return element;
          }),
        );
        shownSource = drawn;
      }
    },
  };
}
