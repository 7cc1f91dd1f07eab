/* "Your hand": a rewrite by the visitor, weighed as the rule would weigh it, and a game with it. */
import { term } from "../dictionary.js";
import { differs, put, set, show, swap } from "../dom.js";
import { button, h } from "../player/drawing.js";
import { stateOf } from "../player/numbers.js";
import { keepVerdict, many } from "../player/words.js";
import { drawJudgement } from "./judgement.js";
import { handGame } from "./match.js";
import { shadedText } from "./shaded.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./ask.js").Judged} Judged */
/** @typedef {import("./ask.js").TokenScore} TokenScore */
/** @typedef {import("./inside.js").Tools} Tools */
/** @typedef {{ ids: number[], pieces: string[], finished: boolean, from: string,
 *   scores?: TokenScore[] }} Base */

const LONGEST = 2000; // characters, as components/watch/inside.py has it

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
  const game = handGame(tools, { begin: startFromDraft, leave: followChain });
  const hint = h("p.hint", "Write a proposal yourself. Press a token to ", term("cut", "cut"),
    " before it, continue in your own words, then let the model continue, or end the text. "
      + "You see both models’ numbers and the acceptance probability. ",
    h("b", "A ", term("hand"), " is not part of the chain"), ": the ",
    term("alpha", "acceptance probability"),
    " makes up for how often the model proposes a text, not for how often you do.");
  const nodes = [hint, from, ...text.nodes, keptNote,
    h("div.write", words, h("div.do-row", modelGoesOn, endHere)), status, result, game.node];
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
    for (const text of [judgement.old, judgement.new]) keepVerdict(trace, text);
    const goOn = button("link", { "data-key": "mine", onclick: () => {
      mine = true;
      const { tokens, pieces, finished, scores } = judgement.new;
      start({ ids: tokens, pieces, finished, scores, from: "Your text." });
    } }, "Continue from my text");
    show(result, true);
    swap(result, ...drawJudgement(trace, judgement, cut), h("p", goOn, " ", ...back()));
    game.move(judgement);
  }
  /** A way back to the chain's text, which a game has of its own. */
  const back = () => (game.isOn() ? [] : [
    button("link", { "data-key": "back", onclick: followChain }, "Back to the chain’s text")]);

  /** Begin the game at the draft from which the chain began. */
  function startFromDraft() {
    mine = true;
    const { ids, pieces, finished } = tools.view().chain.steps[0];
    start({ ids, pieces, finished, from: "The first draft, from which the chain began." });
  }
  function followChain() {
    mine = false;
    follow(tools.view());
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
        game.invite();
      }
      const elsewhere = isElsewhere(`${view.run}/${stateOf(view.chain, view.seen).t}`);
      const works = mine || words.value.trim() || busy || !result.hidden;
      if (other || (elsewhere && !works)) follow(view);
      return nodes;
    },
  };
}
