/* The figures of a room: predictions, votes, and all chains on one axis. */
import { IDEAS } from "../dictionary.js";
import { builder } from "../dom.js";
import { ticks } from "../player/numbers.js";
import { histogram } from "../player/statistics.js";
import { fixed, many, percent, plain, visible } from "../player/words.js";

const own = builder("room-");
export const h = own.h;
export const s = own.s;
export const button = own.button;

const BINS = 22;
const TOP = 12;
const SIDE = 0.24; // of the width is the histogram's
export const FEW = 5; // effective samples below which weights show no shape
const MOST_BARS = 12; // different numbers up to which each has a bar of its own
/** Of a saved page. */
const WIDE = { width: 640, height: 330, size: 20 };
const NAMES = 3; // columns of numbers behind the lines
const FAR = 3; // numbers far off that are named

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
 * @param {import("../exhibit/exhibit.js").Size} [figure]
 */
export function drawPredictions(ask, counts, right, figure = WIDE) {
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
  return drawNumbers(counts, ask, right, figure);
}

/**
 * Draw the predicted numbers as columns over an axis, and the right one as a line. Numbers that
 * would press all others into one column are named instead.
 * @param {[prediction: string, n: number][]} counts
 * @param {import("../learn/ask.js").Question} ask
 * @param {string | undefined} right
 * @param {import("../exhibit/exhibit.js").Size} figure
 */
function drawNumbers(counts, { marks, unit, kind }, right, { width, height, size }) {
  const goal = right === undefined ? NaN : Number.parseFloat(right.replace("−", "-"));
  const lines = [...marks, ...(Number.isFinite(goal) ? [goal] : [])];
  const every = counts.flatMap(([text, n]) => new Array(n).fill(Number(text)))
    .sort((a, b) => a - b);
  if (!every.length && !lines.length) return h("p.quiet", "No prediction yet.");
  const values = withoutFar(every, lines);
  const far = [...new Set(every.filter((v) => !values.includes(v)))];
  const all = [...values, ...lines];
  if (unit === "%" && all.some((v) => v > 50)) all.push(100); // the axis names the whole
  const low = Math.min(...all);
  const high = Math.max(...all);
  const isWhole = all.every(Number.isInteger);
  const bars = columnsOf(values, low, high, isWhole);
  const wide = bars[0]?.wide ?? 0;
  const space = Math.max(high > low ? (high - low) * 0.08 : Math.max(1, Math.abs(high) / 10), wide);
  const [lo, hi] = [low - space, high + space];
  const x = (/** @type {number} */ v) => 10 + ((width - 20) * (v - lo)) / (hi - lo);
  const base = height - size * 1.5;
  const top = size * (1.3 + (far.length ? 1.2 : 0) + (Number.isFinite(goal) ? 1.2 : 0));
  const most = Math.max(1, ...bars.map(({ n }) => n));
  const gap = wide ? x(wide) - x(0) : Math.min(size, closest(bars.map(({ at }) => x(at))));
  const broad = gap - 2;
  let end = -Infinity; // of the last count that is written
  /** @type {Node[]} */
  const names = [];
  const columns = bars.map(({ at, n }) => {
    const tall = (n / most) * (base - top);
    const half = String(n).length * size * 0.3;
    const fits = x(at) - half > end;
    if (fits) end = x(at) + half;
    const box = { x: x(at) - broad / 2, y: base - tall, width: broad, height: tall };
    if (fits) names.push(s("text.count", { x: x(at), y: base - tall - size * 0.3 }, n));
    return s("rect.column", box);
  });
  const axis = ticks(lo, hi, Math.floor(width / size / 4)).map((v) => (isWhole && v % 1 ? null
    : s("text.tick", { x: x(v), y: height - size * 0.35 }, `${plain(v)}${unit}`)));
  const grey = marks.map((r) => `M${x(r).toFixed(1)} ${base}v8`).join("");
  const line = Number.isFinite(goal) ? [
    s("path.goal", { d: `M${x(goal)} ${size * 1.2 + (far.length ? size * 1.2 : 0)}V${base}` }),
    s("text.goal-name", { x: x(goal), y: size * (far.length ? 2.1 : 0.9) }, right ?? ""),
  ] : [];
  const named = far.slice(0, FAR).map((v) => plain(v) + unit).join(", ");
  const note = `${named}${far.length > FAR ? ` and ${far.length - FAR} more` : ""}: far off`;
  const aria = `${many(every.length, kind === "spot" ? "place" : "number")} predicted`
    + `${far.length ? `; ${note}` : ""}${Number.isFinite(goal) ? `; the answer is ${right}` : ""}`;
  return s("svg.predictions", { viewBox: `0 0 ${width} ${height}`, role: "img", aria,
    style: `--text: ${size}px` },
  s("path.axis", { d: `M10 ${base}H${width - 10}` }), s("path.marks", { d: grey }),
  ...columns, ...axis, ...line, ...names, // over the line, which they interrupt
  far.length ? s("text.tick", { x: width / 2, y: size * 0.9 }, note) : null);
}

