// The DOM of one stage: facets of a table with row and column headers, one gridcell per element.
// Built when shapes change, painted when values change.

import { facetsOf, unravel, wrapped } from "./axes.js";
import { fill, make, setShown, setText } from "./elements.js";
import { formatNumber, lookOf } from "./numbers.js";
import { isDropped, isMasked } from "./stage_context.js";

export const axisName = (words, axis) => words.axes?.[axis] ?? axis;

export function shapeText(words, axes, shape) {
  return axes.map((axis, i) => `${axisName(words, axis)} ${shape[i]}`).join(" × ");
}

/** The place of a cell in words: "query 1, key 0". */
export function placeText(words, axes, shape, flat) {
  const index = unravel(flat, shape);
  return axes.map((axis, i) => `${axisName(words, axis)} ${index[i]}`).join(", ");
}

function header(scope, text, className) {
  const cell = make("th", className, text);
  cell.scope = scope;
  cell.setAttribute("role", scope === "row" ? "rowheader" : "columnheader");
  return cell;
}

function row(className) {
  const tr = make("tr", className);
  tr.setAttribute("role", "row");
  return tr;
}

function table(label) {
  const grid = make("table", "attnlab-grid");
  grid.setAttribute("role", "grid");
  grid.setAttribute("aria-label", label);
  return grid;
}

/** A header that only those need who don't see where it stands. */
function unseen(scope, text) {
  const cell = header(scope, undefined, "attnlab-corner");
  cell.append(make("span", "attnlab-unseen", text));
  return cell;
}

/**
 * @typedef {{td: HTMLTableCellElement, stage: string, flat: number}} Cell
 * @typedef {{grid: HTMLTableElement, rows: Cell[][]}} Grid
 */

function gridCell(stage, flat, spec, last) {
  const td = make("td", "attnlab-cell");
  td.setAttribute("role", "gridcell");
  td.tabIndex = -1;
  td.dataset.role = spec.role ?? "";
  if (!spec.editable) td.setAttribute("aria-readonly", "true");
  if (last) td.classList.add("attnlab-last");
  return { td, stage, flat };
}

/** Name, shape with axis names, and how it was made. */
export function stageCaption(name, spec, shape, words) {
  const caption = make("div", "attnlab-caption");
  const title = make("span", "attnlab-name", spec.title ?? name);
  title.dataset.role = spec.role ?? "";
  caption.append(title, " ", make("span", "attnlab-shape", shapeText(words, spec.axes, shape)));
  if (spec.note) caption.append(make("span", "attnlab-note", spec.note));
  return caption;
}

/** A stage with its caption. Returns the element and its grids. */
export function stageFigure(name, spec, shape, words, labels) {
  const figure = make("div", "attnlab-stage");
  figure.dataset.stage = name;
  figure.dataset.ramp = spec.ramp ?? "";
  if (spec.bars) figure.dataset.bars = "true";
  figure.append(stageCaption(name, spec, shape, words));
  const { count, rows, columns } = spec.wrap ? wrapped(shape, spec.wrap) : facetsOf(shape);
  const rowAxis = spec.axes.at(-2);
  const columnAxis = spec.axes.at(-1);
  const label = (axis, i) => labels?.[axis]?.[i] ?? String(i);
  const facets = make("div", "attnlab-facets");
  const grids = [];
  for (let facet = 0; facet < count; facet++) {
    const holder = make("div", "attnlab-facet");
    let place = "";
    if (count > 1) {
      // A leading axis of one position tells nothing apart.
      const index = unravel(facet, shape.slice(0, -2));
      place = index.flatMap((i, axis) => (shape[axis] > 1 ? [`${axisName(words, spec.axes[axis])} ${i}`] : [])).join(", ");
      holder.append(make("div", "attnlab-facet-name", place));
    }
    const named = [spec.title ?? name, place, shapeText(words, spec.axes, shape)].filter(Boolean).join(", ");
    const grid = table(named);
    const head = row();
    head.append(unseen("col", [rowAxis, columnAxis].filter(Boolean).map((a) => axisName(words, a)).join(", ") || named));
    for (let j = 0; j < columns; j++) head.append(columnAxis ? header("col", label(columnAxis, j)) : unseen("col", named));
    grid.append(make("thead"));
    grid.tHead.append(head);
    const body = grid.createTBody();
    const lines = [];
    for (let i = 0; i < rows; i++) {
      const line = row();
      if (spec.wrap) line.append(header("row", String(i * columns)));
      else line.append(rowAxis ? header("row", label(rowAxis, i)) : unseen("row", named));
      const cells = [];
      for (let j = 0; j < Math.min(columns, (shape.at(-1) ?? 1) - (spec.wrap ? i * columns : 0)); j++) {
        const cell = gridCell(name, (facet * rows + i) * columns + j, spec);
        line.append(cell.td);
        cells.push(cell);
      }
      body.append(line);
      lines.push(cells);
    }
    const scroller = make("div", "attnlab-scroll");
    scroller.append(grid);
    holder.append(scroller);
    facets.append(holder);
    grids.push({ grid, rows: lines, rowAxis });
  }
  figure.append(facets);
  return { figure, grids };
}

