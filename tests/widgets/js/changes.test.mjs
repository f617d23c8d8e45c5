import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { whenChanged } = await load("changes");

/** A model as those of ipywidgets: while it tells of changes, a `set` in a handler makes it forget "change". */
function createModel() {
  const handlers = new Map();
  let changing = false;
  let pending = false;
  const trigger = (type) => [...(handlers.get(type) ?? [])].forEach((handler) => handler());
  return {
    on: (type, handler) => handlers.set(type, [...(handlers.get(type) ?? []), handler]),
    off: (type, handler) => handlers.set(type, handlers.get(type).filter((other) => other !== handler)),
    set(state) {
      const nested = changing;
      changing = true;
      try {
        pending = true;
        for (const trait of Object.keys(state)) trigger(`change:${trait}`);
        if (nested) return;
        while (pending) {
          pending = false;
          trigger("change");
        }
      } finally {
        pending = false;
        changing = false;
      }
    },
  };
}

/** A model, and how often it was drawn. */
function start(traits) {
  const model = createModel();
  const drawn = [];
  const stop = whenChanged(model, traits, () => drawn.push("drawn"));
  return { model, drawn, stop };
}

describe("whenChanged", () => {
  test("once for all that came in one message, when the model has told everything", async () => {
    const { model, drawn } = start(["answer", "step"]);
    model.set({ answer: 1, step: 2 });
    assert.deepEqual(drawn, []);
    await null;
    assert.deepEqual(drawn, ["drawn"]);
    model.set({ step: 3 });
    await null;
    assert.deepEqual(drawn, ["drawn", "drawn"]);
  });

  test("what isn't drawn changes nothing", async () => {
    const { model, drawn } = start(["answer"]);
    model.set({ request: 1 });
    await null;
    assert.deepEqual(drawn, []);
  });

  test("also when an answer lets the next request go meanwhile", async () => {
    const { model, drawn } = start(["answer"]);
    let told = 0;
    model.on("change", () => (told += 1));
    model.on("change:answer", () => model.set({ request: 1 }));
    model.set({ answer: 1 });
    await null;
    assert.equal(told, 0); // the model itself has forgotten it
    assert.deepEqual(drawn, ["drawn"]);
  });

  test("a view that is gone isn't drawn any more", async () => {
    const { model, drawn, stop } = start(["answer"]);
    model.set({ answer: 1 });
    stop();
    await null;
    model.set({ answer: 2 });
    await null;
    assert.deepEqual(drawn, []);
  });
});