/**
 * Return the columns: one per number if they are few, else one per bin. A bin over whole numbers
 * holds a whole number of them.
 * @param {number[]} values sorted
 * @param {number} low
 * @param {number} high
 * @param {boolean} isWhole
 * @returns {{ at: number, n: number, wide: number }[]}
 */
function columnsOf(values, low, high, isWhole) {
  const different = [...new Set(values)];
  const isFew = different.length <= MOST_BARS;
  const one = Number(isWhole);
  const share = (high - low + one) / BINS;
  const wide = isFew ? 0 : isWhole ? Math.ceil(share) : share;
  const counts = new Map();
  for (const v of values) {
    const k = Math.min(BINS - 1, Math.floor((v - low) / wide));
    const at = isFew ? v : low + k * wide + (wide - one) / 2;
    counts.set(at, (counts.get(at) ?? 0) + 1);
  }
  return [...counts].map(([at, n]) => ({ at, n, wide }));
}

/** The smallest distance between two neighbors. @param {number[]} places sorted */
const closest = (places) =>
  Math.max(6, Math.min(...places.slice(1).map((x, k) => x - places[k]), Infinity));

/**
 * Remove the predictions that would press all others into one column.
 * @param {number[]} values sorted
 * @param {number[]} lines the other values that the figure has to show
 */
