/* Who wrote what, and the steps as a table: each a function from the view to nodes. */
import { button, h } from "../player/drawing.js";
import { quantities, stateOf } from "../player/numbers.js";
import { answerText, fixed, many, pair, visible } from "../player/words.js";
import { writers } from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("../player/drawing.js").Seek} Seek */

const TABLE_ROWS = 25;
const COLUMNS = ["Step", "Tokens kept", "New length", "Reward now", "Reward proposed", "α", "u",
  "Verdict", "Proposed answer"];

/**
 * The current text with the step that wrote each part.
 * @param {View} view
 */
export function drawLineage({ chain, seen }) {
  const by = writers(chain, seen);
  const step = stateOf(chain, seen);
  const distinct = [...new Set(by)].sort((a, b) => a - b);
  const text = h("p.lineage");
  by.forEach((k, j) => {
    if (k !== by[j - 1]) text.append(h("sup", k));
    const age = (36 * distinct.indexOf(k)) / Math.max(1, distinct.length - 1);
    const style = `--k:${Math.round(4 + age)}%`;
    const title = `written at step ${k}`;
    text.append(h("span.tok.age", { style, title }, visible(step.pieces[j])));
  });
  const old = by.filter((k) => k === by[0]).length;
  const hint = "The current text, with the step that wrote each part (small numbers; the stronger "
    + `the colour, the more recent). ${many(old, "token")} of ${by.length} still `
    + `${old === 1 ? "comes" : "come"} from step ${by[0]}. An early token `
    + "is only rewritten when the cut falls before it, and few cuts do: that is why chains "
    + "mix slowly.";
  return [h("p.hint", hint), text];
}

/**
 * The steps up to the position as numbers.
 * @param {View} view
 * @param {Seek} seek
 */
export function drawTable({ trace, chain, seen: t }, seek) {
  const from = Math.max(0, t - TABLE_ROWS + 1);
  const rows = chain.steps.slice(from, t + 1).map((x) => {
    const q = quantities(x, trace.header.beta);
    const [u, alpha] = pair(q.u, q.alpha);
    const isProposal = x.t > 0;
    const verdict = (x.accepted ? "✓ accepted" : "✕ rejected") + (x.changed ? "" : ", same text");
    const cells = [
      isProposal ? `${x.index} of ${x.oldLength}` : "–",
      x.ids.length,
      fixed(x.oldReward),
      fixed(x.reward),
      isProposal ? alpha : "–",
      isProposal ? u : "–",
      isProposal ? verdict : "first draft",
      answerText(trace, x.answer),
    ];
    return h("tr", { "aria-current": x.t === t && "true" },
      h("th", { scope: "row" }, button("link", { "data-key": x.t, onclick: () => seek(x.t) }, x.t)),
      ...cells.map((cell) => h("td", cell)));
  });
  const heads = COLUMNS.map((name) => h("th", { scope: "col" }, name));
  return [
    h("p.hint", `Steps ${from} to ${t}; the table follows the player.`),
    h("div.scroll", { tabindex: 0, role: "region", aria: "Steps", "data-key": "steps" },
      h("table", h("thead", h("tr", ...heads)), h("tbody", ...rows))),
  ];
}
