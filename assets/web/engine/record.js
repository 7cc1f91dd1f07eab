/* A run as the lines of its trace (qalign_core/record/format.py says what they are). */
import { EXTRACTORS } from "./answers.js";
import { Sampler } from "./chain.js";

/** @typedef {import("./chain.js").Scored} Scored */
/** @typedef {import("./chain.js").Step} Step */
/** @typedef {import("./models.js").LanguageModel} LanguageModel */
/** @typedef {import("./models.js").RewardModel} RewardModel */
/**
 * The header of a trace without what is known only when it is drawn.
 * @typedef {object} Run
 * @property {string} prompt
 * @property {string | null} reference the right answer, if it is known
 * @property {keyof typeof EXTRACTORS | null} extractor
 * @property {string} lm
 * @property {string} rm
 * @property {number} beta
 * @property {number} steps
 * @property {number} chains
 * @property {number} seed
 * @property {number} temperature
 * @property {number} max_new_tokens
 * @property {number} pool
 * @property {number} [chain] number of the first chain, 0 if it is absent
 * @property {boolean} [logProb] whether lines of steps have the proposal's natural log of p
 */
/** @typedef {(text: string) => string | null} Extractor */

/** @param {object} line */
const dump = (line) =>
  // "<" could end a script element, the others end a line for some readers
  `${JSON.stringify(line).replace(/[<\x85\u2028\u2029]/g, escapeSign)}\n`;
/** @param {string} sign */
const escapeSign = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
/** @param {number} value */
const finiteOrNull = (value) => (Number.isFinite(value) ? value : null);

/**
 * @param {Run} run
 * @param {number} nPrompt tokens of the prompt, which both models read once
 * @param {Date} now
 */
function headerLine(run, nPrompt, now) {
  const created = now.toISOString().replace(/\.\d+Z$/, "+00:00");
  return dump({ type: "header", version: 3, ...run, created, notes: [], prompt_tokens: nPrompt,
    prompt_scored: nPrompt });
}

/**
 * @param {Step} step
 * @param {Extractor} extract
 * @param {boolean} [logProb]
 */
export function stepLine(step, extract, logProb) {
  const { chain, t, index, proposal, logAlpha, logU, accepted } = step;
  const { tokens, pieces, text, finished, reward, cost } = proposal;
  const pieceText = (finished ? pieces.slice(0, -1) : pieces).join("");
  return dump({ type: "step", chain, t, index, tokens: tokens.slice(index),
    pieces: pieces.slice(index), finished, reward, log_alpha: finiteOrNull(logAlpha),
    log_u: finiteOrNull(logU), accepted, answer: extract(text), cost,
    ...(pieceText === text ? {} : { text }),
    ...(logProb ? { log_prob: proposal.logProbs.reduce((sum, p) => sum + p, 0) } : {}) });
}

/**
 * @param {number} n
 * @param {Scored} sample
 * @param {Extractor} extract
 */
export function sampleLine(n, { tokens, text, finished, reward, cost }, extract) {
  return dump({ type: "sample", n, tokens, text, finished, reward, answer: extract(text), cost });
}

/**
 * Draw a run: a step of every chain and a sample at a time, then the rest of the pool.
 * @param {LanguageModel} lm
 * @param {RewardModel} rm
 * @param {Run} run
 * @returns {Generator<string>} the lines of its trace, as they happen
 */
export function* record(lm, rm, run) {
  const extract = run.extractor ? EXTRACTORS[run.extractor] : () => null;
  const sampler = new Sampler(lm, rm, run);
  yield headerLine(run, sampler.promptIds.length, new Date());
  /** @type {Scored[]} */
  const states = [];
  let n = 0;
  const { chain: first = 0, chains, logProb } = run;
  for (let t = 0; t <= run.steps; t++) {
    for (let chain = first; chain < first + chains; chain++) {
      const step = t ? sampler.step(chain, t, states[chain]) : sampler.begin(chain);
      states[chain] = step.state;
      yield stepLine(step, extract, logProb);
    }
    if (n < run.pool) yield sampleLine(n, sampler.sample(n++), extract);
  }
  while (n < run.pool) yield sampleLine(n, sampler.sample(n++), extract);
  yield dump({ type: "end", reason: "finished", message: "" });
}
