// One request in flight, the newest state behind it. However fast a reader drags, the kernel has at
// most one computation to do and one waiting, and the last value is always sent.

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
    get waiting() {
      return waiting.length;
    },
  };
}
