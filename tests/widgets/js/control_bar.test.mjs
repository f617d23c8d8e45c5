import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { addressWith } = await load("control_bar");

const OWN = ["preset", "q", "causal"];
const PAGE = "http://lab.test/base/attention";

describe("addressWith", () => {
  for (const [name, href, own, state, expected] of [
    ["the state is added", PAGE, OWN, "causal=0", `${PAGE}?causal=0`],
    ["the default leaves a clean address", `${PAGE}?causal=0&q=1`, OWN, "", PAGE],
    ["its own old state goes", `${PAGE}?causal=1&q=1,2`, OWN, "q=3;4", `${PAGE}?q=3;4`],
    ["what others keep there stays", `${PAGE}?embed=1&causal=1&b.q=5`, OWN, "causal=0", `${PAGE}?embed=1&b.q=5&causal=0`],
    ["only whole names are its own", `${PAGE}?qq=1&Q=2&pre=3`, OWN, "", `${PAGE}?qq=1&Q=2&pre=3`],
    ["a name of its own", `${PAGE}?b.q=5&q=6`, ["b.q"], "b.q=7", `${PAGE}?q=6&b.q=7`],
    ["the hash stays", `${PAGE}?q=1#mask`, OWN, "q=2", `${PAGE}?q=2#mask`],
    ["repeated parameters of others stay", `${PAGE}?a=1&a=2`, OWN, "", `${PAGE}?a=1&a=2`],
    ["repeated parameters of its own go", `${PAGE}?q=1&q=2`, OWN, "q=3", `${PAGE}?q=3`],
    ["an empty value", `${PAGE}?embed`, OWN, "", `${PAGE}?embed`],
    ["what others wrote stays as written", `${PAGE}?b.q=1,0;0,1&q=3`, OWN, "q=4", `${PAGE}?b.q=1,0;0,1&q=4`],
  ])
    test(name, () => assert.equal(addressWith(href, own, state), expected));

  test("what others keep is the same after reading", () => {
    const kept = new URLSearchParams([["a&b", "c=d&e"], ["ü", "a b+c"], ["token", "x/y?z#w"], ["script", "<img src=x>"]]);
    const found = new URL(addressWith(`${PAGE}?${kept}&q=1`, OWN, "q=2")).searchParams;
    assert.equal(found.get("q"), "2");
    found.delete("q");
    assert.deepEqual([...found], [...kept]);
  });

  test("twice is once", () => {
    const state = "preset=two%20keys&q=1,-0.0;5e-324,2&causal=0";
    const once = addressWith(`${PAGE}?embed=1`, OWN, state);
    assert.equal(addressWith(once, OWN, state), once);
    assert.equal(new URL(once).searchParams.get("preset"), "two keys");
    assert.equal(new URL(once).searchParams.get("q"), "1,-0.0;5e-324,2");
  });

  test("another explorable on the page, in any order", () => {
    const one = addressWith(addressWith(PAGE, ["a.q"], "a.q=1"), ["b.q"], "b.q=2");
    const other = addressWith(addressWith(one, ["a.q"], "a.q=3"), ["b.q"], "b.q=2");
    assert.deepEqual(Object.fromEntries(new URL(other).searchParams), { "a.q": "3", "b.q": "2" });
  });

  test("nowhere else to go", () => {
    const { origin, pathname } = new URL(addressWith(PAGE, OWN, "q=//evil.test/&x=javascript:1"));
    assert.equal(origin + pathname, PAGE);
  });
});
