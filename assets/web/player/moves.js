/* What the moves do, in words. A move without an entry is called by its name. */

/** @typedef {import("./parse.js").Step} Step */
/**
 * @typedef {object} Words
 * @property {string} story the question of the first phase
 * @property {string} cut what follows the place of the cut
 * @property {string} note how the place is drawn, and what is kept
 * @property {string} noun what the factor is about, or its entry in the dictionary
 * @property {string} factor the move's factor in α
 * @property {string} meaning of the factor, in a few words
 * @property {string} reason what makes it so
 * @property {string} why a proposal with a small factor is rejected
 */

/** @type {Record<string, (step: Step) => Words>} */
const MOVES = { // a trace may name anything, what every object inherits included
  // @ts-expect-error: it is no move
  __proto__: null,
  suffix: ({ oldLength, ids }) => ({
    story: "Where to cut? Every token of the current text is equally likely.",
    cut: `, each with probability 1/${oldLength}`,
    note: "Each step draws it at random. The first i tokens are kept; the rest is rewritten.",
    noun: "length",
    factor: `${oldLength}/${ids.length}`,
    meaning: "old over new length",
    reason: `→ to get here, one of ${oldLength} cuts was drawn; ← to get back, one of `
      + `${ids.length} must be; else long texts get too many votes`,
    why: "it is longer",
  }),
  entropy: () => ({
    story: "Where to cut? Places where the model is unsure are more likely.",
    cut: "",
    note: "Places where the model is unsure are cut more often. The first i tokens are kept; "
      + "the rest is rewritten.",
    noun: "weight",
    factor: "W/W′",
    meaning: "old over new weight",
    reason: "a text with more unsure places can be cut in more of them, so each rewrite of it is "
      + "proposed less often",
    why: "it has more unsure places",
  }),
  block: () => ({
    story: "Which block to rewrite? Every block of the current text is equally likely.",
    cut: ": a block begins there",
    note: "Each block of the text is equally likely. The tokens before it are kept, and so are "
      + "those after it.",
    noun: "the rest",
    factor: "p(rest|new)/p(rest|old)",
    meaning: "how well the rest still fits",
    reason: "how likely the kept rest is after the new block, over how likely after the old one; "
      + "near 0 if the rest no longer follows, and the block is then rejected",
    why: "the rest fits worse after it",
  }),
};

/**
 * A move of a file is named without the folder.
 * @param {Step} step
 * @param {string} [name]
 * @returns {Words}
 */
export const wordsOf = (step, name = step.move.replace(/.*[/\\]/, "")) => MOVES[name]?.(step) ?? {
  story: `Where to cut? The move ${name} decides.`,
  cut: "",
  note: `This step makes the move ${name}.`,
  noun: "correction",
  factor: "q(y|y′)/q(y′|y)",
  meaning: "the move’s correction",
  reason: "how likely the move is to go back, over how likely it was to get here",
  why: "the move would rarely go back",
};
