/* The chain as beads: one for each stay at a text, with how often it has been counted. */
import { differs, swap } from "../dom.js";
import { answerStyle, button, h, nameNodes } from "./drawing.js";
import { visitsAt } from "./numbers.js";
import { answerText, fixed, hasAnswers, many } from "./words.js";

/** @typedef {import("./drawing.js").View} View */

const MOST = 9;
const [LETTER, WORDS, FRAME, SIGN] = [7.8, 122, 52, 24]; // px: a letter, a name at most, the rest

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
 * How many of the last beads are whole in a room.
 * @param {string[]} texts of the beads
 * @param {number} room px
 */
export function countWhole(texts, room) {
  let left = room - SIGN;
  const fits = (/** @type {string} */ text) =>
    (left -= FRAME + Math.min(WORDS, LETTER * text.length)) >= 0;
  return Math.max(1, [...texts].reverse().filter(fits).length);
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
    draw({ trace, chain, seen, data, sizes }) {
      if (!isNew(`${data}/${seen}`)) return;
      const stays = lastStays(chain, seen).map(({ at, visits }) => {
        const { answer, reward } = chain.steps[at];
        const caption = hasAnswers(trace) ? answerText(trace, answer) : fixed(reward);
        return { at, caption, count: `×${visits}`, style: answerStyle(trace, answer),
          title: `${many(visits, "vote")} since step ${at}; reward ${fixed(reward)}` };
      });
      const texts = stays.map(({ caption, count }) => caption + count);
      const whole = stays.slice(-countWhole(texts, sizes.trace + 30));
      const earlier = whole[0].at ? [h("li", "…")] : [];
      swap(node, ...earlier, ...whole.map(({ at, title, caption, count, style }, k) => {
        const now = k === whole.length - 1 ? "bead-now" : "";
        const attributes = { title, "data-key": at, onclick: () => seek(at) };
        return h("li", button(`bead.${now}`, attributes, ...nameNodes(style, caption),
          h("b", count)));
      }));
    },
  };
}
