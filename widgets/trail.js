// Tagged elements, followed by a curve from stage to stage. The curves lie over the grids.

import { replaceLike, SVG } from "./elements.js";

/**
 * A smooth curve from the edge of one cell to the edge of another: it leaves and arrives along the
 * direction in which they stand, and the numbers in them stay free.
 * @param {{x: number, y: number, width: number, height: number}} from centre and size
 * @param {{x: number, y: number, width: number, height: number}} to
 */
export function curve(from, to) {
  const down = Math.abs(to.y - from.y);
  // What stands far below goes down at once: sideways it would meet the numbers of its own row.
  const beside = Math.abs(to.x - from.x) > down && down < 2 * Math.max(from.height, to.height);
  // In one row the straight way would run through the numbers between: a little above them is room.
  if (beside && down < (from.height + to.height) / 4) return hop(from, to);
  const ahead = beside ? Math.sign(to.x - from.x) : Math.sign(to.y - from.y);
  const edge = ({ x, y, width, height }, side) =>
    beside ? { x: x + (side * width) / 2, y } : { x, y: y + (side * height) / 2 };
  const a = edge(from, ahead);
  const b = edge(to, -ahead);
  const turn = beside
    ? [{ x: (a.x + b.x) / 2, y: a.y }, { x: (a.x + b.x) / 2, y: b.y }]
    : [{ x: a.x, y: (a.y + b.y) / 2 }, { x: b.x, y: (a.y + b.y) / 2 }];
  const [start, ...rest] = [a, ...turn, b].map(pair);
  return `M${start}C${rest.join(" ")}`;
}

const ROOM = 5;

/** From the top of one cell over those between to the top of another. */
function hop(from, to) {
  const [a, b] = [from, to].map(({ x, y, height }) => ({ x, y: y - height / 2 }));
  const above = Math.min(a.y, b.y) - ROOM;
  const bend = Math.sign(b.x - a.x) * 2 * ROOM;
  const [start, ...rest] = [a, { x: a.x, y: above }, { x: a.x, y: above }, { x: a.x + bend, y: above }].map(pair);
  const end = [{ x: b.x, y: above }, { x: b.x, y: above }, b].map(pair);
  return `M${start}C${rest.join(" ")}L${pair({ x: b.x - bend, y: above })}C${end.join(" ")}`;
}

const pair = ({ x, y }) => `${rounded(x)} ${rounded(y)}`;
const rounded = (x) => Math.round(x * 10) / 10;

/** The layer of curves over `root`. `paint` gets, for each tag, the elements it passes in order. */
export function trailLayer(root, signal) {
  const layer = document.createElementNS(SVG, "svg");
  layer.setAttribute("class", "attnlab-trail");
  layer.setAttribute("aria-hidden", "true");
  let passed = [];
  let frame = null;
  let drawn = "[]";

  /** Once a frame at most: to ask for places makes the browser lay out the page at once. */
  function soon() {
    if (passed.length || layer.firstChild) frame ??= requestAnimationFrame(draw);
  }

  function draw() {
    frame = null;
    const base = root.getBoundingClientRect();
    // A page that is scaled as a whole measures in its own pixels.
    const scale = base.width / root.offsetWidth || 1;
    const curves = passed.flatMap(({ elements, tag, alone }) => {
      if (alone) return []; // marked, with nothing to follow
      const boxes = elements.filter((element) => element.isConnected && isSeen(element)).map((element) => {
        const box = element.getBoundingClientRect();
        return {
          x: (box.x + box.width / 2 - base.x) / scale,
          y: (box.y + box.height / 2 - base.y) / scale,
          width: box.width / scale,
          height: box.height / scale,
        };
      });
      return boxes.slice(1).map((to, i) => [`attnlab-trail-${tag}`, curve(boxes[i], to)]);
    });
    const now = JSON.stringify(curves);
    if (now === drawn) return; // most numbers change without moving anything
    drawn = now;
    replaceLike(
      layer,
      curves.map(([name, d]) => {
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("class", name);
        path.setAttribute("d", d);
        return path;
      }),
    );
  }

  /** A cell that is scrolled out of its grid has no place on the screen. */
  function isSeen(element) {
    const box = element.getBoundingClientRect();
    const frame = element.closest(".attnlab-scroll")?.getBoundingClientRect();
    return !frame || (box.right > frame.left + 1 && box.left < frame.right - 1);
  }

  // Grids scroll inside themselves, the page is resized and zoomed: the curves go along.
  root.addEventListener("scroll", soon, { capture: true, passive: true, signal });
  const watcher = new ResizeObserver(soon);
  watcher.observe(root);
  signal.addEventListener("abort", () => {
    watcher.disconnect();
    cancelAnimationFrame(frame);
  });
  return {
    layer,
    paint(tags) {
      passed = tags;
      root.classList.toggle("attnlab-traced", tags.some(({ alone }) => !alone));
      soon();
    },
  };
}
