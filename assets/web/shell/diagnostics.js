/* "Can I trust it?": what the server says of a chain's rewards. */
import { chart, h, label, rule, s } from "../player/drawing.js";
import { rewardsOf } from "../player/numbers.js";
import { plain } from "../player/words.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {{ name: string, value: string, meaning: string }} Fact */
/** @typedef {{ title: string, axis: string, values: number[] }} Chart */
/** @typedef {{ level: string, sentence: string, next: string }} Verdict */
/**
 * @typedef {object} Report
 * @property {string} [error]
 * @property {Verdict} verdict
 * @property {string} about
 * @property {Fact[]} facts
 * @property {Chart[]} charts
 */

const WIDTH = 300;
const HEIGHT = 116;

/** @param {Chart} chart */
function bars({ title, axis, values }) {
  const bottom = HEIGHT - 20;
  const lo = Math.min(0, ...values);
  const hi = Math.max(1e-9, ...values);
  const step = (WIDTH - 34) / values.length;
  const y = (/** @type {number} */ v) => 8 + ((bottom - 8) * (hi - v)) / (hi - lo);
  const thick = Math.max(1, step - 1);
  const path = values.map((v, k) => `M${32 + k * step} ${y(0)}V${y(v)}h${thick}V${y(0)}Z`);
  return h("figure.panel", h("figcaption", title), chart(WIDTH, HEIGHT, `${title} ${axis}`,
    s("path.bars", { d: path.join("") }), rule("axis", 30, WIDTH, y(0)),
    label(26, y(hi) + 6, plain(hi, 2), "end"),
    label(WIDTH / 2, HEIGHT - 3, axis)));
}

/**
 * What is asked: the rewards of all chains' states up to the position.
 * @param {View} view
 */
export function question({ trace, chain, seen, burnIn }) {
  const upto = (/** @type {import("../player/parse.js").Chain} */ c) =>
    Math.min(seen, c.steps.length - 1);
  return {
    chain: trace.chains.indexOf(chain),
    generated: trace.chains.reduce((n, c) => n + c.generated[upto(c)], 0),
    rewards: trace.chains.map((c) => rewardsOf(c, upto(c), Math.min(burnIn, upto(c)))),
    whole: trace.chains.every((c) => seen >= c.steps.length - 1),
  };
}

/**
 * One line on the whole run, whatever step is shown: was it long enough, and what to do next.
 * @param {(question: object) => Promise<Report>} ask
 * @param {View} view
 */
export async function enough(ask, view) {
  const last = Math.max(...view.trace.chains.map(({ steps }) => steps.length - 1));
  const { error, verdict } = await ask(question({ ...view, seen: last }));
  return error ?? `${verdict.sentence} ${verdict.next}`;
}

/**
 * @param {(question: object) => Promise<Report>} ask
 * @param {View} view
 */
export async function diagnostics(ask, view) {
  const report = await ask(question(view));
  if (report.error) return [h("p.hint", report.error)];
  const facts = report.facts.flatMap(({ name, value, meaning }) =>
    [h("dt", name), h("dd", h("b", value), " ", meaning)]);
  const charts = report.charts.map(bars);
  const { level, sentence, next } = report.verdict;
  const verdict = h("p.trust", { "data-level": level }, h("b", sentence), ` ${next}`);
  return [verdict, h("p.hint", report.about), h("dl.facts", ...facts), h("div.charts", ...charts)];
}
