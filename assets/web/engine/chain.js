/* The Markov chain of the paper, as qalign_core/chain/chain.py has it: a step, and the pool. */
import { logRatio, logUniform } from "./kernel.js";
import { suffix } from "./moves/suffix.js";
import { deriveSeed, uniform } from "./randomness.js";

/** @typedef {import("./models.js").LanguageModel} LanguageModel */
/** @typedef {import("./models.js").Response} Response */
/** @typedef {import("./models.js").RewardModel} RewardModel */
/** @typedef {import("./randomness.js").Role} Role */
/** @typedef {Response & { reward: number, cost: [number, number] }} Scored tokens of LM and RM */
/**
 * Where a step's random numbers are.
 * @typedef {object} Address
 * @property {(role: Role) => number} uniform
 * @property {(role: Role) => bigint} seed
 */
/**
 * @typedef {object} Step
 * @property {number} chain
 * @property {number} t
 * @property {number} index
 * @property {Scored} state after the step
 * @property {Scored} proposal kept even if it was rejected
 * @property {number} logAlpha
 * @property {number} logU
 * @property {boolean} accepted
 */

/** The models on one prompt, and what decides the chain there. */
export class Sampler {
  /**
   * @param {LanguageModel} lm
   * @param {RewardModel} rm
   * @param {{ prompt: string, beta: number, seed: number }} run
   */
  constructor(lm, rm, { prompt, beta, seed }) {
    this.lm = lm;
    this.rm = rm;
    this.promptIds = lm.encode(prompt);
    this.beta = beta;
    this.seed = seed;
  }

  /**
   * The reward of a response whose first `index` tokens were there already, and what both cost.
   * @param {Response} response
   * @param {number} index
   * @returns {Scored}
   */
  scored(response, index) {
    const n = response.tokens.length - index; // the RM reads on too
    return { ...response, reward: this.rm.score(this.promptIds, response.tokens), cost: [n, n] };
  }

  /**
   * The initial draw of a chain.
   * @param {number} chain
   * @returns {Step}
   */
  begin(chain) {
    const seed = deriveSeed(this.seed, chain, 0, "suffix");
    const first = this.scored(this.lm.extend(this.promptIds, [], seed), 0);
    return { chain, t: 0, index: 0, state: first, proposal: first, logAlpha: 0, logU: -Infinity,
      accepted: true };
  }

  /**
   * One step: propose, score, accept or reject.
   * @param {number} chain
   * @param {number} t
   * @param {Scored} state
   * @returns {Step}
   */
  step(chain, t, state) {
    const at = {
      uniform: (/** @type {Role} */ role) => uniform(this.seed, chain, t, role),
      seed: (/** @type {Role} */ role) => deriveSeed(this.seed, chain, t, role),
    };
    const { index, response, logCorrection } = suffix(this.lm, this.promptIds, state, at);
    const proposal = this.scored(response, index);
    const lead = logRatio(proposal.reward, state.reward, this.beta); // Eq. 8
    const logAlpha = Math.min(0, lead + logCorrection);
    const logU = logUniform(at.uniform("accept"));
    const accepted = logU < logAlpha;
    return { chain, t, index, state: accepted ? proposal : state, proposal, logAlpha, logU,
      accepted };
  }

  /**
   * Independent sample number n of the language model.
   * @param {number} n
   */
  sample(n) {
    const seed = deriveSeed(this.seed, n, 0, "sample");
    return this.scored(this.lm.extend(this.promptIds, [], seed), 0);
  }
}
