/* The figures below the stage, fetched when they first come into view. */
import { term } from "../dictionary.js";
import { differs, set, show } from "../dom.js";
import { LEFT, LOW, RIGHT, TOP, canvas, frame, overSteps, resize } from "./axes.js";
import { h, icon, label, rule, s, scaleOf } from "./drawing.js";
import { mean, ticks, valuesOf } from "./numbers.js";
import { effective, histogram, weights, whatIf, wilson } from "./statistics.js";
import { LAST, fixed, many, pair, percent, plain, px, rewarded } from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./drawing.js").Part} Part */
/** @typedef {import("./drawing.js").Seek} Seek */
/** @typedef {import("./axes.js").Key} Key */

const BINS = 24;
const FEW = 5; // effective samples below which weights show no shape
const IFS = /** @type {[number, string][]} */ ([[0.5, "β/2"], [1, "β"], [2, "2β"]]);

/**
 * How often proposals are accepted.
 * @param {HTMLElement} node
 * @param {Seek} seek
 * @returns {Part}
 */
function ratePanel(node, seek) {
  const keys = /** @type {Key[]} */ ([
    ["yes", "━", "of those that changed the text, 95% band"],
    ["ink", "╍", term("acceptance", "of all")],
  ]);
  const panel = overSteps(node, "How often proposals are accepted", 108, seek, ...keys);
  const isNew = differs();

  /** @param {View} view */
  function redraw(view) {
    const { chain } = view;
    const { x } = panel.scale(view, view.sizes.panel);
    const y = (/** @type {number} */ v) => panel.bottom - (panel.bottom - TOP) * v;
    panel.level(y(0), "0%");
    panel.level(y(1), "100%");
    panel.level(y(0.5), "50%", "half");
    let all = "";
    let line = "";
    let up = "";
    let down = "";
    for (let t = 1; t < chain.steps.length; t++) {
      const at = (/** @type {number} */ v) => `${px(x(t))} ${px(y(v))}`;
      all += `${all ? "L" : "M"}${at(chain.accepted[t] / t)}`;
      const n = chain.changed[t];
      const k = chain.moves[t];
      if (!n) continue;
      const [lo, hi] = wilson(k, n);
      const to = line ? "L" : "M";
      line += to + at(k / n);
      up += to + at(hi);
      down = `L${at(lo)}${down}`;
    }
    panel.marks.replaceChildren(s("path.band", { d: up && `${up}${down}Z` }),
      s("path.all-line", { d: all }), s("path.state-line", { d: line }));
  }

  /** @param {View} view */
  function describeRate({ chain, seen }) {
    if (seen === 0) return "none decided yet";
    const of = `${percent(chain.accepted[seen] / seen)} of all`;
    const n = chain.changed[seen];
    return n ? `${of}, ${percent(chain.moves[seen] / n)} of those that changed the text` : of;
  }

  return {
    node: panel.node,
    draw(view) {
      if (isNew(view.data)) redraw(view);
      panel.move(view.seen);
      panel.tell(describeRate(view), view.seen);
    },
  };
}

/**
 * The rewards of the states beside those of the model alone and of the target, or their lengths.
 * @param {HTMLElement} node
 * @param {boolean} [counts] whether texts are measured by their tokens, not by their reward
 * @returns {Part}
 */
