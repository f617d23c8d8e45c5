// How a number is written and which of the looks it has. Pure functions, no words.

export const MINUS = "\u2212";

const withMinus = (text) => text.replace(/-/g, MINUS);

/**
 * `x` with `decimals` digits after the point. What isn't zero never prints as zero: it turns to
 * the form 1.2e−7. Exact zero is the single digit 0.
 * @param {number} x
 * @param {number} decimals
 */
export function formatNumber(x, decimals) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : `${MINUS}∞`;
  if (x === 0) return "0";
  const fixed = x.toFixed(decimals);
  if (Number(fixed) === 0 || Math.abs(x) >= 1e6) return withMinus(x.toExponential(1).replace("e+", "e"));
  return withMinus(fixed);
}

/** `x` at full precision: the shortest digits that read back as the same number. */
export function exactNumber(x) {
  if (!Number.isFinite(x)) return formatNumber(x, 0);
  return Object.is(x, -0) ? `${MINUS}0` : withMinus(String(x));
}

/** As `exactNumber`, with an ASCII minus, to be pasted elsewhere. */
export function plainNumber(x) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  return Object.is(x, -0) ? "-0.0" : String(x);
}

/**
 * The look of a cell. "masked" and "dropped" come from the kernel as data, the rest from the value.
 * @param {{value: number, reached: boolean, masked: boolean, dropped: boolean}} cell
 */
export function lookOf({ value, reached, masked, dropped }) {
  if (!reached) return "unreached";
  if (Number.isNaN(value)) return "nan";
  if (masked) return "masked";
  if (dropped) return "dropped";
  if (!Number.isFinite(value)) return "infinite";
  return value === 0 ? "zero" : "number";
}

/** Largest |x| among the finite values, 0 for none: a NaN or an infinity never moves the colours. */
export function largestFinite(arrays) {
  let largest = 0;
  for (const array of arrays)
    for (const x of array) if (Number.isFinite(x) && Math.abs(x) > largest) largest = Math.abs(x);
  return largest;
}

/**
 * `start` moved by `steps` steps of `step`, from `least` to `limit`, without the dust of binary fractions
 * (0.1 + 0.2 is 0.3 here). A typed 7.77 stays on its own raster: 7.87, 7.97, …
 */
export function stepped(start, steps, step, limit, least = -limit) {
  const digits = Math.max(decimalsOf(start), decimalsOf(step));
  const moved = Number((start + steps * step).toFixed(Math.min(digits, 20)));
  return Math.min(limit, Math.max(least, moved)) + 0; // + 0 turns −0 into 0
}

function decimalsOf(x) {
  const [mantissa, exponent = "0"] = String(x).split("e");
  return Math.max(0, (mantissa.split(".")[1] ?? "").length - Number(exponent));
}
