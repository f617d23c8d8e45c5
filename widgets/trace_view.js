// TraceView: draws the stages of a trace as linked grids of numbers and sends edits to the kernel.
// Uses only the widget model (get, set, on, off, save_changes) and the element it is given.

import { exactNumber, plainNumber, stepped } from "./numbers.js";
import { isLinked, placeOf, ravel, unravel } from "./axes.js";
import { modelRequests } from "./requests.js";
import { whenChanged } from "./changes.js";
import { make, setText, textOf } from "./elements.js";
import { neighbour, paintCell, placeText } from "./stage_grid.js";
import { createBlocks } from "./view_blocks.js";
import { createTextBoxes } from "./text_box.js";
import { createSight } from "./sight.js";
import { contextsOf, isReached, numbersOf, paintsSame } from "./stage_context.js";
import { trailLayer } from "./trail.js";
import { keyStep, openEditor, scrub, startsTyping } from "./editing.js";

// The traits that are drawn: all but what goes to the kernel.
const DRAWN = ["stages", "layout_blocks", "answer", "selected", "grounds", "plots", "tracked", "step", "decimals", "labels", "words"];
const STEP = 0.1;
const BUSY_MS = 300;
const REST_MS = 60; // a hand that drags makes a move in less

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
  let parts = [];
  let grids = [];
  let readout;
  let explained;
  let byElement = new WeakMap();
  let byStage = new Map();
  let contexts = {};
  let moved = new Set();
  let pointed = null;
  let marked = true;
  let wronged = false;
  let uncover = false;
  let editing = null;
  let busyTimer = null;
  let restTimer = null;
  const behind = new Map(); // parts that can't be seen → their stages whose cells have to be painted
  let canvases = [];
  let tagged = [];
  const trail = trailLayer(root, signal);
  const isSeen = ({ element }) => sight.isSeen(element);
  const sight = createSight(signal, () => catchUp(isSeen));
  const textBoxes = createTextBoxes({
    messageId,
    send(name, text) {
      shared.endGesture();
      return shared.edit({ input: name, text });
    },
    revert: () => shared.edit({ command: "revert" }),
  });
  const blocks = createBlocks({
    resize(axis, by) {
      shared.endGesture();
      shared.edit({ resize: axis, by });
    },
    letGo,
    point: pointAt,
    choose: (stage, flat) => select({ stage, flat }),
    valueOf: ({ stage, flat }) => values[stage][flat],
    textBox: (name, title) => textBoxes.build(name, title, words, paintTexts),
    messageId,
    signal,
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

  /** Puts on the page what isn't there yet. What has the keyboard keeps it, wherever that is now. */
  function build() {
    const focused = focusedCell();
    const labels = model.get("labels");
    const { made, place: put, ...built } = blocks.build(model.get("layout_blocks"), { words, stages, shapes, labels });
    parts = built.parts;
    grids = parts.flatMap((part) => part.grids);
    canvases = parts.flatMap(({ canvas }) => canvas ?? []);
    ({ readout, explanation: explained } = Object.fromEntries(parts.map((part) => [part.name, part])));
    byElement = new WeakMap();
    byStage = new Map();
    for (const cell of parts.flatMap(({ cells }) => cells)) {
      byElement.set(cell.td, cell);
      if (!byStage.has(cell.stage)) byStage.set(cell.stage, []);
      byStage.get(cell.stage).push(cell);
    }
    for (const part of behind.keys()) if (!parts.includes(part)) behind.delete(part);
    sight.watch(parts.filter(({ cells }) => cells.length).map(({ element }) => element));
    for (const stage of made.flatMap((part) => part.stages)) delete contexts[stage];
    if (pointed?.td && !byElement.has(pointed.td)) pointed = null;
    const held = editing && !byElement.has(editing.cell.td) && heldEditor();
    put(root, trail.layer);
    if (focused && focusedCell() !== focused) focusAgain(focused);
    if (held && shapes[held.stage] && held.index.every((i, axis) => i < shapes[held.stage][axis])) {
      const cell = cellsOf(held.stage).find((c) => c.flat === ravel(held.index, shapes[held.stage]));
      startEditing(cell, held.text, held);
      Object.assign(editing, { id: held.id, move: held.move });
      if (held.refused) editing.editor.refuse(messageId);
    }
  }

  /**
   * What goes on in another cell when that of the open editor is taken away. Closed first: a field that loses the
   * keyboard because it is taken away would act as if it had been left.
   */
  function heldEditor() {
    const held = { ...editing, stage: editing.cell.stage, ...editing.editor.held };
    editing.editor.close();
    editing = null;
    return held;
  }

  // ---------------------------------------------------------------- painting

  function paint() {
    if (!answer) return;
    const step = model.get("step");
    const decimals = model.get("decimals");
    root.style.setProperty("--attnlab-decimals", decimals);
    const tracked = model.get("tracked");
    const painted = contexts;
    // What isn't computed yet has no gradient to be shown either.
    const chosen = chosenPlace();
    const overlay = chosen && !isReached(stages[chosen.stage], step) ? {} : slopes;
    contexts = contextsOf({ stages, values, slopes: overlay, answer, step, decimals, words });
    // A page may have thousands of cells, of which a step changes a few.
    const moving = new Set([...shared.unanswered.values()].map(({ input }) => input));
    const fresh = new Set(
      Object.keys(contexts).filter((name) => moving.has(name) || moved.has(name) || !paintsSame(painted[name], contexts[name])),
    );
    moved = moving;
    paintCells(fresh);
    for (const { rows, rowAxis } of grids)
      rows.forEach((cells, i) => {
        const line = cells[0].td.parentElement;
        line.classList.toggle("attnlab-tracked", tracked[rowAxis] === (cells.position ?? i));
        const flag = stages[cells[0].stage].flag;
        if (!flag) return;
        const flagged = Boolean(values[flag]?.[i % values[flag].length] && contexts[cells[0].stage].reached);
        flagRow(line, flagged ? words.flags[flag] : "");
      });
    for (const element of root.querySelectorAll(".attnlab-stage")) {
      const context = contexts[element.dataset.stage];
      element.classList.toggle("attnlab-later", Boolean(context && !context.reached));
    }
    paintTexts();
    const state = shared.isLate() ? "disconnected" : answer.state;
    const shown = { answer, state, step, stages, shapes, contexts, grounds: model.get("grounds"), plots: model.get("plots") };
    for (const part of parts) part.paint?.(shown);
    paintStatus(state);
    paintLinks();
    paintTags();
    root.classList.toggle("attnlab-tall", canvases.length > 0);
  }

  /** In a drag, what is seen goes first: numbers that are scrolled away are written when the hand rests. */
  function paintCells(fresh) {
    for (const part of parts) {
      const stale = part.stages.filter((stage) => fresh.has(stage));
      if (stale.length) behind.set(part, new Set([...(behind.get(part) ?? []), ...stale]));
    }
    catchUp(isSeen);
  }

  function catchUp(isWanted) {
    for (const [part, names] of behind) {
      if (!isWanted(part)) continue;
      behind.delete(part);
      for (const cell of part.cells)
        if (names.has(cell.stage) && editing?.cell !== cell) paintCell(cell, valueOf(cell.stage, cell.flat), contexts[cell.stage]);
    }
    clearTimeout(restTimer);
    if (behind.size) restTimer = setTimeout(() => catchUp(() => true), REST_MS);
    root.toggleAttribute("data-behind", behind.size > 0);
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
    const { explanation } = answer;
    const isOfChosen = explanation?.stage === chosen?.stage && String(explanation?.index) === String(chosen?.index);
    const found = isOfChosen ? explanation : null;
    const operands = new Set(found?.operands.map(([stage, index]) => `${stage} ${ravel(index, shapes[stage])}`));
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
    const told = cell && contexts[cell.stage]?.reached !== false ? found : null;
    explained?.explain(told, cell ? [`${words.thisNumber} `, ...named(cell)] : []);
    if (cell?.td && uncover && told) bringIntoSight(cell.td);
  }

  /** The panel at the lower edge of the window may lie over the very number that was chosen. */
  function bringIntoSight(td) {
    uncover = false;
    requestAnimationFrame(() => {
      root.style.setProperty("--attnlab-panel-height", `${explained.element.offsetHeight}px`);
      td.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
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
    const reached = contexts[cell.stage]?.reached !== false;
    const value = reached ? exactNumber(valueOf(cell.stage, cell.flat)) : words.looks.unreached;
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
    uncover = chosen !== null;
    if (!uncover) root.style.removeProperty("--attnlab-panel-height");
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
    editing = { cell, editor, index: indexOf(cell) };
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
      least: stages[cell.stage].least,
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
    const { editable, limit, least, toggle } = stages[cell.stage];
    const ctrl = event.ctrlKey || event.metaKey;
    if (toggle && !ctrl && !event.altKey && (event.key === " " || event.key === "Enter")) return flip(cell), true;
    const step = editable && !toggle ? keyStep(event, STEP) : 0;
    if (step) {
      changeCell(cell, stepped(valueOf(cell.stage, cell.flat), 1, step, limit, least));
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

  signal.addEventListener("abort", () => {
    clearTimeout(busyTimer);
    clearTimeout(restTimer);
  });
  return { update, paint };
}
