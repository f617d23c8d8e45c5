// ControlBar: native inputs, selects and buttons with real labels, declared by the kernel as data.
// It also keeps the state of its explorable in the page's address, where the page is its own.

import { fill, keepKeys, make, setAttribute, setText, setValue } from "./elements.js";
import { plainNumber } from "./numbers.js";
import { modelRequests } from "./requests.js";
import { whenChanged } from "./changes.js";

// The traits that are drawn; the rest goes to the kernel, or is done once.
const DRAWN = ["controls", "values", "limits", "notes", "disabled", "refused", "ack", "address", "address_names", "words"];
const ADDRESS_MS = 250;
// Some browsers read a saved file only after the click has been dealt with.
const SAVED_MS = 60_000;

/** The address bar is ours only on a page of our own; a notebook's belongs to the notebook. */
const ownsAddress = () => document.documentElement.hasAttribute("data-attnlab-page");

/** Can a link lead back here? In a frame that isn't ours the address is the frame's, of no use to anybody. */
const hasAddress = () => ownsAddress() || globalThis.top === globalThis.self;

/**
 * The query part of the address that was opened. A notebook application tidies its address at once,
 * so there the address of the navigation is asked, as long as the same notebook is open.
 */
function openedSearch() {
  if (ownsAddress()) return location.search;
  if (!hasAddress()) return "";
  const [navigation] = performance.getEntriesByType("navigation");
  const opened = navigation && new URL(navigation.name);
  return opened?.pathname === location.pathname ? opened.search : "";
}

/** The page's address with this explorable's state; what other explorables and pages keep there stays. */
export function addressWith(href, own, state) {
  const url = new URL(href);
  const nameOf = (pair) => new URLSearchParams(pair).keys().next().value;
  // As they are written: encoding them anew would make commas unreadable.
  const kept = url.search.slice(1).split("&").filter((pair) => pair && !own.includes(nameOf(pair)));
  const query = [...kept, ...(state ? [state] : [])].join("&");
  url.search = query;
  return url.href;
}

/** Puts text on the clipboard. Resolves to whether it is there. */
async function copyText(text, holder) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without permission, or on plain http: the old way works where the new one is refused.
    const area = make("textarea", "attnlab-unseen", text);
    holder.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

function saveFile({ filename, mime, text }, holder) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: mime }));
  link.download = filename;
  holder.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVED_MS);
}

export default () => {
  const views = new Set();
  let requests;
  let addressTimer;
  let restored = false;
  let late = false;

  const addressOf = (model) => addressWith(location.href, model.get("address_names"), model.get("address"));

  function writeAddress(model) {
    const href = addressOf(model);
    if (ownsAddress() && href !== location.href) history.replaceState(history.state, "", href);
  }

  return {
    initialize({ model }) {
      const show = () => views.forEach((view) => view.paint());
      requests = modelRequests(model, show, (isLate) => {
        late = isLate;
        show();
      });
      const onAck = () => {
        const { id, nonce } = model.get("ack");
        requests.answered(id, nonce);
      };
      const onAddress = () => {
        // When the hand rests: browsers limit how often an address may change, and fetch the page's icon again.
        clearTimeout(addressTimer);
        if (restored) addressTimer = setTimeout(() => writeAddress(model), ADDRESS_MS);
      };
      model.on("change:ack", onAck);
      model.on("change:address", onAddress);
      // Said once, by the page for which it was made. Another window of a notebook meets it again, with the
      // link of its own address: that is not for what its reader has been working on.
      if (model.get("search") === null) {
        model.set("search", openedSearch());
        model.save_changes();
      }
      restored = true;
      return () => {
        clearTimeout(addressTimer);
        model.off("change:ack", onAck);
        model.off("change:address", onAddress);
      };
    },

    render({ model, el, signal }) {
      const push = (name, value, gesture) =>
        requests.push({ name, value, key: name, ...(gesture !== undefined && { gesture }) }, name);
      const view = createBar(model, el, signal, {
        push,
        // Without a key: of two values only the newer counts, but pressed twice is twice.
        press: (name) => requests.push({ name, value: true }),
        isBusy: () => requests.busy,
        unanswered: requests.unanswered,
        address: () => addressOf(model),
        isLate: () => late,
      });
      views.add(view);
      const onDownload = () => {
        const download = model.get("download");
        // Only the first display saves the file; two displays are one request.
        if (download.filename && [...views][0] === view) saveFile(download, el);
      };
      const onClipboard = () => {
        const { text } = model.get("clipboard");
        if (text && [...views][0] === view) view.copy(text, model.get("words").copied);
      };
      const stop = whenChanged(model, DRAWN, view.update);
      model.on("change:download", onDownload);
      model.on("change:clipboard", onClipboard);
      view.update();
      return () => {
        stop();
        model.off("change:download", onDownload);
        model.off("change:clipboard", onClipboard);
        views.delete(view);
      };
    },
  };
};

