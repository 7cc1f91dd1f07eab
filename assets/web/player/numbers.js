/* What a chain's steps and states come to, in numbers. */

/** @typedef {import("./parse.js").Step} Step */
/** @typedef {import("./parse.js").Chain} Chain */

/**
 * The state after step t: the last text that was taken.
 * @param {Chain} chain
 * @param {number} t
 */
export const stateOf = (chain, t) => chain.steps[chain.stateAt[t]];

/**
 * How often the state at t has been counted by then.
 * @param {Chain} chain
 * @param {number} t
 */
export const visitsAt = (chain, t) => t - chain.since[t] + 1;

/**
 * A value of each state from `burnIn` to t.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} burnIn
 * @param {(step: Step) => number} of a state
 */
export const valuesOf = (chain, t, burnIn, of) =>
  chain.stateAt.slice(burnIn, t + 1).map((k) => of(chain.steps[k]));

/**
 * Rewards of the states from `burnIn` to t.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} burnIn
 */
export const rewardsOf = (chain, t, burnIn) => valuesOf(chain, t, burnIn, ({ reward }) => reward);

/** @param {number[]} values */
export const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

/**
 * What decides a step at beta: alpha = min(1, exp((r' - r) / beta) · |y| / |y'|), or in place
 * of the lengths the factor of another move, times that
 * of a sharper target, (p(y') / p(y))^(sharpness - 1).
 * @param {Step} step
 * @param {number} beta
 */
export function quantities(step, beta) {
  const difference = step.reward - step.oldReward;
  const lengths = step.oldLength / step.ids.length;
  const correction = step.correction ?? Math.log(lengths);
  const logRatio = difference / beta + step.sharp + correction;
  const error = step.refused === null ? Math.abs(Math.min(0, logRatio) - step.logAlpha) : 0;
  return {
    difference,
    lengths,
    /** what the move adds: old over new length, or how well the rest still fits */
    correction: Math.exp(correction),
    logRatio,
    ratio: Math.exp(logRatio),
    reward: Math.exp(difference / beta),
    sharp: Math.exp(step.sharp),
    alpha: Math.exp(step.logAlpha),
    u: Math.exp(step.logU),
    /** the trace's own alpha is the formula's */
    agrees: error <= 1e-6 * (1 + Math.abs(step.logAlpha)),
  };
}

/**
 * The answers of the states from `burnIn` to t.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} burnIn
 */
export const answersTo = (chain, t, burnIn) =>
  chain.stateAt.slice(burnIn, t + 1).map((k) => chain.steps[k].answer);

/**
 * How many states from `burnIn` to t voted for each answer, the most first.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} burnIn
 */
export const votes = (chain, t, burnIn) => tally(answersTo(chain, t, burnIn));

/**
 * How many of the answers are the same, the most first; of equal counts, the first to appear.
 * @param {(string | null)[]} answers
 */
export function tally(answers) {
  /** @type {Map<string | null, number>} */
  const counts = new Map();
  for (const answer of answers) counts.set(answer, (counts.get(answer) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/**
 * How many samples of the model alone cost at most as many tokens; at least one, if there is one.
 * @param {number[]} spent tokens of the first 1, 2, … samples
 * @param {number} tokens
 */
export function affordable(spent, tokens) {
  const n = spent.findIndex((sum) => sum > tokens);
  return n < 0 ? spent.length : Math.max(1, n);
}

/**
 * The answer with most states up to each step; of equal counts, the first to appear.
 * @param {Chain} chain
 */
export function leaders(chain) {
  /** @type {Map<string | null, number>} */
  const counts = new Map(); // in order of first appearance
  let most = 0;
  return chain.stateAt.map((k) => {
    const { answer } = chain.steps[k];
    counts.set(answer, (counts.get(answer) ?? 0) + 1);
    most = Math.max(most, counts.get(answer) ?? 0);
    return [...counts].find(([, n]) => n === most)?.[0] ?? null;
  });
}

/**
 * How many states from `burnIn` to t the chain stayed at each text, by the step at which it came to
 * it, the longest stay first.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} burnIn
 * @returns {[number, number][]}
 */
export function stays(chain, t, burnIn) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (let k = burnIn; k <= t; k++) {
    const at = chain.since[k];
    counts.set(at, (counts.get(at) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/**
 * Where the axis of a run that goes on ends: it doubles when the run comes there, so that what has
 * been drawn fills at least half of it without its moving at each step.
 * @param {number} done steps
 * @param {number} all steps that will be
 */
export const axisEnd = (done, all) => Math.max(done, 1, Math.min(all,
  Math.max(64, 2 ** Math.ceil(Math.log2(done + 1)))));

/**
 * Round numbers from lo to hi, some n of them.
 * @param {number} lo
 * @param {number} hi
 */
export function ticks(lo, hi, n = 4) {
  const raw = (hi - lo) / n || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const size = power * ([1, 2, 5, 10].find((m) => m * power >= raw) ?? 10);
  const out = [];
  for (let x = Math.ceil(lo / size) * size; x <= hi + 1e-9; x += size) {
    out.push(Math.abs(x) < size / 1e6 ? 0 : x);
  }
  return out;
}
