// Plots: SVG from the kernel, put into the page as elements so that it takes the colours of the page.

import { make, replaceLike, setAttribute, SVG } from "./elements.js";

const INK = /#010101/gi; // what the kernel draws in the colour of the text around
const SHAPE_TAGS = new Set("svg g path text tspan defs clipPath rect use line polyline circle title desc".split(" "));
const SHAPE_ATTRIBUTES = new Set([
  "class", "d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "width", "height",
  "viewBox", "transform", "style", "points", "clip-path", "fill", "stroke", "role", "aria-label",
  "text-anchor", "preserveAspectRatio",
]);

/**
 * SVG text as elements: only shapes and text, only references inside it, whatever the text says. Its names are its own:
 * several plots name their parts alike, and what one refers to must not be found in another.
 */
export function plotElement(text) {
  const own = `attnlab-${Math.random().toString(36).slice(2)}-`;
  return copiedShape(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, own);
}

function copiedShape(node, own) {
  if (node.namespaceURI !== SVG || !SHAPE_TAGS.has(node.localName)) return document.createTextNode("");
  const element = document.createElementNS(SVG, node.localName);
  for (const { localName, name, value } of node.attributes) {
    const inside = localName === "href" && value.startsWith("#");
    if (inside) element.setAttribute("href", `#${own}${value.slice(1)}`);
    else if (name === "id") element.id = own + value;
    else if (SHAPE_ATTRIBUTES.has(name) && !/url\((?!#)/i.test(value))
      element.setAttribute(name, value.replace(INK, "currentColor").replace(/url\(#/gi, `url(#${own}`));
  }
  for (const child of node.childNodes)
    element.append(child.nodeType === Node.ELEMENT_NODE ? copiedShape(child, own) : child.nodeType === Node.TEXT_NODE ? child.data : "");
  return element;
}

/** Places for the plots of these names, side by side. */
export function plotRow(names) {
  const section = make("div", "attnlab-row attnlab-plots");
  const places = names.map(plotPlace);
  section.append(...places.map(({ element }) => element));
  return { element: section, paint: ({ grounds, plots }) => places.forEach((place) => place.paint(grounds, plots)) };
}

const GROUNDS = 8; // kept: a slider that goes on comes back to most of them

/** Grounds lie on each other, one of them seen; to show one that was read and laid out before costs little. */
function plotPlace(name) {
  const holder = make("div", "attnlab-plot");
  holder.dataset.plot = name;
  const over = document.createElementNS(SVG, "svg");
  over.setAttribute("class", "attnlab-marks");
  over.setAttribute("aria-hidden", "true"); // the ground has the name
  holder.append(over);
  const known = new Map();
  let shown = "";
  let marks = "";

  function show(text) {
    const ground = known.get(text) ?? plotElement(text);
    known.get(shown)?.classList.add("attnlab-put-by");
    ground.classList.remove("attnlab-put-by");
    setAttribute(over, "viewBox", ground.getAttribute("viewBox"));
    if (!known.delete(text)) over.before(ground);
    known.set(text, ground); // as the newest
    shown = text;
    if (known.size > GROUNDS) {
      const [[oldest, element]] = known;
      element.remove();
      known.delete(oldest);
    }
  }

  return {
    element: holder,
    paint(grounds, plots) {
      const plot = plots[name];
      if (!plot) return;
      if (grounds[name] !== shown) show(grounds[name]);
      if (plot.name) setAttribute(known.get(shown), "aria-label", plot.name);
      if (marks === plot.marks) return;
      marks = plot.marks;
      replaceLike(over, [...plotElement(`<g xmlns="${SVG}">${marks}</g>`).children]);
    },
  };
}
