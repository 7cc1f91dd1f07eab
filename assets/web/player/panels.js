/* The side panels. Their curves are drawn for new data or a new size; what lies after the position
   is clipped away, so scrubbing costs a few attributes, not a redraw. */
import { term } from "../dictionary.js";
import { differs, put, set, show } from "../dom.js";
import { LEFT, TOP, lastStep, overSteps } from "./axes.js";
import {
  OTHERS,
  answerStyle,
  answerTitle,
  button,
  h,
  nameNodes,
  s,
  scaleOf,
} from "./drawing.js";
import { affordable, answersTo, stateOf, stays, tally, ticks } from "./numbers.js";
import {
  LAST,
  UNMET,
  agreement,
  answerText,
  ending,
  fixed,
  hasAnswers,
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
/** @typedef {import("./axes.js").Key} Key */

const BEFORE = 34; // pixels for samples of the model alone, before the first step
const PORTABLE = new Set(["embedded", "none"]); // rewards whose verdicts are the same everywhere
const WRITTEN = 1; // the phase that writes the proposal
const SCORED = 2; // the phase that gives the proposal its reward

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
  const title = "Reward, step by step (higher is better)";
  const panel = overSteps(h("figure.panel"), title, 96, seek, ...keys);
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
    const answers = (hasAnswers(trace) ? bands : []).map(({ answer, from, to }) => {
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
  const caution = h("p.caution");
  const link = button("link", { onclick: () => compare?.open() }, "Compare them");
  const beside = h("div.agree", h("p", h("i.alone"), " ", term("base", "Model alone"),
    " (no reward)", h("span.cost", ", ", cost, " ", compare ? link : null)), rivals, caution);
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
      if (!isNew(`${data}/${seen}/${writtenTo(view)}/${late.checked}`)) return;
      const open = !hasAnswers(trace);
      show(later, !open);
      effect.replaceChildren(...(late.checked && !open ? changed(view) : []));
      const n = open ? 0 : affordable(trace.spent, tokensOf(view));
      const alone = tally(trace.alone.slice(0, n));
      show(beside, n);
      if (n) {
        put(cost, `${many(n, "sample")}.`);
        put(caution, compare?.caution(trace, n) ?? "");
        rivals.replaceChildren(...(compare?.decide(trace, n) ?? []).map(([rule, answer]) =>
          h("li", term(rule), " ",
            h("b.name-of", ...nameNodes("", answerText(trace, answer)).slice(1)))));
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

/** The last step whose rewrite is written. @param {View} view */
const writtenTo = ({ t, phase, seen }) => (phase >= WRITTEN ? t : seen);

/** Tokens that all chains have written so far. @param {View} view */
const tokensOf = (view) => view.trace.chains.reduce((sum, { generated, steps }) =>
  sum + generated[Math.min(writtenTo(view), steps.length - 1)], 0);

/**
 * What the run has cost up to the position, whether all of it was long enough, when a chain is
 * worth its cost, and what draws the step again.
 * @param {((view: View) => Promise<string>) | undefined} ask whether it was long enough
 * @param {((view: View) => Promise<string>) | undefined} redraw the step, and what came of it
 * @returns {Part}
 */
export function summary(ask, redraw) {
  const cost = h("span");
  const question = h("b");
  const trust = h("span");
  const worth = h("span");
  const address = h("span");
  const outcome = h("span", { role: "status" });
  const again = button("link", { async onclick() {
    const [view, mine] = [/** @type {View} */ (latest), at];
    put(outcome, "Drawing…");
    show(again, false);
    const sentence = await /** @type {NonNullable<typeof redraw>} */ (redraw)(view);
    if (mine === at) put(outcome, sentence);
  } }, "Draw it again");
  const node = h("div.summary", h("p", h("b", "Cost so far: "), cost),
    ask ? h("p", question, trust) : null,
    h("p", h("b", "When is a chain worth it? "), worth),
    h("p", h("b", "Can this step be repeated? "), address, " ", redraw ? again : null, outcome));
  const isNew = differs();
  const isLonger = differs();
  const isElsewhere = differs();
  /** @type {View | null} */
  let latest = null;
  let at = "";
  let wanted = "";
  return {
    node,
    draw(view) {
      const { trace, chain, t, data, finished } = latest = view;
      if (isElsewhere(at = `${view.run}/${t}`)) {
        const { seed = 0, lm, rm } = trace.header;
        const same = lm === "embedded" && PORTABLE.has(rm);
        address.replaceChildren(
          `Seed ${seed}, chain ${chain.id + 1}, step ${t} draw the same text and verdict `,
          ...(same
            ? ["on ", term("elsewhere", "every computer"), "; speed differs, and last digits may."]
            : ["here. On ", term("elsewhere"), " they may differ."]));
        put(outcome, "");
        show(again, true);
      }
      if (!isNew(`${data}/${writtenTo(view)}/${finished}`)) return;
      if (isLonger(data)) {
        worth.replaceChildren(...(hasAnswers(trace)
          ? ["If right samples are rare and the reward detects near misses. Otherwise, use a ",
            term("wmv", "weighted vote"), "."]
          : ["On the recorded writing tasks, the chain was not ahead of the ", term("typical"),
            " of several samples."]));
      }
      const tokens = tokensOf(view);
      const n = affordable(trace.spent, tokens);
      const spent = trace.spent[n - 1];
      const rest = n in trace.spent || tokens * n < spent * (n + 2) ? "." : "; no more exist.";
      const others = n ? `For that, the other methods have ${many(n, "sample")} (${
        many(spent, "token")})${rest}` : "";
      put(cost, `${many(tokens, "token")}, with rejected rewrites. ${others}`);
      const now = `${view.run}/${trace.version}/${view.burnIn}/${finished}`;
      if (!ask || now === wanted) return;
      wanted = now;
      put(question, `Can I trust ${finished ? `all ${many(lastStep(trace), "step")}` : "it"}? `);
      put(trust, finished ? "" : "Known after the last step.");
      if (!finished) return;
      ask(view).then((sentence) => {
        if (now === wanted) put(trust, sentence);
      });
    },
  };
}
