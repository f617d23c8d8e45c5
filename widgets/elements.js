// Making elements. Text always goes in as text, never as HTML.

export const SVG = "http://www.w3.org/2000/svg";

export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * Marks elements that have the keyboard: a notebook around them must not act on their keys.
 * (Notebooks look for this attribute on the focused element itself.)
 */
export function keepKeys(root, selector) {
  for (const element of root.querySelectorAll(selector)) element.dataset.lmSuppressShortcuts = "true";
}

/**
 * Makes `children` the children of `parent`. Those that stay are never taken out: a press on a button, or the
 * keyboard in it, goes on while everything around it is built anew.
 */
export function replaceAround(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let next = parent.firstChild;
  for (const child of children) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
}

/**
 * Makes `parent` hold what `children` are. Where there are elements of that kind already, they only take over what is
 * other: a formula of which one number moves, a plot of which one line does.
 */
export function replaceLike(parent, children) {
  const there = [...parent.childNodes];
  if (there.length !== children.length || there.some(({ nodeName }, i) => nodeName !== children[i].nodeName)) {
    parent.replaceChildren(...children);
    return;
  }
  children.forEach((child, i) => {
    const old = there[i];
    if (child.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
      return;
    }
    for (const { name } of [...old.attributes]) if (!child.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of child.attributes) setAttribute(old, name, value);
    replaceLike(old, [...child.childNodes]);
  });
}

/** Text and attributes as they should be. What is so already isn't touched: the browser would lay it out again. */
export function setText(element, text) {
  const [node] = element.childNodes;
  if (element.childNodes.length === 1 && node.nodeType === Node.TEXT_NODE) {
    if (node.data !== text) node.data = text; // cheaper than another node
  } else if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function setValue(field, value) {
  if (field.value !== String(value)) field.value = value;
}

export function setShown(element, shown) {
  if (element.hidden === Boolean(shown)) element.hidden = !shown;
}

/** The text of nodes and strings, one after the other. */
export const textOf = (pieces) => pieces.map((piece) => piece.textContent ?? piece).join("");

/** `{0}`, `{1}` … in `pattern` replaced; all words come from the kernel. */
export const fill = (pattern, ...parts) => pattern.replace(/\{(\d)\}/g, (_, i) => parts[i]);
