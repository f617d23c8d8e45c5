import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./load.mjs";

const { createRequests } = await load("requests");

/** The requests with a kernel that answers when it is told to, and a clock that is moved by hand. */
function start() {
  const sent = [];
  const late = [];
  const timers = new Map();
  let next = 1;
  let now = 0;
  const requests = createRequests((request) => sent.push(request), {
    setTimeout(call, delay) {
      timers.set(next, { call, at: now + delay });
      return next++;
    },
    clearTimeout: (timer) => timers.delete(timer),
    patience: 1000,
    onLate: (isLate) => late.push(isLate),
  });
  function pass(time) {
    now += time;
    for (const [timer, { call, at }] of [...timers])
      if (at <= now) {
        timers.delete(timer);
        call();
      }
  }
  return { requests, sent, late, timers, pass };
}

const drag = (value) => ({ key: "q 0", value });

test("the first edit is sent at once", () => {
  const { requests, sent } = start();
  assert.equal(requests.push(drag(1)), 1);
  assert.deepEqual(sent, [{ id: 1, edits: [drag(1)] }]);
  assert.equal(requests.busy, true);
});

test("ten moves while the kernel computes are two runs, and the last value arrives", () => {
  const { requests, sent } = start();
  for (let n = 1; n <= 10; n++) assert.equal(requests.push(drag(n)), n);
  assert.equal(sent.length, 1);
  requests.settle(1);
  assert.deepEqual(sent[1], { id: 10, edits: [drag(10)] });
  requests.settle(10);
  assert.equal(sent.length, 2);
  assert.equal(requests.busy, false);
});

test("at most one request is under way, whenever the answers come", () => {
  const { requests, sent } = start();
  let answered = 0;
  for (let n = 1; n <= 200; n++) {
    requests.push(drag(n));
    assert.ok(sent.length - answered <= 1);
    if (n % 7 === 0) requests.settle(sent[answered++].id);
  }
  while (answered < sent.length) requests.settle(sent[answered++].id);
  assert.equal(sent.at(-1).edits.at(-1).value, 200);
  assert.equal(requests.busy, false);
});

describe("what waits", () => {
  test("edits of different cells all arrive, in order", () => {
    const { requests, sent } = start();
    requests.push(drag(1));
    requests.push({ key: "q 0", value: 2 });
    requests.push({ key: "k 0", value: 3 });
    requests.push({ key: "q 0", value: 4 });
    requests.push({ key: "q 0", value: 5 });
    requests.settle(1);
    assert.deepEqual(sent[1].edits.map(({ value }) => value), [2, 3, 5]);
    assert.equal(sent[1].id, 5);
  });

  test("commands are never joined", () => {
    const { requests, sent } = start();
    requests.push(drag(1));
    for (let n = 0; n < 3; n++) requests.push({ command: "undo" });
    requests.push({ command: "redo" });
    requests.settle(1);
    assert.deepEqual(sent[1].edits.map(({ command }) => command), ["undo", "undo", "undo", "redo"]);
  });

  test("a command between two moves keeps both", () => {
    const { requests, sent } = start();
    requests.push(drag(1));
    requests.push(drag(2));
    requests.push({ command: "undo" });
    requests.push(drag(3));
    requests.settle(1);
    assert.equal(sent[1].edits.length, 3);
  });
});

describe("answers", () => {
  test("an older one than the request under way changes nothing", () => {
    const { requests, sent } = start();
    requests.push(drag(1));
    requests.push(drag(2));
    requests.settle(1);
    requests.push(drag(3));
    requests.settle(1);
    assert.equal(sent.length, 2);
    assert.equal(requests.busy, true);
    requests.settle(2);
    assert.equal(sent.length, 3);
  });

  test("nothing under way, nothing to settle", () => {
    const { requests, sent, late } = start();
    requests.settle(0);
    requests.settle(99);
    assert.equal(sent.length, 0);
    assert.deepEqual(late, []);
    assert.equal(requests.push(drag(1)), 1);
    assert.equal(sent.length, 1);
  });

  test("one that is answered during the sending does not stop the rest", () => {
    const sent = [];
    const requests = createRequests(
      (request) => {
        sent.push(request.id);
        requests.settle(request.id);
      },
      { setTimeout: () => 0, clearTimeout() {}, patience: 1, onLate() {} },
    );
    for (let n = 1; n <= 3; n++) requests.push(drag(n));
    assert.deepEqual(sent, [1, 2, 3]);
    assert.equal(requests.busy, false);
  });
});

describe("patience", () => {
  test("it ends once, and an answer restores it", () => {
    const { requests, late, pass, timers } = start();
    requests.push(drag(1));
    pass(999);
    assert.deepEqual(late, []);
    pass(1);
    assert.deepEqual(late, [true]);
    pass(5000);
    assert.deepEqual(late, [true]);
    requests.settle(1);
    assert.deepEqual(late, [true, false]);
    assert.equal(timers.size, 0);
  });

  test("an answer in time stops the clock", () => {
    const { requests, late, pass } = start();
    requests.push(drag(1));
    pass(500);
    requests.settle(1);
    pass(5000);
    assert.ok(!late.includes(true));
  });

  test("each request has its own time", () => {
    const { requests, late, pass } = start();
    requests.push(drag(1));
    requests.push(drag(2));
    pass(900);
    requests.settle(1);
    pass(900);
    assert.ok(!late.includes(true));
    pass(100);
    assert.ok(late.includes(true));
  });

  test("edits while it is late are kept and sent after the answer", () => {
    const { requests, sent, pass } = start();
    requests.push(drag(1));
    pass(2000);
    requests.push(drag(2));
    assert.equal(sent.length, 1);
    requests.settle(1);
    assert.deepEqual(sent[1].edits, [drag(2)]);
  });
});
