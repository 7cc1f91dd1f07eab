/* What rules that need no chain answer from samples of the model alone. */
import { weights } from "../player/statistics.js";
import { fixed, isRight } from "../player/words.js";

/**
 * The answer with the largest weight; of equal weights, the first to appear. A sample without an
 * answer casts no vote.
 * @param {(string | null)[]} answers
 * @param {number[]} [weight] of each, by default the same
 * @returns {string | null} null if there is none
 */
export function vote(answers, weight) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  answers.forEach((answer, k) => {
    if (answer !== null) sums.set(answer, (sums.get(answer) ?? 0) + (weight?.[k] ?? 1));
  });
  return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}

/**
 * What each rule that needs no chain answers from the first n samples of the model alone.
 * @param {import("../player/parse.js").Trace} trace
 * @param {number} n
 * @returns {[rule: string, answer: string | null][]}
 */
export function decideAlone({ header, base, tilts, alone }, n) {
  const [rewards, answers] = [base.slice(0, n), alone.slice(0, n)];
  /** @type {[string, string | null][]} */
  const plain = [["mv", vote(answers)]];
  if (header.rm === "none") return plain;
  const best = answers[rewards.indexOf(Math.max(...rewards))];
  const weight = weights(rewards, header.beta, tilts.slice(0, n));
  return [["bon", best], ...plain, ["wmv", vote(answers, weight)]];
}

/** Fewer samples without a right one say little of the model. */
const MANY = 16;

/**
 * Why best-of-n can fall, and by how much the right or the wrong texts lead among the first n
 * samples.
 * @param {import("../player/parse.js").Trace} trace
 * @param {number} n
 */
export function explainBestOfN(trace, n) {
  if (trace.header.rm === "none") return "";
  const best = (/** @type {boolean} */ right) => Math.max(...trace.base.slice(0, n).filter((_, k) =>
    isRight(trace, trace.alone[k]) === right));
  const lead = best(true) - best(false);
  if (lead === 0) {
    return "Best-of-n takes the top reward; here a right and a wrong text share it, and the first "
      + "of them is taken.";
  }
  if (lead === -Infinity && n >= MANY) {
    return "Best-of-n takes the top reward; none of these samples is right.";
  }
  const here = Number.isFinite(lead)
    ? ` (here a ${lead < 0 ? "wrong" : "right"} text leads by ${fixed(Math.abs(lead))})` : "";
  return `Best-of-n takes the top reward${here}; more samples can bring a wrong, overrated text.`;
}
