/* Steps worth going to. */
import { leaders } from "./numbers.js";

/** @typedef {import("./parse.js").Trace} Trace */
/** @typedef {import("./parse.js").Chain} Chain */
/** @typedef {import("./parse.js").Step} Step */
/**
 * A kind of steps, with the key that goes to the next of them and what is said where there is none.
 * @typedef {object} Jump
 * @property {string} key
 * @property {string} title
 * @property {string} none
 * @property {(trace: Trace, chain: Chain) => number[]} places the steps, in order
 */

/**
 * Proposals of which this is true.
 * @param {(step: Step) => boolean} test
 * @returns {Jump["places"]}
 */
const proposals = (test) => (_trace, { steps }) =>
  steps.filter((step) => step.t > 0 && step.changed && test(step)).map((step) => step.t);

/**
 * The last step of the longest stay, if a text stayed at all.
 * @type {Jump["places"]}
 */
const longest = (_trace, { since }) => {
  let at = 0;
  since.forEach((from, t) => {
    if (t - from > at - since[at]) at = t;
  });
  return at > since[at] ? [at] : [];
};

/** @type {Jump["places"]} */
const changes = (_, chain) => {
  const lead = leaders(chain);
  return lead.flatMap((answer, t) => (t > 0 && answer !== lead[t - 1] ? [t] : []));
};

/** @type {Jump[]} */
export const JUMPS = [
  {
    key: "N",
    title: "next accepted change",
    none: "no other text has been accepted",
    places: proposals((step) => step.accepted),
  },
  {
    key: "W",
    title: "next accepted though worse",
    none: "nothing worse has been accepted",
    places: proposals((step) => step.accepted && step.reward < step.oldReward),
  },
  {
    key: "B",
    title: "next rejected though better",
    none: "nothing better has been rejected",
    places: proposals((step) => !step.accepted && step.reward > step.oldReward),
  },
  { key: "L", title: "longest stay", none: "no text has stayed", places: longest },
  {
    key: "V",
    title: "where the leading answer changed",
    none: "the same answer has led all the time",
    places: changes,
  },
];

/**
 * The place after step t; the first one again where there is no later one.
 * @param {number[]} places
 * @param {number} t
 */
export const following = (places, t) => places.find((place) => place > t) ?? places[0];
