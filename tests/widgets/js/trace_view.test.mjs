import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { numbersOf } = await load("trace_view");

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
