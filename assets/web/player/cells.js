/* The six phases of a step in a strip that opens where the action is. */
import { term } from "../dictionary.js";
import { differs, put, set, show } from "../dom.js";
import { button, chart, h, icon, label, rule, s, scaleOf } from "./drawing.js";
import { wordsOf } from "./moves.js";
import { quantities, visitsAt } from "./numbers.js";
import {
  LAST,
  PHASES,
  brief,
  fixed,
  many,
  narrate,
  pair,
  plain,
  px,
  rewarded,
  signed,
} from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("../dom.js").Child} Child */
/** @typedef {ReturnType<typeof quantities>} Quantities */

const MOST_TICKS = 400; // rewards of the model alone on the number line

const reward = (/** @type {Child[]} */ ...parts) => h("b.c-reward", ...parts);
const length = (/** @type {Child[]} */ ...parts) => h("b.c-length", ...parts);
const model = (/** @type {Child[]} */ ...parts) => h("b.c-base", ...parts);

/** What the cell of each phase shows. */
/** @type {((view: View, q: Quantities) => Child[])[]} */
const CELLS = [
  ({ step }) => [term("cut", "i"), " = ", h("b", step.index),
    ` of ${step.oldLength}${wordsOf(step).cut}`, h("p.small", wordsOf(step).note)],
  ({ step }) => {
    if (step.refused !== null) {
      const n = step.vain.length;
      return [h("b", "No proposal"), `: ${step.refused}.`,
        n ? h("p.small", `${many(n, "token")} discarded; they count as compute.`) : ""];
    }
    const fresh = step.ids.length - step.index - step.again;
    const n = step.first - step.index;
    const same = n > 0 ? `; the first ${n === 1 ? "is" : `${n} are`} unchanged` : "";
    return [h("b", fresh), fresh === 1 ? " new token" : " new tokens",
      `, length ${step.oldLength} → ${step.ids.length}`,
      step.changed ? same : "; the same text again",
      step.again ? `; ${many(step.again, "token")} kept again` : "",
      h("p.small", "The model continues from the cut as usual: it sees neither the old ending "
        + "nor any reward. The whole text is the ", term("proposed"), ".")];
  },
  scoreLine,
  formula,
  drawBar,
  verdict,
];

/**
 * Both rewards on a number line.
 * @param {View} view
 * @param {Quantities} q
 */
function scoreLine({ trace, step, sizes }, q) {
  const width = sizes.score;
  const scale = scaleOf(trace, 8, width - 8);
  const y = 36;
  const old = scale(step.oldReward);
  const fresh = scale(step.reward);
  const ticks = trace.base.slice(0, MOST_TICKS);
  /** @type {(x: number, top: number, text: string, kind: string) => Node} */
  const name = (x, top, text, kind) =>
    label(Math.min(Math.max(x, 54), width - 54), top, text, "middle", kind);
  const [before, after] = [fixed(step.oldReward), fixed(step.reward)];
  const grey = ticks.length ? `; grey: ${many(ticks.length, "sample")} of the ` : "";
  return [
    chart(width, 68, `Reward now ${before}, proposed ${after}.`,
      s("path.base-ticks", { d: ticks.map((r) => `M${px(scale(r))} ${y - 5}v10`).join("") }),
      rule("axis", 4, width - 4, y),
      rule("jump", old, fresh, y),
      s("circle.dot-old", { cx: old, cy: y, r: 5.5 }),
      s("path.dot-new", { d: `M${fresh} ${y - 7}l7 7l-7 7l-7 -7z` }),
      name(old, 18, `r(y) = ${before}`, "name"),
      name(fresh, 61, `r(y′) = ${after}`, "name.c-new")),
    h("p.small", "difference ", reward(signed(q.difference)), grey,
      ticks.length ? term("base") : ""),
    rewarded(trace)
      ? h("p.small", "The ", term("reward"),
        " model reads both texts. It does not know the answer, and a right answer reached by wrong "
        + "sums can score high.")
      : h("p.small", "There is no ", term("reward"), " here: it is 0 for every text, and ",
        term("beta", "β"), " plays no role."),
  ];
}

/**
 * The acceptance formula with its numbers.
 * @param {View} view
 * @param {Quantities} q
 */
function formula({ trace, step }, q) {
  const { beta, sharpness } = trace.header;
  const [sharp, some] = [sharpness > 1, rewarded(trace)];
  const alpha = pair(q.u, q.alpha)[1];
  const over = `exp(${brief(q.difference)}/${plain(beta)})`;
  const { factor, meaning, noun, reason } = wordsOf(step);
  if (step.refused !== null) return ["There is no proposal, so the old text stays."];
  return [
    h("p.formula", "α = min(1, ", ...(some ? [reward(over), " × "] : []),
      ...(sharp ? [model("(p′/p)", h("sup", plain(sharpness - 1))), " × "] : []),
      length(factor), ")"),
    h("p.formula", "\u2007= min(1, ", ...(some ? [reward(brief(q.reward)), " × "] : []),
      ...(sharp ? [model(brief(q.sharp)), " × "] : []), length(brief(q.correction)),
      ") = ", h("b", alpha)),
    h("p.small", term("alpha", "α"), ", the acceptance probability: ",
      ...(some ? [reward("e^(reward gain / ", term("beta", "β"), ")"), ", times "] : []),
      ...(sharp ? [model("how much likelier the model finds it"), ", to the power of ",
        term("sharpness"), " − 1, times "] : []),
      length(term(noun, meaning)), ` (${reason})`,
      q.logRatio >= 0 ? `; before the limit of 1, the product is ${brief(q.ratio)}` : "",
      q.agrees ? "." : "; this trace’s own α differs from the formula."),
  ];
}

