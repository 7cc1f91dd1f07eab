/* What a branch of the river is, in words; and all of its texts as a table. */
import { button, answerStyle, h, swatch } from "../player/drawing.js";
import { answerText, fixed, many, percent, visible } from "../player/words.js";
import { ranges, stepsOf, textOf } from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./tree.js").Branch} Branch */
/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {import("./inside.js").Tools} Tools */

const ROWS = 30; // of the table
const LEAD = 90; // letters of what stands before a branch

/**
 * A branch as one sentence, and as nodes with links to its steps.
 * @param {Branch} branch
 * @param {Tree} tree
 * @param {View} view
 * @param {Tools["go"]} go
 */
export function describeBranch(branch, tree, view, go) {
  const { from, to, step, time, rejected, leaf } = branch;
  const before = visible(step.pieces.slice(0, from).join(""));
  const lead = before.length > LEAD ? `…${before.slice(-LEAD)}` : before;
  const passed = `${many(time, "state")} of ${tree.states} (${percent(time / tree.states)})`;
  const lost = rejected ? `, ${many(rejected, "proposal")} rejected` : "";
  const where = to > from ? `Tokens ${from + 1} to ${to}` : `After token ${to}`;
  const vote = leaf ? `; it answers ${answerText(view.trace, step.answer)}, `
    + `reward ${fixed(step.reward)}` : "";
  const own = h("b", visible(step.pieces.slice(from, to).join("")));
  const text = { tabindex: 0, role: "group", aria: "Text of the branch", "data-key": "text" };
  return {
    sentence: `${where}: ${textOf(branch)}. ${passed}${lost}${vote}.`,
    nodes: [h("p.river-text", text, lead, own), h("p", `${where}: ${passed}${lost}${vote}.`),
      ...stepLines(branch, view, go)],
  };
}

/**
 * @param {Branch} node
 * @param {View} view
 * @param {Tools["go"]} go
 */
function stepLines(node, view, go) {
  const all = stepsOf(node);
  return view.trace.chains.flatMap((chain) => {
    const steps = all.filter(([one]) => one === chain).map(([, t]) => t);
    if (!steps.length) return [];
    const next = steps.find((t) => t > view.t || chain !== view.chain) ?? steps[0];
    const of = view.trace.chains.length > 1 ? ` of chain ${chain.id + 1}` : "";
    const spans = ranges(steps);
    const some = spans.length > 160 ? `${spans.slice(0, 160).replace(/,[^,]*$/, "")} …` : spans;
    return [h("p", `Proposed at ${steps.length > 1 ? "steps" : "step"} ${some}${of}. `,
      button("link", { "data-key": `to-${chain.id}`, onclick: () => go(next, chain.id) },
        `Go to step ${next}`))];
  });
}

/**
 * The texts that were states, as nodes of a table.
 * @param {Tree} tree
 * @param {View} view
 * @param {Tools["go"]} go
 */
export function tableOf(tree, view, go) {
  const states = tree.leaves.filter((leaf) => leaf.time).sort((a, b) => b.time - a.time);
  const listed = states.slice(0, ROWS);
  const rows = listed.map((leaf) => {
    const [[chain, t]] = leaf.proposals;
    const { from, step, time, rejected } = leaf;
    return h("tr", h("td.words", from ? "… " : "", textOf(leaf)), h("td", from),
      h("td", swatch(answerStyle(view.trace, step.answer)), answerText(view.trace, step.answer)),
      h("td", time), h("td", percent(time / tree.states)), h("td", rejected),
      h("td", button("link", { "data-key": `row-${chain.id}-${t}`,
        onclick: () => go(t, chain.id) }, t)));
  });
  const heads = ["Its own ending", "Shared tokens before it", "Answer", "States",
    "Share", "Times rejected", "First at step"].map((name) => h("th", { scope: "col" }, name));
  const lost = tree.leaves.length - states.length;
  const more = states.length > ROWS ? `The ${ROWS} with most states; ` : "";
  const summary = `${more}${many(states.length, "text")} were states, ${many(lost, "other")} `
    + "only proposed.";
  return [h("summary", "The same as a table"), h("p.hint", summary),
    h("div.scroll", { tabindex: 0, role: "region", aria: "Texts", "data-key": "texts" },
      h("table", h("thead", h("tr", ...heads)), h("tbody", ...rows)))];
}
