// Cells of different stages belong together when they agree on every axis name they share.

/** Flat position → index tuple in `shape` (row-major). */
export function unravel(flat, shape) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = flat % shape[axis];
    flat = Math.floor(flat / shape[axis]);
  }
  return index;
}

/** Index tuple → flat position in `shape` (row-major). */
export function ravel(index, shape) {
  return index.reduce((flat, i, axis) => flat * shape[axis] + i, 0);
}

/** The cell's place by axis name: {query: 1, key: 2}. */
export function placeOf(flat, axes, shape) {
  const index = unravel(flat, shape);
  return Object.fromEntries(axes.map((axis, i) => [axis, index[i]]));
}

/**
 * Is the cell at `flat` linked with `place`? They must share at least one axis and agree on all
 * that they share; an axis that only one of them has doesn't matter. `fixed` are further axes of
 * the stage, along which it shows a single position.
 */
export function isLinked(flat, axes, shape, place, fixed = {}) {
  let shared = 0;
  for (const [axis, i] of Object.entries(fixed)) {
    if (place[axis] === undefined) continue;
    if (place[axis] !== i) return false;
    shared += 1;
  }
  for (let axis = axes.length - 1; axis >= 0; axis--) {
    const i = flat % shape[axis];
    flat = Math.floor(flat / shape[axis]);
    const wanted = place[axes[axis]];
    // Numbered axes have no name: two of them belong together only by accident.
    if (wanted === undefined || /^axis\d+/.test(axes[axis])) continue;
    if (wanted !== i) return false;
    // A leading axis of one (a batch of one) is shared by everything: it links nothing.
    if (shape[axis] > 1 || axis >= axes.length - 2) shared += 1;
  }
  return shared > 0;
}

/** A long row in lines of `width`. */
export const wrapped = ([length], width) => ({ count: 1, rows: Math.ceil(length / width), columns: Math.min(length, width) });

/** A stage as facets of one grid each: all axes but the last two are facets; 1-D is one row, 0-D one cell. */
export function facetsOf(shape) {
  const columns = shape.length ? shape[shape.length - 1] : 1;
  const rows = shape.length > 1 ? shape[shape.length - 2] : 1;
  const count = shape.slice(0, -2).reduce((product, size) => product * size, 1);
  return { count, rows, columns };
}
