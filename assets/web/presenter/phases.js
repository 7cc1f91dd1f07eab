/* A run phase by phase: the first draft, then six phases a step. */
import { LAST } from "../player/words.js";

/**
 * Return the step and phase that are `by` phases later, or earlier.
 * @param {{ t: number, phase: number }} from
 * @param {number} by
 * @param {number} last the last step so far
 */
export function phaseAfter({ t, phase }, by, last) {
  const each = LAST + 1;
  const now = t && (t - 1) * each + phase + 1;
  const next = Math.max(0, Math.min(last * each, now + by));
  return { t: Math.ceil(next / each), phase: next ? (next - 1) % each : LAST };
}
