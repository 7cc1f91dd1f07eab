/* The formulas of the chain, as qalign_core/chain/kernel.py, moves/suffix.py and target.py have
   them, for the paper's target (sharpness 1). */

/**
 * Map u in [0, 1) to an index, uniform over {0, ..., length - 1} (Eq. 4).
 * @param {number} length
 * @param {number} u
 */
export const drawIndex = (length, u) =>
  // a product can round up to the length
  Math.min(Math.floor(u * length), length - 1);

/**
 * Natural log of pi(y') / pi(y), relative to the base LM: `(r' - r) / beta`.
 * @param {number} rewardNew
 * @param {number} rewardOld
 * @param {number} beta
 */
export const logRatio = (rewardNew, rewardOld, beta) => (rewardNew - rewardOld) / beta;

/**
 * Natural log of u in [0, 1).
 * @param {number} u
 */
export const logUniform = (u) => (u > 0 ? Math.log(u) : -Infinity);
