/* Shares, weights and intervals, which the figures below the stage need. */
import { quantities } from "./numbers.js";

/** @typedef {import("./parse.js").Step} Step */

/**
 * What would become of the same proposal and the same u at another beta.
 * @param {Step} step
 * @param {number} beta
 */
export function whatIf(step, beta) {
  const { logRatio } = quantities(step, beta);
  return {
    alpha: Math.exp(Math.min(0, logRatio)),
    isAccepted: logRatio >= 0 || step.logU < logRatio,
  };
}

/**
 * Wilson's 95% interval of k out of n.
 * @param {number} k
 * @param {number} n
 */
export function wilson(k, n) {
  if (!n) return [0, 1];
  const z = 1.959964;
  const p = k / n;
  const d = 1 + (z * z) / n;
  const c = p + (z * z) / (2 * n);
  const w = z * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  return [(c - w) / d, (c + w) / d];
}

/**
 * Self-normalised importance weights of base samples for the target at beta.
 * @param {number[]} rewards
 * @param {number} beta
 * @param {number[]} [tilts] what a sharper target adds to each log-weight
 */
export function weights(rewards, beta, tilts = []) {
  const logs = rewards.map((r, k) => r / beta + (tilts[k] ?? 0));
  const top = Math.max(...logs);
  const w = logs.map((log) => Math.exp(log - top));
  const sum = w.reduce((a, b) => a + b, 0);
  return w.map((x) => x / sum);
}

/**
 * How many equally weighted samples weights are worth: 1 / Σw².
 * @param {number[]} w
 */
export const effective = (w) => 1 / w.reduce((sum, x) => sum + x * x, 0);

/**
 * The share of values, or of their weights, in each of equal bins; what lies outside counts in the
 * first or the last.
 * @param {number[]} values
 * @param {number[] | null} weight
 * @param {number} lo
 * @param {number} hi
 * @param {number} bins
 */
export function histogram(values, weight, lo, hi, bins) {
  /** @type {number[]} */
  const out = new Array(bins).fill(0);
  values.forEach((v, j) => {
    const bin = Math.floor(((v - lo) / (hi - lo)) * bins);
    out[Math.min(bins - 1, Math.max(0, bin))] += weight ? weight[j] : 1 / values.length;
  });
  return out;
}
