/* Draw the exhibit of a stop (components/learn/exhibit.py), on a phone as on the projector. */
import { shadedText } from "../inside/shaded.js";
import { visible } from "../player/words.js";
import { FEW, drawBars, drawClass, h } from "../room/drawing.js";
import { drawChart, keyOf } from "./chart.js";

/**
 * @typedef {object} Exhibit
 * @property {[name: string, kept: string, written: string][]} texts
 * @property {[name: string, value: string | number][]} rows
 * @property {[name: string, shares: [string, number, string][]][]} bars
 * @property {import("./chart.js").Chart[]} charts
 * @property {(Omit<import("../room/drawing.js").Class, "chains"> & {
 *   chains: [number, number[]][] }) | null} walk
 * @property {import("../inside/shaded.js").ShadedText | null} tokens
 */
/** @typedef {{ width: number, height: number, size: number }} Size of a figure, its letters too */

/** @type {Size} */
const PHONE = { width: 360, height: 240, size: 14 };

/**
 * @param {Exhibit} exhibit
 * @param {Size} [figure]
 */
export function drawExhibit({ texts, rows, bars, charts, walk, tokens }, figure = PHONE) {
  const { width, height, size } = figure;
  const part = charts.length > 1 ? height * 0.56 : height;
  return [
    ...texts.map(([name, kept, written], k) => h(k ? "div" : "div.given", h("h3", name), h("p.text",
      h("span.kept", visible(kept)), h(kept ? "span.tail" : "span", visible(written))))),
    tokens && drawTokens(tokens),
    walk && drawWalk(walk, figure),
    ...charts.map((chart) => drawChart(chart, width, part, size)),
    rows.length ? h("dl.rows", ...rows.flatMap(([name, value]) =>
      [h("dt", name), h("dd", value)])) : null,
    ...bars.map(([name, shares]) => h("div", h("h3", name), drawBars(
      shares.map(([answer, share]) => [answer, share]), 1, (_, k) => shares[k][2]))),
  ].filter((node) => node !== null);
}

/** @param {NonNullable<Exhibit["walk"]>} walk @param {Size} figure */
function drawWalk(walk, { width, height, size }) {
  const hasBase = walk.base.length > FEW;
  return h("figure.chart", h("h3", "The reward, step by step"), h("p.legend",
    keyOf("the chains’ states", "pooled"), hasBase ? keyOf("model alone", "alone") : null,
    hasBase && walk.worth >= FEW ? keyOf("target", "target") : null),
  drawClass({ ...walk, chains: new Map(walk.chains) }, width, height, size));
}

/** @param {NonNullable<Exhibit["tokens"]>} tokens */
function drawTokens(tokens) {
  const text = shadedText("The proposal, token by token. Arrow keys move along it.", () => {});
  text.show(tokens);
  return h("div", h("h3", "The proposal, token by token"), ...text.nodes);
}
