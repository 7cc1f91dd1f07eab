/* The chain player: a trace (JSON lines, qalign_core/trace_io.py) in, a playable page out.
   No dependencies. 1 parse, 2 numbers and words, 3 drawing, 4 panels, 5 genealogy, 6 player.
   Model text enters the page through textContent only, never as markup. */
(function (root) {
"use strict";

// ---------------------------------------------------------------- 1. parse: text -> trace

const LIMITS = { characters: 16e6, steps: 50000, chains: 64, tokens: 32768, rewards: 100000 };

class TraceError extends Error {}

const isText = (x) => typeof x === "string";
const isCount = (x) => Number.isInteger(x) && x >= 0;
const isLog = (x) => x === null || (Number.isFinite(x) && x <= 0);
const isList = (x, test, most) => Array.isArray(x) && x.length <= most && x.every(test);

function newTrace() {
  return { header: null, base: [], chains: [], answers: [], end: null, lines: 0, head: "", read: 0,
           lo: Infinity, hi: -Infinity, version: 0 };
}

/** Read the lines that arrived since the last call; `text` is everything so far. */
function feed(trace, text, whole) {
  if (text.length > LIMITS.characters) throw new TraceError("This trace is larger than 16 MB.");
  for (;;) {
    let stop = text.indexOf("\n", trace.read);
    if (stop < 0) { if (!whole || trace.read >= text.length) break; stop = text.length; }
    const line = text.slice(trace.read, stop);
    trace.read = stop + 1;
    trace.lines += 1;
    if (line.trim()) readLine(trace, line);
  }
  trace.version += 1;
  return trace;
}

function readLine(trace, line) {
  const need = (ok, what) => { if (!ok) throw new TraceError(`Line ${trace.lines}: ${what}.`); };
  let x;
  try { x = JSON.parse(line); } catch { need(false, "this is not JSON; a trace is JSON lines"); }
  need(x && typeof x === "object" && !Array.isArray(x), "expected an object");
  if (!trace.header) {
    need(x.type === "header", "expected a trace, whose first line is its header");
    need(x.version === 1, `trace version ${String(x.version)} is not known, expected 1`);
    need([x.lm, x.rm, x.prompt].every(isText), "the header lacks lm, rm or prompt");
    need(Number.isFinite(x.beta) && x.beta > 0, "beta must be a number above 0");
    need(isCount(x.steps) && x.steps <= LIMITS.steps, "steps must be a count, 50,000 at most");
    trace.header = x;
    return;
  }
  need(!trace.end, "a line after the end of the trace");
  if (x.type === "base") {
    need(isList(x.rewards, Number.isFinite, LIMITS.rewards), "base rewards must be finite numbers");
    trace.base = x.rewards;
    for (const r of x.rewards) span(trace, r);
  } else if (x.type === "end") {
    need(isText(x.reason), "the end has no reason");
    trace.end = { reason: x.reason, message: isText(x.message) ? x.message : "" };
  } else if (x.type === "step") {
    readStep(trace, x, need);
  } else need(false, `unknown type ${JSON.stringify(x.type)}`);
}

const span = (trace, r) => { trace.lo = Math.min(trace.lo, r); trace.hi = Math.max(trace.hi, r); };

function readStep(trace, x, need) {
  need(isCount(x.chain) && x.chain < LIMITS.chains, "chain must be a count below 64");
  let chain = trace.chains.find((c) => c.id === x.chain);
  const t = chain ? chain.steps.length : 0;
  need(x.t === t && t <= LIMITS.steps, `step ${String(x.t)} of chain ${x.chain} came where ${t} was due`);
  const old = t ? chain.steps[chain.stateAt[t - 1]] : null;
  need(isCount(x.index) && (old ? x.index < old.ids.length : x.index === 0),
    "index must lie within the current response");
  need(isList(x.tokens, isCount, LIMITS.tokens) && x.tokens.length > 0, "tokens must be a list of ids");
  need(isList(x.pieces, isText, LIMITS.tokens) && x.pieces.length === x.tokens.length,
    "pieces must hold one text for each token");
  need(Number.isFinite(x.reward), "reward must be a finite number");
  need(isLog(x.log_alpha) && isLog(x.log_u), "log_alpha and log_u must be at most 0, or null");
  need(typeof x.accepted === "boolean", "accepted must be true or false");
  const logAlpha = x.log_alpha ?? -Infinity, logU = x.log_u ?? -Infinity;
  need(t === 0 ? x.accepted : x.accepted === (logAlpha === 0 || logU < logAlpha),
    "the verdict contradicts alpha and u");
  need(x.answer == null || isText(x.answer), "answer must be a text or null");
  need(x.cost == null || isList(x.cost, isCount, 8), "cost must be a list of counts");

  const ids = old ? old.ids.slice(0, x.index).concat(x.tokens) : x.tokens;
  const pieces = old ? old.pieces.slice(0, x.index).concat(x.pieces) : x.pieces;
  let first = -1;                                     // first token that differs from the state
  if (old) {
    const shared = Math.min(ids.length, old.ids.length);
    for (let j = x.index; j < shared && first < 0; j++) if (ids[j] !== old.ids[j]) first = j;
    if (first < 0 && ids.length !== old.ids.length) first = shared;
  }
  if (!chain) {
    chain = { id: x.chain, steps: [], stateAt: [], accepted: [], changed: [], changedAccepted: [], generated: [] };
    trace.chains.push(chain);
    trace.chains.sort((a, b) => a.id - b.id);
  }
  const answer = x.answer ?? null;
  if (answer !== null && !trace.answers.includes(answer)) trace.answers.push(answer);
  const step = { t, index: x.index, ids, pieces, finished: !!x.finished, reward: x.reward, answer,
    logAlpha, logU, accepted: x.accepted, first, changed: first >= 0, old: old ? chain.stateAt[t - 1] : 0,
    oldLength: old ? old.ids.length : ids.length, oldReward: old ? old.reward : x.reward };
  const before = (list) => (t ? list[t - 1] : 0);
  const counts = t > 0;                               // the first draft is no proposal
  chain.accepted.push(before(chain.accepted) + (counts && step.accepted ? 1 : 0));
  chain.changed.push(before(chain.changed) + (counts && step.changed ? 1 : 0));
  chain.changedAccepted.push(before(chain.changedAccepted) + (counts && step.changed && step.accepted ? 1 : 0));
  chain.generated.push(before(chain.generated) + (x.cost ? x.cost[0] : x.tokens.length));
  chain.stateAt.push(step.accepted ? t : before(chain.stateAt));
  chain.steps.push(step);
  span(trace, step.reward);
}

/** Parse a whole trace, or throw a TraceError of one sentence. */
function parse(text) {
  const trace = feed(newTrace(), text, true);
  if (!trace.header) throw new TraceError("This file is empty; a trace is JSON lines, the first its header.");
  if (!trace.chains.length) throw new TraceError("This trace has no steps.");
  return trace;
}

// ---------------------------------------------------------------- 2. numbers and words

const MINUS = "−";
const fixed = (x, d = 2) => x.toFixed(d).replace("-", MINUS);
const signed = (x, d = 2) => (x >= 0 ? "+" : "") + fixed(x, d);
const percent = (x) => `${Math.round(100 * x)} %`;
const UP = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** A non-negative number in few digits: 0.69, 12.4, 2.1 × 10⁻⁵. */
function brief(x, digits = 2) {
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return "∞";
  if (x < 0.001 || x >= 1e5) {
    const [m, e] = x.toExponential(1).split("e");
    return `${m} × 10${[...String(Number(e))].map((c) => UP[c]).join("")}`;
  }
  return x < 0.1 ? x.toPrecision(digits) : x.toFixed(x < 10 ? digits : 1);
}
const factor = (x) => (x >= 0.001 && x < 1e4 ? x.toFixed(3) : brief(x));

/** u and alpha in as few digits as show which one is larger. */
function pair(u, alpha) {
  for (let d = 2; d < 8; d++) {
    const [a, b] = [u, alpha].map((x) => (x >= 0.1 ** d || x === 0 ? x.toFixed(d) : brief(x)));
    if (a !== b || u === alpha) return [a, alpha === 1 ? "1" : b];
  }
  return [String(u), String(alpha)];
}

/** All that one step's card shows; `ratio` is the raw acceptance ratio before min(1, .). */
function quantities(step, beta) {
  const difference = step.reward - step.oldReward;
  const lengths = step.oldLength / step.ids.length;
  const logRatio = difference / beta + Math.log(lengths);
  const alpha = Math.exp(step.logAlpha), u = Math.exp(step.logU);
  return { difference, lengths, logRatio, ratio: Math.exp(logRatio), reward: Math.exp(difference / beta), alpha, u,
           agrees: Math.abs(Math.min(0, logRatio) - step.logAlpha) <= 1e-6 * (1 + Math.abs(step.logAlpha)) };
}

/** The verdict of this proposal with this u at another beta. */
function whatIf(step, beta) {
  const { logRatio } = quantities(step, beta);
  return { beta, alpha: Math.exp(Math.min(0, logRatio)), accepted: logRatio >= 0 || step.logU < logRatio };
}

/** Wilson's 95 % interval of k out of n. */
function wilson(k, n) {
  if (!n) return [0, 1];
  const z = 1.959964, p = k / n, d = 1 + z * z / n, c = p + z * z / (2 * n);
  const w = z * Math.sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return [(c - w) / d, (c + w) / d];
}

/** Self-normalised importance weights of base samples for the target at beta. */
function weights(rewards, beta) {
  const top = Math.max(...rewards.slice(0, 50000));
  const w = rewards.map((r) => Math.exp((r - top) / beta)), sum = w.reduce((a, b) => a + b, 0);
  return w.map((x) => x / sum);
}

/** How often the state at `t` has been counted by then. */
const visitsAt = (chain, t) => t - chain.stateAt[t] + 1;

const PHASES = ["Place", "Rewrite", "Score", "Chance", "Draw", "Verdict"];
const SECONDS = [0.34, 0.34, 0.24, 0.24, 0.24, 0.20];      // 1.6 s a step at 1x
const LAST = PHASES.length - 1;

const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** One plain sentence for a phase of a step. */
function narrate(step, phase, beta) {
  const n = step.oldLength, i = step.index;
  if (step.t === 0) return `The chain starts from one ordinary draft of the model: ${many(step.ids.length, "token")}, reward ${fixed(step.reward)}.`;
  const q = quantities(step, beta), [u, alpha] = pair(q.u, q.alpha);
  switch (phase) {
    case 0: return "Where to cut? Every token of the current text is equally likely.";
    case 1: {
      const kept = i === 0 ? "The model keeps nothing and writes a new text."
        : `The model keeps the first ${many(i, "token")} and rewrites the rest.`;
      if (!step.changed) return `${kept} It wrote the same again.`;
      return step.first > i ? `${kept} The first token that differs is number ${step.first + 1}.` : kept;
    }
    case 2: return q.difference === 0 ? "The reward model scores both texts the same."
      : `The reward model likes the proposal ${q.difference > 0 ? "better" : "less"}: ${fixed(step.reward)} against ${fixed(step.oldReward)}.`;
    case 3: return q.logRatio >= 0 ? "At least as good a trade as the current text: it is taken for certain."
      : `So the proposal is taken with probability ${alpha}.`;
    case 4: return `A random number between 0 and 1 is drawn: u = ${u}.`;
    default: return step.accepted
      ? (q.alpha === 1 ? `Accepted: with probability 1, any u will do. ` : `Accepted: ${u} is below ${alpha}. `) + "The proposal becomes the current text."
      : `Rejected: ${u} is not below ${alpha}. The old text stays and is counted again.`;
  }
}

/** Model text made safe to look at: controls and direction marks become visible signs. */
const visible = (piece) => piece
  .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
  .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

// ---------------------------------------------------------------- 3. drawing

function build(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) if (child != null) node.append(child);     // strings become text nodes
  return node;
}
const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const show = (node, on) => { if (node.hidden === !!on) node.hidden = !on; };

const ICONS = {
  play: "M7 4.5v15l13-7.5z", pause: "M6 4.5h4.5v15H6zM13.5 4.5H18v15h-4.5z",
  back: "M18 5v14l-9-7zM6 5h2.5v14H6z", next: "M6 5v14l9-7zM15.5 5H18v14h-2.5z",
  hop: "M3 6v12l7-6zM10 6v12l7-6zM18 9.5l1.6 1.7L23 7.5", yes: "M4 12.5l5.5 5.5L20 6.5", no: "M6 6l12 12M18 6L6 18",
  lock: "M7 11V8a5 5 0 0 1 10 0v3M5.5 11h13v9h-13z", again: "M20 6v5h-5M19.4 11a8 8 0 1 0 .4 4",
};
function icon(name) {
  const line = ["yes", "no", "lock", "again"].includes(name);
  return s("svg", { viewBox: "0 0 24 24", class: line ? "qp-icon qp-line" : "qp-icon", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}
const setIcon = (button, name) => { if (button.dataset.icon !== name) { button.dataset.icon = name; button.replaceChildren(icon(name)); } };

/** "Nice" tick values within [lo, hi]. */
function ticks(lo, hi, n = 4) {
  const raw = (hi - lo) / n || 1, power = 10 ** Math.floor(Math.log10(raw));
  const size = power * [1, 2, 5, 10].find((m) => m * power >= raw);
  const out = [];
  for (let x = Math.ceil(lo / size) * size; x <= hi + 1e-9; x += size) out.push(Math.abs(x) < size / 1e6 ? 0 : x);
  return out;
}
const tickText = (x) => String(Number(x.toFixed(6))).replace("-", MINUS);

function rewardScale(trace, from, to) {
  let { lo, hi } = trace;
  if (!(hi > lo)) { lo -= 1; hi += 1; }
  const pad = 0.06 * (hi - lo);
  lo -= pad; hi += pad;
  const at = (r) => from + (to - from) * (r - lo) / (hi - lo);
  return Object.assign(at, { lo, hi });
}

/** Spans for tokens; end-of-text ids are drawn as a sign of their own. */
function tokenSpans(pieces, from, to, finished) {
  const out = [];
  for (let j = from; j < to; j++) {
    const end = finished && j === pieces.length - 1;
    out.push(h("span", { class: end ? "qp-tok qp-eos" : "qp-tok", title: end ? "the end-of-text token, counted in the length" : undefined }, visible(pieces[j])));
  }
  return out;
}

const answerClass = (trace, answer) => (answer === null ? "qp-a-none" : `qp-a${Math.min(trace.answers.indexOf(answer), 6)}`);
const answerText = (trace, answer) => (answer === null ? "no answer" : visible(answer).slice(0, 40))
  + (answer !== null && trace.header.reference != null ? (answer === trace.header.reference ? " ✓" : " ✗") : "");

// ---------------------------------------------------------------- 4. panels
// A panel has draw(trace, chain, width) for new data or size, and move(t) for the position:
// what lies after t is clipped away, so scrubbing costs two attributes, not a redraw.

const clipId = ((n) => () => `qp-clip-${++n}`)(0);

function timePanel(title, height, seek) {
  const clip = clipId(), rect = s("rect", { x: 0, y: -20, width: 0, height: height + 40 });
  const marks = s("g", { "clip-path": `url(#${clip})` }), frame = s("g"), head = s("line", { class: "qp-head", y1: 0 });
  const svg = s("svg", { class: "qp-chart qp-seek", height, role: "img" }, s("clipPath", { id: clip }, rect), frame, marks, head);
  const value = h("span", { class: "qp-panel-value" });
  const node = h("figure", { class: "qp-panel" }, h("figcaption", {}, h("span", {}, title), value), svg);
  const box = { left: 34, right: 10, top: 8, bottom: 18 };
  const p = { node, svg, marks, frame, value, box, height,
    scale(chain, trace, width) {
      p.steps = Math.max(trace.header.steps, chain.steps.length - 1, 1);
      p.x = (t) => box.left + (width - box.left - box.right) * t / p.steps;
      svg.setAttribute("width", width);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      head.setAttribute("y2", height - box.bottom + 3);
      frame.replaceChildren(...ticks(0, p.steps).filter(Number.isInteger).map((t) =>
        s("text", { class: "qp-tick", x: p.x(t), y: height - 3, "text-anchor": "middle" }, tickText(t))));
    },
    level(y, text, cls) {
      frame.append(s("line", { class: cls || "qp-grid", x1: box.left, x2: p.x(p.steps), y1: y, y2: y }),
        s("text", { class: "qp-tick", x: box.left - 6, y: y + 3.5, "text-anchor": "end" }, text));
    },
    move(t) { rect.setAttribute("width", Math.max(0, p.x(t) + 1)); head.setAttribute("x1", p.x(t)); head.setAttribute("x2", p.x(t)); },
  };
  svg.addEventListener("pointerdown", (event) => {
    const go = (e) => seek(Math.round(p.steps * (e.clientX - svg.getBoundingClientRect().left - p.x(0)) / (p.x(p.steps) - p.x(0))));
    go(event);
    const stop = () => { svg.removeEventListener("pointermove", go); root.removeEventListener("pointerup", stop); };
    svg.addEventListener("pointermove", go);
    root.addEventListener("pointerup", stop);
  });
  return p;
}

function tracePanel(seek, options) {
  const p = timePanel("Reward of the chain’s text, step by step", 148, seek);
  const key = h("p", { class: "qp-key" }, h("i", { class: "qp-k-line" }), "current text", h("i", { class: "qp-k-ring" }), "rejected proposal");
  p.node.append(key);
  p.draw = (trace, chain, width) => {
    p.scale(chain, trace, width);
    const bottom = p.height - p.box.bottom - 10, y = rewardScale(trace, bottom, p.box.top);
    for (const r of ticks(y.lo, y.hi, 3)) p.level(y(r), tickText(r));
    let line = "", rings = "", dots = "", bands = [];
    const { steps, stateAt } = chain, small = steps.length > 300 ? 1.6 : 2.6;
    for (let t = 0; t < steps.length; t++) {
      const x = p.x(t).toFixed(1), state = steps[stateAt[t]], v = y(state.reward).toFixed(1);
      line += t ? `H${x}V${v}` : `M${x} ${v}`;
      if (!steps[t].accepted) rings += ring(x, y(steps[t].reward).toFixed(1), small);
      else if (steps.length <= 300) dots += ring(x, v, 2);
      const lastBand = bands[bands.length - 1];
      if (lastBand && lastBand.answer === state.answer) lastBand.to = t; else bands.push({ answer: state.answer, from: t, to: t });
    }
    const burn = Math.min(options.burnIn || 0, p.steps);
    p.marks.replaceChildren(
      ...(trace.header.extractor === null && !trace.answers.length ? [] : bands.map((b) => s("rect", { class: `qp-band ${answerClass(trace, b.answer)}`,
        x: p.x(b.from - 0.5 < 0 ? 0 : b.from - 0.5), width: p.x(Math.min(b.to + 0.5, p.steps)) - p.x(Math.max(0, b.from - 0.5)), y: bottom + 5, height: 6 },
        s("title", {}, answerText(trace, b.answer))))),
      s("path", { class: "qp-state-line", d: line }), s("path", { class: "qp-dots", d: dots }), s("path", { class: "qp-rings", d: rings }));
    if (burn) p.frame.append(s("rect", { class: "qp-burn", x: p.x(0), width: p.x(burn) - p.x(0), y: p.box.top, height: bottom - p.box.top },
      s("title", {}, `burn-in: the first ${burn} states are not counted`)));
  };
  const move = p.move;
  p.say = (trace, chain, t) => {
    const r = fixed(chain.steps[chain.stateAt[t]].reward);
    put(p.value, `now ${r}`);
    p.svg.setAttribute("aria-label", `Reward of the chain's text up to step ${t}: now ${r}.`);
  };
  p.move = move;
  return p;
}
const ring = (x, y, r) => `M${x} ${y}m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;

function ratePanel(seek) {
  const p = timePanel("How often proposals are accepted", 112, seek);
  p.node.append(h("p", { class: "qp-key" }, h("i", { class: "qp-k-line qp-k-accept" }), "proposals that differ, with 95 % band", h("i", { class: "qp-k-line qp-k-dash" }), "all"));
  p.draw = (trace, chain, width) => {
    p.scale(chain, trace, width);
    const y = (v) => p.height - p.box.bottom - (p.height - p.box.bottom - p.box.top) * v;
    p.level(y(0), "0 %"); p.level(y(1), "100 %"); p.level(y(0.5), "50 %", "qp-half");
    let all = "", up = "", down = "", line = "", open = false;
    for (let t = 1; t < chain.steps.length; t++) {
      const x = p.x(t).toFixed(1), n = chain.changed[t], k = chain.changedAccepted[t];
      all += `${all ? "L" : "M"}${x} ${y(chain.accepted[t] / t).toFixed(1)}`;
      if (!n) continue;
      const [lo, hi] = wilson(k, n);
      line += `${open ? "L" : "M"}${x} ${y(k / n).toFixed(1)}`;
      up += `${open ? "L" : "M"}${x} ${y(hi).toFixed(1)}`;
      down = `L${x} ${y(lo).toFixed(1)}${down}`;
      open = true;
    }
    p.marks.replaceChildren(s("path", { class: "qp-ci", d: open ? `${up}${down}Z` : "" }), s("path", { class: "qp-all-line", d: all }), s("path", { class: "qp-accept-line", d: line }));
  };
  p.say = (trace, chain, t) => {
    const n = chain.changed[t], text = t === 0 ? "no proposal yet" : `${percent(chain.accepted[t] / t)} of all` + (n ? `, ${percent(chain.changedAccepted[t] / n)} of those that differ` : "");
    put(p.value, text);
    p.svg.setAttribute("aria-label", `Acceptance rate up to step ${t}: ${text}. The paper tunes beta to about 50 %.`);
  };
  return p;
}

/** Share of each bin for values with weights. */
function histogram(values, weight, lo, hi, bins) {
  const out = new Array(bins).fill(0);
  for (let j = 0; j < values.length; j++) {
    const b = Math.min(bins - 1, Math.max(0, Math.floor((values[j] - lo) / (hi - lo) * bins)));
    out[b] += weight ? weight[j] : 1 / values.length;
  }
  return out;
}

function histogramPanel(options) {
  const BINS = 24, height = 128, bottom = height - 18, top = 8, left = 34;
  const bars = s("path", { class: "qp-bars" }), base = s("path", { class: "qp-base-line" }), target = s("path", { class: "qp-target-line" }), frame = s("g");
  const svg = s("svg", { class: "qp-chart", height, role: "img" }, bars, base, target, frame), value = h("span", { class: "qp-panel-value" });
  const p = { node: h("figure", { class: "qp-panel" }, h("figcaption", {}, h("span", {}, "Where the chain spends its time"), value), svg,
    h("p", { class: "qp-key" }, h("i", { class: "qp-k-bar" }), "chain, repeats counted", h("i", { class: "qp-k-line qp-k-base" }), "model alone", h("i", { class: "qp-k-line qp-k-dash" }), "target, estimated")) };
  let x, y, scale, last = -1;
  const states = (chain, to) => chain.stateAt.slice(Math.min(options.burnIn || 0, to), to + 1).map((k) => chain.steps[k].reward);
  const outline = (share) => share.map((v, b) => `${b ? "V" : `M${x(0)} ${bottom}V`}${y(v).toFixed(1)}H${x(b + 1).toFixed(1)}`).join("") + `V${bottom}`;
  p.draw = (trace, chain, width) => {
    scale = rewardScale(trace, left, width - 10);
    x = (b) => left + (width - 10 - left) * b / BINS;
    const rewards = trace.base, plain = rewards.length ? histogram(rewards, null, scale.lo, scale.hi, BINS) : null;
    const tilted = plain ? histogram(rewards, weights(rewards, trace.header.beta), scale.lo, scale.hi, BINS) : null;
    const whole = histogram(states(chain, chain.steps.length - 1), null, scale.lo, scale.hi, BINS);
    const most = Math.max(...whole, ...(plain || []), ...(tilted || []));
    y = (v) => bottom - (bottom - top) * Math.min(1, v / most);
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    base.setAttribute("d", plain ? outline(plain) : "");
    target.setAttribute("d", tilted ? outline(tilted) : "");
    frame.replaceChildren(s("line", { class: "qp-axis", x1: left, x2: width - 10, y1: bottom, y2: bottom }),
      ...ticks(scale.lo, scale.hi, 5).map((r) => s("text", { class: "qp-tick", x: scale(r), y: height - 3, "text-anchor": "middle" }, tickText(r))),
      s("text", { class: "qp-tick", x: left - 6, y: top + 6, "text-anchor": "end" }, percent(most)), s("text", { class: "qp-tick", x: left - 6, y: bottom, "text-anchor": "end" }, "0 %"));
    last = -1;
  };
  p.move = () => {};
  p.say = (trace, chain, t) => {
    if (t === last) return;
    last = t;
    const r = states(chain, t), share = histogram(r, null, scale.lo, scale.hi, BINS), mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
    bars.setAttribute("d", share.map((v, b) => (v ? `M${(x(b) + 0.5).toFixed(1)} ${bottom}V${y(v).toFixed(1)}H${(x(b + 1) - 0.5).toFixed(1)}V${bottom}Z` : "")).join(""));
    const text = `mean reward ${fixed(mean(r))}` + (trace.base.length ? `, model alone ${fixed(mean(trace.base))}` : "");
    put(value, text);
    svg.setAttribute("aria-label", `Histogram of rewards up to step ${t}: ${text}.`);
  };
  return p;
}

function answersPanel(options) {
  const list = h("ol", { class: "qp-answers" }), value = h("span", { class: "qp-panel-value" });
  const node = h("figure", { class: "qp-panel" }, h("figcaption", {}, h("span", {}, "Votes for each final answer"), value), list);
  return { node, draw() {}, move() {}, say(trace, chain, t) {
    show(node, trace.answers.length);
    const from = Math.min(options.burnIn || 0, t), votes = new Map();
    for (let k = from; k <= t; k++) { const a = chain.steps[chain.stateAt[k]].answer; votes.set(a, (votes.get(a) || 0) + 1); }
    const n = t - from + 1, sorted = [...votes].sort((a, b) => b[1] - a[1]), rest = sorted.slice(5).reduce((a, b) => a + b[1], 0);
    put(value, many(n, "state"));
    const row = (cls, text, k) => h("li", {}, h("span", { class: "qp-answer-name" }, h("i", { class: `qp-swatch ${cls}` }), text),
      h("span", { class: "qp-answer-bar" }, h("i", { class: cls, style: `width:${(100 * k / n).toFixed(1)}%` })), h("span", { class: "qp-answer-n" }, percent(k / n)));
    list.replaceChildren(...sorted.slice(0, 5).map(([a, k]) => row(answerClass(trace, a), answerText(trace, a), k)), ...(rest ? [row("qp-a6", "others", rest)] : []));
  } };
}

// ---------------------------------------------------------------- 5. genealogy and table

/** For each token of the state at t, the step that wrote it: a walk back over accepted steps. */
function writers(chain, t) {
  let k = chain.stateAt[t], limit = chain.steps[k].ids.length;
  const out = new Array(limit);
  for (;;) {
    const step = chain.steps[k];
    for (let j = step.index; j < limit; j++) out[j] = k;
    limit = Math.min(limit, step.index);
    if (limit === 0) return out;
    k = chain.stateAt[k - 1];
  }
}

/** Prefix tree of the most visited states up to t: edges carry visits, nodes the rejected stubs. */
function prefixTree(chain, t, most) {
  const seen = new Map();
  for (let k = 0; k <= t; k++) {
    const at = chain.stateAt[k], key = chain.steps[at].ids.join(",");
    const state = seen.get(key);
    if (state) state.visits += 1; else seen.set(key, { ids: chain.steps[at].ids, at, visits: 1, key });
  }
  const now = chain.steps[chain.stateAt[t]].ids.join(",");
  const kept = [...seen.values()].sort((a, b) => (b.key === now) - (a.key === now) || b.visits - a.visits).slice(0, most);
  const grow = (states, depth) => {
    let end = depth;
    const [one] = states;
    while (states.every((x) => end < x.ids.length && x.ids[end] === one.ids[end])) end += 1;
    const node = { from: depth, to: end, at: one.at, visits: states.reduce((n, x) => n + x.visits, 0), stubs: 0, children: [], state: null };
    const groups = new Map();
    for (const x of states) {
      if (end === x.ids.length) { node.state = x; continue; }
      const id = x.ids[end];
      if (groups.has(id)) groups.get(id).push(x); else groups.set(id, [x]);
    }
    node.children = [...groups.values()].map((g) => grow(g, end)).sort((a, b) => a.at - b.at);
    return node;
  };
  const tree = grow(kept, 0);
  for (let k = 1; k <= t; k++) {                      // where each rejected proposal left the tree
    const { ids, accepted, changed } = chain.steps[k];
    if (accepted || !changed) continue;
    let node = tree;
    for (;;) {
      let d = node.from;
      while (d < node.to && ids[d] === chain.steps[node.at].ids[d]) d += 1;
      const child = d === node.to && node.children.find((c) => ids[c.from] === chain.steps[c.at].ids[c.from]);
      if (!child) { node.stubs += 1; break; }
      node = child;
    }
  }
  return { tree, distinct: seen.size, shown: kept.length, now };
}

function drawTree(trace, chain, t, width) {
  const { tree, distinct, shown, now } = prefixTree(chain, t, 14);
  const row = 30, total = t + 1, labels = 150;
  let longest = 1, leaves = 0;
  const measure = (n) => { longest = Math.max(longest, n.to); n.y = n.children.length && !n.state ? (n.children.forEach(measure), (n.children[0].y + n.children[n.children.length - 1].y) / 2)
    : (n.y = 22 + row * leaves++, n.children.forEach(measure), n.y); };
  measure(tree);
  const height = 22 + row * leaves, x = (d) => 8 + (width - labels - 8) * d / longest;
  const svg = s("svg", { class: "qp-chart qp-tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Tree of ${many(distinct, "different text")} visited in ${many(total, "state")}; thicker branches were visited more.` });
  const draw = (n, y0) => {
    const w = 1.5 + 7 * Math.sqrt(n.visits / total), here = n.state && n.state.key === now;
    svg.append(s("path", { class: here ? "qp-branch qp-here" : "qp-branch", "stroke-width": w.toFixed(1), d: `M${x(n.from)} ${y0}V${n.y}H${x(n.to)}` }));
    const room = Math.floor((x(n.to) - x(n.from) - 8) / 6.3), words = chain.steps[n.at].pieces.slice(n.from, n.to).map(visible).join("").replace(/\s+/g, " ").trim();
    if (room > 5) svg.append(s("text", { class: "qp-tick", x: x(n.from) + 5, y: n.y - w / 2 - 4 }, words.length > room ? `${words.slice(0, room - 1)}…` : words));
    if (n.stubs) svg.append(s("path", { class: "qp-stub", d: `M${x(n.to)} ${n.y}l10 9` }), s("text", { class: "qp-tick qp-stub-n", x: x(n.to) + 3, y: n.y + 20 }, `${n.stubs}✕`));
    if (n.state) svg.append(s("circle", { class: `qp-leaf ${answerClass(trace, chain.steps[n.state.at].answer)}`, cx: x(n.to), cy: n.y, r: 4.5 }),
      s("text", { class: here ? "qp-leaf-text qp-now" : "qp-leaf-text", x: x(n.to) + 12, y: n.y + 4 }, `${answerText(trace, chain.steps[n.state.at].answer)} ×${n.state.visits}${here ? " now" : ""}`));
    for (const c of n.children) draw(c, n.y);
  };
  draw(tree, tree.y);
  const more = distinct > shown ? ` The ${shown} most visited of ${distinct} different texts are drawn.` : "";
  return [h("p", { class: "qp-hint" }, "Each path from left to right is one text; texts share their beginnings. Wider means visited more often; ✕ counts proposals that branched off there and were rejected." + more), svg];
}