function withoutFar(values, lines) {
  const middle = median(values);
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
 * Draw all chains on one axis, each with its number at its end. The histogram at the side shows how
 * often each reward occurred in the later halves of the chains, with the model alone and the target
 * for comparison.
 * @param {Class} all
 * @param {number} width
 * @param {number} height
 * @param {number} [size] of its letters
 * @param {(number: number) => void} [pick] called with the chain that is pressed
 */
export function drawClass({ chains, base, weights, worth, steps, single }, width, height,
  size = 16, pick = undefined) {
  const foot = size * 1.9;
  const states = [...chains.values()].flat();
  const later = [...chains.values()].flatMap((rewards) => rewards.slice(rewards.length >> 1));
  const every = [...states, ...base];
  const lowest = every.reduce((a, b) => Math.min(a, b), Infinity);
  const highest = every.reduce((a, b) => Math.max(a, b), -Infinity);
  const [low, high] = every.length ? [lowest, highest] : [0, 1];
  const room = (high - low || 1) * 0.05;
  const [lo, hi] = [low - room, high + room];
  const levels = ticks(lo, hi, 5);
  const longest = Math.max(...levels.map((r) => plain(r).length), 0);
  const edge = size * Math.max(2.9, 0.6 * longest + 0.6);
  const split = width * (1 - SIDE);
  const bottom = height - foot;
  const y = (/** @type {number} */ r) => bottom - ((bottom - TOP) * (r - lo)) / (hi - lo);
  const rows = Math.max(1, Math.floor((bottom - TOP) / size));
  const wide = size * 0.6 * String(Math.max(1, ...chains.keys())).length + size * 0.4;
  const columns = Math.max(1, Math.min(NAMES, Math.ceil(chains.size / rows)));
  const across = split - edge - Math.max(2 * size, columns * wide + size * 0.6);
  const x = (/** @type {number} */ t) => edge + (across * t) / steps;
  const path = (/** @type {number[]} */ rewards) =>
    rewards.map((r, t) => `${t ? "L" : "M"}${x(t).toFixed(1)} ${y(r).toFixed(1)}`).join("");
  const thin = [...chains].filter(([number]) => number !== single).map(([, r]) => path(r)).join("");
  const own = chains.get(single) ?? [];
  const last = own.length - 1;
  const opacity = Math.max(0.16, Math.min(0.8, 4 / Math.sqrt(Math.max(1, chains.size)) / 2));
  const grid = levels.flatMap((r) => [
    s("path.grid", { d: `M${edge} ${y(r)}H${width}` }),
    s("text.tick.end", { x: edge - size / 2, y: y(r) + size * 0.37 }, plain(r)),
  ]);
  const axis = [s("text.tick.end", { x: edge - size * 0.7, y: height - 6 }, "step"),
    ...ticks(0, steps, width / size > 35 ? 6 : 3).map((t) =>
      s("text.tick", { x: x(t), y: height - 6 }, plain(t)))];
  const marks = own.length ? [
    s("path.single", { d: path(own) }),
    s("circle.dot", { cx: x(last), cy: y(own[last]), r: 6 }),
  ] : [];
  const names = placeNames();
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

  /** Place the numbers behind the ends of the lines, where they do not cover each other. */
  function placeNames() {
    const front = x(Math.max(0, ...[...chains.values()].map(({ length }) => length - 1)));
    const all = [...chains].filter(([, r]) => r.length).map(([number, r]) => (
      { number, still: stillOf(r), x0: x(r.length - 1), y0: y(r[r.length - 1]), x1: 0, y1: 0 }));
    const some = all.sort((a, b) => Number(b.number === single) - Number(a.number === single)
      || b.still - a.still).slice(0, rows * columns).sort((a, b) => a.y0 - b.y0);
    for (let k = 0; k < columns; k += 1) {
      let least = TOP + size / 2;
      const column = some.filter((_, n) => n % columns === k);
      column.forEach((name, n) => {
        name.x1 = front + size * 0.6 + k * wide;
        const most = bottom - (column.length - n - 0.5) * size;
        name.y1 = Math.min(Math.max(name.y0, least), Math.max(least, most));
        least = name.y1 + size;
      });
    }
    return some;
  }

  /** @param {MouseEvent} event a press on the figure */
  function press({ clientX, clientY, currentTarget }) {
    const box = /** @type {Element} */ (currentTarget).getBoundingClientRect();
    const at = ((clientX - box.left) * width) / box.width;
    const up = ((clientY - box.top) * height) / box.height;
    const t = Math.round(((at - edge) * steps) / across);
    const far = [...chains].map(([number, r]) => {
      const name = names.find((each) => each.number === number);
      const line = Math.hypot(x(Math.min(Math.max(t, 0), r.length - 1)) - at,
        y(r[Math.min(Math.max(t, 0), r.length - 1)]) - up);
      const text = name ? Math.hypot(name.x1 + wide / 2 - at, name.y1 - up) : Infinity;
      return { number, distance: Math.min(line, text) };
    }).sort((a, b) => a.distance - b.distance);
    if (far.length) pick?.(far[0].number);
  }

  const aria = `Rewards of ${many(chains.size, "chain")} so far, ${many(states.length, "state")}, `
    + `from ${fixed(low, 1)} to ${fixed(high, 1)}; the bars at the side show how often each reward `
    + "occurred";
  return s("svg.class", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", aria,
    style: `--text: ${size}px`, onclick: pick && press }, ...grid, ...axis,
  s("path.axis", { d: `M${split} ${TOP}V${bottom}` }),
  s("path.chains", { d: thin, style: `opacity: ${opacity}` }), ...marks,
  s("path.grid", { d: names.map(({ x0, y0, x1, y1 }) => `M${x0} ${y0}L${x1} ${y1}`).join("") }),
  ...names.map(({ number, x1, y1 }) => s(number === single ? "text.name.is" : "text.name",
    { x: x1 + size * 0.15, y: y1 + size * 0.37 }, number)), ...sides);
}

/** The key to the histogram of `drawClass`. */
export const drawKey = () => h("p.key", h("i.k-pooled"), "the class", h("i.k-alone"),
  word("base", "model alone"), h("i.k-target"), word("target", "target"));

/**
 * How many steps a chain has kept its reward.
 * @param {number[]} rewards
 */
export function stillOf(rewards) {
  let t = rewards.length - 1;
  while (t > 0 && rewards[t - 1] === rewards[t]) t -= 1;
  return rewards.length - 1 - t;
}

const SHARE = 0.3; // of all states in one bin fill the histogram's width

/**
 * Votes with their shares.
 * @param {[answer: string, share: number][]} shares
 * @param {string[]} [right] answers
 */
export const drawVotes = (shares, right) => (shares.length ? drawBars(shares, 1, percent, right)
  : h("p.quiet", "no vote yet"));
