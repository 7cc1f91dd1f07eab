/* The paper's move: keep a random beginning of the response, and draw the rest again. A move is one
   module like this one: what it proposes, and how the proposal's own odds correct the coin. */
import { drawIndex } from "../kernel.js";

/** @typedef {import("../models.js").LanguageModel} LanguageModel */
/** @typedef {import("../models.js").Response} Response */
/** @typedef {import("../chain.js").Address} Address */
/**
 * @typedef {object} Proposal
 * @property {number} index the first `index` tokens of the state were kept
 * @property {Response} response
 * @property {number} logCorrection
 */

/**
 * @param {LanguageModel} lm
 * @param {number[]} promptIds
 * @param {Response} state
 * @param {Address} at
 * @returns {Proposal}
 */
export function suffix(lm, promptIds, state, at) {
  const n = state.tokens.length;
  const index = drawIndex(n, at.uniform("index"));
  const response = lm.extend(promptIds, state.tokens.slice(0, index), at.seed("suffix"));
  response.logProbs.unshift(...state.logProbs.slice(0, index));
  // old/new: the reverse move draws its index from |y_new| positions
  const logCorrection = Math.log(n) - Math.log(response.tokens.length);
  return { index, response, logCorrection };
}