/**
 * Several stages side by side as one table along the axis they share, with an optional row of
 * totals: `columns: [{stage, title, total}]`.
 */
export function stageTable(block, stages, shapes, words, labels, title) {
  const section = make("div", "attnlab-stage attnlab-terms");
  const caption = make("div", "attnlab-caption");
  caption.append(make("span", "attnlab-name", title));
  section.append(caption);
  const grid = table(title);
  const head = row();
  head.append(header("col", axisName(words, block.axis), "attnlab-axis"));
  const widths = block.columns.map(({ stage }) => shapes[stage]?.[1] ?? 1);
  block.columns.forEach((column, c) => {
    for (let j = 0; j < widths[c]; j++) {
      const many = widths[c] > 1;
      const cell = header("col", many ? `${column.title} ${j}` : column.title);
      if (j === 0) cell.classList.add("attnlab-first");
      head.append(cell);
    }
  });
  grid.append(make("thead"));
  grid.tHead.append(head);
  const body = grid.createTBody();
  const lines = [];
  const count = shapes[block.columns[0].stage]?.[0] ?? 0;
  for (let i = 0; i <= count; i++) {
    const total = i === count;
    if (total && !block.columns.some((column) => column.total)) break;
    const line = row(total ? "attnlab-total" : "");
    line.append(header("row", total ? words.total : (labels?.[block.axis]?.[i] ?? String(i))));
    const cells = [];
    block.columns.forEach((column, c) => {
      for (let j = 0; j < widths[c]; j++) {
        const stage = total ? column.total : column.stage;
        if (!stage) {
          const blank = make("td", "attnlab-blank");
          blank.setAttribute("role", "gridcell");
          line.append(blank);
          continue;
        }
        const cell = gridCell(stage, total ? j : i * widths[c] + j, stages[stage]);
        line.append(cell.td);
        cells.push(cell);
      }
    });
    body.append(line);
    cells.position = i;
    lines.push(cells);
  }
  const scroller = make("div", "attnlab-scroll");
  scroller.append(grid);
  section.append(scroller);
  return { figure: section, grids: [{ grid, rows: lines, rowAxis: block.axis }] };
}

/**
 * Writes one cell. `context` holds what is the same for the whole stage.
 * @param {Cell} cell
 */