/**
 * u against alpha, from 0 to 1.
 * @param {View} _view
 * @param {Quantities} q
 */
function drawBar(_view, q) {
  const [u, alpha] = pair(q.u, q.alpha);
  const part = (/** @type {number} */ v) => `${(100 * v).toFixed(2)}%`;
  // the words' own share u stands under the needle, so that they end where the bar does
  const below = `left:${part(q.u)};transform:translateX(-${part(q.u)})`;
  const [none, all] = [q.u < 0.3 ? "" : "0", q.u > 0.7 ? "" : "1"]; // there the words stand
  return [
    h("div.bar", { role: "img", aria: `u = ${u}, accepted below α = ${alpha}` },
      h("span.zone-yes", { style: `width:${part(q.alpha)}` }, q.alpha > 0.3 ? "accept" : ""),
      h("span.zone-no", q.alpha < 0.7 ? "reject" : ""),
      h("i.needle", { style: `left:${part(q.u)}` })),
    h("div.bar-scale", h("span", none), h("b", { style: below }, term("coin", "u"), ` = ${u}`),
      h("span", all)),
  ];
}

/**
 * Accepted or rejected, and what that means.
 * @param {View} view
 * @param {Quantities} q
 */
function verdict({ chain, step, t }, q) {
  const word = step.accepted ? "Accepted" : step.refused === null ? "Rejected" : "Refused";
  const head = h("b.word", icon(step.accepted ? "yes" : "no"), word);
  const countNote = h("b", `counted again, ×${visitsAt(chain, t)}`);
  if (step.refused !== null) {
    return [head, "The old text is ", countNote, `: ${step.refused}.`];
  }
  if (!step.accepted) {
    const why = step.sharp < Math.log(q.correction)
      ? "the model finds it less likely" : wordsOf(step).why;
    return [head, "The old text is ", countNote, ".", h("p.small", q.difference > 0
      ? `Rejected, though better: ${why}, and that lowers α.`
      : "A text that is hard to beat stays for many steps, and so gets more votes.")];
  }
  if (!step.changed) return [head, "It is the same text, ", countNote, "."];
  return [head, "The proposal joins the chain.", q.difference < 0
    ? h("p.small", "Accepted, though worse: a chain that only climbed could end at texts that the "
      + "reward model overrates.")
    : null];
}

/** @type {(node: Element, children: Child[]) => void} */
const fill = (node, children) =>
  node.replaceChildren(.../** @type {Node[]} */ (children.filter((child) => child != null)));

/** What the strip says of each phase once it is over. */
/** @type {((view: View, q: Quantities) => Child[])[]} */
const BRIEF = [
  ({ step }) => [`${step.index} of ${step.oldLength}`],
  ({ step }) => [step.refused === null
    ? `${step.ids.length - step.index - step.again} new` : "no proposal"],
  (_view, q) => [reward(signed(q.difference))],
  (_view, q) => [`α = ${pair(q.u, q.alpha)[1]}`],
  (_view, q) => [`u = ${pair(q.u, q.alpha)[0]}`],
  ({ step }) => [icon(step.accepted ? "yes" : "no"), step.accepted ? "accepted"
    : step.refused === null ? "rejected" : "refused"],
];

/**
 * The six phases of a step in one strip, which opens where the action is; a press goes there.
 * @param {(phase: number) => void} goPhase
 * @returns {import("./drawing.js").Part & { chance: HTMLElement, say: HTMLElement }}
 */
export function phaseStrip(goPhase) {
  const say = h("p.sentence");
  const cells = PHASES.map((title, k) => {
    const brief = h("span.brief");
    const head = button("phase", { onclick: () => goPhase(k) }, h("b", k + 1), title, brief);
    return { brief, head, body: h(`div.cell-body.cell-${k}`) };
  });
  const bodies = cells.map((cell) => cell.body);
  const chance = h("div.chance", { "data-stage": "chance" }, ...bodies.slice(0, LAST));
  const verdict = h("div.verdict", { "data-stage": "verdict" }, bodies[LAST]);
  const start = h("p", "Each step cuts the text at a random place and writes the rest ",
    "again. A weighted coin decides which text stays, and that text gets one vote.");
  chance.prepend(start);
  const isNew = differs();
  return {
    chance,
    say,
    node: h("div.phases", h("ol.strip", ...cells.map(({ head }) => h("li", head))), say,
      h("div.open", chance, verdict)),
    draw(view) {
      const { trace, step, t, phase, data } = view;
      if (!isNew(`${data}/${t}/${phase}`)) return;
      const q = quantities(step, trace.header.beta);
      put(say, narrate(step, phase, trace.header.beta));
      show(start, !t);
      cells.forEach(({ head, brief, body }, k) => {
        const on = t > 0 && k <= phase;
        const current = t > 0 && k === phase;
        head.classList.toggle("qp-on", on);
        set(head, { "aria-current": current ? "step" : "false" });
        body.classList.toggle("qp-current", current);
        fill(brief, on ? BRIEF[k](view, q) : []);
        fill(body, on ? CELLS[k](view, q) : []);
      });
    },
  };
}
