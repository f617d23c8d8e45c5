// TraceView: draws the stages of a trace as linked grids of numbers and sends edits to the kernel.
// Uses only the widget model (get, set, on, off, save_changes) and the element it is given.

import { exactNumber, plainNumber, stepped } from "./numbers.js";
import { isLinked, placeOf, ravel, unravel } from "./axes.js";
import { modelRequests } from "./requests.js";
import { whenChanged } from "./changes.js";
import { keepKeys, make, replaceAround, setAttribute, setText, textOf } from "./elements.js";
import { isLarge, stageCanvas } from "./stage_canvas.js";
import { colourBar, neighbour, paintCell, placeText, stageFigure, stageTable } from "./stage_grid.js";
import { checkList } from "./check_list.js";
import { createTextBoxes } from "./text_box.js";
import { explanationPanel } from "./explanation.js";
import { messageLine } from "./message_line.js";
import { plotRow } from "./plots.js";
import { sizeButtons } from "./size_buttons.js";
import { contextsOf, numbersOf, paintsSame } from "./stage_context.js";
import { sortable } from "./table_sort.js";
import { trailLayer } from "./trail.js";
import { keyStep, openEditor, scrub, startsTyping } from "./editing.js";

// The traits that are drawn: all but what goes to the kernel.
const DRAWN = ["stages", "layout_blocks", "answer", "selected", "grounds", "plots", "tracked", "step", "decimals", "labels", "words"];
const STEP = 0.1;
const BUSY_MS = 300;

export default () => {
  // What all displays of one widget share: the requests, and the edits that have no answer yet.
  const views = new Set();
  let requests;
  let late = false;
  let gesture = 0;

  const repaint = () => views.forEach((view) => view.paint());

  const edit = (change) =>
    requests.push({ gesture, ...change }, change.value === undefined ? undefined : `${change.input} ${change.index}`);

  return {
    initialize({ model }) {
      requests = modelRequests(model, repaint, (isLate) => {
        if (late === isLate) return;
        late = isLate;
        repaint();
      });
      const onAnswer = () => {
        const { ack, nonce } = model.get("answer");
        requests.answered(ack, nonce);
      };
      model.on("change:answer", onAnswer);
      return () => model.off("change:answer", onAnswer);
    },

    render({ model, el, signal }) {
      const view = createView(model, el, signal, {
        edit,
        endGesture: () => (gesture += 1),
        unanswered: requests.unanswered,
        isAnswered: requests.isAnswered,
        isLate: () => late,
        isBusy: () => requests.busy,
      });
      views.add(view);
      const stop = whenChanged(model, DRAWN, view.update);
      view.update();
      return () => {
        stop();
        views.delete(view);
      };
    },
  };
};