export function paintCell(cell, value, context) {
  const { td, flat } = cell;
  const look = lookOf({
    value,
    reached: context.reached,
    masked: isMasked(context, flat),
    dropped: isDropped(context, flat),
  });
  const text = look === "unreached" ? "·" : formatNumber(value, context.decimals);
  if (cell.text !== text) {
    setText(td, text);
    cell.text = text;
  }
  if (cell.look !== look) {
    td.dataset.look = look;
    cell.look = look;
  }
  const slope = look === "unreached" ? undefined : context.slopes?.[flat];
  const under = slope === undefined ? "" : formatNumber(slope, 3);
  if (cell.under !== under) {
    // Drawn below the number by the style sheet.
    if (under) td.dataset.gradient = under;
    else delete td.dataset.gradient;
    cell.under = under;
  }
  // A number is read out as it stands; a look that needs a word, and a gradient, are read with it.
  const word = context.words.looks[look];
  const spoken = [look === "unreached" ? "" : text, word, under && fill(context.words.gradientOf, under)];
  const label = word || under ? spoken.filter(Boolean).join(", ") : "";
  if (cell.label !== label) {
    if (label) td.setAttribute("aria-label", label);
    else td.removeAttribute("aria-label");
    cell.label = label;
  }
  let share = 0;
  if (slope !== undefined) share = Number.isFinite(slope) && context.steepest ? slope / context.steepest : 0;
  else if (context.ramp && look !== "unreached" && Number.isFinite(value))
    share = context.largest ? value / context.largest : 0;
  const tone = share === 0 ? "" : share > 0 ? "plus" : "minus";
  if (cell.tone !== tone) {
    td.dataset.tone = tone;
    cell.tone = tone;
  }
  // Which of a few groups a number belongs to; the group itself is told by the axes.
  const tint = context.tint && look !== "unreached" ? String(context.tint[flat] % 8) : undefined;
  if (cell.tint !== tint) {
    if (tint === undefined) delete td.dataset.tint;
    else td.dataset.tint = tint;
    cell.tint = tint;
  }
  if (context.bars) {
    const height = `${Math.round(Math.min(1, Math.max(0, value || 0)) * 1000) / 10}%`;
    if (cell.height !== height) {
      td.style.setProperty("--attnlab-height", height);
      cell.height = height;
    }
  }
  const amount = Math.round(Math.min(1, Math.abs(share)) * 100);
  if (cell.amount !== amount) {
    td.style.setProperty("--attnlab-amount", `${amount}%`);
    cell.amount = amount;
  }
}

/** The cell that a key leads to from `cell` in a grid of `rows`, or null for a key that leads nowhere. */
export function neighbour(rows, cell, key, toEnd) {
  const i = rows.findIndex((line) => line.includes(cell));
  const j = rows[i].indexOf(cell);
  const lines = rows.length - 1;
  const end = (line) => rows[line].length - 1;
  const moves = {
    ArrowUp: [toEnd ? 0 : i - 1, j],
    ArrowDown: [toEnd ? lines : i + 1, j],
    ArrowLeft: [i, toEnd ? 0 : j - 1],
    ArrowRight: [i, toEnd ? end(i) : j + 1],
    Home: toEnd ? [0, 0] : [i, 0],
    End: toEnd ? [lines, end(lines)] : [i, end(i)],
  };
  const move = moves[key];
  if (!move) return null;
  const line = rows[Math.min(lines, Math.max(0, move[0]))];
  return line[Math.min(line.length - 1, Math.max(0, move[1]))];
}

/** A small bar with its range: colours are never the only carrier, and never without a scale. */
export function colourBar() {
  const bar = make("div", "attnlab-bar");
  bar.setAttribute("aria-hidden", "true");
  const scale = make("div", "attnlab-bar-scale");
  const ends = [make("span"), make("span"), make("span")];
  scale.append(...ends);
  bar.append(make("div", "attnlab-bar-ramp"), scale);
  return {
    bar,
    /** Gradients lie over the numbers with a ramp of their own, so `shown` may differ from `ramp`. */
    paint(largest, shown) {
      bar.dataset.ramp = shown;
      setShown(ends[1], shown !== "unit");
      if (shown === "unit") {
        setText(ends[0], "0");
        setText(ends[2], largest > 1 ? formatNumber(largest, 2) : "1");
      } else {
        const end = largest || 1;
        setText(ends[0], formatNumber(-end, 2));
        setText(ends[1], "0");
        setText(ends[2], formatNumber(end, 2));
      }
    },
  };
}
