import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { keyStep, matrixText, startsTyping, stepFor } = await load("editing");

const key = (name, held = {}) => ({ key: name, type: "keydown", shiftKey: false, altKey: false, ctrlKey: false, metaKey: false, ...held });
const alt = { altKey: true };

describe("keyStep", () => {
  for (const [event, step] of [
    [key("ArrowUp", alt), 0.1],
    [key("ArrowRight", alt), 0.1],
    [key("ArrowDown", alt), -0.1],
    [key("ArrowLeft", alt), -0.1],
    [key("ArrowUp", { altKey: true, shiftKey: true }), 1],
    [key("ArrowDown", { altKey: true, shiftKey: true }), -1],
    [key("PageUp"), 1],
    [key("PageDown"), -1],
    [key("ArrowUp"), 0],
    [key("ArrowUp", { shiftKey: true }), 0],
    [key("a", alt), 0],
    [key("5"), 0],
  ])
    test(`${event.altKey ? "Alt+" : ""}${event.shiftKey ? "Shift+" : ""}${event.key}`, () =>
      assert.equal(keyStep(event, 0.1), step));
});

test("a drag is fine with Alt and coarse with Shift", () => {
  const move = (held) => ({ type: "pointermove", shiftKey: false, altKey: false, ...held });
  assert.equal(stepFor(move({}), 0.1), 0.1);
  assert.equal(stepFor(move({ shiftKey: true }), 0.1), 1);
  assert.equal(stepFor(move({ altKey: true }), 0.1), 0.01);
  assert.equal(stepFor(move({ shiftKey: true, altKey: true }), 0.1), 1);
});

describe("startsTyping", () => {
  for (const name of ["0", "5", "9", ".", "-", "+", "−"])
    test(`${name} does`, () => assert.equal(startsTyping(key(name)), true));
  for (const name of ["a", "e", " ", ",", "Enter", "F1", "F2", "Tab", "ArrowUp", "Home", "Dead", "Unidentified", "55", "١"])
    test(`${name} does not`, () => assert.equal(startsTyping(key(name)), false));
  for (const held of ["ctrlKey", "metaKey", "altKey"])
    test(`${held} and a digit do not`, () => assert.equal(startsTyping(key("5", { [held]: true })), false));
  test("Shift and a digit do", () => assert.equal(startsTyping(key("+", { shiftKey: true })), true));
});

describe("matrixText", () => {
  const values = new Float64Array([1, -0.5, 0, 1e-7, -0, NaN]);
  test("tabs, as spreadsheets take it", () => assert.equal(matrixText(values, 3), "1\t-0.5\t0\n1e-7\t-0.0\tnan"));
  test("spaces", () => assert.equal(matrixText(values, 2, " "), "1 -0.5\n0 1e-7\n-0.0 nan"));
  test("one row, one column, one number", () => {
    assert.equal(matrixText(values.subarray(0, 2), 2), "1\t-0.5");
    assert.equal(matrixText(values.subarray(0, 2), 1), "1\n-0.5");
    assert.equal(matrixText(new Float64Array([7]), 1), "7");
  });
  test("it reads back as the same numbers", () => {
    const numbers = Float64Array.from({ length: 256 }, (_, n) => Math.sin(n) * 100);
    const read = matrixText(numbers, 16, " ").split("\n").map((line) => line.split(" ").map(Number));
    assert.deepEqual(read.flat(), [...numbers]);
    assert.equal(read.length, 16);
  });
});
