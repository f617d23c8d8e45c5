// Tagged elements, followed by a curve from stage to stage. The curves lie over the grids.

import { SVG } from "./elements.js";

/**
 * A smooth curve through points, from stage to stage: it leaves and arrives along the direction in
 * which the stages stand, so that curves of one column or one row of stages stay readable.
 * @param {{x: number, y: number}[]} points
 */
export function curve(points) {
  return points
    .map(({ x, y }, i) => {
      if (i === 0) return `M${rounded(x)} ${rounded(y)}`;
      const from = points[i - 1];
      const beside = Math.abs(x - from.x) > Math.abs(y - from.y);
      const [a, b] = beside
        ? [{ x: (from.x + x) / 2, y: from.y }, { x: (from.x + x) / 2, y }]
        : [{ x: from.x, y: (from.y + y) / 2 }, { x, y: (from.y + y) / 2 }];
      return `C${rounded(a.x)} ${rounded(a.y)} ${rounded(b.x)} ${rounded(b.y)} ${rounded(x)} ${rounded(y)}`;
    })
    .join("");
}

const rounded = (x) => Math.round(x * 10) / 10;

/** The layer of curves over `root`. `paint` gets, for each tag, the elements it passes in order. */
export function trailLayer(root, signal) {
  const layer = document.createElementNS(SVG, "svg");
  layer.setAttribute("class", "attnlab-trail");
  layer.setAttribute("aria-hidden", "true");
  let passed = [];

  function draw() {
    const base = root.getBoundingClientRect();
    // A page that is scaled as a whole measures in its own pixels.
    const scale = base.width / root.offsetWidth || 1;
    layer.replaceChildren(
      ...passed.flatMap(({ elements, tag, alone }) => {
        if (alone) return []; // marked, with nothing to follow
        const points = elements.filter((element) => element.isConnected && isSeen(element)).map((element) => {
          const box = element.getBoundingClientRect();
          return { x: (box.x + box.width / 2 - base.x) / scale, y: (box.y + box.height / 2 - base.y) / scale };
        });
        if (points.length < 2) return [];
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("class", `attnlab-trail-${tag}`);
        path.setAttribute("d", curve(points));
        return [path];
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
  root.addEventListener("scroll", draw, { capture: true, passive: true, signal });
  const watcher = new ResizeObserver(draw);
  watcher.observe(root);
  signal.addEventListener("abort", () => watcher.disconnect());
  return {
    layer,
    paint(tags) {
      passed = tags;
      draw();
    },
  };
}
