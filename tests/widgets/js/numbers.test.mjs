import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { MINUS, exactNumber, formatNumber, largestFinite, lookOf, plainNumber, stepped } = await load("numbers");

describe("formatNumber", () => {
  for (const [x, decimals, text] of [
    [0, 4, "0"],
    [-0, 4, "0"],
    [1, 4, "1.0000"],
    [1, 2, "1.00"],
    [-1.5, 3, "−1.500"],
    [0.33024, 4, "0.3302"],
    [100, 4, "100.0000"],
    [0.0001, 4, "0.0001"],
    [0.00005, 4, "0.0001"],
  [5e-7, 6, "5.0e−7"], // toFixed alone gives 0.000000
    [0.00006, 4, "0.0001"],
    [0.00004, 4, "4.0e−5"],
    [-0.00004, 4, "−4.0e−5"],
    [1e-8, 4, "1.0e−8"],
    [1.23e-7, 8, "0.00000012"],
    [5e-324, 4, "4.9e−324"],
    [999999.9, 2, "999999.90"],
    [1e6, 2, "1.0e6"],
    [-2.5e7, 2, "−2.5e7"],
    [1.7976931348623157e308, 4, "1.8e308"],
    [NaN, 4, "NaN"],
    [Infinity, 4, "∞"],
    [-Infinity, 4, "−∞"],
  ])
    test(`${x} to ${decimals}`, () => assert.equal(formatNumber(x, decimals), text));

  test("what isn't zero never prints as zero, at any number of decimals", () => {
    for (let decimals = 2; decimals <= 8; decimals++)
      for (const base of [0.5, 0.49, 0.51, 1, 5, 0.05, 1e-30])
        for (const wobble of [1 - 2 ** -52, 1, 1 + 2 ** -52])
          for (const sign of [1, -1]) {
            const text = formatNumber(sign * base * wobble * 10 ** -decimals, decimals);
            assert.match(text, /^−?[\d.]*[1-9]/, `${base} · 10^−${decimals}: ${text}`);
            assert.equal(text.startsWith(MINUS), sign < 0);
          }
  });

  test("no ASCII minus, no plus", () => {
    for (const x of [-1, -1e-9, 1e-9, -1e9, 1e9, -Infinity]) assert.doesNotMatch(formatNumber(x, 4), /[-+]/);
  });
});

describe("exactNumber and plainNumber", () => {
  for (const [x, exact, plain] of [
    [0.1, "0.1", "0.1"],
    [1, "1", "1"],
    [0, "0", "0"],
    [-0, "−0", "-0.0"],
    [-0.30000000000000004, "−0.30000000000000004", "-0.30000000000000004"],
    [1e-7, "1e−7", "1e-7"],
    [5e-324, "5e−324", "5e-324"],
    [1e21, "1e+21", "1e+21"],
    [NaN, "NaN", "nan"],
    [Infinity, "∞", "inf"],
    [-Infinity, "−∞", "-inf"],
  ])
    test(String(exact), () => {
      assert.equal(exactNumber(x), exact);
      assert.equal(plainNumber(x), plain);
    });

  test("plain text reads back as the same number", () => {
    let seed = 1;
    for (let n = 0; n < 1000; n++) {
      seed = (seed * 48271) % 2147483647;
      const x = ((seed / 2147483647) * 2 - 1) * 10 ** ((seed % 40) - 20);
      assert.ok(Object.is(Number(plainNumber(x)), x));
    }
    assert.ok(Object.is(Number(plainNumber(-0)), -0));
  });
});

describe("lookOf", () => {
  const cell = (change) => ({ value: 0.5, reached: true, masked: false, dropped: false, ...change });
  for (const [change, look] of [
    [{}, "number"],
    [{ value: 0 }, "zero"],
    [{ value: -0 }, "zero"],
    [{ value: 5e-324 }, "number"],
    [{ value: 0, masked: true }, "masked"],
    [{ value: -Infinity, masked: true }, "masked"],
    [{ value: NaN, masked: true }, "nan"], // a row with no key: no distribution, not a hidden zero
    [{ value: 0, dropped: true }, "dropped"],
    [{ value: 0, masked: true, dropped: true }, "masked"],
    [{ value: NaN, dropped: true }, "nan"],
    [{ value: Infinity }, "infinite"],
    [{ value: -Infinity }, "infinite"],
    [{ value: NaN }, "nan"],
    [{ reached: false }, "unreached"],
    [{ reached: false, value: NaN, masked: true }, "unreached"],
  ])
    test(`${JSON.stringify(change)} ${String(change.value)} is ${look}`, () => assert.equal(lookOf(cell(change)), look));
});

test("largestFinite passes over NaN and infinities", () => {
  assert.equal(largestFinite([new Float64Array([1, -3, NaN]), new Float64Array([Infinity, 2, -Infinity])]), 3);
  assert.equal(largestFinite([new Float64Array([NaN, -Infinity])]), 0);
  assert.equal(largestFinite([]), 0);
});

describe("stepped", () => {
  for (const [start, steps, step, limit, end] of [
    [0.1, 2, 0.1, 100, 0.3],
    [0.3, -3, 0.1, 100, 0],
    [-0.1, 1, 0.1, 100, 0],
    [0, -1, 0.1, 100, -0.1],
    [7.77, 1, 0.1, 100, 7.87],
    [7.77, -20, 0.1, 100, 5.77],
    [1, 1, 10, 100, 11],
    [0.7, 1, 0.01, 100, 0.71],
    [99.95, 1, 0.1, 100, 100],
    [-99.95, -1, 0.1, 100, -100],
    [100, 50, 1, 100, 100],
    [1e-8, 1, 0.1, 100, 0.10000001],
    [1 / 3, 0, 0.1, 100, 1 / 3],
    [5e-324, 1, 0.1, 100, 0.1],
    [0, 0, 0.1, 1, 0],
    [1, 1, 1, 1.5, 1.5],
  ])
    test(`${start} + ${steps} · ${step}`, () => assert.ok(Object.is(stepped(start, steps, step, limit), end)));

  test("no lower than it may be", () => {
    assert.ok(Object.is(stepped(0.1, -5, 0.1, 1, 0), 0));
    assert.equal(stepped(0.1, -5, 0.1, 1), -0.4);
    assert.equal(stepped(-3, 1, 0.1, 1, 0), 0);
  });

  test("there and back is where it began", () => {
    for (const start of [0, 0.1, 7.77, -12.345, 1e-8])
      for (let steps = -30; steps <= 30; steps++)
        assert.equal(stepped(stepped(start, steps, 0.1, 100), -steps, 0.1, 100), start);
  });
});
