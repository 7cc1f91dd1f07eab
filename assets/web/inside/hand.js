/* "Your hand": a rewrite by the visitor, weighed as the rule would weigh it, and a game with it. */
import { term } from "../dictionary.js";
import { differs, put, set, show, swap } from "../dom.js";
import { button, h } from "../player/drawing.js";
import { stateOf } from "../player/numbers.js";
import { answerText, brief, fixed, keepVerdict, many, plain, signed } from "../player/words.js";
import { bestBefore, chainsBest, keepBest, logTarget } from "./game.js";
import { shadedText } from "./shaded.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./ask.js").Judged} Judged */
/** @typedef {import("./ask.js").Text} Text */
/** @typedef {import("./ask.js").TokenScore} TokenScore */
/** @typedef {import("./inside.js").Tools} Tools */
/** @typedef {{ ids: number[], pieces: string[], finished: boolean, from: string,
 *   scores?: TokenScore[] }} Base */

const MOVES = 30;
const LONGEST = 2000; // characters, as components/watch/inside.py has it
const NEVER = "−∞";

/** @param {number | null} x */
const number = (x) => (x === null ? NEVER : fixed(x));

/** @param {Tools} tools */
export function handTab(tools) {
  const { client } = tools;
  const text = shadedText("The text. Arrow keys move along it, Enter cuts before a token.", cutAt);
  const from = h("p.from");
  const words = h("textarea.words", { rows: 2, maxlength: LONGEST, spellcheck: "false",
    aria: "Your continuation", placeholder: "your words, or nothing" });
  const modelGoesOn = button("do", { onclick: () => rewrite(false) }, "Let the model continue");
  const endHere = button("do", { onclick: () => rewrite(true) }, "It ends here");
  const keptNote = h("p.small");
  const status = h("p.status", { role: "status" });
  const result = h("div.result");
  const game = h("div.game");
  const hint = h("p.hint", "Write a proposal yourself. Press a token to ", term("cut", "cut"),
    " before it, continue in your own words, then let the model continue, or end the text. "
      + "You see both models’ numbers and the acceptance probability. ",
    h("b", "A ", term("hand"), " is not part of the chain"), ": the ",
    term("alpha", "acceptance probability"),
    " makes up for how often the model proposes a text, not for how often you do.");
  const nodes = [hint, from, ...text.nodes, keptNote,
    h("div.write", words, h("div.do-row", modelGoesOn, endHere)), status, result, game];
  // what is typed is for the words, not for the player
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") event.stopPropagation();
  });

  const isOther = differs();
  const isElsewhere = differs();
  /** @type {Base} */
  let base = { ids: [], pieces: [], finished: false, from: "" };
  let cut = 0;
  let busy = false;
  let mine = false; // the text is the visitor's, and stays where the player goes
  let seed = 0;
  /** @type {{ chain: number, step: number, of: number, best: number | null, moves: number }
   *   | null} */
  let played = null;

  /** @param {Base} next */
  function start(next) {
    base = next;
    cut = Math.min(base.ids.length - 1, Math.floor(base.ids.length / 2));
    words.value = "";
    show(result, false);
    put(status, "");
    paint();
    if (base.scores) return;
    const wanted = base;
    const header = tools.header();
    client?.scoreTokens(header, [base.ids]).then(([scores]) => {
      if (base !== wanted) return;
      base.scores = scores;
      paint();
    }, (error) => put(status, `The models did not answer: ${error.message}`));
  }
  function paint() {
    put(from, base.from);
    text.show(base, (k) => (k < cut ? "was-kept" : "was-cut"));
    put(keptNote, cut ? `Kept: the first ${many(cut, "token")}.` : "Nothing is kept.");
  }
  /** @param {number} at */
  function cutAt(at) {
    cut = at;
    paint();
    // as the text went on: with a space, a new line or nothing
    if (!words.value.trim()) words.value = base.pieces[cut].match(/^\s*/)?.[0] ?? "";
  }

  /** @param {boolean} ends */
  async function rewrite(ends) {
    if (busy || !client) return;
    busy = true;
    for (const one of [modelGoesOn, endHere]) set(one, { "aria-disabled": "true" });
    put(status, "Running the models…");
    const wanted = base;
    try {
      seed += 1;
      const judgement = await client.rewrite({ header: tools.header(), tokens: base.ids, cut,
        words: words.value.trim() || ends ? words.value : "", ends,
        seed: Math.floor(Math.random() * 2 ** 31) + seed });
      if (base !== wanted) return;
      put(status, "");
      judge(judgement);
    } catch (error) {
      put(status, `That was not scored: ${/** @type {Error} */ (error).message}`);
    } finally {
      busy = false;
      for (const one of [modelGoesOn, endHere]) one.removeAttribute("aria-disabled");
    }
  }

  /** @param {Judged} judgement */
  function judge(judgement) {
    const { trace } = tools.view();
    const { header } = trace;
    for (const text of [judgement.old, judgement.new]) keepVerdict(trace, text);
    const rows = /** @type {[string, string, string][]} */ ([
      ["Tokens", String(judgement.old.tokens.length), String(judgement.new.tokens.length)],
      ["Answer", answerText(trace, judgement.old.answer), answerText(trace, judgement.new.answer)],
      ["ln p: how likely the model writes it", number(judgement.old.log_prob),
        number(judgement.new.log_prob)],
      ["r: its reward", fixed(judgement.old.reward), fixed(judgement.new.reward)],
      ["ln π, up to a constant", number(judgement.old.log_target),
        number(judgement.new.log_target)],
    ]);
    const alpha = judgement.log_alpha === null ? 0 : Math.exp(judgement.log_alpha);
    const gain = judgement.gain === null
      ? "The model, as sampled, never writes this text: under the target it has no weight at all."
      : `ln π(y′) − ln π(y) = ${signed(judgement.gain)}: the target gives your text `
        + `${brief(Math.exp(Math.max(-700, Math.min(judgement.gain, 700))))} times the weight of `
        + "the old one.";
    const would = `If the model proposed your text, the rule would accept it with probability α = ${
      alpha === 1 ? "1" : brief(alpha)} (β = ${plain(header.beta)}). How likely `
      + "the model is to propose it is not part of α; it is part of ln π above.";
    const newText = shadedText("Your text, token by token. Arrow keys move along it.");
    newText.show({ ...judgement.new }, (k) =>
      (k < cut ? "was-kept" : k < cut + judgement.typed ? "typed" : ""));
    const go = button("link", { "data-key": "mine", onclick: () => {
      mine = true;
      const { tokens, pieces, finished, scores } = judgement.new;
      start({ ids: tokens, pieces, finished, scores, from: "Your text." });
    } }, "Continue from my text");
    const table = h("table", h("thead", h("tr", ...["", "Before", "Yours"].map((head) =>
      h("th", { scope: "col" }, head)))), h("tbody", ...rows.map(([name, ...cells]) =>
      h("tr", h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", cell))))));
    show(result, true);
    swap(result, ...newText.nodes, h("div.scroll", { tabindex: 0, role: "region",
      aria: "Before and yours" }, table), h("p.gain", h("b", gain)), h("p", would,
      " The chain neither includes nor counts this rewrite."), h("p", go, " ", ...back()));
    if (played) move(judgement);
  }
  /** A way back to the chain's text. */
  const back = () => (played ? [] : [button("link", { "data-key": "back", onclick: () => {
    mine = false;
    follow(tools.view());
  } }, "Back to the chain’s text")]);

  // the game
  function invite() {
    const { chain } = tools.view();
    const most = Math.min(MOVES, chain.steps.length - 1);
    swap(game, h("p", h("b", "A game. "), "A text’s score is ", term("target", "ln π"),
      ": the log of how likely the model finds it, plus its reward over β. Start from the chain’s "
      + `first draft. In ${MOVES} rewrites, reach a higher score than the chain did in its first ${
        many(most, "step")}. `,
      button("link", { "data-key": "play", onclick: begin }, "Play")));
  }
  async function begin() {
    const view = tools.view();
    swap(game, h("p", { role: "status" }, "Asking the model about the chain’s texts…"));
    try {
      const best = await chainsBest(client, tools.header(), view.trace.header, view.chain, MOVES);
      played = { chain: best.best, step: best.t, of: best.steps, best: null, moves: 0 };
      mine = true;
      const { ids, pieces, finished } = view.chain.steps[0];
      start({ ids, pieces, finished, from: "The first draft, from which the chain began." });
      tell();
    } catch (error) {
      swap(game, h("p", `There is no game: ${/** @type {Error} */ (error).message} `,
        button("link", { "data-key": "play", onclick: begin }, "Try again")));
    }
  }
  /** @param {Judged} judgement */
  function move(judgement) {
    if (!played || played.moves >= MOVES) return;
    const { header } = tools.view().trace;
    played.moves += 1;
    const mineNow = judgement.new.log_prob === null ? null
      : logTarget(header, judgement.new.log_prob, judgement.new.reward);
    if (mineNow !== null && (played.best === null || mineNow > played.best)) played.best = mineNow;
    if (played.best !== null) keepBest(header, played.best);
    tell();
  }
  function tell() {
    if (!played) return;
    const { header } = tools.view().trace;
    const { chain, step, of, best, moves } = played;
    const won = best !== null && best > chain;
    const over = moves >= MOVES && !won ? " No rewrites are left: the chain stays ahead." : "";
    const before = bestBefore(header);
    swap(game, h("p.score", { role: "status" }, h("b", won ? "You are ahead. " : "The game. "),
      `The chain’s best ln π in ${many(of, "step")}: ${fixed(chain)} (step ${step}). Yours: ${
        best === null ? "–" : fixed(best)}, after ${moves} of ${MOVES} rewrites.${over} `,
      before === null ? "" : `Your best on this problem, kept in this browser: ${fixed(before)}. `),
    h("p", button("link", { "data-key": "play", onclick: begin }, "Begin again"), " ",
      button("link", { "data-key": "leave", onclick: () => {
        played = null;
        mine = false;
        follow(tools.view());
        invite();
      } }, "Leave the game")));
  }

  /** @param {View} view */
  function follow({ chain, seen }) {
    const step = stateOf(chain, seen);
    const { ids, pieces, finished } = step;
    start({ ids, pieces, finished, from: `The chain’s text after step ${seen}.`,
      scores: client?.known(tools.header(), ids) });
  }

  return {
    /** @param {View} view */
    draw(view) {
      const other = isOther(view.run);
      if (other) {
        mine = false;
        played = null;
        invite();
      }
      const elsewhere = isElsewhere(`${view.run}/${stateOf(view.chain, view.seen).t}`);
      const works = mine || words.value.trim() || busy || !result.hidden;
      if (other || (elsewhere && !works)) follow(view);
      return nodes;
    },
  };
}
