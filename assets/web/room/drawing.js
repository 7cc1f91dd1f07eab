/* The figures of a room: predictions, votes, and all chains on one axis. */
import { IDEAS } from "../dictionary.js";
import { builder } from "../dom.js";
import { histogram, ticks } from "../player/numbers.js";
import { fixed, many, percent, plain, visible } from "../player/words.js";

const own = builder("room-");
export const h = own.h;
export const s = own.s;
export const button = own.button;

const BINS = 22;
const TOP = 12;
const SIDE = 0.24; // of the width is the histogram's
const FEW = 5; // effective samples below which weights show no shape
const MOST_BARS = 12; // different numbers up to which each has a bar of its own

/** @type {(id: string, other: string) => string} */
export const word = (id, other) => IDEAS[id]?.word ?? other;

/**
 * A QR code as a drawing.
 * @param {string[]} rows of 0 and 1
 * @param {string} link
 */
export function drawQr(rows, link) {
  const squares = rows.flatMap((row, y) => [...row].map((bit, x) =>
    (bit === "1" ? `M${x} ${y}h1v1h-1z` : "")));
  const n = rows.length;
  return s("svg.qr", { viewBox: `-4 -4 ${n + 8} ${n + 8}`, role: "img", aria: `QR code: ${link}` },
    s("rect.paper", { x: -4, y: -4, width: n + 8, height: n + 8 }),
    s("path.squares", { d: squares.join("") }));
}

/**
 * Bars with their names and shares; a bar of the full width is the whole.
 * @param {[name: string, n: number][]} bars
 * @param {number} whole
 * @param {(n: number, k: number) => string} label
 * @param {string[]} [right] names that are right
 */
export function drawBars(bars, whole, label, right = []) {
  return h("dl.bars", ...bars.flatMap(([name, n], k) => {
    const isRight = right.includes(name);
    return [
      h(isRight ? "dt.is" : "dt", visible(name).slice(0, 60), isRight ? " ✓" : ""),
      h("dd", h(isRight ? "i.bar.is" : "i.bar", { style: `--w: ${n / whole}` }),
        h("span", label(n, k))),
    ];
  }));
}

/**
 * Draw how often the class made each prediction.
 * @param {import("../learn/ask.js").Question} ask
 * @param {[prediction: string, n: number][]} counts
 * @param {string} [right] once the answers are open
 */
export function drawPredictions(ask, counts, right) {
  const label = (/** @type {number} */ n) => String(n);
  if (ask.kind === "choice") {
    const countOf = new Map(counts);
    const names = new Map(ask.options);
    const rightName = names.get(right ?? "");
    const bars = ask.options.map(([value, name]) =>
      /** @type {[string, number]} */ ([name, countOf.get(value) ?? 0]));
    const whole = Math.max(1, bars.reduce((sum, [, n]) => sum + n, 0));
    return drawBars(bars, whole, label, rightName === undefined ? [] : [rightName]);
  }
  return drawNumbers(counts, ask, right);
}

/**
 * Draw the predicted numbers as columns over an axis, and the right one as a line.
 * @param {[prediction: string, n: number][]} counts
 * @param {import("../learn/ask.js").Question} ask
 * @param {string} [right]
 */
function drawNumbers(counts, { marks, unit, kind }, right) {
  const width = 640;
  const height = 330;
  const goal = right === undefined ? NaN : Number.parseFloat(right.replace("−", "-"));
  const every = counts.flatMap(([text, n]) => new Array(n).fill(Number(text)));
  const lines = [...marks, ...(Number.isFinite(goal) ? [goal] : [])];
  if (!every.length && !lines.length) return h("p.quiet", "No prediction yet.");
  const values = withoutFar(every, lines);
  const all = [...values, ...lines];
  const low = Math.min(...all);
  const high = Math.max(...all);
  const room = high > low ? (high - low) * 0.08 : Math.max(1, Math.abs(high) / 10);
  const [lo, hi] = [low - room, high + room];
  const bins = counts.length <= MOST_BARS ? 48 : 20;
  const heights = histogram(values, values.map(() => 1), lo, hi, bins);
  const most = Math.max(1, ...heights);
  const x = (/** @type {number} */ v) => 10 + ((width - 20) * (v - lo)) / (hi - lo);
  const base = height - 44;
  const step = (width - 20) / bins;
  const columns = heights.map((n, k) => {
    const tall = (n / most) * (base - 62);
    return n ? [
      s("rect.column", { x: 10 + k * step + 1, y: base - tall, width: step - 2, height: tall }),
      s("text.count", { x: 10 + (k + 0.5) * step, y: base - tall - 8 }, n),
    ] : [];
  });
  const axis = ticks(lo, hi, 6).map((v) =>
    s("text.tick", { x: x(v), y: height - 14 }, `${plain(v)}${unit}`));
  const grey = marks.map((r) => `M${x(r).toFixed(1)} ${base}v8`).join("");
  const line = Number.isFinite(goal) ? [
    s("path.goal", { d: `M${x(goal)} 26V${base}` }),
    s("text.goal-name", { x: x(goal), y: 18 }, right ?? ""),
  ] : [];
  const aria = `${many(values.length, kind === "spot" ? "place" : "number")} predicted`
    + (Number.isFinite(goal) ? `; the answer is ${right}` : "");
  return s("svg.predictions", { viewBox: `0 0 ${width} ${height}`, role: "img", aria },
    s("path.axis", { d: `M10 ${base}H${width - 10}` }), s("path.marks", { d: grey }),
    ...columns.flat(), ...axis, ...line,
    ...(every.length > values.length ? [s("text.tick", { x: width / 2, y: 40 },
      `${every.length - values.length} far outside`)] : []));
}

