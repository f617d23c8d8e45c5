import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { contextsOf, isDropped, isMasked, numbersOf, paintsSame } = await load("stage_context");

const SPECIAL = [0, -0, 0.1, -1 / 3, Infinity, -Infinity, NaN, 5e-324, 1.7976931348623157e308];
const TYPES = { float64: Float64Array, float32: Float32Array, bool: Uint8Array };

/** The bytes of `array` in the middle of a larger buffer, at `offset`. */
function inside(array, offset) {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const holder = new Uint8Array(offset + bytes.length + 5).fill(0xab);
  holder.set(bytes, offset);
  return holder;
}

describe("numbersOf", () => {
  for (const [dtype, Type] of Object.entries(TYPES))
    for (const offset of [0, 1, 3, 4, 7, 8])
      test(`${dtype} at byte ${offset}`, () => {
        const numbers = Type.from(dtype === "bool" ? [1, 0, 0, 1, 1] : SPECIAL);
        const holder = inside(numbers, offset);
        for (const data of [
          new DataView(holder.buffer, offset, numbers.byteLength),
          holder.subarray(offset, offset + numbers.byteLength),
          Buffer.from(holder.buffer, offset, numbers.byteLength),
        ]) {
          const read = numbersOf({ dtype, data });
          assert.equal(read.constructor, Type);
          assert.equal(read.length, numbers.length);
          read.forEach((x, n) => assert.ok(Object.is(x, numbers[n])));
        }
      });

  test("a bare buffer", () => {
    assert.deepEqual([...numbersOf({ dtype: "float64", data: Float64Array.of(1, 2).buffer })], [1, 2]);
  });

  test("nothing, and a single number", () => {
    assert.equal(numbersOf({ dtype: "float32", data: new DataView(new ArrayBuffer(0)) }).length, 0);
    assert.deepEqual([...numbersOf({ dtype: "float64", data: new DataView(Float64Array.of(7).buffer) })], [7]);
  });

  test("the numbers are a copy", () => {
    const source = Float64Array.of(1, 2);
    const read = numbersOf({ dtype: "float64", data: new DataView(source.buffer) });
    source[0] = 9;
    assert.equal(read[0], 1);
  });

  test("an unknown dtype and a torn message are refused", () => {
    assert.throws(() => numbersOf({ dtype: "int64", data: new ArrayBuffer(8) }), /int64/);
    assert.throws(() => numbersOf({ dtype: "float64", data: new ArrayBuffer(7) }), RangeError);
  });
});

describe("numbers that are as before", () => {
  const sent = (...numbers) => ({ dtype: "float64", data: new DataView(Float64Array.from(numbers).buffer) });

  test("are the same array, so that nothing is painted again", () => {
    const before = numbersOf(sent(1, NaN, -Infinity));
    assert.equal(numbersOf(sent(1, NaN, -Infinity), before), before);
  });

  for (const [name, now] of Object.entries({ another: [1, 3], "a zero of the other sign": [1, -0], "one more": [1, 0, 0], none: [] }))
    test(`${name} is read anew`, () => {
      const before = numbersOf(sent(1, 0));
      const read = numbersOf(sent(...now), before);
      assert.notEqual(read, before);
      assert.deepEqual([...read], now);
    });

  test("the same bytes of another dtype are other numbers", () => {
    const before = numbersOf(sent(0));
    const read = numbersOf({ dtype: "float32", data: sent(0).data }, before);
    assert.equal(read.constructor, Float32Array);
    assert.equal(read.length, 2);
  });
});

describe("contexts", () => {
  const array = (dtype) => ({ dtype });
  const given = (change) => ({
    stages: {
      scores: { ramp: "signed", group: "scores", step: 1 },
      weights: { ramp: "unit", group: "weights", step: 4, masked: "allowed" },
      gone: { ramp: "signed", group: "scores" },
    },
    values: { scores: Float64Array.of(-3, 2), weights: Float64Array.of(0.5, 0), allowed: Uint8Array.of(1, 0) },
    slopes: {},
    answer: { arrays: { scores: array("float64"), weights: array("float64"), allowed: array("bool") } },
    step: 0,
    decimals: 4,
    words: {},
    ...change,
  });

  test("hold what a stage needs, and only stages with numbers have one", () => {
    const contexts = contextsOf(given());
    assert.deepEqual(Object.keys(contexts), ["scores", "weights"]);
    assert.equal(contexts.scores.largest, 3);
    assert.equal(contexts.weights.largest, 1); // weights end at 1
    assert.deepEqual([isMasked(contexts.weights, 0), isMasked(contexts.weights, 1)], [false, true]);
    assert.deepEqual([isMasked(contexts.scores, 1), isDropped(contexts.weights, 1)], [false, false]);
  });

  test("a mask repeats along leading axes", () => {
    const contexts = contextsOf(given());
    assert.equal(isMasked(contexts.weights, 3), true);
    assert.equal(isMasked(contexts.weights, 2), false);
  });

  const first = given();
  const changes = {
    digits: { decimals: 6 },
    step: { step: 2 },
    slopes: { slopes: { weights: Float64Array.of(1, 2) } },
    numbers: { values: { ...first.values, weights: Float64Array.of(1, 0) } },
    mask: { values: { ...first.values, allowed: Uint8Array.of(1, 1) } },
  };
  for (const [name, change] of Object.entries(changes))
    test(`other ${name} are painted, the same are not`, () => {
      const before = contextsOf(first).weights;
      assert.equal(paintsSame(before, contextsOf(first).weights), true);
      assert.equal(paintsSame(before, contextsOf({ ...first, ...change }).weights), false);
      assert.equal(paintsSame(undefined, before), false);
    });
});