function drawLineage(chain, t) {
  const by = writers(chain, t), step = chain.steps[chain.stateAt[t]], distinct = [...new Set(by)].sort((a, b) => a - b);
  const text = h("p", { class: "qp-lineage", dir: "ltr" });
  for (let j = 0; j < by.length; j++) {
    if (j === 0 || by[j] !== by[j - 1]) text.append(h("sup", { class: "qp-writer" }, String(by[j])));
    const shade = distinct.length < 2 ? 0 : Math.round(5 * distinct.indexOf(by[j]) / (distinct.length - 1));
    text.append(h("span", { class: `qp-tok qp-age${shade}`, title: `written at step ${by[j]}` }, visible(step.pieces[j])));
  }
  return [h("p", { class: "qp-hint" }, `The current text, with the step that wrote each part (small numbers; darker is more recent). ${many(by.filter((k) => k === by[0]).length, "token")} of ${by.length} still come from step ${by[0]}: a cut is as likely at any token, so an early token is only rewritten when the cut falls before it. That is why chains mix slowly.`), text];
}

function drawTable(trace, chain, t, seek) {
  const to = Math.max(Math.min(t, 24), t), from = Math.max(0, to - 24), beta = trace.header.beta;
  const rows = chain.steps.slice(from, t + 1).map((x) => {
    const q = quantities(x, beta), start = x.t === 0, [u, alpha] = pair(q.u, q.alpha);
    return h("tr", x.t === t ? { "aria-current": "true" } : {}, h("th", { scope: "row" }, h("button", { type: "button", class: "qp-link", onclick: () => seek(x.t) }, String(x.t))),
      ...[start ? "–" : `${x.index} of ${x.oldLength}`, String(x.ids.length), fixed(x.oldReward), fixed(x.reward), start ? "–" : alpha, start ? "–" : u,
        start ? "first draft" : (x.accepted ? "✓ accepted" : "✕ rejected") + (x.changed ? "" : " (same text)"), answerText(trace, x.answer)].map((v) => h("td", {}, v)));
  });
  return [h("p", { class: "qp-hint" }, `Steps ${from} to ${t} of this chain. The table follows the player.`),
    h("div", { class: "qp-scroll", tabindex: 0, role: "region", "aria-label": "Steps of the chain" }, h("table", {}, h("thead", {}, h("tr", {},
      ...["Step", "Tokens kept", "New length", "Reward now", "Reward proposed", "α", "u", "Verdict", "Proposed answer"].map((v) => h("th", { scope: "col" }, v)))), h("tbody", {}, ...rows)))];
}

