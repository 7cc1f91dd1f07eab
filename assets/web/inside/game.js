/* Reach a higher log pi than the chain did: what the chain reached, and the visitor's own best. */
import { stateOf } from "../player/numbers.js";
import { keepValue, readKept } from "../store.js";

/** @typedef {import("../player/parse.js").Chain} Chain */
/** @typedef {import("../player/parse.js").Header} Header */
/** @typedef {import("./ask.js").TokenScore} TokenScore */
/** @typedef {{ scoreTokens: (header: string, texts: number[][], top?: number) =>
 *   Promise<TokenScore[][]> }} Scorer */

const KEY = "qalign-hand";
const KEPT = 50; // problems

/**
 * The natural log of a text's pi, but for a constant, as components/watch/inside.py has it.
 * @param {Header} header
 * @param {number} logProb
 * @param {number} reward
 */
export const logTarget = ({ sharpness, beta }, logProb, reward) =>
  sharpness * logProb + reward / beta;

/**
 * The highest log pi among the states of a chain's first steps, the step that first had it, and
 * how many steps there were.
 * @param {Scorer | null} scorer
 * @param {string} line the trace's first line
 * @param {Header} header
 * @param {Chain} chain
 * @param {number} most steps
 */
export async function chainsBest(scorer, line, header, chain, most) {
  if (!scorer) throw new Error("there is no server.");
  const first = chain.stateAt.slice(0, most + 1);
  const states = [...new Set(first.map((_, t) => stateOf(chain, t)))];
  const scores = await scorer.scoreTokens(line, states.map(({ ids }) => ids), 0);
  let best = -Infinity;
  let t = 0;
  states.forEach((state, k) => {
    const logProb = scores[k].reduce((sum, [logP]) => sum + (logP ?? -Infinity), 0);
    const score = logTarget(header, logProb, state.reward);
    if (score > best) [best, t] = [score, state.t];
  });
  return { best, t, steps: first.length - 1 };
}

/** @param {Header} header */
const nameOf = ({ prompt, lm, rm, beta, sharpness }) =>
  JSON.stringify([prompt, lm, rm, beta, sharpness]);

/** @type {() => Record<string, number>} */
const read = () => readKept(KEY, {});

/**
 * The visitor's best on a problem, of all games in this browser.
 * @param {Header} header
 */
export function bestBefore(header) {
  const best = read()[nameOf(header)];
  return Number.isFinite(best) ? best : null;
}

/**
 * @param {Header} header
 * @param {number} best
 */
export function keepBest(header, best) {
  if (best <= (bestBefore(header) ?? -Infinity)) return;
  const others = Object.entries(read()).filter(([name]) => name !== nameOf(header));
  const kept = [...others.slice(1 - KEPT), [nameOf(header), best]];
  keepValue(KEY, Object.fromEntries(kept));
}
