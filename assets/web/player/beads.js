/* The chain as beads: one for each stay at a text, with how often it has been counted. */
import { differs, swap } from "../dom.js";
import { answerStyle, button, h, swatch } from "./drawing.js";
import { visitsAt } from "./numbers.js";
import { answerText, fixed } from "./words.js";

/** @typedef {import("./drawing.js").View} View */

const MOST = 9;

/**
 * The last stays up to step t: when each began and how often it has been counted.
 * @param {import("./parse.js").Chain} chain
 * @param {number} t
 */
export function lastStays(chain, t) {
  const beads = [];
  for (let k = t; k >= 0 && beads.length < MOST; k = chain.since[k] - 1) {
    beads.unshift({ at: chain.since[k], visits: visitsAt(chain, k) });
  }
  return beads;
}

/**
 * @param {import("./drawing.js").Seek} seek
 * @returns {import("./drawing.js").Part}
 */
export function beadList(seek) {
  const node = h("ol.beads", { aria: "The chain so far" });
  const isNew = differs();
  return {
    node,
    draw({ trace, chain, seen, run }) {
      if (!isNew(`${run}/${seen}/${trace.version}`)) return;
      swap(node, ...lastStays(chain, seen).map(({ at, visits }, k, all) => {
        const { answer, reward } = chain.steps[at];
        const now = k === all.length - 1 ? "bead-now" : "";
        const title = `from step ${at}, reward ${fixed(reward)}`;
        const caption = trace.answers.length ? answerText(trace, answer) : fixed(reward);
        const attributes = { title, "data-key": at, onclick: () => seek(at) };
        return h("li", button(`bead.${now}`, attributes, swatch(answerStyle(trace, answer)),
          caption, h("b", ` ×${visits}`)));
      }));
    },
  };
}