function drawDiagnostics(d, t) {
  if (!d) return [h("p", { class: "qp-hint" }, "Calculating…")];
  if (d.error) return [h("p", { class: "qp-hint" }, d.error)];
  const parts = [h("p", { class: "qp-hint" }, `From the rewards of the states up to step ${t}. Neighbouring states resemble each other, so a chain of many states is worth fewer independent samples.`),
    h("dl", { class: "qp-facts" }, ...d.facts.flatMap((f) => [h("dt", {}, f.name), h("dd", {}, h("b", {}, f.value), h("span", {}, f.meaning))]))];
  const w = 320, height = 120;
  const bars = (values, lo, title, label) => {
    const bw = (w - 30) / values.length, y = (v) => 10 + (height - 30) * (1 - (v - lo) / (1 - lo));
    return h("figure", { class: "qp-panel" }, h("figcaption", {}, h("span", {}, title)), s("svg", { class: "qp-chart", width: w, height, viewBox: `0 0 ${w} ${height}`, role: "img", "aria-label": label },
      s("path", { class: "qp-bars", d: values.map((v, k) => `M${(26 + k * bw).toFixed(1)} ${y(0)}V${y(v).toFixed(1)}h${Math.max(1, bw - 1).toFixed(1)}V${y(0)}Z`).join("") }),
      s("line", { class: "qp-axis", x1: 24, x2: w, y1: y(0), y2: y(0) }), s("text", { class: "qp-tick", x: 20, y: y(0) + 4, "text-anchor": "end" }, "0"),
      s("text", { class: "qp-tick", x: 20, y: y(1) + 6, "text-anchor": "end" }, "1"), s("text", { class: "qp-tick", x: w / 2, y: height - 2, "text-anchor": "middle" }, label)));
  };
  const charts = [];
  if (d.autocorrelation) charts.push(bars(d.autocorrelation, Math.min(0, ...d.autocorrelation), "How alike are states k steps apart?", `autocorrelation, k = 0 to ${d.autocorrelation.length - 1}`));
  for (const [k, ranks] of (d.ranks || []).entries()) charts.push(bars(ranks, 0, `Ranks of chain ${k}`, "flat bars: the chains agree"));
  return [...parts, h("div", { class: "qp-row" }, ...charts)];
}

