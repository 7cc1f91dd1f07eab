/* The game of "Your hand": rewrite the chain's first draft to a higher ln π than the chain's. */
import { term } from "../dictionary.js";
import { swap } from "../dom.js";
import { button, h } from "../player/drawing.js";
import { fixed, many } from "../player/words.js";
import { bestBefore, chainsBest, keepBest, logTarget } from "./game.js";

/** @typedef {import("./ask.js").Judged} Judged */
/** @typedef {import("./inside.js").Tools} Tools */
/** @typedef {{ chain: number, step: number, of: number, best: number | null, moves: number }}
 *   Score of the chain, the step that reached it, of how many; of the visitor, after how many */

const MOVES = 30;

/**
 * @param {Tools} tools
 * @param {{ begin: () => void, leave: () => void }} acts what the tab does when a game begins, from
 *   the first draft, and when it is left
 */
export function handGame(tools, acts) {
  const node = h("div.game");
  /** @type {Score | null} */
  let score = null;

  /** @param {string} title */
  const playButton = (title) => button("link", { "data-key": "play", onclick: begin }, title);

  function invite() {
    score = null;
    const { chain } = tools.view();
    const most = Math.min(MOVES, chain.steps.length - 1);
    swap(node, h("p", h("b", "A game. "), "A text’s score is ", term("target", "ln π"),
      ": the log of how likely the model finds it, plus its reward over β. Start from the chain’s "
      + `first draft. In ${MOVES} rewrites, reach a higher score than the chain did in its first ${
        many(most, "step")}. `, playButton("Play")));
  }
  async function begin() {
    const view = tools.view();
    swap(node, h("p", { role: "status" }, "Asking the model about the chain’s texts…"));
    try {
      const best = await chainsBest(tools.client, tools.header(), view.trace.header, view.chain,
        MOVES);
      score = { chain: best.best, step: best.t, of: best.steps, best: null, moves: 0 };
      acts.begin();
      tell(score);
    } catch (error) {
      swap(node, h("p", `There is no game: ${/** @type {Error} */ (error).message} `,
        playButton("Try again")));
    }
  }
  /** @param {Score} now */
  function tell({ chain, step, of, best, moves }) {
    const won = best !== null && best > chain;
    const over = moves >= MOVES && !won ? " No rewrites are left: the chain stays ahead." : "";
    const before = bestBefore(tools.view().trace.header);
    swap(node, h("p.score", { role: "status" }, h("b", won ? "You are ahead. " : "The game. "),
      `The chain’s best ln π in ${many(of, "step")}: ${fixed(chain)} (step ${step}). Yours: ${
        best === null ? "–" : fixed(best)}, after ${moves} of ${MOVES} rewrites.${over} `,
      before === null ? "" : `Your best on this problem, kept in this browser: ${fixed(before)}. `),
    h("p", playButton("Begin again"), " ",
      button("link", { "data-key": "leave", onclick: leave }, "Leave the game")));
  }
  function leave() {
    invite();
    acts.leave();
  }
  return {
    node,
    invite,
    isOn: () => score !== null,
    /**
     * Count a rewrite.
     * @param {Judged} judgement
     */
    move({ new: { log_prob: logProb, reward } }) {
      if (!score || score.moves >= MOVES) return;
      const { header } = tools.view().trace;
      score.moves += 1;
      const mine = logProb === null ? null : logTarget(header, logProb, reward);
      if (mine !== null && (score.best === null || mine > score.best)) score.best = mine;
      if (score.best !== null) keepBest(header, score.best);
      tell(score);
    },
  };
}
