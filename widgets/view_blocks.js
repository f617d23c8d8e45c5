// What stands on a page: its blocks from top to bottom, and their parts that are painted. When something on
// the page changes its shape, only that is made anew: the browser needn't lay out the rest again.

import { keepKeys, make, replaceAround, setAttribute, setText } from "./elements.js";
import { isLarge, stageCanvas } from "./stage_canvas.js";
import { colourBar, stageFigure, stageTable } from "./stage_grid.js";
import { checkList } from "./check_list.js";
import { explanationPanel } from "./explanation.js";
import { messageLine } from "./message_line.js";
import { plotRow } from "./plots.js";
import { sizeButtons } from "./size_buttons.js";
import { sortable } from "./table_sort.js";

/**
 * Something on the page that is kept while what it is made of stays the same.
 * @typedef {{element: Element, name?: string, grids: object[], cells: object[], stages: string[], canvas?: object,
 *   paint?: Function}} Part
 */

/**
 * @param {object} hooks what the parts need of the view: `resize(axis, by)`, `letGo()`, `point(stage, flat)`,
 *   `choose(stage, flat)`, `valueOf(cell)`, `textBox(stage, title)`, and its `messageId` and `signal`.
 */
export function createBlocks({ resize, letGo, point, choose, valueOf, textBox, messageId, signal }) {
  let kept = new Map();
  let parts = new Map();
  let made = [];
  let places = [];
  let words;
  let stages;
  let shapes;
  let labels;

  /** The part that is made of `what`: as it stands on the page already, or made now. */
  function part(what, makePart) {
    let key = JSON.stringify(what);
    while (parts.has(key)) key += " again";
    const found = kept.get(key) ?? newPart(makePart());
    parts.set(key, found);
    return found;
  }

  function newPart({ grids = [], ...rest }) {
    const cells = grids.flatMap(({ rows }) => rows.flat());
    const fresh = { ...rest, grids, cells, stages: [...new Set(cells.map(({ stage }) => stage))] };
    keepKeys(fresh.element, ".attnlab-cell, button, summary, textarea");
    for (const { rows } of grids) rows[0][0].td.tabIndex = 0;
    made.push(fresh);
    return fresh;
  }

  const blockElement = (block) => (builders[block.kind] ?? simple)(block);
  const simple = (block) => part(block, () => makers[block.kind](block)).element;

  const makers = {
    sizes: ({ axes }) => sizeButtons(axes, words, resize),
    message: () => messageLine(words, messageId),
    // These two tell where the reader points and what is chosen; they are painted with the links.
    readout: () => ({ name: "readout", element: make("div", "attnlab-readout") }),
    explanation() {
      const { panel, paint: explain } = explanationPanel(words, letGo);
      return { name: "explanation", element: panel, explain };
    },
    checks: () => checkList(words),
    plots: ({ plots }) => plotRow(plots),
    /** A heading, or a sentence. */
    text: ({ text, heading }) => told(text, heading ? "h2" : "p", heading ? "attnlab-heading" : "attnlab-told"),
  };

  /** What is said with words that are part of the answer. */
  function told(text, tag, className) {
    const element = make(tag, className);
    element.dataset.text = text;
    return { element, paint: ({ answer }) => setText(element, answer.texts[text] ?? "") };
  }

  const builders = {
    grids(block) {
      const elements = block.items.map((item) => {
        if (item.kind) return blockElement(item);
        return shapes[item.stage] && operated(item, stageElement(item.stage));
      });
      // By what it begins with: a stage that comes or goes leaves the others of its row where they are.
      const { element } = part(["row", block.items[0]], () => ({ element: make("div", "attnlab-row") }));
      places.push([element, elements.filter(Boolean)]);
      return element;
    },
    table(block) {
      const names = block.columns.flatMap(({ stage, total }) => (total ? [stage, total] : [stage]));
      if (!shapes[names[0]]) return null;
      return part([block, names.map(madeOf), labels[block.axis]], () => {
        const { figure, grids } = stageTable(block, stages, shapes, words, labels, "");
        const order = block.sortable ? sortable(grids[0], valueOf, words.sort) : () => {};
        return {
          element: figure,
          grids,
          paint({ answer }) {
            const title = answer.texts[block.title];
            setText(figure.querySelector(".attnlab-name"), title);
            setAttribute(grids[0].grid, "aria-label", title);
            order();
          },
        };
      }).element;
    },
  };

  const madeOf = (name) => [name, stages[name], shapes[name], stages[name]?.axes.map((axis) => labels[axis])];

  /** A stage as grids of cells; a large one, of which no cell can be edited, on a canvas. */
  function stageElement(name) {
    const spec = stages[name];
    return part(["stage", madeOf(name)], () => {
      if (isLarge(shapes[name]) && !spec.editable) {
        const canvas = stageCanvas(name, spec, shapes[name], words, {
          point: (flat) => point(name, flat),
          choose: (flat) => choose(name, flat),
          signal,
        });
        return { element: canvas.figure, canvas };
      }
      const { figure, grids } = stageFigure(name, spec, shapes[name], words, labels);
      if (spec.editable && !spec.plainText) figure.append(textBox(name, spec.title ?? name));
      if (!spec.bar) return { element: figure, grids };
      const { bar, paint } = colourBar();
      figure.append(bar);
      return {
        element: figure,
        grids,
        paint({ contexts }) {
          const { slopes, largest, steepest } = contexts[name];
          paint(slopes ? steepest : largest, slopes ? "gradient" : spec.ramp);
        },
      };
    }).element;
  }

  /** What was done to get to the stage stands before it, and stays with it when the row wraps. */
  function operated({ stage, operation }, figure) {
    if (!operation) return figure;
    const { element, operation: text } = part(["operation", stage, operation], () => {
      const said = told(operation, "div", "attnlab-operation");
      return { ...said, element: make("div", "attnlab-operated"), operation: said.element };
    });
    places.push([element, [text, figure]]);
    return element;
  }

  return {
    /**
     * The `parts` of all `blocks`, which of them were `made` now, and what puts the blocks into `root`, before `last`.
     * Until then the page is as it was: what loses the keyboard when it is taken away tells so at once.
     * @returns {{parts: Part[], made: Part[], place: (root: Element, last: Element) => void}}
     */
    build(blocks, data) {
      ({ words, stages, shapes, labels } = data);
      [kept, parts, made, places] = [parts, new Map(), [], []];
      const elements = blocks.map(blockElement).filter(Boolean);
      kept.clear(); // what has gone from the page is held by nobody
      return {
        parts: [...parts.values()],
        made,
        place(root, last) {
          for (const [parent, children] of [...places, [root, [...elements, last]]]) replaceAround(parent, children);
        },
      };
    },
  };
}
