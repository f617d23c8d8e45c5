// What is the same for all cells of a stage while it is painted: its colours, its masks, its digits.

import { largestFinite } from "./numbers.js";

/** Is a stage computed at this step of a page that goes step by step? */
export const isReached = (spec, step) => !spec.step || !step || spec.step <= step;

/** The contexts of all stages that have numbers, by name. */
export function contextsOf({ stages, values, slopes, answer, step, decimals, words }) {
  const groups = {};
  for (const [name, spec] of Object.entries(stages)) if (spec.ramp && values[name]) (groups[spec.group] ??= []).push(values[name]);
  const largest = Object.fromEntries(Object.entries(groups).map(([group, arrays]) => [group, largestFinite(arrays)]));
  // Weights end at 1; what dropout has made larger stretches the ramp of all that stands beside it.
  const endOf = ({ ramp, group }) => (ramp === "unit" ? Math.max(1, largest[group] ?? 0) : largest[group]);
  const steepest = largestFinite(Object.values(slopes));
  const contexts = {};
  for (const [name, spec] of Object.entries(stages)) {
    if (!values[name]) continue;
    contexts[name] = {
      values: values[name],
      reached: isReached(spec, step),
      decimals: answer.arrays[name]?.dtype === "bool" || spec.whole ? 0 : decimals,
      words,
      ramp: spec.ramp,
      largest: endOf(spec),
      slopes: slopes[name],
      steepest,
      bars: spec.bars,
      tint: spec.tint && values[spec.tint],
      allowed: spec.masked && values[spec.masked],
      keep: spec.dropped && values[spec.dropped],
    };
  }
  return contexts;
}

/** A mask with fewer axes than its stage repeats along the leading ones. */
const isOff = (mask, flat) => Boolean(mask) && mask[flat % mask.length] === 0;
export const isMasked = ({ allowed }, flat) => isOff(allowed, flat);
export const isDropped = ({ keep }, flat) => isOff(keep, flat);

/** Would cells that were painted in context `a` look the same in `b`? */
export const paintsSame = (a, b) => Boolean(a) && Object.keys(b).every((key) => a[key] === b[key]);

/** The numbers of an array of the answer, whatever the alignment of its buffer; `before`, if they are those. */
export function numbersOf({ dtype, data }, before) {
  const bytes = new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
  const kind = { float64: Float64Array, float32: Float32Array, bool: Uint8Array }[dtype];
  if (!kind) throw new Error(`expected float64, float32 or bool, got ${dtype}`);
  if (before?.constructor === kind && sameBytes(bytes, new Uint8Array(before.buffer))) return before;
  return new kind(bytes.slice().buffer);
}

function sameBytes(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  return i === a.length && i === b.length;
}
