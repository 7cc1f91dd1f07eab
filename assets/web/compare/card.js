/* One method's card on the Compare page. */
import { IDEAS, term } from "../dictionary.js";
import { builder, drawIcon } from "../dom.js";
import { look } from "../shell/looks.js";

export const PREFIX = "qc-";
export const h = builder(PREFIX).h;

/**
 * An answer's share of the votes.
 * @typedef {object} Bar
 * @property {string} name
 * @property {number} share
 * @property {string} label
 * @property {boolean} won
 * @property {boolean | null} right
 * @property {number} [recycled] its share with the rejected proposals
 * @property {string} [recycled_label]
 */
/**
 * What the server says of one method.
 * @typedef {object} Card
 * @property {string} method
 * @property {string} term its word in the dictionary
 * @property {string} name
 * @property {string} sentence
 * @property {string} rule
 * @property {string | null} answer
 * @property {string} headline the answer, or what stands in its place
 * @property {boolean | null} correct
 * @property {string | null} trust whether its chain may be trusted
 * @property {string} [recycled]
 * @property {Bar[]} bars
 * @property {string} unvoted what is said where there are none
 * @property {number | null} text its place in the list of texts
 * @property {string | null} reward
 * @property {[what: string, value: string, why: string][]} facts
 */

/** @param {boolean | null} right */
function mark(right) {
  if (right === null) return null;
  return h("span.mark", { "data-right": String(right) }, drawIcon(right ? "yes" : "no", PREFIX),
    right ? "right" : "wrong");
}

/** @param {number} share */
const wide = (share) => `width:${Math.min(100, 100 * share)}%`;

/**
 * @param {Bar} vote
 * @param {boolean} recycled
 */
function bar(vote, recycled) {
  const more = recycled ? vote.recycled_label : undefined;
  const title = `with rejected proposals: ${more}`;
  const outline = more ? h("u", { title, style: wide(vote.recycled ?? 0) }) : null;
  return h(`li.${vote.won ? "won" : ""}`,
    h("div.bar-name", h("span", { title: vote.name }, vote.name),
      vote.right ? drawIcon("yes", PREFIX) : null),
    h("div.bar", h("i", { style: wide(vote.share) }), outline),
    h("em", more || vote.label));
}

/** @param {Card["facts"]} rows */
function facts(rows) {
  return h("dl.facts", ...rows.map(([what, value, why]) =>
    h("div", h("dt", { title: why }, what), h("dd", value))));
}

/**
 * @param {Card} data
 * @param {boolean} recycled
 */
function votes({ bars, unvoted }, recycled) {
  if (bars.length) return h("ol.bars", ...bars.map((vote) => bar(vote, recycled)));
  return h("p.no-bars", unvoted);
}

/**
 * @param {Card} data
 * @param {string[]} texts
 * @param {boolean} recycled whether rejected proposals count too
 */
export function card(data, texts, recycled) {
  const text = data.text === null ? "No response to show." : texts[data.text];
  const reward = data.reward === null ? null : h("span", `reward ${data.reward}`);
  const aria = `${data.name}: chosen response`;
  const region = { tabindex: 0, role: "region", aria, "data-key": data.method };
  const mine = `--mine:var(--c-${data.method})`;
  return h("article.card", { "data-method": data.method, style: mine, aria: data.name },
    h("div", h("h3", look(data.term, IDEAS[data.term]), term(data.term, data.name)),
      h("p.sentence", data.sentence)),
    h("div.answer", h(`b.${data.answer === null ? "words" : ""}`, data.headline),
      mark(data.correct)),
    h("p.rule", h("span", data.rule),
      data.trust ? h("small.trust", data.trust) : null,
      recycled && data.recycled ? h("small", data.recycled) : null),
    votes(data, recycled),
    h("div.chosen", h("h4", h("span", "Response shown"), reward), h("div.text", region, text)),
    facts(data.facts));
}
