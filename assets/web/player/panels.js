/* The side panels. Their curves are drawn for new data or a new size; what lies after the position
   is clipped away, so scrubbing costs a few attributes, not a redraw. */
import { term } from "../dictionary.js";
import { differs, put, set, show } from "../dom.js";
import {
  OTHERS,
  answerStyle,
  answerTitle,
  button,
  h,
  label,
  nameNodes,
  rule,
  s,
  scaleOf,
} from "./drawing.js";
import {
  affordable,
  answersTo,
  axisEnd,
  effective,
  histogram,
  mean,
  stateOf,
  stays,
  tally,
  ticks,
  valuesOf,
  weights,
  wilson,
} from "./numbers.js";
import {
  LAST,
  UNMET,
  agreement,
  answerText,
  ending,
  fixed,
  many,
  percent,
  percents,
  plain,
  px,
} from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./parse.js").Trace} Trace */
/** @typedef {import("./drawing.js").Part} Part */
/** @typedef {import("./drawing.js").Seek} Seek */
/** @typedef {[kind: string, sign: string, text: string | Node]} Key */

const LEFT = 36;
const RIGHT = 10;
const TOP = 8;
const LOW = 18;
const BINS = 24;
const BEFORE = 34; // pixels for samples of the model alone, before the first step
const SCORED = 2; // the phase that gives the proposal its reward
const FEW = 5; // effective samples below which weights show no shape
let clips = 0; // clip paths are found by their ids

/**
 * A figure with its title, the value at the position and a key.
 * @param {string} title
 * @param {SVGElement | null} svg
 * @param {Key[]} keys
 */
function frame(title, svg, ...keys) {
  const value = h("span.value");
  const signs = keys.map(([kind, sign, text]) => h("span", h(`b.k-${kind}`, sign), " ", text));
  const key = keys.length ? h("p.key", ...signs) : null;
  return {
    node: h("figure.panel", h("figcaption", title, value), svg, key),
    signs,
    /**
     * Say the value at step t.
     * @param {string} text
     * @param {number} t
     */
    tell(text, t) {
      put(value, text);
      if (svg) set(svg, { "aria-label": `${title}, up to step ${t}: ${text}.` });
    },
  };
}

/** @param {Trace} trace */
const lastStep = ({ chains }) => Math.max(...chains.map(({ steps }) => steps.length - 1));

/** @param {number} height */
const canvas = (height) => s("svg.chart", { height, role: "img" });

/**
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 */
function resize(svg, width, height) {
  set(svg, { width, viewBox: `0 0 ${width} ${height}` });
}

/**
 * A panel over steps: it shows them up to the position, and takes one where it is pressed.
 * @param {string} title
 * @param {number} height
 * @param {Seek} seek
 * @param {...Key} keys
 */
