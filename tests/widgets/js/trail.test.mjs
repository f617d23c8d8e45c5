import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { curve } = await load("trail");

const cell = (x, y, width = 40, height = 20) => ({ x, y, width, height });
/** The four points of a curve: start, two that it turns towards, end. */
const points = (path) => {
  assert.match(path, /^M-?[\d.]+ -?[\d.]+C(-?[\d.]+ -?[\d.]+ ?){3}$/);
  return path.slice(1).split(/[C ]/).reduce((pairs, n, i, all) => (i % 2 ? [...pairs, [Number(all[i - 1]), Number(n)]] : pairs), []);
};

describe("curve", () => {
  test("from left to right: edge to edge, level at both ends", () =>
    assert.equal(curve(cell(100, 50), cell(300, 90, 60, 30)), "M120 50C195 50 195 90 270 90"));

  test("in one row: over the cells between, from top to top", () => {
    const path = "M100 40C100 35 100 35 110 35L290 35C300 35 300 35 300 40";
    assert.equal(curve(cell(100, 50), cell(300, 50)), path);
    assert.equal(curve(cell(300, 50), cell(100, 50)), "M300 40C300 35 300 35 290 35L110 35C100 35 100 35 100 40");
    assert.equal(curve(cell(100, 50), cell(300, 59)), "M100 40C100 35 100 35 110 35L290 35C300 35 300 35 300 49");
  });

  test("downwards: edge to edge, upright at both ends", () =>
    assert.equal(curve(cell(100, 50), cell(130, 250, 60, 30)), "M100 60C100 147.5 130 147.5 130 235"));

  test("back is the same way the other way round", () => {
    for (const [a, b] of [[cell(100, 50), cell(300, 90, 60, 30)], [cell(100, 50), cell(130, 250, 60, 30)]])
      assert.deepEqual(points(curve(b, a)), points(curve(a, b)).reverse());
  });

  test("it never enters either cell", () => {
    for (const [x, y] of [[200, 11], [-200, 30], [150, 149], [0, 90], [-31, -95], [64, -64]]) {
      const [from, to] = [cell(500, 500), cell(500 + x, 500 + y, 50, 24)];
      const [a, b, c, d] = points(curve(from, to));
      for (let t = 0; t <= 1; t += 1 / 64) {
        const at = [0, 1].map((i) => (1 - t) ** 3 * a[i] + 3 * t * (1 - t) ** 2 * b[i] + 3 * t ** 2 * (1 - t) * c[i] + t ** 3 * d[i]);
        for (const box of [from, to]) {
          const inside = Math.min(box.width / 2 - Math.abs(at[0] - box.x), box.height / 2 - Math.abs(at[1] - box.y));
          assert.ok(inside < 0.1, `${x},${y}: ${at} is in a cell`);
        }
      }
    }
  });

  test("far below, however far aside: down", () =>
    assert.equal(curve(cell(0, 0), cell(500, 100)), "M0 10C0 50 500 50 500 90"));

  test("a step as far down as aside goes down", () =>
    assert.equal(curve(cell(0, 0), cell(100, 100)), "M0 10C0 50 100 50 100 90"));

  test("coordinates have one digit after the point, and no −0", () => {
    const path = curve(cell(0.123, -0.04, 1 / 3, 0.1), cell(100 / 3, 0.01, 1 / 3, 0.1));
    assert.match(path, /^M0\.3 0C16\.7 0 16\.7 0 33\.2 0$/);
  });

  test("a cell to itself is a point, not a fault", () =>
    assert.deepEqual([...new Set(points(curve(cell(7, 9), cell(7, 9))).map(String))], ["7,9"]));
});
