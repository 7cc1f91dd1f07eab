/* Draw a chart of an exhibit (components/learn/charts.py): lines over columns, with its axes, in
   letters of a given size. */
import { ticks } from "../player/numbers.js";
import { percent, plain } from "../player/words.js";
import { h, s } from "../room/drawing.js";

/** @typedef {{ name: string, log: boolean, percent: boolean, to?: number }} Axis */
/** @typedef {[x: number, y: number][]} Points */
/**
 * @typedef {object} Chart
 * @property {string} name
 * @property {Axis} x
 * @property {Axis} y
 * @property {{ name: string, color: string, points: Points }[]} lines
 * @property {{ name: string, points: Points } | null} columns
 */

const DASHES = ["", "10 6", "3 5", "12 4 3 4"];
const LEAST = 1e-6; // of a logarithmic axis
/** Round numbers on a logarithmic axis that begins below 1. */
const STEPS = [-4, -3, -2, -1, 0, 1].flatMap((k) => [1, 2, 5].map((n) => n * 10 ** k));

/**
 * Round places on an axis: on a logarithmic one powers of two or ten, the largest among them.
 * @param {number} lo
 * @param {number} hi
 * @param {boolean} log
 * @param {number} most
 */
function marks(lo, hi, log, most) {
  if (!log) return ticks(lo, hi, most);
  if (lo < 1) return STEPS.filter((v) => v >= lo * 0.999 && v <= hi * 1.001);
  const base = hi / lo > 5000 ? 10 : 2;
  const first = Math.ceil(Math.log(lo) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(hi) / Math.log(base) + 1e-9);
  const every = Math.ceil((last - first + 1) / (most + 1));
  const all = [];
  for (let k = last; k >= first; k -= every) all.unshift(base ** k); // the largest is asked about
  return all;
}

/** @param {Axis} axis @param {number} value */
function format({ percent: isShare }, value) {
  if (!isShare) return plain(value);
  return value && value < 0.01 ? `${plain(100 * value)}%` : percent(value);
}

/**
 * An entry of a legend: a piece of the line or column, and its name.
 * @param {string} name
 * @param {string} mark the class of the line or column, and the color of a curve
 * @param {string} [dashes]
 */
export function keyOf(name, mark, dashes) {
  const [kind, color] = mark.split(".");
  const isBlock = /columns|pooled/.test(kind);
  const path = s(`path.${kind}`, { d: isBlock ? "M0 0h16v16H0z" : "M0 8H40",
    style: color ? `stroke: var(--c-${color})` : null, "stroke-dasharray": dashes });
  const viewBox = `0 0 ${isBlock ? 16 : 40} 16`;
  return h("span", s("svg", { viewBox, "aria-hidden": true }, path), name);
}

/**
 * @param {Chart} chart
 * @param {number} width
 * @param {number} height
 * @param {number} size of its letters
 */
export function drawChart({ name, x: across, y: up, lines, columns }, width, height, size) {
  const points = [...lines.flatMap((line) => line.points), ...columns?.points ?? []];
  const xs = points.map(([x]) => x);
  const [left, right] = [Math.min(...xs), Math.max(...xs, across.to ?? -Infinity)];
  const ys = points.map(([, y]) => y).filter((y) => !up.log || y > LEAST);
  const [low, high] = [up.log ? Math.min(...ys) : Math.min(0, ...ys), Math.max(...ys)];
  const top = up.percent && !up.log && high > 0.5 ? 1 : high || 1;
  const [scaleX, scaleY] = [across, up].map(({ log }) => (log ? Math.log : Number));
  const rows = marks(low, top, up.log, Math.max(2, Math.floor(height / size / 4)));
  const longest = Math.max(...rows.map((y) => format(up, y).length));
  const edge = size * (0.6 * longest + 0.8);
  const floor = height - size * (across.name ? 2.6 : 1.4);
  const pad = columns ? (width - edge) / (2 * columns.points.length) : size / 2;
  const x = (/** @type {number} */ v) => edge + pad + ((width - edge - pad
    - Math.max(pad, size)) * (scaleX(v) - scaleX(left))) / (scaleX(right) - scaleX(left) || 1);
  const y = (/** @type {number} */ v) => floor - ((floor - size)
    * (scaleY(Math.max(v, up.log ? low : v)) - scaleY(low))) / (scaleY(top) - scaleY(low) || 1);
  const wide = columns ? Math.max(2, (width - edge) / columns.points.length - 2) : 0;
  const grid = rows.flatMap((value) => [
    s("path.grid", { d: `M${edge} ${y(value).toFixed(1)}H${width}` }),
    s("text.tick.end", { x: edge - size * 0.4, y: y(value) + size * 0.35 }, format(up, value)),
  ]);
  const few = Math.max(2, Math.floor((width - edge) / size / 5));
  const foot = columns && /^texts|^samples/.test(across.name) ? []
    : marks(left, right, across.log, few).map((value) =>
      s("text.tick", { x: x(value), y: floor + size * 1.1 }, format(across, value)));
  const bars = columns?.points.map(([a, b]) => s("rect.columns", {
    x: x(a) - wide / 2, y: y(b), width: wide, height: Math.max(0, floor - y(b)) })) ?? [];
  const curves = lines.flatMap(({ color, points: own }, k) => {
    const style = `stroke: var(--c-${color}); fill: var(--c-${color})`;
    const d = own.map(([a, b], n) => `${n ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`);
    return [
      s("path.curve", { d: d.join(""), style: `stroke: var(--c-${color})`,
        "stroke-dasharray": DASHES[k % DASHES.length] }),
      ...(own.length <= 12 && own.length !== 2 ? own.map(([a, b]) =>
        s("circle", { cx: x(a), cy: y(b), r: size / 4, style })) : []),
    ];
  });
  const named = [...(columns ? [{ name: columns.name, color: "" }] : []), ...lines]
    .filter((each) => each.name);
  const key = named.map(({ name: word, color }) => keyOf(word, color ? `curve.${color}` : "columns",
    DASHES[lines.findIndex((line) => line.color === color)]));
  const aria = `${name}: ${lines.map(({ name: word, points: own }) => (own.length
    ? `${word || "curve"} from ${format(up, own[0][1])} to ${format(up, own[own.length - 1][1])}`
    : word)).join("; ")}`;
  const axisName = across.name ? [s("text.tick", { x: (edge + width) / 2, y: height - size * 0.3 },
    across.name)] : [];
  return h("figure.chart", h("h3", name), key.length ? h("p.legend", ...key) : null,
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", aria, style: `--text: ${size}px` },
      ...grid, ...foot, ...axisName, s("path.axis", { d: `M${edge} ${floor}H${width}` }), ...bars,
      ...curves));
}