function createBar(model, el, signal, { push, press, isBusy, unanswered, address, isLate }) {
  const root = make("div", "attnlab-controls");
  el.append(root);
  const unique = Math.random().toString(36).slice(2);
  let signature = "";
  let painters = [];
  let notice;
  let noticeTimer;
  let said = false;
  let gesture = 0;

  const valueOf = (name) => (unanswered.has(name) ? unanswered.get(name).value : model.get("values")[name]);
  /** What was typed into a field and refused stays there, to be mended. */
  const textOfField = (name) => (unanswered.has(name) ? valueOf(name) : (model.get("refused")[name] ?? valueOf(name)));
  const markRefused = (field, refused) => {
    if (refused) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  };
  /** Escape gives up what was refused: what is in force comes back. */
  const givenUp = (field, name) =>
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && name in model.get("refused")) push(name, model.get("values")[name]);
    });
  const isDisabled = (name) => model.get("disabled").includes(name);

  /** What stands in the notice when nothing has just been said. */
  const standing = () => (isLate() ? model.get("words").disconnected : "");

  function say(text) {
    said = true;
    setText(notice, text);
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => {
      said = false;
      setText(notice, standing());
    }, 4000);
  }

  /** Copies, and says so; what can't be copied is shown, selected, to be copied by hand. */
  async function copy(text, done) {
    if (await copyText(text, el)) return say(done);
    const area = make("textarea", "attnlab-by-hand", text);
    area.readOnly = true;
    area.setAttribute("aria-label", model.get("words").copyByHand);
    area.addEventListener("blur", () => say(""));
    clearTimeout(noticeTimer);
    said = true;
    notice.replaceChildren(model.get("words").copyByHand, area);
    area.select();
  }

  function button(name, text, label, act, { always = false } = {}) {
    const element = make("button", "attnlab-button", text);
    element.type = "button";
    element.dataset.name = name;
    if (label) element.setAttribute("aria-label", label);
    // aria-disabled keeps the button focusable: undoing the last step must not throw the keyboard out.
    element.addEventListener("click", () => (always || element.getAttribute("aria-disabled") !== "true") && act());
    return element;
  }

  function select({ name, label, options, hideLabel }) {
    const holder = make("label", "attnlab-control");
    holder.append(make("span", hideLabel ? "attnlab-unseen" : "attnlab-label", label));
    const element = make("select", "attnlab-select");
    element.dataset.name = name;
    for (const [value, text] of options) {
      const option = make("option", "", text);
      option.value = value;
      element.append(option);
    }
    // The value as it was declared: an option of the page is text, a number of heads isn't.
    element.addEventListener("change", () => push(name, options[element.selectedIndex][0]));
    const note = make("span", "attnlab-control-note");
    holder.append(element, note);
    painters.push(() => {
      setValue(element, valueOf(name));
      element.disabled = isDisabled(name);
      setText(note, model.get("notes")[name] ?? "");
    });
    return holder;
  }

  function toggle({ name, label }) {
    const holder = make("label", "attnlab-control");
    const element = make("input", "attnlab-check-box");
    element.type = "checkbox";
    element.dataset.name = name;
    element.addEventListener("change", () => push(name, element.checked));
    holder.append(element, make("span", "attnlab-label", label));
    painters.push(() => {
      element.checked = valueOf(name);
      element.disabled = isDisabled(name);
    });
    return holder;
  }

  function stepper({ name, label, less, more, minimum }) {
    const holder = make("div", "attnlab-control");
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", label);
    const count = make("output", "attnlab-count");
    count.dataset.name = name;
    const maximum = () => model.get("limits")[name];
    const move = (by) => () => push(name, valueOf(name) + by);
    const back = button(`${name}-less`, "◂", less, move(-1));
    const forth = button(`${name}-more`, "▸", more, move(1));
    for (const element of [back, forth]) element.classList.add("attnlab-small");
    holder.append(make("span", "attnlab-label", label), back, count, forth);
    painters.push(() => {
      const value = valueOf(name);
      setText(count, String(value));
      setAttribute(back, "aria-disabled", String(value <= minimum || isDisabled(name)));
      setAttribute(forth, "aria-disabled", String(value >= maximum() || isDisabled(name)));
    });
    return holder;
  }

  /** A range over given values; one drag is one gesture. `typed` adds a field that takes any number. */
  function slider({ name, label, values, texts, typed }) {
    const holder = make("div", "attnlab-control attnlab-slider");
    const id = `attnlab-${name}-${unique}`;
    const title = make("label", "attnlab-label", label);
    title.htmlFor = id;
    const range = make("input", "attnlab-range");
    range.id = id;
    range.type = "range";
    range.dataset.name = name;
    range.min = 0;
    range.max = values.length - 1;
    range.step = 1;
    const nearest = (value) => values.reduce((best, v, i) => (Math.abs(v - value) < Math.abs(values[best] - value) ? i : best), 0);
    range.addEventListener("input", () => push(name, values[range.value], gesture));
    range.addEventListener("change", () => (gesture += 1));
    const shown = typed ? make("input", "attnlab-number-field") : make("output", "attnlab-count");
    shown.dataset.name = `${name}-shown`;
    if (typed) {
      shown.type = "text";
      shown.inputMode = "decimal";
      shown.setAttribute("aria-label", label);
      shown.addEventListener("change", () => push(name, shown.value.trim()));
    }
    holder.append(title, range, shown);
    painters.push(() => {
      const value = valueOf(name);
      const at = nearest(Number(value));
      const text = values[at] === Number(value) ? texts[at] : plainNumber(Number(value));
      setValue(range, at);
      range.disabled = isDisabled(name);
      if (typed) shown.disabled = range.disabled;
      setAttribute(range, "aria-valuetext", text);
      if (!typed) setText(shown, text);
      // What was typed stays until it is answered, and in the field as long as it has the keyboard.
      else if (!unanswered.has(name) && root.getRootNode().activeElement !== shown) setValue(shown, text);
    });
    return holder;
  }

  /** A line of text. */
  function text({ name, label }) {
    const holder = make("label", "attnlab-control");
    const field = make("input", "attnlab-number-field");
    field.type = "text";
    field.spellcheck = false;
    field.dataset.name = name;
    field.addEventListener("change", () => push(name, field.value.trim()));
    givenUp(field, name);
    holder.append(make("span", "attnlab-label", label), field);
    let shown = null;
    painters.push(() => {
      const value = textOfField(name);
      // What is being typed stays until it is sent; an answer of another kind must not take it away.
      if (value !== shown || root.getRootNode().activeElement !== field) setValue(field, value);
      shown = value;
      markRefused(field, name in model.get("refused"));
    });
    return holder;
  }

  /** Texts in order, each with buttons to move and remove it, and a list to add one from. */
  function chain({ name, label, choices, separator }) {
    const words = model.get("words");
    const holder = make("div", "attnlab-control attnlab-chain");
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", label);
    const list = make("ol", "attnlab-chain-items");
    const add = make("select", "attnlab-select");
    add.dataset.name = `${name}-add`;
    add.setAttribute("aria-label", words.add);
    for (const choice of ["", ...choices]) {
      const option = make("option", "", choice || words.add);
      option.value = choice;
      add.append(option);
    }
    let shown = null;
    const items = () => [...list.querySelectorAll("input")].map((input) => input.value.trim());
    function send(texts) {
      shown = null; // whatever the answer is, the list follows it, also when what was typed is refused
      push(name, texts.join(separator));
    }
    add.addEventListener("change", () => {
      if (add.value) send([...items(), add.value]);
      add.value = "";
    });
    function moved(from, by) {
      const texts = items();
      const [item] = texts.splice(from, 1);
      texts.splice(from + by, 0, item);
      return texts;
    }
    function item(text, i, count) {
      const li = make("li", "attnlab-chain-item");
      const field = make("input", "attnlab-number-field");
      field.type = "text";
      field.spellcheck = false;
      field.value = text;
      field.dataset.name = `${name}-${i}`;
      field.setAttribute("aria-label", fill(words.item, i + 1));
      field.addEventListener("change", () => send(items()));
      givenUp(field, name);
      const buttons = [
        ["earlier", words.earlier, "↑", i > 0, () => moved(i, -1)],
        ["later", words.later, "↓", i < count - 1, () => moved(i, 1)],
        ["remove", words.remove, "×", true, () => items().filter((_, at) => at !== i)],
      ].map(([what, told, sign, possible, texts]) => {
        const element = button(`${name}-${what}-${i}`, sign, fill(told, i + 1), () => send(texts()));
        element.classList.add("attnlab-small");
        element.setAttribute("aria-disabled", String(!possible));
        return element;
      });
      li.append(field, ...buttons);
      return li;
    }
    holder.append(make("span", "attnlab-label", label), list, add);
    function rebuild(value) {
      shown = value;
      const texts = value ? value.split(separator) : [];
      const active = root.getRootNode().activeElement?.dataset?.name;
      list.replaceChildren(...texts.map((text, i) => item(text, i, texts.length)));
      keepKeys(list, "button, input");
      // The list was built anew; the keyboard goes on where it was, or at the list's end.
      if (active?.startsWith(`${name}-`)) (list.querySelector(`[data-name="${active}"]`) ?? add).focus();
    }
    painters.push(() => {
      const value = textOfField(name);
      if (value !== shown) rebuild(value);
      const taken = model.get("values")[name].split(separator);
      const refused = name in model.get("refused");
      list.querySelectorAll("input").forEach((field, i) => markRefused(field, refused && field.value !== taken[i]));
    });
    return holder;
  }

  /** Steps of a computation: radio buttons, so that the arrow keys work as everywhere. */
  function steps({ name, label, options }) {
    const holder = make("fieldset", "attnlab-steps");
    holder.append(make("legend", "attnlab-unseen", label));
    const inputs = options.map(([value, text]) => {
      const step = make("label", "attnlab-step");
      const input = make("input", "attnlab-unseen");
      input.type = "radio";
      input.name = `${name}-${unique}`;
      input.value = value;
      input.addEventListener("change", () => push(name, value));
      step.append(input, make("span", "attnlab-step-number", String(value)), " ", make("span", "", text));
      holder.append(step);
      return { input, step, value };
    });
    painters.push(() => {
      const current = valueOf(name);
      holder.disabled = isDisabled(name);
      for (const { input, step, value } of inputs) {
        input.checked = value === current;
        step.classList.toggle("attnlab-reached", value <= current);
        step.classList.toggle("attnlab-current", value === current);
      }
    });
    return holder;
  }

  /** Sent also when it looks switched off: what is seen may be an answer behind, and the kernel knows. */
  function command({ name, label }) {
    const act = () => {
      press(name);
      paintBusy();
    };
    const element = button(name, label, "", act, { always: true });
    painters.push(() => setAttribute(element, "aria-disabled", String(isDisabled(name))));
    return element;
  }

  /** Copies the address with the state in it; where there is none, the kernel answers with a line of code. */
  function link({ name, label }) {
    return button(name, label, "", () => {
      if (!hasAddress()) return push(name, true);
      copy(address(), model.get("words").linkCopied);
    });
  }

  function menu({ name, label, options }) {
    const holder = make("details", "attnlab-menu");
    const summary = make("summary", "attnlab-button", label);
    const list = make("div", "attnlab-menu-list");
    for (const [value, text] of options)
      list.append(
        button(`${name}-${value}`, text, "", () => {
          push(name, value);
          holder.open = false;
          summary.focus();
        }),
      );
    holder.append(summary, list);
    const close = () => (holder.open = false);
    holder.addEventListener("focusout", (event) => holder.contains(event.relatedTarget) || close());
    holder.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      close();
      summary.focus();
    });
    return holder;
  }

  const builders = { select, toggle, stepper, slider, text, chain, steps, command, link, menu };

  function build() {
    painters = [];
    const rows = model.get("controls").map((controls, n) => {
      // The first row is what a page is about; further rows are quieter.
      const row = make("div", n ? "attnlab-control-row attnlab-quiet-row" : "attnlab-control-row");
      let end = null;
      for (const control of controls) {
        if (control.end && !end) row.append((end = make("div", "attnlab-control-end")));
        (control.end ? end : row).append(builders[control.kind](control));
      }
      return row;
    });
    notice = make("div", "attnlab-said");
    notice.setAttribute("role", "status");
    root.replaceChildren(...rows, notice);
    keepKeys(root, "button, select, input, summary");
  }

  function update() {
    const drawn = JSON.stringify(model.get("controls"));
    if (drawn !== signature) {
      signature = drawn;
      build();
    }
    paint();
  }

  /** Seen by who waits until all that was pressed is done: what is done elsewhere meanwhile comes before it. */
  const paintBusy = () => root.toggleAttribute("data-busy", isBusy());

  function paint() {
    for (const painter of painters) painter();
    paintBusy();
    if (!said) setText(notice, standing());
  }

  root.addEventListener("keydown", (event) => event.stopPropagation(), { signal });
  signal.addEventListener("abort", () => clearTimeout(noticeTimer));
  return { update, paint, copy };
}