function createView(model, el, signal, shared) {
  const root = make("div", "attnlab-view");
  el.append(root);
  const messageId = `attnlab-message-${Math.random().toString(36).slice(2)}`;

  let words = {};
  let stages = {};
  let shapes = {};
  let values = {};
  let slopes = {};
  let signature = "";
  let answer = null;
  let grids = [];
  let bars = [];
  let panels = new Map();
  let readout;
  let explained;
  let operations = [];
  let tableTitles = [];
  let orders = [];
  let byElement = new WeakMap();
  let byStage = new Map();
  let contexts = {};
  let moved = new Set();
  let pointed = null;
  let marked = true;
  let wronged = false;
  let editing = null;
  let busyTimer = null;
  let canvases = [];
  let tagged = [];
  const trail = trailLayer(root, signal);
  const textBoxes = createTextBoxes({
    messageId,
    send(name, text) {
      shared.endGesture();
      return shared.edit({ input: name, text });
    },
    revert: () => shared.edit({ command: "revert" }),
  });

  const cellsOf = (name) => byStage.get(name) ?? [];
  const cellAt = (event) => byElement.get(event.target.closest?.(".attnlab-cell"));
  const indexOf = (cell) => unravel(cell.flat, shapes[cell.stage]);
  /** Axes that a stage doesn't have because it is about the tracked position only. */
  const trackedOf = (name) => {
    const tracked = model.get("tracked");
    return Object.fromEntries((stages[name].of ?? []).filter((axis) => axis in tracked).map((axis) => [axis, tracked[axis]]));
  };
  const place = (cell) => ({ ...trackedOf(cell.stage), ...placeOf(cell.flat, stages[cell.stage].axes, shapes[cell.stage]) });
  const titleOf = (name) => stages[name].title ?? name;

  // ---------------------------------------------------------------- data

  function takeAnswer(next) {
    answer = next;
    const before = values;
    values = {};
    shapes = {};
    for (const [name, array] of Object.entries(next.arrays)) {
      values[name] = numbersOf(array, before[name]);
      shapes[name] = array.shape;
    }
    slopes = Object.fromEntries(Object.entries(next.gradients ?? {}).map(([name, array]) => [name, numbersOf(array)]));
  }

  /** The value on the screen: an edit that the kernel has not answered yet shows at once. */
  function valueOf(name, flat) {
    for (const change of shared.unanswered.values())
      if (change.input === name && ravel(change.index, shapes[name]) === flat) return change.value;
    return values[name][flat];
  }

  function update() {
    words = model.get("words");
    stages = model.get("stages");
    if (model.get("answer") !== answer) takeAnswer(model.get("answer"));
    const drawn = JSON.stringify([model.get("layout_blocks"), shapes, model.get("labels"), stages]);
    if (drawn !== signature) {
      signature = drawn;
      build();
    }
    settleEditor();
    paint();
  }

  // ---------------------------------------------------------------- building

  function build() {
    const focused = focusedCell();
    const held = editing && { ...editing, stage: editing.cell.stage, index: indexOf(editing.cell), ...editing.editor.held };
    // Closed first: a field that loses the keyboard because it is taken away would act as if it had been left.
    editing?.editor.close();
    editing = null;
    grids = [];
    bars = [];
    canvases = [];
    operations = [];
    tableTitles = [];
    orders = [];
    byElement = new WeakMap();
    byStage = new Map();
    contexts = {};
    const blocks = model.get("layout_blocks").map(blockElement);
    replaceAround(root, [...blocks.filter(Boolean), trail.layer]);
    keepKeys(root, ".attnlab-cell, button, summary, textarea");
    panels = new Map([...panels].filter(([, { element }]) => root.contains(element)));
    ({ readout, explanation: explained } = Object.fromEntries([...panels.values()].map((panel) => [panel.name, panel])));
    for (const cell of grids.flatMap(({ rows }) => rows.flat())) {
      byElement.set(cell.td, cell);
      if (!byStage.has(cell.stage)) byStage.set(cell.stage, []);
      byStage.get(cell.stage).push(cell);
    }
    for (const { rows } of grids) rows[0][0].td.tabIndex = 0;
    if (focused) focusAgain(focused);
    if (held && shapes[held.stage] && held.index.every((i, axis) => i < shapes[held.stage][axis])) {
      const cell = cellsOf(held.stage).find((c) => c.flat === ravel(held.index, shapes[held.stage]));
      startEditing(cell, held.text, held);
      Object.assign(editing, { id: held.id, move: held.move });
      if (held.refused) editing.editor.refuse(messageId);
    }
  }

  /** What can't be drawn without numbers is made of them anew; a panel stays, and is only painted. */
  function blockElement(block) {
    if (builders[block.kind]) return builders[block.kind](block);
    const key = JSON.stringify(block);
    if (!panels.has(key)) panels.set(key, makers[block.kind](block));
    return panels.get(key).element;
  }

  const makers = {
    sizes: ({ axes }) =>
      sizeButtons(axes, words, (axis, by) => {
        shared.endGesture();
        shared.edit({ resize: axis, by });
      }),
    message: () => messageLine(words, messageId),
    // These two tell where the reader points and what is chosen; they are painted with the links.
    readout: () => ({ name: "readout", element: make("div", "attnlab-readout"), paint() {} }),
    explanation() {
      const { panel, paint: explain } = explanationPanel(words, letGo);
      return { name: "explanation", element: panel, paint() {}, explain };
    },
    checks: () => checkList(words),
    plots: ({ plots }) => plotRow(plots),
    /** A heading, or a sentence whose words are part of the answer. */
    text({ text, heading }) {
      const element = make(heading ? "h2" : "p", heading ? "attnlab-heading" : "attnlab-told");
      element.dataset.text = text;
      return { element, paint: () => tell(element) };
    },
  };

  function tell(element) {
    setText(element, answer.texts[element.dataset.text] ?? "");
  }

  const builders = {
    grids(block) {
      const section = make("div", "attnlab-row");
      for (const item of block.items) {
        const element = item.kind ? blockElement(item) : shapes[item.stage] && stageElement(item.stage);
        if (element) section.append(item.operation ? operation(item.operation, element) : element);
      }
      return section;
    },
    table(block) {
      if (!shapes[block.columns[0].stage]) return null;
      const built = stageTable(block, stages, shapes, words, model.get("labels"), "");
      tableTitles.push({ text: block.title, element: built.figure.querySelector(".attnlab-name"), grid: built.grids[0].grid });
      grids.push(...built.grids);
      if (block.sortable) orders.push(sortable(built.grids[0], ({ stage, flat }) => values[stage][flat], words.sort));
      return built.figure;
    },
  };

  /** A stage as grids of cells; a large one, of which no cell can be edited, on a canvas. */
  function stageElement(name) {
    const spec = stages[name];
    if (isLarge(shapes[name]) && !spec.editable) {
      const built = stageCanvas(name, spec, shapes[name], words, {
        point: (flat) => pointAt(name, flat),
        choose: (flat) => select({ stage: name, flat }),
        signal,
      });
      canvases.push(built);
      return built.figure;
    }
    const built = stageFigure(name, spec, shapes[name], words, model.get("labels"));
    grids.push(...built.grids);
    if (spec.editable && !spec.plainText) built.figure.append(textBoxes.build(name, titleOf(name), words, paintTexts));
    if (spec.bar) {
      const bar = colourBar();
      bars.push({ ...bar, stage: name });
      built.figure.append(bar.bar);
    }
    return built.figure;
  }

  /** What was done to get to the stage stands before it, and stays with it when the row wraps. */
  function operation(text, figure) {
    const pair = make("div", "attnlab-operated");
    const element = make("div", "attnlab-operation");
    element.dataset.text = text;
    operations.push(element);
    pair.append(element, figure);
    return pair;
  }

  // ---------------------------------------------------------------- painting

  function paint() {
    if (!answer) return;
    const step = model.get("step");
    const decimals = model.get("decimals");
    root.style.setProperty("--attnlab-decimals", decimals);
    const tracked = model.get("tracked");
    const painted = contexts;
    contexts = contextsOf({ stages, values, slopes, answer, step, decimals, words });
    // A page may have thousands of cells, of which a step changes a few.
    const moving = new Set([...shared.unanswered.values()].map(({ input }) => input));
    const fresh = new Set(
      Object.keys(contexts).filter((name) => moving.has(name) || moved.has(name) || !paintsSame(painted[name], contexts[name])),
    );
    moved = moving;
    for (const name of fresh)
      for (const cell of cellsOf(name))
        if (editing?.cell !== cell) paintCell(cell, valueOf(name, cell.flat), contexts[name]);
    for (const order of orders) order();
    for (const { rows, rowAxis } of grids)
      rows.forEach((cells, i) => {
        const line = cells[0].td.parentElement;
        line.classList.toggle("attnlab-tracked", tracked[rowAxis] === (cells.position ?? i));
        const flag = stages[cells[0].stage].flag;
        if (!flag) return;
        const flagged = Boolean(values[flag]?.[i % values[flag].length] && contexts[cells[0].stage].reached);
        flagRow(line, flagged ? words.flags[flag] : "");
      });
    for (const bar of bars) {
      const { slopes: own, largest: end, steepest } = contexts[bar.stage];
      bar.paint(own ? steepest : end, own ? "gradient" : stages[bar.stage].ramp);
    }
    for (const element of root.querySelectorAll(".attnlab-stage")) {
      const context = contexts[element.dataset.stage];
      element.classList.toggle("attnlab-later", Boolean(context && !context.reached));
    }
    for (const element of operations) tell(element);
    for (const { element, grid, text } of tableTitles) {
      setText(element, answer.texts[text]);
      setAttribute(grid, "aria-label", answer.texts[text]);
    }
    paintTexts();
    const state = shared.isLate() ? "disconnected" : answer.state;
    for (const panel of panels.values())
      panel.paint({ answer, state, step, stages, shapes, grounds: model.get("grounds"), plots: model.get("plots") });
    paintStatus(state);
    paintLinks();
    paintTags();
    root.classList.toggle("attnlab-tall", canvases.length > 0);
  }

  function flagRow(line, text) {
    let flag = line.querySelector(".attnlab-flag");
    if (!text) return flag?.remove();
    if (!flag) {
      flag = make("span", "attnlab-flag");
      line.cells[0].append(" ", flag);
    }
    setText(flag, text);
  }

  const paintTexts = () => textBoxes.paint(answer, values, shapes);

  function paintStatus(state) {
    root.dataset.state = state;
    if (!shared.isBusy()) {
      clearTimeout(busyTimer);
      busyTimer = null;
      delete root.dataset.busy;
    } else if (!busyTimer) busyTimer = setTimeout(() => (root.dataset.busy = "true"), BUSY_MS);
    root.classList.toggle("attnlab-stale", answer.stale || state === "disconnected");
    const { wrong } = answer;
    for (const name of wrong || wronged ? Object.keys(stages).filter((stage) => stages[stage].editable) : [])
      for (const cell of cellsOf(name)) {
        const row = indexOf(cell).at(-2);
        cell.td.classList.toggle("attnlab-wrong", Boolean(wrong?.inputs.includes(name) && (wrong.row ?? row) === row));
      }
    wronged = Boolean(wrong);
  }

  /** Where the reader points or has selected, and every cell that belongs to it. */
  function paintLinks() {
    const chosen = chosenPlace();
    const cell = pointed ?? focusedCell() ?? selectedCell(chosen);
    const at = cell && place(cell);
    // Thousands of cells are not asked again whether they are marked, as long as none is.
    const marks = Boolean(at || chosen);
    const asked = marks || marked ? grids : [];
    marked = marks;
    for (const { rows } of asked)
      for (const cells of rows)
        for (const other of cells) {
          const { axes } = stages[other.stage];
          const own = cell && other.stage === cell.stage;
          const linked = at && (own ? other === cell : isLinked(other.flat, axes, shapes[other.stage], at, trackedOf(other.stage)));
          other.td.classList.toggle("attnlab-linked", Boolean(linked));
          const selected = chosen?.stage === other.stage && ravel(chosen.index, shapes[other.stage]) === other.flat;
          other.td.classList.toggle("attnlab-selected", selected);
          if (selected) other.td.setAttribute("aria-selected", "true");
          else other.td.removeAttribute("aria-selected");
        }
    paintOperands(chosen, at, asked);
    paintReadout(cell ?? null);
  }

  /** The cells that the chosen number came from, by its formula, and the panel that shows it. */
  function paintOperands(chosen, at, asked) {
    const explanation = answer.explanation?.stage === chosen?.stage ? answer.explanation : null;
    const operands = new Set(explanation?.operands.map(([stage, index]) => `${stage} ${ravel(index, shapes[stage])}`));
    for (const { rows } of asked)
      for (const cells of rows)
        for (const cell of cells)
          cell.td.classList.toggle("attnlab-operand", operands.has(`${cell.stage} ${cell.flat}`));
    for (const canvas of canvases) {
      const own = pointed?.stage === canvas.name ? null : at;
      const flat = chosen?.stage === canvas.name ? ravel(chosen.index, shapes[canvas.name]) : null;
      canvas.paint(values[canvas.name], contexts[canvas.name], { place: own, chosen: flat, operands });
    }
    const cell = selectedCell(chosen);
    // A number that isn't computed yet is not given away by its formula.
    const told = cell && contexts[cell.stage]?.reached !== false ? explanation : null;
    explained?.explain(told, cell ? [`${words.thisNumber} `, ...named(cell)] : []);
  }

  /** Tagged elements: their cells are outlined twice and joined by a curve. */
  function paintTags() {
    const tags = answer.tags ?? [];
    const names = new Map();
    trail.paint(
      tags.map(({ cells, tag, alone }) => ({
        tag,
        alone,
        elements: cells.flatMap(([stage, index]) => {
          const cell = shapes[stage] && cellsOf(stage).find(({ flat }) => flat === ravel(index, shapes[stage]));
          if (!cell) return [];
          names.set(cell.td, names.has(cell.td) ? `${names.get(cell.td)} ${tag}` : tag);
          return [cell.td];
        }),
      })),
    );
    for (const td of tagged) if (!names.has(td)) delete td.dataset.tag;
    for (const [td, name] of names) if (td.dataset.tag !== name) td.dataset.tag = name;
    tagged = [...names.keys()];
  }

  function paintReadout(cell) {
    if (!readout) return;
    const { element } = readout;
    // What is chosen is told in full below.
    const chosen = explained && selectedCell(chosenPlace());
    if (!cell || cell === chosen) {
      setText(element, words.readoutHint);
      return;
    }
    const extra = cell.look === "masked" ? ` · ${words.looks.masked}` : "";
    const { editable, toggle } = stages[cell.stage];
    const hint = editable ? ` · ${toggle ? words.toggleHint : words.editHint}` : "";
    const pieces = [...named(cell), make("span", "attnlab-readout-note", `${extra}${hint}`)];
    if (element.textContent !== textOf(pieces)) element.replaceChildren(...pieces);
  }

  /** A cell by name, place and all digits. */
  function named(cell) {
    const value = cell.look === "unreached" ? words.looks.unreached : exactNumber(valueOf(cell.stage, cell.flat));
    const where = placeText(words, stages[cell.stage].axes, shapes[cell.stage], cell.flat);
    const name = where ? `${titleOf(cell.stage)}[${where}]` : titleOf(cell.stage);
    return [make("span", "attnlab-readout-name", name), " = ", make("span", "attnlab-readout-value", value)];
  }

  // ---------------------------------------------------------------- focus and selection

  /** A cell of a canvas has no element: it is a stage and a position. */
  function pointAt(stage, flat) {
    if (flat === (pointed?.stage === stage ? pointed.flat : null)) return;
    pointed = flat === null ? null : { stage, flat };
    paintLinks();
  }

  function focusedCell() {
    const active = root.getRootNode().activeElement;
    return byElement.get(active?.closest?.(".attnlab-cell")) ?? null;
  }

  /** What is chosen, as long as there is such a place: undo may bring back what is gone now. */
  function chosenPlace() {
    const chosen = model.get("selected");
    const shape = shapes[chosen?.stage];
    const exists = shape?.length === chosen?.index?.length && shape?.every((size, axis) => chosen.index[axis] < size);
    return exists ? chosen : null;
  }

  function selectedCell(chosen) {
    if (!chosen) return null;
    const flat = ravel(chosen.index, shapes[chosen.stage]);
    const drawn = canvases.some(({ name }) => name === chosen.stage) && { stage: chosen.stage, flat };
    return cellsOf(chosen.stage).find((cell) => cell.flat === flat) ?? (drawn || null);
  }

  function letGo() {
    const cell = selectedCell(chosenPlace());
    choose(null);
    if (cell?.td) focusCell(cell); // where the keyboard was before; the button is gone now
  }

  function focusAgain({ stage, flat }) {
    const cells = cellsOf(stage);
    const cell = cells.find((candidate) => candidate.flat === flat) ?? cells.at(-1);
    if (cell) focusCell(cell);
  }

  function focusCell(cell) {
    const { rows } = gridOf(cell);
    for (const line of rows) for (const other of line) other.td.tabIndex = other === cell ? 0 : -1;
    cell.td.focus({ preventScroll: false });
  }

  const gridOf = (cell) => grids.find(({ grid }) => grid.contains(cell.td));

  const select = (cell) => choose({ stage: cell.stage, index: indexOf(cell) });

  function choose(chosen) {
    model.set("selected", chosen);
    model.save_changes();
    paintLinks();
  }

  // ---------------------------------------------------------------- editing

  const changeCell = (cell, value) =>
    shared.edit({ input: cell.stage, index: indexOf(cell), value, key: `${cell.stage} ${cell.flat}` });

  /** A cell that is on or off. */
  function flip(cell) {
    shared.endGesture();
    changeCell(cell, valueOf(cell.stage, cell.flat) ? 0 : 1);
    shared.endGesture();
  }

  /** `held` is an editor that goes on in a grid that was built anew. */
  function startEditing(cell, text, held) {
    if (editing) closeEditor();
    const editor = openEditor(cell.td, {
      text: text ?? plainNumber(valueOf(cell.stage, cell.flat)),
      selectAll: text === undefined,
      held,
      label: `${titleOf(cell.stage)}, ${placeText(words, stages[cell.stage].axes, shapes[cell.stage], cell.flat)}`,
      commit(typed, move) {
        shared.endGesture();
        editing.move = move;
        editing.id = shared.edit({ input: cell.stage, index: indexOf(cell), text: typed });
      },
      cancel() {
        // What was sent may have been refused, or be refused in a moment: take it back either way.
        const sent = editing.id || answer.refused;
        closeEditor();
        focusCell(cell);
        if (sent) shared.edit({ command: "revert" });
      },
      leave() {
        // What was refused is given up with its field: the message about it goes too.
        const given = answer.refused;
        closeEditor();
        if (given) shared.edit({ command: "revert" });
      },
    });
    editing = { cell, editor };
  }

  function closeEditor() {
    const { cell, editor } = editing;
    editing = null;
    cell.text = null; // the input replaced the text of the cell
    delete contexts[cell.stage];
    editor.close();
    cell.td.textContent = "";
    paint();
  }

  /** The kernel has seen what was typed: close the editor, or keep it open and say what is wrong. */
  function settleEditor() {
    if (!editing?.id || !shared.isAnswered(editing.id)) return;
    const { cell, editor, move } = editing;
    const { refused } = answer;
    if (refused?.input === cell.stage && String(refused.index) === String(indexOf(cell))) {
      editing.id = undefined;
      editor.refuse(messageId);
      return;
    }
    const hadFocus = cell.td.contains(root.getRootNode().activeElement);
    closeEditor();
    if (!hadFocus) return;
    const key = move === 1 ? "ArrowRight" : "ArrowLeft";
    focusCell(move ? neighbour(gridOf(cell).rows, cell, key, false) : cell);
  }

  function command(name) {
    shared.endGesture();
    shared.edit({ command: name });
  }

  // ---------------------------------------------------------------- events

  const on = (type, handler) => root.addEventListener(type, handler, { signal });

  on("pointerdown", (event) => {
    const cell = cellAt(event);
    if (!cell || editing?.cell === cell) return;
    focusCell(cell);
    event.preventDefault(); // no text selection while dragging
    if (stages[cell.stage].toggle) return flip(cell);
    if (!stages[cell.stage].editable) return select(cell);
    shared.endGesture();
    scrub(event, cell.td, {
      value: valueOf(cell.stage, cell.flat),
      step: STEP,
      limit: stages[cell.stage].limit,
      change: (value) => changeCell(cell, value),
      done: shared.endGesture,
      // A drag doesn't choose: the formula of another number can be watched meanwhile.
      tap: () => select(cell),
      signal,
    });
  });
  on("dblclick", (event) => {
    const cell = cellAt(event);
    if (cell && stages[cell.stage].editable && !stages[cell.stage].toggle && editing?.cell !== cell) startEditing(cell);
  });
  on("pointerover", (event) => {
    const cell = cellAt(event) ?? null;
    if (cell === pointed) return;
    pointed = cell;
    if (cell) cell.td.title = exactNumber(valueOf(cell.stage, cell.flat));
    paintLinks();
  });
  on("pointerleave", () => {
    pointed = null;
    paintLinks();
  });
  on("focusin", paintLinks);
  on("focusout", (event) => {
    // Whoever goes elsewhere, to a button for example, has ended what they were doing here.
    if (!root.contains(event.relatedTarget)) shared.endGesture();
    paintLinks();
  });

  on("keydown", (event) => {
    const cell = cellAt(event);
    if (!cell || editing?.cell === cell) return;
    if (handleKey(event, cell)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });

  function handleKey(event, cell) {
    const { editable, limit, toggle } = stages[cell.stage];
    const ctrl = event.ctrlKey || event.metaKey;
    if (toggle && !ctrl && !event.altKey && (event.key === " " || event.key === "Enter")) return flip(cell), true;
    const step = editable && !toggle ? keyStep(event, STEP) : 0;
    if (step) {
      changeCell(cell, stepped(valueOf(cell.stage, cell.flat), 1, step, limit));
      return true;
    }
    if (ctrl && event.key.toLowerCase() === "z") return command(event.shiftKey ? "redo" : "undo"), true;
    if (ctrl && event.key.toLowerCase() === "y") return command("redo"), true;
    if (event.altKey) return false;
    const next = neighbour(gridOf(cell).rows, cell, event.key, ctrl);
    if (next) {
      shared.endGesture();
      focusCell(next);
      return true;
    }
    if (event.key === " ") return select(cell), true;
    if (event.key === "Escape" && model.get("selected")) return choose(null), true;
    if (toggle) return false;
    if (editable && (event.key === "F2" || event.key === "Enter")) return startEditing(cell), true;
    if (editable && (event.key === "Backspace" || event.key === "Delete")) return startEditing(cell, ""), true;
    if (editable && startsTyping(event)) return startEditing(cell, event.key), true;
    if (!editable && event.key === "Enter") return select(cell), true;
    return false;
  }

  on("paste", (event) => {
    const cell = cellAt(event);
    if (!cell || !stages[cell.stage].editable) return;
    const text = event.clipboardData.getData("text/plain");
    event.preventDefault();
    event.stopPropagation();
    shared.endGesture();
    // One number goes into the cell, anything longer replaces the matrix; the kernel reads both.
    const single = !/[\s,;[\]]/.test(text.trim());
    textBoxes.giveUp(cell.stage);
    shared.edit({ input: cell.stage, text, ...(single && { index: indexOf(cell) }) });
  });
  on("copy", (event) => {
    const cell = cellAt(event);
    if (!cell || !root.getRootNode().getSelection?.()?.isCollapsed) return;
    event.clipboardData.setData("text/plain", plainNumber(valueOf(cell.stage, cell.flat)));
    event.preventDefault();
  });

  signal.addEventListener("abort", () => clearTimeout(busyTimer));
  return { update, paint };
}
