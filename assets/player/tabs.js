/* What can be opened below the player: each a function from the view to nodes. */
import {
  answerStyle,
  button,
  chart,
  h,
  label,
  s,
} from "./drawing.js";
import { prefixTree, writers } from "./genealogy.js";
import { quantities, stateOf } from "./numbers.js";
import { answerText, fixed, many, pair, px, visible } from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./drawing.js").Seek} Seek */
/** @typedef {import("./genealogy.js").Branch} Branch */

const ROW = 30; // pixels a leaf of the tree
const ROOM = 150; // beside the leaves, for their answers
const TABLE_ROWS = 25;
const COLUMNS = ["Step", "Tokens kept", "New length", "Reward now", "Reward proposed", "α", "u",
  "Verdict", "Proposed answer"];

/**
 * Give each branch its height; says how many leaves there are and how long the longest is.
 * @param {Branch} tree
 */
function place(tree) {
  let leaves = 0;
  let longest = 1;
  /** @type {(branch: Branch) => number} */
  const visit = (branch) => {
    longest = Math.max(longest, branch.to);
    const own = branch.state || !branch.children.length ? 22 + ROW * leaves++ : 0;
    const ys = branch.children.map(visit);
    branch.y = own || (ys[0] + ys[ys.length - 1]) / 2;
    return branch.y;
  };
  visit(tree);
  return { leaves, longest };
}

/**
 * The most visited texts as a tree of their common beginnings.
 * @param {View} view
 * @param {number} width
 */
export function drawTree({ trace, chain, seen: t }, width) {
  const { tree, distinct, shown, now } = prefixTree(chain, t, 14);
  const { leaves, longest } = place(tree);
  const x = (/** @type {number} */ depth) => 8 + ((width - ROOM - 8) * depth) / longest;
  const svg = chart(width, 22 + ROW * leaves,
    `Tree of ${many(distinct, "different text")} in ${many(t + 1, "state")}.`);

  /** @type {(branch: Branch, from: number) => void} */
  const draw = (branch, from) => {
    const { y, stubs, state } = branch;
    const { answer, pieces, finished } = chain.steps[branch.at];
    const here = state?.key === now;
    const thick = 1.5 + 7 * Math.sqrt(branch.visits / (t + 1));
    const left = x(branch.from);
    const end = x(branch.to);
    const line = { "stroke-width": px(thick), d: `M${left} ${from}V${y}H${end}` };
    svg.append(s(`path.branch.${here ? "here" : ""}`, line));

    const room = Math.floor((end - left - 8) / 6.6);
    const to = finished ? Math.min(branch.to, pieces.length - 1) : branch.to;
    const words = pieces.slice(branch.from, to).map(visible).join("").replace(/\s+/g, " ").trim();
    const fitting = words.length > room ? `${words.slice(0, room - 1)}…` : words;
    if (room > 5) svg.append(label(left + 5, y - thick / 2 - 4, fitting, "start"));
    if (stubs) {
      svg.append(s("path.stub", { d: `M${end - 12} ${y}l6 9` }),
        label(end - 4, y + 17, `${stubs}✕`, "end", "tick.stub-n"));
    }
    if (state) {
      const style = answerStyle(trace, answer);
      const said = `${answerText(trace, answer)} ×${state.visits}${here ? " now" : ""}`;
      const kind = here ? "leaf-text.now" : "leaf-text";
      svg.append(s("circle.leaf.own", { style, cx: end, cy: y, r: 4.5 }),
        label(end + 14, y + 4, said, "start", kind));
    }
    for (const child of branch.children) draw(child, y);
  };
  draw(tree, tree.y);

  const some = distinct > shown ? ` Drawn: the ${shown} most visited of ${distinct} texts.` : "";
  const hint = "Each path is one text; texts share their beginnings. Wider: visited more often. "
    + `✕: proposals that left there and were rejected.${some}`;
  return [h("p.hint", hint), svg];
}

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
  const hint = "The current text, with the step that wrote each part (small numbers; darker is "
    + `more recent). ${many(old, "token")} of ${by.length} still come from step ${by[0]}. An early `
    + "token is only rewritten when the cut falls before it, and few cuts do: that is why chains "
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
    const drawn = x.t > 0;
    const verdict = (x.accepted ? "✓ accepted" : "✕ rejected") + (x.changed ? "" : ", same text");
    const cells = [
      drawn ? `${x.index} of ${x.oldLength}` : "–",
      x.ids.length,
      fixed(x.oldReward),
      fixed(x.reward),
      drawn ? alpha : "–",
      drawn ? u : "–",
      drawn ? verdict : "first draft",
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
