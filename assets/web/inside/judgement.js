/* What both models and the rule make of a rewrite by hand, beside the text before it. */
import { h } from "../player/drawing.js";
import { answerText, brief, fixed, plain, signed } from "../player/words.js";
import { shadedText } from "./shaded.js";

/** @typedef {import("../player/parse.js").Trace} Trace */
/** @typedef {import("./ask.js").Judged} Judged */

const NEVER = "−∞";

/** @param {number | null} x */
const number = (x) => (x === null ? NEVER : fixed(x));

/**
 * The numbers of both texts, one row each: its name, before, yours.
 * @param {Trace} trace
 * @param {Judged} judgement
 * @returns {[string, string, string][]}
 */
const rowsOf = (trace, { old, new: mine }) => [
  ["Tokens", String(old.tokens.length), String(mine.tokens.length)],
  ["Answer", answerText(trace, old.answer), answerText(trace, mine.answer)],
  ["ln p: how likely the model writes it", number(old.log_prob), number(mine.log_prob)],
  ["r: its reward", fixed(old.reward), fixed(mine.reward)],
  ["ln π, up to a constant", number(old.log_target), number(mine.log_target)],
];

/** @param {number | null} gain of ln π */
function describeGain(gain) {
  if (gain === null) {
    return "The model, as sampled, never writes this text: under the target it has no weight at "
      + "all.";
  }
  return `ln π(y′) − ln π(y) = ${signed(gain)}: the target gives your text `
    + `${brief(Math.exp(Math.max(-700, Math.min(gain, 700))))} times the weight of the old one.`;
}

/**
 * @param {Trace} trace
 * @param {Judged} judgement
 * @param {number} cut tokens that were kept
 * @returns {Node[]}
 */
export function drawJudgement(trace, judgement, cut) {
  const alpha = judgement.log_alpha === null ? 0 : Math.exp(judgement.log_alpha);
  const would = `If the model proposed your text, the rule would accept it with probability α = ${
    alpha === 1 ? "1" : brief(alpha)} (β = ${plain(trace.header.beta)}). How likely `
    + "the model is to propose it is not part of α; it is part of ln π above.";
  const text = shadedText("Your text, token by token. Arrow keys move along it.");
  text.show({ ...judgement.new }, (k) =>
    (k < cut ? "was-kept" : k < cut + judgement.typed ? "typed" : ""));
  const table = h("table", h("thead", h("tr", ...["", "Before", "Yours"].map((head) =>
    h("th", { scope: "col" }, head)))), h("tbody", ...rowsOf(trace, judgement).map(
    ([name, ...cells]) =>
      h("tr", h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", cell))))));
  return [...text.nodes, h("div.scroll", { tabindex: 0, role: "region",
    aria: "Before and yours" }, table), h("p.gain", h("b", describeGain(judgement.gain))),
  h("p", would, " The chain neither includes nor counts this rewrite.")];
}
