import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { compare } = await load("table_sort");

const NUMBERS = [-Infinity, -3, -0, 0, 5e-324, 0.1, 2, 11, Infinity];

describe("compare", () => {
  test("numbers by size, not as text", () => {
    assert.deepEqual([11, -3, 2, 0.1].sort(compare), [-3, 0.1, 2, 11]);
    for (let i = 0; i < NUMBERS.length; i++)
      for (let j = i + 1; j < NUMBERS.length; j++) {
        if (NUMBERS[i] === NUMBERS[j]) continue; // −0 and 0
        assert.ok(compare(NUMBERS[i], NUMBERS[j]) < 0, `${NUMBERS[i]} < ${NUMBERS[j]}`);
        assert.ok(compare(NUMBERS[j], NUMBERS[i]) > 0, `${NUMBERS[j]} > ${NUMBERS[i]}`);
      }
  });

  test("equal numbers leave the order to what comes next", () => {
    // As `sortable` uses it: 0 and NaN give way to the place of the row.
    for (const x of [...NUMBERS, NaN]) assert.equal(compare(x, x) || "place", "place");
    assert.equal(compare(-0, 0) || "place", "place");
  });

  test("NaN is below every number", () => {
    for (const x of NUMBERS) {
      assert.ok(compare(NaN, x) < 0);
      assert.ok(compare(x, NaN) > 0);
    }
    const down = [NaN, 1, -Infinity, NaN, 3].sort((a, b) => compare(a, b) * -1);
    assert.deepEqual(down, [3, 1, -Infinity, NaN, NaN]);
  });

  test("the order is the same from wherever it starts", () => {
    const [a, ...rest] = [2, NaN, -1, 7, Infinity];
    const sorted = [-1, 2, 7, Infinity];
    for (let turn = 0; turn < 5; turn++) {
      const mixed = [...rest.slice(turn), a, ...rest.slice(0, turn)];
      assert.deepEqual(mixed.sort(compare), [NaN, ...sorted]);
    }
  });
});
