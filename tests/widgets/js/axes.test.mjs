import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { facetsOf, isLinked, placeOf, ravel, unravel, wrapped } = await load("axes");

const SHAPES = [[], [1], [7], [2, 3], [3, 2], [2, 3, 5, 7], [1, 1, 4]];
const size = (shape) => shape.reduce((product, n) => product * n, 1);

test("ravel and unravel are inverse, and row-major", () => {
  for (const shape of SHAPES)
    for (let flat = 0; flat < size(shape); flat++) {
      const index = unravel(flat, shape);
      assert.equal(index.length, shape.length);
      index.forEach((i, axis) => assert.ok(i >= 0 && i < shape[axis]));
      assert.equal(ravel(index, shape), flat);
    }
  assert.deepEqual(unravel(5, [2, 3]), [1, 2]);
  assert.deepEqual(unravel(1, [2, 3]), [0, 1]);
  assert.equal(ravel([1, 0, 2], [2, 3, 4]), 14);
});

test("a place has the names of its axes", () => {
  assert.deepEqual(placeOf(5, ["query", "key"], [2, 3]), { query: 1, key: 2 });
  assert.deepEqual(placeOf(0, [], []), {});
});

describe("isLinked", () => {
  const queries = 2, keys = 3, width = 4;
  const linked = (axes, shape, place) =>
    Array.from({ length: size(shape) }, (_, flat) => flat).filter((flat) => isLinked(flat, axes, shape, place));

  test("a score lights up its row of q and of k, itself in weights, and its row of the output", () => {
    const place = { query: 1, key: 2 };
    assert.deepEqual(linked(["query", "d_k"], [queries, width], place), [4, 5, 6, 7]);
    assert.deepEqual(linked(["key", "d_k"], [keys, width], place), [8, 9, 10, 11]);
    assert.deepEqual(linked(["query", "key"], [queries, keys], place), [5]);
    assert.deepEqual(linked(["query", "d_v"], [queries, 2], place), [2, 3]);
    assert.deepEqual(linked(["key"], [keys], place), [2]);
  });

  test("an element of q lights up its column of k and its row of scores", () => {
    const place = { query: 0, d_k: 3 };
    assert.deepEqual(linked(["key", "d_k"], [keys, width], place), [3, 7, 11]);
    assert.deepEqual(linked(["query", "key"], [queries, keys], place), [0, 1, 2]);
  });

  test("heads are kept apart", () => {
    assert.deepEqual(linked(["head", "query", "key"], [2, 2, 2], { head: 1, query: 0, key: 1 }), [5]);
    assert.deepEqual(linked(["head", "key", "d_v"], [2, 2, 1], { head: 1, query: 0, key: 1 }), [3]);
  });

  test("nothing in common, nothing linked", () => {
    assert.deepEqual(linked(["key", "d_v"], [keys, 2], { query: 0, d_k: 1 }), []);
    assert.equal(isLinked(0, [], [], { query: 0 }), false);
    assert.equal(isLinked(0, ["query"], [2], {}), false);
  });

  test("place 0 is a place", () => assert.equal(isLinked(0, ["query"], [2], { query: 0 }), true));

  test("axes of equal size are told apart by name", () => {
    assert.deepEqual(linked(["query", "key"], [3, 3], { key: 1 }), [1, 4, 7]);
    assert.deepEqual(linked(["query", "key"], [3, 3], { query: 1 }), [3, 4, 5]);
  });

  test("a stage that shows one position of an axis is linked with that one only", () => {
    const at = (place, fixed) => [0, 1, 2].filter((flat) => isLinked(flat, ["key"], [keys], place, fixed));
    assert.deepEqual(at({ query: 1, key: 2 }, { query: 1 }), [2]);
    assert.deepEqual(at({ query: 0, key: 2 }, { query: 1 }), []);
    assert.deepEqual(at({ key: 2 }, { query: 1 }), [2]); // nothing is said of the query
    assert.deepEqual(at({ query: 1 }, { query: 1 }), [0, 1, 2]); // the whole row is of this query
    assert.deepEqual(at({ query: 0 }, { query: 0 }), [0, 1, 2]); // 0 is a position
    assert.deepEqual(at({ d_k: 1 }, { query: 1 }), []);
    assert.deepEqual(at({ query: 1, head: 2, key: 0 }, { query: 1, head: 3 }), []);
    assert.deepEqual(at({ query: 1, head: 3, key: 0 }, { query: 1, head: 3 }), [0]);
  });

  test("numbered axes belong together only by accident", () => {
    assert.deepEqual(linked(["axis0", "key"], [2, 3], { axis0: 1, key: 0 }), [0, 3]);
    assert.deepEqual(linked(["axis0"], [3], { axis0: 1 }), []);
  });

  test("a batch of one links nothing", () => {
    const place = { batch: 0, query: 1 };
    assert.deepEqual(linked(["batch", "key", "d_v"], [1, 3, 2], place), []);
    assert.deepEqual(linked(["batch", "query", "d_v"], [1, 2, 3], place), [3, 4, 5]);
    assert.deepEqual(linked(["batch", "key"], [1, 3], place), [0, 1, 2]); // no leading axis: a row of that batch
  });
});

describe("wrapped", () => {
  test("a long row in lines, the last one may be shorter", () => {
    assert.deepEqual(wrapped([24], 8), { count: 1, rows: 3, columns: 8 });
    assert.deepEqual(wrapped([25], 8), { count: 1, rows: 4, columns: 8 });
    assert.deepEqual(wrapped([7], 3), { count: 1, rows: 3, columns: 3 });
  });

  test("a row that fits is one line of its own length", () => {
    assert.deepEqual(wrapped([5], 8), { count: 1, rows: 1, columns: 5 });
    assert.deepEqual(wrapped([8], 8), { count: 1, rows: 1, columns: 8 });
    assert.deepEqual(wrapped([1], 1), { count: 1, rows: 1, columns: 1 });
  });

  test("every element has its place, and no line is empty", () => {
    for (let length = 1; length < 30; length++)
      for (let width = 1; width < 12; width++) {
        const { rows, columns } = wrapped([length], width);
        assert.ok(rows * columns >= length && (rows - 1) * columns < length && columns <= width, `${length} by ${width}`);
      }
  });
});

test("facets: all axes but the last two", () => {
  assert.deepEqual(facetsOf([]), { count: 1, rows: 1, columns: 1 });
  assert.deepEqual(facetsOf([5]), { count: 1, rows: 1, columns: 5 });
  assert.deepEqual(facetsOf([4, 5]), { count: 1, rows: 4, columns: 5 });
  assert.deepEqual(facetsOf([3, 4, 5]), { count: 3, rows: 4, columns: 5 });
  assert.deepEqual(facetsOf([2, 3, 4, 5]), { count: 6, rows: 4, columns: 5 });
});