// ---------------------------------------------------------------- 6. the player

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, Infinity];
const HELP = [["Space", "play or pause"], ["→ ←", "one step on or back"], ["Shift + → ←", "ten steps"], ["Home End", "first, last step"], ["[ ]", "slower, faster"], ["1 … 6", "a phase of this step"], ["N", "next accepted step"], ["?", "this list"]];

/**
 * Make a player inside `element`.
 * options: text (a trace), label, autoplay, step, chain, burnIn, diagnose(data) -> promise,
 * link (keep `step` in the address bar), onseek(t), onopen(trace). Returns its API.
 */
function mount(element, options = {}) {
  let trace = newTrace(), source = "", chainId = 0, label = options.label || "";
  let t = 0, phase = LAST, p = 1, playing = false, speed = 1, want = null, stopped = false;
  let tab = "", dirty = true, drawn = 0, built = "", typed = -1, marked = -1, clock = 0, frame = 0, sized = 0, tabKey = "", tabTime = 0;
  const still = root.matchMedia("(prefers-reduced-motion: reduce)");
  const chain = () => trace.chains.find((c) => c.id === chainId) || trace.chains[0];
  const last = () => (chain() ? chain().steps.length - 1 : -1);
  const revealed = () => (phase === LAST || t === 0 ? t : t - 1);
  const settings = { burnIn: options.burnIn || 0 };

  // -- the page
  const button = (name, title, action, cls) => { const b = h("button", { type: "button", class: `qp-button ${cls || ""}`, "aria-label": title, title, onclick: action }); setIcon(b, name); return b; };
  const origin = h("span", { class: "qp-origin" }), facts = h("span", { class: "qp-setup" }), state = h("span", { class: "qp-state", role: "status" });
  const chains = h("select", { class: "qp-select", "aria-label": "Chain", onchange: () => { chainId = Number(chains.value); t = Math.min(t, last()); changed(true); } });
  const note = h("p", { class: "qp-note", role: "alert", hidden: true });
  const prompt = h("p", { class: "qp-prompt", dir: "auto" });
  const say = h("p", { class: "qp-say" });
  const spoken = h("p", { class: "qp-hidden", "aria-live": "polite" });
  const kept = h("span", { class: "qp-kept" }), old = h("span", { class: "qp-old" }), neu = h("span", { class: "qp-new" });
  const lock = h("span", { class: "qp-lock" }, icon("lock"), h("span", {}));
  const oldName = h("span", { class: "qp-lane" }, "now"), newName = h("span", { class: "qp-lane" }, "proposed");
  const text = h("div", { class: "qp-text", dir: "ltr", tabindex: 0, role: "region", "aria-label": "Current text and proposal" }, lock, kept, h("span", { class: "qp-old-row" }, oldName, old), h("span", { class: "qp-new-row" }, newName, neu));
  const beads = h("ol", { class: "qp-beads", "aria-label": "The chain so far" });
  const cells = PHASES.map((name, k) => {
    const body = h("div", { class: "qp-cell-body" });
    const head = h("button", { type: "button", class: "qp-cell-head", onclick: () => goPhase(k) }, h("b", {}, String(k + 1)), name);
    return { body, head, node: h("li", { class: `qp-cell qp-cell-${k}` }, head, body) };
  });
  const ifs = h("div", { class: "qp-ifs" });
  const whatif = h("div", { class: "qp-whatif" }, h("p", {}, h("b", {}, "What if?"), " The same proposal and the same u at another β (for this one step: afterwards the chains would part ways)."), ifs);
  const playButton = button("play", "Play", () => toggle(), "qp-play");
  const scrub = h("input", { type: "range", class: "qp-scrub", min: 0, max: 1, value: 0, "aria-label": "Step", oninput: () => { playing = false; go(Number(scrub.value), LAST, false); } });
  const count = h("span", { class: "qp-count" });
  const speedBox = h("select", { class: "qp-select", "aria-label": "Speed", onchange: () => { speed = SPEEDS[speedBox.selectedIndex]; dirty = true; } }, ...SPEEDS.map((v) => h("option", {}, v === Infinity ? "instant" : `${v}×`)));
  speedBox.selectedIndex = 2;
  const help = h("div", { class: "qp-help", hidden: true, role: "note" }, h("b", {}, "Keys, while the player has the focus"), h("dl", {}, ...HELP.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  const helpButton = h("button", { type: "button", class: "qp-button", "aria-label": "Keyboard help", title: "Keyboard help (?)", "aria-expanded": "false", onclick: () => toggleHelp() }, "?");
  const transport = h("div", { class: "qp-transport" },
    h("div", { class: "qp-buttons" }, button("back", "Step back", () => step(-1)), playButton, button("next", "Step forward", () => step(1)), button("hop", "Next accepted", () => nextAccepted())),
    h("div", { class: "qp-scrub-row" }, scrub, count), h("div", { class: "qp-extra" }, chains, speedBox, helpButton), help);
  const seek = (k) => { playing = false; go(k, LAST, true); };
  const panels = [tracePanel(seek, settings), ratePanel(seek), histogramPanel(settings), answersPanel(settings)];
  const side = h("div", { class: "qp-side" }, ...panels.map((x) => x.node));
  const TABS = [["tree", "Family tree"], ["lineage", "Who wrote what"], ["diagnostics", "Can I trust it?"], ["table", "Table"]].filter(([k]) => k !== "diagnostics" || options.diagnose);
  const view = h("div", { class: "qp-view", role: "tabpanel", id: clipId(), hidden: true });
  const tabs = TABS.map(([key, name]) => h("button", { type: "button", role: "tab", "aria-selected": "false", "aria-controls": view.id, class: "qp-tab", "data-tab": key, onclick: () => openTab(tab === key ? "" : key) }, name));
  const file = h("input", { type: "file", accept: ".jsonl,.ndjson,.json,.txt", class: "qp-hidden", tabindex: -1, "aria-label": "Open a trace file", onchange: () => { if (file.files[0]) openFile(file.files[0]); file.value = ""; } });
  const more = h("div", { class: "qp-more" }, h("div", { class: "qp-tabs" }, h("div", { role: "tablist", "aria-label": "More about this chain" }, ...tabs), h("span", { class: "qp-spacer" }),
    h("button", { type: "button", class: "qp-link", onclick: download }, "Download trace"), h("button", { type: "button", class: "qp-link", onclick: () => file.click() }, "Open a trace"),
    options.link ? h("button", { type: "button", class: "qp-link", onclick: copyLink }, "Copy link") : null, file), view);
  const player = h("section", { class: "qp", tabindex: 0, "aria-label": "Chain player", "data-phase": LAST, onkeydown: key },
    h("div", { class: "qp-top" }, origin, facts, state), note, prompt,
    h("div", { class: "qp-grid" }, h("div", { class: "qp-main" }, say, spoken, text, beads, h("ol", { class: "qp-cells" }, ...cells.map((c) => c.node)), whatif), side), transport, more);
  element.replaceChildren(player);

  // -- what the position is
  function go(step, toPhase = LAST, speak = true) {
    if (last() < 0) return;
    t = Math.max(0, Math.min(last(), step));
    phase = t === 0 ? LAST : toPhase;
    p = 1;
    changed(speak);
  }
  function step(by) { playing = false; want = null; go(t + by); }
  function goPhase(k) { playing = false; if (t === 0 && last() > 0 && k < LAST) t = 1; go(t, k); }
  function nextAccepted() {
    playing = false;
    for (let k = t + 1; k <= last(); k++) if (chain().steps[k].accepted && chain().steps[k].changed) return go(k);
    tell("No later step of this chain accepted a different text.");
  }
  function toggle(on = !playing) {
    playing = on;
    if (on && t >= last() && phase === LAST && finished()) { t = 0; phase = LAST; p = 0; }
    clock = 0;
    changed(!on);
  }
  const finished = () => trace.end || stopped || !source;
  function toggleHelp() { show(help, help.hidden); helpButton.setAttribute("aria-expanded", String(!help.hidden)); }
  function tell(sentence) { put(note, sentence); show(note, sentence); }
  function key(event) {
    const tag = event.target.tagName, typing = tag === "SELECT" || (tag === "INPUT" && event.target !== scrub);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const many10 = event.shiftKey ? 10 : 1, k = event.key;
    if (k === " ") { if (tag === "BUTTON") return; toggle(); }
    else if (k === "ArrowRight") step(many10);
    else if (k === "ArrowLeft") step(-many10);
    else if (k === "Home") seek(0);
    else if (k === "End") seek(last());
    else if (k === "[" || k === "]") { speedBox.selectedIndex = Math.max(0, Math.min(SPEEDS.length - 1, speedBox.selectedIndex + (k === "]" ? 1 : -1))); speed = SPEEDS[speedBox.selectedIndex]; }
    else if (k >= "1" && k <= "6" && k.length === 1) goPhase(Number(k) - 1);
    else if (k === "n" || k === "N") nextAccepted();
    else if (k === "?") toggleHelp();
    else if (k === "Escape" && !help.hidden) toggleHelp();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  function changed(speak) {
    dirty = true;
    if (speak && last() >= 0) put(spoken, `Step ${t} of ${last()}. ${[...PHASES.keys()].filter((k) => (phase === LAST ? k > 0 : k === phase)).map((k) => narrate(chain().steps[t], k, trace.header.beta)).filter((v, k, all) => all.indexOf(v) === k).join(" ")}`);
    if (!frame) frame = root.requestAnimationFrame(tick);
    remember();
  }

  // -- time
  function tick(now) {
    frame = 0;
    const dt = clock ? Math.min(0.25, (now - clock) / 1000) : 0;
    clock = now;
    if (playing) advance(dt);
    const resized = Math.round(element.clientWidth) !== sized;
    if (dirty || resized) { dirty = false; render(now); }
    if (playing || (tab && tabKey !== tabState())) frame = root.requestAnimationFrame(tick); else clock = 0;
  }
  function advance(dt) {
    if (speed === Infinity) {
      if (t < last()) { t += 1; phase = LAST; p = 1; dirty = true; } else if (finished()) { playing = false; changed(true); }
      return;
    }
    let left = dt * speed;
    while (left > 0) {
      const rest = (t === 0 ? 0.8 : SECONDS[phase]) * (1 - p);
      dirty = true;
      if (left < rest) { p += left / (t === 0 ? 0.8 : SECONDS[phase]); return; }
      left -= rest;
      p = 1;
      if (phase < LAST) { phase += 1; p = 0; } else if (t < last()) { t += 1; phase = 0; p = 0; remember(); }
      else { if (finished()) { playing = false; changed(true); } return; }
    }
  }

  // -- drawing
  function render(now) {
    const c = chain(), has = !!c;
    player.classList.toggle("qp-empty", !has);
    put(origin, label);
    if (!has) { put(say, options.waiting || "Waiting for the first step…"); return; }
    if (t > last()) t = last();
    const x = c.steps[t], beta = trace.header.beta, moving = !still.matches && playing && speed !== Infinity;
    if (drawn !== trace.version || sized !== Math.round(element.clientWidth)) redraw(c);
    if (built !== `${c.id}/${t}`) buildText(c, x);
    player.dataset.phase = phase;
    player.dataset.verdict = phase === LAST && t > 0 ? (x.accepted ? "yes" : "no") : "";
    player.dataset.start = t === 0 ? "1" : "";
    player.dataset.t = t;
    put(say, narrate(x, phase, beta));
    runMarker(x, moving);
    type(x, moving);
    put(oldName, phase === LAST && t > 0 ? (x.accepted ? "before" : "stays") : "now");
    put(newName, t === 0 ? "draft" : phase === LAST ? (x.accepted ? "now" : "rejected") : "proposed");
    card(x, beta, moving);
    const seen = revealed();
    drawBeads(c, seen);
    for (const panel of panels) { panel.move(seen); panel.say(trace, c, seen); }
    setIcon(playButton, playing ? "pause" : "play");
    const playName = playing ? "Pause" : t >= last() && finished() ? "Play again" : "Play";
    if (playButton.title !== playName) { playButton.title = playName; playButton.setAttribute("aria-label", playName); }
    scrub.max = Math.max(1, last());
    scrub.value = t;
    scrub.setAttribute("aria-valuetext", `step ${t} of ${last()}`);
    scrub.style.setProperty("--at", `${100 * t / Math.max(1, last())}%`);
    put(count, `${t} / ${last()}`);
    if (tab && tabKey !== tabState() && (!playing || now - tabTime > 150)) drawTab(now);
  }
  const tabState = () => `${tab}/${chain() ? chain().id : 0}/${revealed()}/${trace.version}/${sized}`;

  function redraw(c) {
    sized = Math.round(element.clientWidth);
    drawn = trace.version;
    const width = Math.max(240, Math.round(side.getBoundingClientRect().width / (getComputedStyle(side).gridTemplateColumns.split(" ").length) - 34));
    for (const panel of panels) panel.draw(trace, c, width);
    const x = trace.header;
    put(facts, `${x.lm} · ${x.rm} · β = ${tickText(x.beta)} · seed ${x.seed ?? 0}`);
    put(prompt, visible(x.prompt));
    put(state, trace.end ? { finished: "", stopped: "stopped", failed: `failed: ${trace.end.message}` }[trace.end.reason] ?? "" : stopped ? "stopped" : source === "live" ? `${last()} of ${x.steps} steps sampled` : "");
    if (chains.options.length !== trace.chains.length) chains.replaceChildren(...trace.chains.map((k) => h("option", { value: k.id, selected: k.id === c.id }, `chain ${k.id}`)));
    show(chains, trace.chains.length > 1);
  }

  function buildText(c, x) {
    built = `${c.id}/${t}`;
    typed = marked = -1;
    const before = c.steps[x.old], start = x.t === 0;
    kept.replaceChildren(...(start ? [] : tokenSpans(before.pieces, 0, x.index, before.finished)));
    old.replaceChildren(...(start ? [] : tokenSpans(before.pieces, x.index, before.pieces.length, before.finished)));
    neu.replaceChildren(...tokenSpans(x.pieces, x.index, x.pieces.length, x.finished));
    if (x.changed && x.first > x.index) for (let j = 0; j < x.first - x.index; j++) if (neu.children[j]) neu.children[j].classList.add("qp-same");
    put(lock.lastChild, x.index ? `kept ${x.index}` : "kept none");
  }

  // Phase 1: a marker runs to the end and back to i.
  function runMarker(x, moving) {
    const n = x.oldLength, i = x.index;
    let at = -1;
    if (phase === 0 && t > 0) {
      const run = moving ? p / 0.8 : 1;
      at = run >= 1 ? i : run < 0.55 ? Math.round((n - 1) * run / 0.55) : Math.round(n - 1 - (n - 1 - i) * (run - 0.55) / 0.45);
    }
    const cut = phase > 0 || at === i;
    if (player.dataset.cut !== String(cut)) player.dataset.cut = cut;
    if (at === marked) return;
    const tok = (k) => (k < 0 ? null : k < i ? kept.children[k] : old.children[k - i]);
    if (tok(marked)) tok(marked).classList.remove("qp-mark");
    if (tok(at)) tok(at).classList.add("qp-mark");
    marked = at;
  }

  // Phase 2: the new suffix is typed.
  function type(x, moving) {
    const n = neu.children.length, count = phase > 1 || t === 0 ? n : phase === 1 ? (moving ? Math.ceil(n * Math.min(1, p / 0.85)) : n) : 0;
    if (count === typed) return;
    if (typed < 0) typed = n;
    for (let j = Math.min(count, typed); j < Math.max(count, typed); j++) neu.children[j].classList.toggle("qp-off", j >= count);
    typed = count;
  }

  let cardKey = "";
  function card(x, beta, moving) {
    const key = `${chain().id}/${t}/${phase}/${trace.version}/${sized}`;
    if (key === cardKey) return;
    cardKey = key;
    const q = quantities(x, beta), n = x.oldLength, start = t === 0;
    const fill = [
      () => [h("span", { class: "qp-num" }, "i = ", h("b", {}, String(x.index)), ` of ${n}`), `, each with probability 1/${n}`],
      () => [h("span", { class: "qp-num" }, h("b", {}, String(x.ids.length - x.index)), ` new ${x.ids.length - x.index === 1 ? "token" : "tokens"}`), `, length ${n} → ${x.ids.length}`
        + (!x.changed ? "; the same text again" : x.first > x.index ? `; first difference at token ${x.first + 1}` : "")],
      () => [scoreLine(x, q)],
      () => formula(x, q, beta),
      () => [drawBar(q)],
      () => [h("span", { class: "qp-word" }, icon(x.accepted ? "yes" : "no"), x.accepted ? "Accepted" : "Rejected"),
        h("span", {}, x.accepted ? (x.changed ? "the proposal joins the chain" : "the same text, counted again") : "the old text is "), x.accepted ? null : h("b", {}, `counted again, ×${visitsAt(chain(), t)}`)],
    ];
    cells.forEach((cell, k) => {
      const on = !start && k <= phase;
      cell.node.classList.toggle("qp-on", on);
      cell.node.classList.toggle("qp-current", !start && k === phase);
      if (k === phase && !start) cell.head.setAttribute("aria-current", "step"); else cell.head.removeAttribute("aria-current");
      cell.body.replaceChildren(...(on ? fill[k]().filter((v) => v != null) : []));
    });
    const ready = !start && phase === LAST;
    whatif.classList.toggle("qp-on", ready);
    ifs.replaceChildren(...(ready ? [[0.5, "β/2"], [1, "β"], [2, "2β"]].map(([m, name]) => {
      const w = whatIf(x, beta * m), [, alpha] = pair(q.u, w.alpha);
      return h("span", { class: w.accepted ? "qp-if qp-yes" : "qp-if qp-no" }, h("b", {}, `${name} = ${tickText(Number((beta * m).toPrecision(3)))}`), `α = ${alpha}`, icon(w.accepted ? "yes" : "no"), w.accepted ? "accepted" : "rejected");
    }) : []));
  }

  function scoreLine(x, q) {
    const width = Math.max(230, Math.round(cells[2].node.getBoundingClientRect().width) - 28), y = rewardScale(trace, 8, width - 8), at = 40;
    const a = y(x.oldReward), b = y(x.reward), tag = (v, text) => ({ x: Math.min(Math.max(v, 50), width - 50), "text-anchor": "middle", text });
    const up = tag(a, `r(y) = ${fixed(x.oldReward)}`), down = tag(b, `r(y′) = ${fixed(x.reward)}`), shown = trace.base.length > 400 ? trace.base.slice(0, 400) : trace.base;
    return h("div", {}, s("svg", { class: "qp-chart", width, height: 76, viewBox: `0 0 ${width} 76`, role: "img", "aria-label": `Reward now ${fixed(x.oldReward)}, proposed ${fixed(x.reward)}, difference ${signed(q.difference)}.` },
      s("path", { class: "qp-base-ticks", d: shown.map((r) => `M${y(r).toFixed(1)} ${at - 5}v10`).join("") }), s("line", { class: "qp-axis", x1: 4, x2: width - 4, y1: at, y2: at }),
      s("line", { class: "qp-jump", x1: a, x2: b, y1: at, y2: at }), s("circle", { class: "qp-dot-old", cx: a, cy: at, r: 5.5 }), s("rect", { class: "qp-dot-new", x: b - 5, y: at - 5, width: 10, height: 10, transform: `rotate(45 ${b} ${at})` }),
      s("text", { class: "qp-label", x: up.x, y: 20, "text-anchor": "middle" }, up.text), s("text", { class: "qp-label qp-c-new", x: down.x, y: 66, "text-anchor": "middle" }, down.text)),
      h("p", { class: "qp-small" }, "difference ", h("b", { class: "qp-c-reward" }, signed(q.difference)), trace.base.length ? `; grey: ${many(shown.length, "sample")} of the model alone` : ""));
  }
  function formula(x, q, beta) {
    const tint = (cls, text) => h("span", { class: cls }, text), [, alpha] = pair(q.u, q.alpha);
    return [h("p", { class: "qp-formula" }, "α = min(1, ", tint("qp-c-reward", `exp(${fixed(q.difference)}/${fixed(beta, beta < 0.1 ? 3 : 2)})`), " × ", tint("qp-c-length", `${x.oldLength}/${x.ids.length}`), ")"),
      h("p", { class: "qp-formula" }, "\u2007= min(1, ", tint("qp-c-reward", factor(q.reward)), " × ", tint("qp-c-length", factor(q.lengths)), ") = ", h("b", {}, alpha)),
      h("p", { class: "qp-small" }, tint("qp-c-reward", "reward difference over β"), ", ", tint("qp-c-length", "old over new length"), q.logRatio >= 0 ? `; the ratio itself is ${factor(q.ratio)}` : "",
        q.agrees ? "" : "; this trace’s own α differs from the formula")];
  }
  function drawBar(q) {
    const [u, alpha] = pair(q.u, q.alpha), put = Math.min(97, Math.max(3, 100 * q.u));
    return h("div", { class: "qp-bar-box" }, h("div", { class: "qp-bar", role: "img", "aria-label": `u = ${u}; accepted below alpha = ${alpha}` },
      h("span", { class: "qp-zone-yes", style: `width:${(100 * q.alpha).toFixed(2)}%` }, q.alpha > 0.3 ? "accept" : ""), h("span", { class: "qp-zone-no" }, q.alpha < 0.7 ? "reject" : ""),
      h("i", { class: "qp-needle", style: `left:${(100 * q.u).toFixed(2)}%` })),
      h("div", { class: "qp-bar-scale" }, h("span", {}, "0"), h("b", { style: `left:${put}%` }, `u = ${u}`), h("span", {}, "1")));
  }

  // The chain as beads: one for each stay, with how often it has been counted.
  let beadKey = "";
  function drawBeads(c, seen) {
    const key = `${c.id}/${seen}/${trace.header.reference}`;
    if (key === beadKey) return;
    beadKey = key;
    const runs = [];
    for (let k = seen; k >= 0 && runs.length < 9; k = c.stateAt[k] - 1) runs.unshift({ at: c.stateAt[k], to: k });
    beads.replaceChildren(...(runs[0].at > 0 ? [h("li", { class: "qp-dots-before", "aria-hidden": "true" }, "…")] : []), ...runs.map((r, k) => {
      const x = c.steps[r.at], n = r.to - r.at + 1, name = trace.answers.length ? answerText(trace, x.answer) : fixed(x.reward), lastOne = k === runs.length - 1;
      return h("li", {}, h("button", { type: "button", class: lastOne ? "qp-bead qp-bead-now" : "qp-bead", title: `from step ${r.at}, reward ${fixed(x.reward)}`, onclick: () => seek(r.at) },
        h("i", { class: `qp-swatch ${answerClass(trace, x.answer)}` }), name, h("b", {}, `×${n}`)));
    }));
  }

  // -- tabs
  let asked = 0;
  function openTab(name) {
    tab = name;
    tabKey = "";
    for (const b of tabs) b.setAttribute("aria-selected", String(b.dataset.tab === name));
    show(view, name);
    view.replaceChildren();
    changed(false);
  }
  function drawTab(now) {
    tabKey = tabState();
    tabTime = now;
    const c = chain(), seen = revealed();
    if (tab === "tree") view.replaceChildren(...drawTree(trace, c, seen, Math.max(300, view.clientWidth - 2)));
    else if (tab === "lineage") view.replaceChildren(...drawLineage(c, seen));
    else if (tab === "table") view.replaceChildren(...drawTable(trace, c, seen, seek));
    else if (tab === "diagnostics") {
      if (!view.firstChild) view.replaceChildren(...drawDiagnostics(null));
      const ticket = ++asked;
      root.setTimeout(async () => {
        if (ticket !== asked) return;
        const upto = trace.chains.map((k) => Math.min(seen, k.steps.length - 1));
        const data = { rewards: trace.chains.map((k, j) => k.stateAt.slice(settings.burnIn, upto[j] + 1).map((m) => k.steps[m].reward)), chain: trace.chains.indexOf(c), generated: trace.chains.reduce((n, k, j) => n + k.generated[upto[j]], 0) };
        let answer;
        try { answer = await options.diagnose(data); } catch { answer = { error: "The diagnostics could not be calculated; the server did not answer." }; }
        if (ticket === asked && tab === "diagnostics") view.replaceChildren(...drawDiagnostics(answer, seen));
      }, 250);
    }
  }

  // -- files and links
  let remembered = 0;
  function remember() {
    if (options.onseek) options.onseek(t);
    if (!options.link || remembered) return;
    remembered = root.setTimeout(() => {
      remembered = 0;
      const url = new URL(root.location.href);
      if (options.visible && !options.visible()) return;
      url.searchParams.set("step", t);
      if (url.href !== root.location.href) root.history.replaceState(root.history.state, "", url);
    }, 400);
  }
  async function copyLink() {
    try { await root.navigator.clipboard.writeText(root.location.href); tell("The link is on the clipboard."); } catch { tell(`Copy this link: ${root.location.href}`); }
  }
  let raw = "";
  function download() {
    const closed = trace.end ? raw : `${raw}${raw.endsWith("\n") ? "" : "\n"}{"type":"end","reason":"stopped","message":""}\n`;
    const a = h("a", { href: URL.createObjectURL(new Blob([closed], { type: "application/x-ndjson" })), download: `qalign-${trace.header.seed ?? 0}.jsonl` });
    a.click();
    root.setTimeout(() => URL.revokeObjectURL(a.href), 1000);
  }
  async function openFile(chosen) {
    if (chosen.size > LIMITS.characters) return tell("This file is larger than 16 MB; a trace is smaller.");
    try { open(await chosen.text(), "Opened file"); } catch (error) { tell(`This file was not opened. ${error.message}`); }
  }

  // -- the API
  function adopt(next, text, from, name) {
    trace = next; raw = text; source = from; label = name; stopped = false;
    chainId = trace.chains[0] ? trace.chains[0].id : 0;
    t = 0; phase = LAST; p = 0; built = cardKey = beadKey = tabKey = "";
    tell("");
  }
  /** Show a whole trace (checked first: a bad one throws and changes nothing). */
  function open(text, name) {
    adopt(parse(text), text, "file", name);
    playing = !still.matches;
    changed(false);
  }
  /** Everything that a live run has sent so far; a new run is seen by its header. */
  function stream(text) {
    if (!text) return;
    try {
      const head = text.slice(0, text.indexOf("\n") + 1 || text.length);
      if (source !== "live" || trace.head !== head || text.length < raw.length) {
        if (!head.endsWith("\n")) return;
        const next = newTrace();
        next.head = head;
        feed(next, text, false);
        adopt(next, text, "live", "Live run");
        playing = !still.matches;
        if (still.matches) phase = LAST;
      } else { feed(trace, text, false); raw = text; }
      if (want !== null && last() >= want) { const k = want; want = null; seek(k); }
    } catch (error) { tell(`The run sent something unreadable. ${error.message}`); stop(); }
    if (!clock) changed(false); else dirty = true;
  }
  function stop() { if (source === "live" && !trace.end) { stopped = true; drawn = 0; changed(true); } }

  new ResizeObserver(() => changed(false)).observe(element);
  const api = { stream, open, stop, seek, goPhase, toggle, tell, play: () => toggle(true), pause: () => toggle(false),
    await: (k) => { want = k; }, setBurnIn: (k) => { settings.burnIn = k; drawn = 0; changed(false); },
    setSpeed: (v) => { speed = v; speedBox.selectedIndex = SPEEDS.indexOf(v); },
    get position() { return { t, phase, playing, chain: chainId, last: last(), source }; }, get trace() { return trace; }, get text() { return raw; } };
  player.qalign = api;
  if (options.text) {
    adopt(parse(options.text), options.text, "file", label);
    const first = options.step ?? (still.matches ? Math.min(1, last()) : 0);
    if (first) go(first, LAST, false);
    playing = options.autoplay !== false && !still.matches && options.step == null;
  }
  changed(false);
  return api;
}

root.QAlign = { parse, feed, newTrace, TraceError, quantities, whatIf, wilson, weights, histogram, writers, prefixTree, narrate, visible, brief, pair, fixed, signed, mount, PHASES, SECONDS };
})(typeof window === "undefined" ? globalThis : window);
