/* "Token by token": the proposal of a step as the model sees it. */
import { term } from "../dictionary.js";
import { differs, put, swap } from "../dom.js";
import { h } from "../player/drawing.js";
import { fixed } from "../player/words.js";
import { bits, shadedText, share, surprise } from "./shaded.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("../player/parse.js").Step} Step */
/** @typedef {import("./ask.js").TokenScore} TokenScore */
/** @typedef {import("./inside.js").Tools} Tools */

const REST = 250; // ms that a step must stay before the server is asked about it

/**
 * Where the cut fell and where the new text parts from the old, beside what the model expected.
 * @param {Step} step
 * @param {TokenScore[]} scores of its proposal
 */
export function describeCut({ t, index, first, ids, finished }, scores) {
  const mean = scores.reduce((sum, one) => sum + bits(one), 0) / ids.length;
  const whole = `On average a token is worth ${fixed(mean)} bits of surprise.`;
  if (t === 0) return `The first draft. ${whole}`;
  const end = finished && first === ids.length - 1 ? " (the end)" : "";
  const where = `The cut fell ${index ? `after token ${index}` : "before the first token"}`;
  if (first < 0) return `${where}, and the model wrote the same text again. ${whole}`;
  const parts = first === index ? "right there" : `first at token ${first + 1}${end}`;
  return `${where}; the new text differs ${parts}, with a token of probability `
    + `${share(scores[first][0])}. ${whole}`;
}

/** @param {Tools} tools */
export function tokensTab(tools) {
  const { client } = tools;
  const text = shadedText("The proposal, token by token. Arrow keys move along it.");
  const strip = h("div.surprise");
  const cutNote = h("p.hint");
  const hint = h("p.hint", "The ", term("proposed"), " of this step; the stronger a token’s "
    + "colour, the more it ", term("surprise", "surprised"), " the model. Point at one to see the "
    + "alternatives. A suffix move cuts at every token with equal probability. Where the model is "
    + "sure, it usually writes the same tokens again, so most proposals first differ where it is "
    + "unsure.");
  const nodes = [hint, ...text.nodes, strip, cutNote];
  const isNew = differs();
  let waiting = 0;
  /** @type {Step | null} */
  let wanted = null; // the step that the server is asked about

  /** @param {Step} step */
  function show(step) {
    const scores = client?.known(tools.header(), step.ids);
    const scoredText = { ...step, scores };
    text.show(scoredText, (k) => (k < step.index ? "was-kept" : ""));
    swap(strip, ...(scores
      ? [surprise(scoredText, step.t ? step.index : -1, step.first, tools.width() - 40)] : []));
    if (scores) put(cutNote, describeCut(step, scores));
  }

  return {
    /** @param {View} view */
    draw(view) {
      const step = view.chain.steps[view.seen];
      if (isNew(`${view.run}/${view.seen}/${tools.width()}`)) show(step);
      else return nodes;
      if (step === wanted) return nodes; // at another width
      window.clearTimeout(waiting);
      wanted = null;
      if (client?.known(tools.header(), step.ids)) return nodes;
      wanted = step;
      put(cutNote, "Asking the model…");
      waiting = window.setTimeout(async () => {
        let sentence = "";
        try {
          await client?.scoreTokens(tools.header(), [step.ids]);
        } catch (error) {
          sentence = `The tokens cannot be shaded: ${/** @type {Error} */ (error).message}`;
        }
        if (wanted !== step) return; // another step is shown by now
        wanted = null;
        if (sentence) put(cutNote, sentence);
        else show(step);
      }, REST);
      return nodes;
    },
  };
}