/**
 * Remove the predictions that would press all others into one column.
 * @param {number[]} values
 * @param {number[]} lines the other values that the figure has to show
 */
function withoutFar(values, lines) {
  const middle = median([...values].sort((a, b) => a - b));
  const spread = median(values.map((v) => Math.abs(v - middle)).sort((a, b) => a - b));
  const most = 30 * Math.max(spread, ...lines.map((v) => Math.abs(v - middle)));
  return most ? values.filter((v) => Math.abs(v - middle) <= most) : values;
}

const median = (/** @type {number[]} */ sorted) => sorted[Math.floor(sorted.length / 2)] ?? 0;

/**
 * @typedef {object} Class
 * @property {Map<number, number[]>} chains rewards of each member's states
 * @property {number[]} base rewards of the model alone
 * @property {number[]} weights of the same for the target
 * @property {number} worth effective samples of the weights
 * @property {number} steps
 * @property {number} single a member's number
 */

/**
 * Draw all chains on one axis. The histogram at the side shows how often each reward occurred in
 * the later halves of the chains, with the model alone and the target for comparison.
 * @param {Class} all
 * @param {number} width
 * @param {number} height
 * @param {number} [size] of its letters
 */
export function drawClass({ chains, base, weights, worth, steps, single }, width, height,
  size = 16) {
  const edge = size * 2.9;
  const foot = size * 1.9;
  const states = [...chains.values()].flat();
  const later = [...chains.values()].flatMap((rewards) => rewards.slice(rewards.length >> 1));
  const every = [...states, ...base];
  const lowest = every.reduce((a, b) => Math.min(a, b), Infinity);
  const highest = every.reduce((a, b) => Math.max(a, b), -Infinity);
  const [low, high] = every.length ? [lowest, highest] : [0, 1];
  const room = (high - low || 1) * 0.05;
  const [lo, hi] = [low - room, high + room];
  const split = width * (1 - SIDE);
  const bottom = height - foot;
  const y = (/** @type {number} */ r) => bottom - ((bottom - TOP) * (r - lo)) / (hi - lo);
  const x = (/** @type {number} */ t) => edge + ((split - edge - 2 * size) * t) / steps;
  const path = (/** @type {number[]} */ rewards) =>
    rewards.map((r, t) => `${t ? "L" : "M"}${x(t).toFixed(1)} ${y(r).toFixed(1)}`).join("");
  const thin = [...chains].filter(([number]) => number !== single).map(([, r]) => path(r)).join("");
  const own = chains.get(single) ?? [];
  const last = own.length - 1;
  const opacity = Math.max(0.16, Math.min(0.8, 4 / Math.sqrt(Math.max(1, chains.size)) / 2));
  const grid = ticks(lo, hi, 5).flatMap((r) => [
    s("path.grid", { d: `M${edge} ${y(r)}H${width}` }),
    s("text.tick.end", { x: edge - size / 2, y: y(r) + size * 0.37 }, plain(r)),
  ]);
  const axis = [s("text.tick.end", { x: edge - size * 0.7, y: height - 6 }, "step"),
    ...ticks(0, steps, width / size > 35 ? 6 : 3).map((t) =>
      s("text.tick", { x: x(t), y: height - 6 }, plain(t)))];
  const marks = own.length ? [
    s("path.single", { d: path(own) }),
    s("circle.dot", { cx: x(last), cy: y(own[last]), r: 6 }),
    s("text.name", { x: x(last) + size * 0.6, y: y(own[last]) + size * 0.37 }, single),
  ] : [];
  const sides = [
    side("pooled", later, null),
    base.length > FEW ? side("alone", base, null) : null,
    base.length > FEW && worth >= FEW ? side("target", base, weights) : null,
  ];

  /**
   * A histogram on its side.
   * @param {string} kind
   * @param {number[]} values
   * @param {number[] | null} weight
   */
  function side(kind, values, weight) {
    if (!values.length) return null;
    const shares = histogram(values, weight, lo, hi, BINS);
    const wide = (width - split - 8) / SHARE;
    const tall = (bottom - TOP) / BINS;
    const points = shares.map((share, k) => {
      const at = split + Math.min(width - split, share * wide);
      const top = bottom - k * tall;
      return `L${at.toFixed(1)} ${top.toFixed(1)}V${(top - tall).toFixed(1)}`;
    });
    return s(`path.side.${kind}`, { d: `M${split} ${bottom}${points.join("")}H${split}` });
  }

  const aria = `Rewards of ${many(chains.size, "chain")} so far, ${many(states.length, "state")}, `
    + `from ${fixed(low, 1)} to ${fixed(high, 1)}; the bars at the side show how often each reward `
    + "occurred";
  return s("svg.class", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", aria,
    style: `--text: ${size}px` }, ...grid, ...axis,
  s("path.axis", { d: `M${split} ${TOP}V${bottom}` }),
  s("path.chains", { d: thin, style: `opacity: ${opacity}` }), ...marks, ...sides);
}

const SHARE = 0.3; // of all states in one bin fill the histogram's width

/**
 * Votes with their shares.
 * @param {[answer: string, share: number][]} shares
 * @param {string | null} right
 */
export const drawVotes = (shares, right) =>
  (shares.length ? drawBars(shares, 1, percent, right === null ? [] : [right])
    : h("p.quiet", "no vote yet"));
