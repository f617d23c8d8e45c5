// A large stage as a picture of its colours: too many cells to write out, each still to be pointed at.

import { facetsOf, isLinked } from "./axes.js";
import { make } from "./elements.js";
import { lookOf } from "./numbers.js";
import { stageCaption } from "./stage_grid.js";

/** More cells than this in one facet are drawn as a picture. */
export const MOST_WRITTEN = 1024;

export const isLarge = (shape) => {
  const { rows, columns } = facetsOf(shape);
  return rows * columns > MOST_WRITTEN;
};

const channels = (hex) => [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));

/** The colour `share` (0 to 1) of the way from `ground` to `end`, both "#rrggbb". */
export function mixed(ground, end, share) {
  const from = channels(ground);
  const to = channels(end);
  return `rgb(${from.map((c, i) => Math.round(c + (to[i] - c) * share)).join(" ")})`;
}

/**
 * A canvas for one stage; facets stand below each other. `point(flat)` is called with the cell under
 * the pointer or the keyboard (null when it leaves), `choose(flat)` when one is chosen.
 */
export function stageCanvas(name, spec, shape, words, { point, choose, signal }) {
  const figure = make("div", "attnlab-stage");
  figure.dataset.stage = name;
  figure.dataset.ramp = spec.ramp ?? "";
  figure.append(stageCaption(name, spec, shape, words));
  const canvas = make("canvas", "attnlab-canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const title = `${spec.title ?? name}, ${spec.axes.map((axis, i) => `${axis} ${shape[i]}`).join(" × ")}`;
  canvas.setAttribute("aria-label", `${title}. ${words.canvasHint}`);
  const { count, rows, columns } = facetsOf(shape);
  const size = Math.max(3, Math.min(14, Math.floor(640 / columns)));
  const gap = size;
  canvas.width = columns * size;
  canvas.height = count * (rows * size + gap) - gap;
  const scroller = make("div", "attnlab-scroll");
  scroller.append(canvas);
  figure.append(scroller);
  let cursor = 0;

  function flatAt(event) {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor((((event.clientX - box.left) / box.width) * canvas.width) / size);
    const y = ((event.clientY - box.top) / box.height) * canvas.height;
    const facet = Math.floor(y / (rows * size + gap));
    const row = Math.floor((y - facet * (rows * size + gap)) / size);
    if (x < 0 || x >= columns || row < 0 || row >= rows || facet >= count) return null;
    return (facet * rows + row) * columns + x;
  }

  const on = (type, handler) => canvas.addEventListener(type, handler, { signal });
  on("pointermove", (event) => point(flatAt(event)));
  on("pointerleave", () => point(null));
  on("pointerdown", (event) => {
    const flat = flatAt(event);
    if (flat === null) return;
    cursor = flat;
    choose(flat);
  });
  on("focus", () => point(cursor));
  on("blur", () => point(null));
  on("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key === "Enter" || event.key === " ") choose(cursor);
    else if (steps[event.key]) {
      const next = cursor + steps[event.key];
      if (next >= 0 && next < count * rows * columns) cursor = next;
      point(cursor);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const corner = (flat) => {
    const facet = Math.floor(flat / (rows * columns));
    const inside = flat % (rows * columns);
    const top = facet * (rows * size + gap) + Math.floor(inside / columns) * size;
    return [(inside % columns) * size, top];
  };

  // The colours change with the numbers, the marks with every move of the pointer: they are drawn apart.
  const picture = make("canvas");
  picture.width = canvas.width;
  picture.height = canvas.height;
  let pictured = null;

  function paintColours(values, context) {
    const style = getComputedStyle(canvas);
    const colour = (variable, fallback) => {
      const found = style.getPropertyValue(variable).trim();
      return /^#[0-9a-f]{6}$/i.test(found) ? found : fallback;
    };
    const ground = colour("--attnlab-canvas-ground", "#ffffff");
    const ink = colour("--attnlab-link-line", "#4a5560");
    const drawn = [values, context.reached, context.largest, ground, ink];
    if (pictured?.every((part, i) => part === drawn[i])) return ink;
    pictured = drawn;
    const plus = colour(spec.ramp === "unit" ? "--attnlab-unit" : "--attnlab-plus", "#7db4dc");
    const minus = colour("--attnlab-minus", "#ee9f6d");
    const drawing = picture.getContext("2d");
    drawing.fillStyle = ground;
    drawing.fillRect(0, 0, canvas.width, canvas.height);
    drawing.strokeStyle = ink;
    drawing.lineWidth = 1;
    for (let flat = 0; flat < values.length; flat++) {
      const value = values[flat];
      const masked = isMasked(context, flat);
      const look = lookOf({ value, reached: context.reached, masked, dropped: isDropped(context, flat) });
      const [x, y] = corner(flat);
      if (look === "number") {
        const share = context.largest ? value / context.largest : 0;
        drawing.fillStyle = mixed(ground, share < 0 ? minus : plus, Math.min(1, Math.abs(share)));
        drawing.fillRect(x, y, size, size);
        // The sign is told without hue too: negative cells have a bar.
        if (share < 0 && size > 4) strike(drawing, x + 1, y + size / 2, x + size - 1, y + size / 2);
      } else if (look === "masked") strike(drawing, x, y + size, x + size, y);
      else if (look === "nan" || look === "infinite") {
        strike(drawing, x, y, x + size, y + size);
        strike(drawing, x, y + size, x + size, y);
      }
    }
    return ink;
  }

  function paint(values, context, { place, chosen, operands }) {
    const ink = paintColours(values, context);
    const drawing = canvas.getContext("2d");
    drawing.drawImage(picture, 0, 0);
    drawing.strokeStyle = ink;
    drawing.lineWidth = 1;
    const own = [...operands].filter((key) => key.startsWith(`${name} `)).map((key) => Number(key.split(" ").at(-1)));
    const linked = place ? [...values.keys()].filter((flat) => isLinked(flat, spec.axes, shape, place)) : [];
    for (const flat of [...linked, ...own]) {
      const [x, y] = corner(flat);
      drawing.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
    if (chosen !== null) {
      const [x, y] = corner(chosen);
      drawing.lineWidth = 2;
      drawing.strokeRect(x - 1, y - 1, size + 2, size + 2);
    }
  }

  return { figure, name, paint };
}

function strike(drawing, x1, y1, x2, y2) {
  drawing.beginPath();
  drawing.moveTo(x1, y1);
  drawing.lineTo(x2, y2);
  drawing.stroke();
}
