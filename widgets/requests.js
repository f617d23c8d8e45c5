// One request in flight, the newest state behind it. However fast a reader drags, the kernel has at
// most one computation to do and one waiting, and the last value is always sent.

const PATIENCE_MS = 10_000;
const ECHO_MS = 32;

/**
 * The requests of one widget, which all its displays share. They go out through the trait `request`, under
 * a nonce of this page: several pages may show one widget. `unanswered` holds what was asked and not yet
 * dealt with, under the key it was given; `show` is called when it should be seen before its answer.
 */
export function modelRequests(model, show, onLate = () => {}) {
  const nonce = Math.random().toString(36).slice(2);
  const unanswered = new Map();
  let echo = null;
  let settled = 0;
  const requests = createRequests(
    (request) => {
      model.set("request", { ...request, nonce });
      model.save_changes();
    },
    { setTimeout: (...args) => setTimeout(...args), clearTimeout: (timer) => clearTimeout(timer), patience: PATIENCE_MS, onLate },
  );
  return {
    unanswered,
    /** Asks for an edit. Returns its number. */
    push(edit, shownAs) {
      const id = requests.push(edit);
      if (shownAs !== undefined) unanswered.set(shownAs, { ...edit, id });
      // What was grabbed follows the hand also while the kernel computes. Mostly it has answered by then, and
      // one frame shows everything; two frames, one after the other, would only be later.
      echo ??= setTimeout(() => {
        echo = null;
        show();
      }, ECHO_MS);
      return id;
    },
    /** The kernel has dealt with request `id` of the page `by`. */
    answered(id, by) {
      clearTimeout(echo);
      echo = null;
      if (by !== nonce) return;
      for (const [key, edit] of unanswered) if (edit.id <= id) unanswered.delete(key);
      settled = Math.max(settled, id);
      requests.settle(id);
    },
    /** Has the kernel dealt with request `id` of this page? */
    isAnswered: (id) => id <= settled,
    get busy() {
      return requests.busy;
    },
  };
}

/**
 * @param {(request: {id: number, edits: object[]}) => void} send
 * @param {{setTimeout: Function, clearTimeout: Function, patience: number, onLate: (late: boolean) => void}} options
 */
export function createRequests(send, { setTimeout, clearTimeout, patience, onLate }) {
  let newest = 0;
  let inFlight = 0;
  let waiting = [];
  let timer = null;

  function flush() {
    if (inFlight || !waiting.length) return;
    inFlight = newest;
    const edits = waiting;
    waiting = [];
    timer = setTimeout(() => onLate(true), patience);
    send({ id: inFlight, edits });
  }

  return {
    /** Adds an edit; one with the same key that is still waiting is replaced. Returns its number. */
    push(edit) {
      newest += 1;
      const last = waiting.at(-1);
      if (last && edit.key !== undefined && last.key === edit.key) waiting.pop();
      waiting.push(edit);
      // The number of a request is that of its newest edit, so an answer settles all before it.
      flush();
      return newest;
    },
    /** The kernel has answered request `id`. */
    settle(id) {
      if (!inFlight || id < inFlight) return;
      clearTimeout(timer);
      onLate(false);
      inFlight = 0;
      flush();
    },
    get busy() {
      return inFlight !== 0;
    },
  };
}
