/* Draw the exhibit of a stop (components/learn/exhibit.py), on a phone as on the projector. */
import { shadedText } from "../inside/shaded.js";
import { visible } from "../player/words.js";
import { drawBars, drawClass, h } from "./drawing.js";

/**
 * @typedef {object} Exhibit
 * @property {[name: string, kept: string, written: string][]} texts
 * @property {[name: string, value: string | number][]} rows
 * @property {[name: string, shares: [string, number, string][]][]} bars
 * @property {(Omit<import("./drawing.js").Class, "chains"> & {
 *   chains: [number, number[]][] }) | null} walk
 * @property {import("../inside/shaded.js").ShadedText | null} tokens
 */

const [WIDTH, HEIGHT] = [640, 270];

/** @param {Exhibit} exhibit */
export function drawExhibit({ texts, rows, bars, walk, tokens }) {
  return [
    ...texts.map(([name, kept, written]) => h("div", h("h3", name), h("p.text",
      h("span.kept", visible(kept)), h(kept ? "span.tail" : "span", visible(written))))),
    tokens && drawTokens(tokens),
    walk && drawClass({ ...walk, chains: new Map(walk.chains) }, WIDTH, HEIGHT),
    rows.length ? h("dl.rows", ...rows.flatMap(([name, value]) =>
      [h("dt", name), h("dd", value)])) : null,
    ...bars.map(([name, shares]) => h("div", h("h3", name), drawBars(
      shares.map(([answer, share]) => [answer, share]), 1, (_, k) => shares[k][2]))),
  ].filter((node) => node !== null);
}

/** @param {NonNullable<Exhibit["tokens"]>} tokens */
function drawTokens(tokens) {
  const text = shadedText("The proposal, token by token. Arrow keys move along it.", () => {});
  text.show(tokens);
  return h("div", h("h3", "The proposal, token by token"), ...text.nodes);
}
