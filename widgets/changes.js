// What is drawn of a model, and when.

/**
 * Calls `act` soon after any of `traits` has changed, once for all that came in one message. Returns how to stop.
 *
 * The model's own "change", which tells of all at once, is not enough: it is left out when a handler of one
 * trait sets another meanwhile, as an answer does that lets the next request go. The numbers of that answer
 * would never be drawn if no other answer followed.
 */
export function whenChanged(model, traits, act) {
  let due = false;
  let stopped = false;
  const note = () => {
    if (due) return;
    due = true;
    queueMicrotask(() => {
      due = false;
      if (!stopped) act();
    });
  };
  for (const trait of traits) model.on(`change:${trait}`, note);
  return () => {
    stopped = true;
    for (const trait of traits) model.off(`change:${trait}`, note);
  };
}