function overSteps(title, height, seek, ...keys) {
  const id = `qp-clip-${++clips}`;
  const svg = canvas(height);
  const clip = s("rect", { x: 0, y: -20, height: height + 40 });
  const head = rule("head", 0, 0, 0);
  const marks = s("g", { "clip-path": `url(#${id})` });
  const axes = s("g");
  const bottom = height - LOW;
  let steps = 1;
  let from = LEFT; // the place of the first step
  let x = (/** @type {number} */ t) => t;

  svg.append(s("clipPath", { id }, clip), axes, marks, head);
  svg.classList.add("qp-seek");
  const go = (/** @type {PointerEvent} */ event) => {
    const { left, width } = svg.getBoundingClientRect(); // of an enlarged page, too
    const along = ((event.clientX - left) * svg.viewBox.baseVal.width) / width - from;
    seek(Math.round((steps * along) / (x(steps) - from)));
  };
  svg.addEventListener("pointerdown", (event) => {
    go(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });

  return {
    ...frame(title, svg, ...keys),
    axes,
    marks,
    bottom,
    /**
     * The places of steps for new data or a new size; the axes begin anew.
     * @param {View} view
     * @param {number} width
     * @param {number} [before] pixels left free before the first step
     */
    scale({ trace, finished }, width, before = 0) {
      resize(svg, width, height);
      const last = lastStep(trace);
      steps = finished ? Math.max(last, 1) : axisEnd(last, trace.header.steps);
      from = LEFT + before;
      x = (t) => from + ((width - from - RIGHT) * t) / steps;
      set(head, { y1: 0, y2: bottom + 3 });
      const whole = ticks(0, steps).filter(Number.isInteger);
      axes.replaceChildren(...whole.map((t) => label(x(t), height - 3, plain(t))));
      return { x, steps };
    },
    /**
     * @param {number} y
     * @param {string} text
     */
    level(y, text, kind = "level") {
      axes.append(rule(kind, LEFT, x(steps), y), label(LEFT - 6, y + 4, text, "end"));
    },
    /** @param {number} t */
    move(t) {
      set(clip, { width: x(t) + 1 });
      set(head, { x1: x(t), x2: x(t) });
    },
  };
}

/** @type {(x: string | number, y: string | number, r: number) => string} */
const disc = (x, y, r) =>
  `M${x} ${y}m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
/** @type {(x: string | number, y: string | number, r: number) => string} */
const diamond = (x, y, r) => `M${x} ${y}m0 ${-r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`;

/**
 * Reward of the states, step by step, with the rejected proposals; before them, a cloud of the
 * samples of the model alone.
 * @param {Seek} seek
 * @returns {Part}
 */
export function tracePanel(seek) {
  const keys = /** @type {Key[]} */ ([
    ["yes", "━", "current text"],
    ["new", "◆", term("proposed")],
    ["no", "◇", term("rejected")],
    ["base", "▬", term("base")],
    ["other", "─", "other chains"],
  ]);
  const panel = overSteps("Reward, step by step", 118, seek, ...keys);
  const isNew = differs();
  const floor = panel.bottom - 10;
  const pending = s("path.pending"); // between its score and its verdict
  panel.node.querySelector("svg")?.append(pending);
  const [aloneKey, otherKey] = panel.signs.slice(3);
  /** @type {(t: number, reward: number) => string} */
  let place = () => "";

  /** @param {View} view */
  function redraw(view) {
    const { trace, burnIn } = view;
    const { steps, stateAt } = view.chain;
    const { length } = trace.base;
    const scale = panel.scale(view, view.sizes.trace, length && BEFORE);
    const { x } = scale;
    const y = scaleOf(trace, floor, TOP);
    place = (t, reward) => diamond(px(x(t)), px(y(reward)), 5);
    const few = steps.length <= 300;
    for (const r of ticks(y.lo, y.hi, 3)) panel.level(y(r), plain(r));
    let line = "";
    let rings = "";
    let dots = "";
    /** @type {{ answer: string | null, from: number, to: number }[]} */
    const bands = [];
    steps.forEach((step, t) => {
      const at = px(x(t));
      const state = steps[stateAt[t]];
      const v = px(y(state.reward));
      line += t ? `H${at}V${v}` : `M${at} ${v}`;
      if (!step.accepted) rings += diamond(at, px(y(step.reward)), few ? 3.4 : 2);
      else if (few) dots += disc(at, v, 2);
      const band = bands[bands.length - 1];
      if (band?.answer === state.answer) band.to = t;
      else bands.push({ answer: state.answer, from: t, to: t });
    });
    const answers = (trace.answers.length ? bands : []).map(({ answer, from, to }) => {
      const left = x(Math.max(0, from - 0.5));
      const width = x(Math.min(to + 0.5, scale.steps)) - left;
      const style = answerStyle(trace, answer);
      const place = { style, x: left, width, y: floor + 4, height: 7 };
      return s("rect.own", place, answerTitle(trace, answer));
    });
    const others = trace.chains.filter((one) => one !== view.chain).map((one) => {
      const d = one.stateAt.map((k, t) => {
        const v = px(y(one.steps[k].reward));
        return t ? `H${px(x(t))}V${v}` : `M${px(x(t))} ${v}`;
      });
      return s("path.other-line", { d: d.join("") }, s("title", `chain ${one.id + 1}`));
    });
    show(otherKey, others.length);
    show(aloneKey, length);
    const cloud = trace.base.map((r, k) => `M${LEFT + ((k * 7) % 29)} ${px(y(r))}h3`);
    panel.axes.append(s("path.base-ticks", { d: cloud.join("") }));
    panel.marks.replaceChildren(...answers, ...others, s("path.state-line", { d: line }),
      s("path.dots", { d: dots }), s("path.rings", { d: rings }));
    const burn = Math.min(burnIn, scale.steps);
    if (burn) {
      const place = { x: x(0), width: x(burn) - x(0), y: TOP, height: floor - TOP };
      const burnInNote = `burn-in: the first ${burn} states are not counted`;
      panel.axes.append(s("rect.burn", place, s("title", burnInNote)));
    }
  }

  panel.node.dataset.stage = "trace";
  return {
    node: panel.node,
    draw(view) {
      if (isNew(view.data)) redraw(view);
      panel.move(view.seen);
      const { trace: { chains }, chain, step, t, phase } = view;
      const waits = t > 0 && phase > SCORED && phase < LAST;
      set(pending, { d: waits ? place(t, step.reward) : "" });
      const who = chains.length > 1 ? `chain ${chain.id + 1} of ${chains.length}, ` : "";
      panel.tell(`${who}now ${fixed(stateOf(chain, view.seen).reward)}`, view.seen);
    },
  };
}

/**
 * How often proposals are accepted.
 * @param {Seek} seek
 * @returns {Part}
 */
export function ratePanel(seek) {
  const keys = /** @type {Key[]} */ ([
    ["yes", "━", "of those that changed the text, 95% band"],
    ["ink", "╍", term("acceptance", "of all")],
  ]);
  const panel = overSteps("How often proposals are accepted", 108, seek, ...keys);
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

  panel.node.classList.add("qp-rate");
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
 * @param {boolean} [counts] whether texts are measured by their tokens, not by their reward
 * @returns {Part}
 */
export function histogramPanel(counts) {
  const [title, kind, name] = counts ? ["How long its texts are", "lengths", "length"]
    : ["Where the chain spends its time", "histogram", "reward"];
  const of = (/** @type {import("./parse.js").Step} */ { ids, reward }) =>
    (counts ? ids.length : reward);
  const spell = (/** @type {number} */ x) => (counts ? `${fixed(x, 0)} tokens` : fixed(x));
  const height = 122;
  const bottom = height - LOW;
  const svg = canvas(height);
  const panel = frame(title, svg, ["yes", "■", term("chain")], ["base", "━", term("base")],
    ["ink", "╍", term("target", "target: what an endless chain would show, estimated")]);
  const bars = s("path.bars");
  const base = s("path.base-line");
  const target = s("path.all-line");
  const axes = s("g");
  const top = s("g");
  panel.node.classList.add(`qp-${kind}`);
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
 * The states' votes for each answer, those of all chains together, and what other rules answer at
 * the same cost; where there is no answer to read, how long each text stayed.
 * @param {import("./player.js").Rivals | undefined} compare
 * @returns {Part}
 */
export function answersPanel(compare) {
  const title = h("span");
  const total = h("span.value");
  const list = h("ol.answers");
  const agree = h("p.agree");
  const cost = h("span");
  const rivals = h("ol.rivals");
  const link = button("link", { onclick: () => compare?.open() }, "Compare them");
  const beside = h("div.agree", h("p", h("i.alone"), " ", term("base", "The model alone"),
    " for as many tokens: ", cost, " ", compare ? link : null), rivals);
  const effect = h("p.agree", { role: "status" });
  const late = h("input", { type: "checkbox", onchange: () => lastView && part.draw(lastView) });
  const later = h("label.late", late, " later half only");
  const isNew = differs();
  /** @type {View | null} */
  let lastView = null;
  /** @type {(style: string, text: string, k: number, part: string, n: number, now: boolean,
   *   share?: number) => HTMLElement} */
  const row = (style, text, k, part, n, now, share) => h("li",
    h("span.name-of", { title: text }, ...nameNodes(style, text)),
    h("span.share", h("i.own", { style: `${style};width:${px((100 * k) / n)}%` }),
      share === undefined ? null : h("i.alone", { style: `left:${px(100 * share)}%` })),
    h("span", now ? h("b.plus", "+1") : ""),
    h("span.much", h("b", k), ` ${part}`));
  /** The answers of each chain, with or without the first half of its states. @param {View} view */
  const each = ({ trace, seen, burnIn }, half = false) => trace.chains.map((one) => {
    const to = Math.min(seen, one.steps.length - 1);
    return answersTo(one, to, Math.min(Math.max(burnIn, half ? Math.ceil(to / 2) : 0), to));
  });
  /** What leaving out the first half changes. @param {View} view */
  function changed(view) {
    const [some, all] = [true, false].map((half) => {
      const sorted = tally(each(view, half).flat());
      const n = sorted.reduce((sum, [, k]) => sum + k, 0);
      const [what, k] = sorted[0];
      return { n, clause: `${answerText(view.trace, what)} has ${percent(k / n)}` };
    });
    if (all.n === some.n) return [];
    return [`Without the first ${all.n - some.n} of ${many(all.n, "state")} (`,
      term("burnin", "burn-in"), `), ${some.clause}; with them, ${all.clause}.`];
  }
  /** @type {Part} */
  const part = {
    node: h("figure.panel.votes", { "data-stage": "votes" },
      h("figcaption", title, later, total), list, agree, beside, effect),
    draw(view) {
      const { trace, chain, seen, burnIn, data } = lastView = view;
      if (!isNew(`${data}/${seen}/${late.checked}`)) return;
      const open = !trace.answers.length;
      show(later, !open);
      effect.replaceChildren(...(late.checked && !open ? changed(view) : []));
      const n = open ? 0 : affordable(trace.spent, tokensTo(trace, seen));
      const alone = tally(trace.alone.slice(0, n));
      show(beside, n);
      if (n) {
        put(cost, `${many(n, "sample")}, ${tokenCount(trace.spent[n - 1])}.`);
        rivals.replaceChildren(...(compare?.decide(trace, n) ?? []).map(([rule, answer]) =>
          h("li", term(rule), " ", h("b", answerText(trace, answer)))));
      }
      const from = Math.min(burnIn, seen);
      const voteLists = open ? [] : each(view, late.checked);
      list.classList.toggle("qp-whole", open);
      const sorted = open ? stays(chain, seen, from) : tally(voteLists.flat());
      const states = sorted.reduce((sum, [, k]) => sum + k, 0);
      const rest = sorted.slice(4).reduce((sum, [, k]) => sum + k, 0);
      const now = open ? chain.since[seen] : stateOf(chain, seen).answer;
      const named = sorted.slice(0, 4);
      const parts = percents([...named.map(([, k]) => k), rest]);
      const shares = new Map(alone.map(([what, k]) => [what, k / n]));
      const rows = named.map(([what, k], j) => (typeof what === "number"
        ? row(OTHERS, ending(chain.steps[what]), k, parts[j], states, what === now)
        : row(answerStyle(trace, what), answerText(trace, what), k, parts[j], states, what === now,
          alone.length ? shares.get(what) ?? 0 : undefined)));
      const isOther = !named.some(([what]) => what === now);
      if (rest) rows.push(row(OTHERS, "others", rest, parts[named.length], states, isOther));
      list.replaceChildren(...rows);
      const several = voteLists.length > 1;
      put(title, open ? "How long it stayed at each text"
        : several ? `Votes of ${voteLists.length} chains, pooled` : "Votes: one for every state");
      put(total, many(states, "state"));
      const sentence = several ? agreement(trace, voteLists.map((one) => tally(one)[0][0])) : "";
      // the presenter's view has no room for who says what
      const who = Math.max(0, sentence.lastIndexOf(UNMET));
      agree.replaceChildren(h("span.spelt", sentence.slice(0, who)), sentence.slice(who));
    },
  };
  return part;
}

/** @param {number} n */
const tokenCount = (n) => `${n.toLocaleString("en")} tokens`;

/**
 * Tokens that all chains have written up to step t.
 * @param {Trace} trace
 * @param {number} t
 */
const tokensTo = ({ chains }, t) => chains.reduce((sum, { generated, steps }) =>
  sum + generated[Math.min(t, steps.length - 1)], 0);

/**
 * What the run has cost up to the position, whether all of it was long enough, and when a chain is
 * worth its cost.
 * @param {((view: View) => Promise<string>) | undefined} ask whether it was long enough
 * @returns {Part}
 */
export function summary(ask) {
  const cost = h("span");
  const question = h("b");
  const trust = h("span");
  const worth = h("span");
  const node = h("div.summary", h("p", h("b", "Cost so far: "), cost),
    ask ? h("p", question, trust) : null,
    h("p", h("b", "When is a chain worth it? "), worth));
  const isNew = differs();
  const isLonger = differs();
  let wanted = "";
  let whole = 1; // tokens of a whole answer
  return {
    node,
    draw(view) {
      const { trace, seen, data, finished } = view;
      if (!isNew(`${data}/${seen}/${finished}`)) return;
      const tokens = tokensTo(trace, seen);
      if (isLonger(data)) {
        whole = mean(trace.chains.map(({ steps }) => mean(steps.map((x) => x.ids.length))));
        worth.replaceChildren(...(trace.answers.length
          ? ["Where samples are hardly ever right and the reward detects near misses. Elsewhere, "
            + "use a ", term("wmv", "weighted vote"), "."]
          : ["On the recorded writing tasks, the chain was not ahead of the ", term("typical"),
            " of several samples."]));
      }
      put(cost, `${tokenCount(tokens)}, about as many as `
        + `${many(Math.max(1, Math.round(tokens / whole)), "whole answer")}.`);
      const now = `${view.run}/${trace.version}/${view.burnIn}/${finished}`;
      if (!ask || now === wanted) return;
      wanted = now;
      put(question, `Can I trust ${finished ? `all ${many(lastStep(trace), "step")}` : "it"}? `);
      put(trust, finished ? "" : "Known after the last step.");
      if (!finished) return;
      ask(view).catch(() => "The server did not answer.").then((sentence) => {
        if (now === wanted) put(trust, sentence);
      });
    },
  };
}