function histogramPanel(node, counts) {
  const [title, name] = counts ? ["How long its texts are", "length"]
    : ["Where the chain spends its time", "reward"];
  const of = (/** @type {import("./parse.js").Step} */ { ids, reward }) =>
    (counts ? ids.length : reward);
  const spell = (/** @type {number} */ x) => (counts ? `${fixed(x, 0)} tokens` : fixed(x));
  const height = 122;
  const bottom = height - LOW;
  const svg = canvas(height);
  const panel = frame(node, title, svg, ["yes", "■", term("chain")], ["base", "━", term("base")],
    ["ink", "╍", term("target", "target: what an endless chain would show, estimated")]);
  const bars = s("path.bars");
  const base = s("path.base-line");
  const target = s("path.all-line");
  const axes = s("g");
  const top = s("g");
  svg.append(bars, base, target, axes, top);
  /** @type {{ alone: number[], tilted: number[], note: string }} */
  let shapes = { alone: [], tilted: [], note: "" };
  const isNew = differs();
  const isElsewhere = differs();
  let range = { lo: 0, hi: 1 };
  let x = (/** @type {number} */ bin) => bin;
  let y = (/** @type {number} */ share) => share;

  /** @type {(values: number[], weight: number[] | null) => number[]} */
  const shares = (values, weight) =>
    values.length ? histogram(values, weight, range.lo, range.hi, BINS) : [];
  /** @param {number[]} values */
  function outline(values) {
    if (!values.length) return "";
    const steps = values.map((v, b) => `V${px(y(v))}H${px(x(b + 1))}`);
    return `M${LEFT} ${bottom}${steps.join("")}V${bottom}`;
  }

  /** @param {View} view */
  function redraw(view) {
    const { trace } = view;
    const width = view.sizes.panel;
    const right = width - RIGHT;
    resize(svg, width, height);
    const { base: rewards, lengths } = trace;
    const samples = !counts ? rewards : lengths.every(Boolean) ? lengths : [];
    const all = samples.concat(...trace.chains.map(({ steps }) => steps.map(of)));
    const [lo, hi] = [Math.min, Math.max].map((end) => all.reduce((a, b) => end(a, b)));
    const scale = range = scaleOf({ lo, hi }, LEFT, right);
    x = (bin) => LEFT + ((right - LEFT) * bin) / BINS;
    const weight = samples.length ? weights(trace.base, trace.header.beta, trace.tilts) : [];
    const worth = weight.length ? effective(weight) : 0;
    const tilted = worth < FEW ? [] : shares(samples, weight);
    const few = worth < FEW ? ", too few to draw" : "";
    shapes = { alone: shares(samples, null), tilted, note: samples.length
      ? `, model alone ${spell(mean(samples))}; the target’s curve is worth `
        + `${many(Math.round(worth), "sample")}${few}` : "" };
    [true, shapes.alone.length, tilted.length].forEach((on, k) => show(panel.signs[k], on));
    const values = ticks(scale.lo, scale.hi, 5);
    axes.replaceChildren(rule("axis", LEFT, right, bottom),
      ...values.map((r) => label(scale(r), height - 3, plain(r))),
      label(LEFT - 6, bottom, "0%", "end"));
  }

  /** @param {View} view */
  function move(view) {
    const { chain, burnIn, seen } = view;
    const states = valuesOf(chain, seen, Math.min(burnIn, seen), of);
    const walked = shares(states, null);
    const most = Math.max(...walked, ...shapes.alone, ...shapes.tilted); // of what is shown now
    y = (share) => bottom - ((bottom - TOP) * share) / most;
    top.replaceChildren(label(LEFT - 6, TOP + 6, percent(most), "end"));
    set(base, { d: outline(shapes.alone) });
    set(target, { d: outline(shapes.tilted) });
    const columns = walked.map((v, b) =>
      (v ? `M${x(b) + 0.5} ${bottom}V${y(v)}H${x(b + 1) - 0.5}V${bottom}Z` : ""));
    set(bars, { d: columns.join("") });
    panel.tell(`mean ${name} ${spell(mean(states))}${shapes.note}`, seen);
  }

  return {
    node: panel.node,
    draw(view) {
      if (isNew(view.data)) redraw(view);
      if (isElsewhere(`${view.data}/${view.seen}`)) move(view);
    },
  };
}

/**
 * The same proposal and the same u at other betas, once the verdict is out.
 * @param {HTMLElement} node
 * @returns {import("./drawing.js").Part}
 */
function ifsRow(node) {
  const ifs = h("div.ifs");
  const isNew = differs();
  node.replaceChildren(h("figcaption", "What if β were different?"),
    h("p.small", "The same proposal and coin at another β: the larger β, the less the reward "
      + "counts. This holds for this step only: from here on the chains would differ."), ifs);
  return {
    node,
    draw({ trace, step, t, phase, data }) {
      if (!isNew(`${data}/${t}/${phase}`)) return;
      if (!rewarded(trace)) {
        ifs.replaceChildren(h("span.small", "There is no reward here: β plays no role."));
        return;
      }
      if (!t || phase < LAST) {
        ifs.replaceChildren(h("span.small", "Shown after this step’s verdict."));
        return;
      }
      ifs.replaceChildren(...IFS.map(([times, title]) => {
        const beta = trace.header.beta * times;
        const { alpha, isAccepted } = whatIf(step, beta);
        const kind = isAccepted ? "yes" : "no";
        return h(`span.if.${kind}`, h("b", `${title} = ${plain(beta)}`),
          ` α = ${pair(Math.exp(step.logU), alpha)[1]} `, icon(kind),
          isAccepted ? "accepted" : "rejected");
      }));
    },
  };
}

/**
 * Fill the figures, in the order of `FIGURES`.
 * @param {HTMLElement[]} nodes
 * @param {Seek} seek
 * @returns {Part[]}
 */
const fill = ([ifs, time, lengths, rate], seek) =>
  [ifsRow(ifs), histogramPanel(time), histogramPanel(lengths, true), ratePanel(rate, seek)];

export const QAlignCharts = { fill };
