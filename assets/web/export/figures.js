/* Figures as files: the player's own, from how they stand on the page, and Plotly's, by Plotly. */
import { saveFile } from "../files.js";
import { measurer, png } from "./canvas.js";
import { about } from "./step.js";
import { BOLD, FONT, drawing, markup, text, wrap } from "./svg.js";

/** @typedef {import("./svg.js").Shape} Shape */
/** @typedef {import("./step.js").Moment} Moment */

export const KINDS = /** @type {const} */ (["svg", "png"]);
const SHARP = 3; // pixels of a figure's PNG for one of the page
const MARGIN = 16;
const HEAD = 40; // for the title
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity",
  "font-size", "font-weight"];
const UNSEEN = /^(g|clipPath|title)$/;
const PAGE_ONLY = /^(class|style|role|tabindex|aria-.*|data-.*)$/;

/**
 * A file of a drawing.
 * @param {string} name without its ending
 * @param {Shape} shape
 * @param {typeof KINDS[number]} kind
 * @param {number} [scale] pixels of a PNG for one of the drawing
 */
export async function saveDrawing(name, shape, kind, scale = SHARP) {
  if (kind === "svg") saveFile(`${name}.svg`, "image/svg+xml", markup(shape));
  else saveFile(`${name}.png`, "image/png", await png(shape, scale));
}

/**
 * What a style sheet makes of an element, written into it; null for what is not shown.
 * @param {Node} node
 * @returns {Shape | string | null}
 */
function copyElement(node) {
  if (!(node instanceof Element)) return node.textContent;
  const style = getComputedStyle(node);
  if (style.display === "none") return null;
  const own = [...node.attributes].filter(({ name }) => !PAGE_ONLY.test(name))
    .map(({ name, value }) => [name, value]);
  const looks = UNSEEN.test(node.tagName) ? [] : LOOKS.map((look) =>
    [look, style.getPropertyValue(look)]);
  return [node.tagName, { ...Object.fromEntries(own), ...Object.fromEntries(looks) },
    ...[...node.childNodes].map(copyElement)];
}

/**
 * The signs under a figure and what they stand for.
 * @param {Element} [key]
 * @returns {Shape[]}
 */
const keyOf = (key) => [...key?.childNodes ?? []].map((node) => (node instanceof Element
  && node.tagName === "B"
  ? ["tspan", { fill: getComputedStyle(node).color, ...BOLD }, ` ${node.textContent} `]
  : ["tspan", {}, node.textContent]));

/**
 * A figure of the page as a drawing with its title.
 * @param {string} title
 * @param {SVGSVGElement} svg
 * @param {Record<string, string>} c colours
 * @param {Moment} moment
 */
function asDrawing(title, svg, c, { trace }) {
  const { width, height } = svg.viewBox.baseVal;
  const figure = svg.closest("figure");
  const value = figure?.querySelector("figcaption .qp-value")?.textContent ?? "";
  const whole = Math.max(width, 360);
  const lines = wrap(value, whole, 13, measurer());
  const key = keyOf(figure?.querySelector(".qp-key") ?? undefined);
  const top = HEAD + 18 * lines.length;
  return drawing(whole + 2 * MARGIN, top + height + (key.length ? 40 : MARGIN), c.card,
    `${title}: ${value}`, about(trace),
    text(MARGIN, 26, 15, c.ink, title, BOLD),
    ...lines.map((line, k) => text(MARGIN, 46 + 18 * k, 13, c.soft, line)),
    ["g", { transform: `translate(${MARGIN} ${top})` }, ...[...svg.childNodes].map(copyElement)],
    key.length ? text(MARGIN, top + height + 24, 12, c.soft, key) : null);
}

/**
 * The figures that stand in a player.
 * @param {Element} player
 * @param {Record<string, string>} c colours
 * @param {Moment} moment
 */
export function figuresOf(player, c, moment) {
  return [...player.querySelectorAll("figure.qp-panel > svg, .qp-view > svg")].map((svg) => {
    const caption = svg.closest("figure")?.querySelector("figcaption");
    const tab = player.querySelector('.qp-tab[aria-selected="true"]');
    const title = (caption?.firstChild ?? tab)?.textContent ?? "";
    const figure = /** @type {SVGSVGElement} */ (svg);
    return { title, draw: () => asDrawing(title, figure, c, moment) };
  });
}

/**
 * The charts of a sheet in an element, one below the other, each with its title and its legend.
 * @param {Element} place
 * @returns {Shape}
 */
export function chartsOf(place) {
  const style = getComputedStyle(place.querySelector(".chart") ?? place);
  const [ink, ground] = ["--ink", "--ground"].map((name) => style.getPropertyValue(name).trim());
  const charts = [...place.querySelectorAll("svg.chart[role='img']")]
    .filter((svg) => svg.getClientRects().length);
  const keys = [...place.querySelectorAll(".legend li")];
  let top = MARGIN;
  let wide = 0;
  const parts = charts.map((node) => {
    const svg = /** @type {SVGSVGElement} */ (node);
    const { width, height } = svg.viewBox.baseVal;
    const title = svg.closest("figure")?.querySelector("h3")?.textContent ?? "";
    const at = top + (title ? 24 : 0);
    top = at + height + MARGIN;
    wide = Math.max(wide, width);
    return ["g", {}, title ? text(MARGIN, at - 8, 15, ink, title, BOLD) : null,
      ["g", { transform: `translate(${MARGIN} ${at})` }, ...[...svg.childNodes].map(copyElement)]];
  });
  const legend = keys.map((key, k) => ["g", { transform: `translate(${MARGIN} ${top + 20 * k})` },
    ...[...key.querySelector("svg")?.childNodes ?? []].map(copyElement),
    text(38, 11, 13, ink, key.textContent ?? "")]);
  const label = charts[0]?.getAttribute("aria-label") ?? "";
  return drawing(wide + 2 * MARGIN, top + 20 * keys.length + MARGIN, ground, label, "",
    .../** @type {Shape[]} */ (parts), .../** @type {Shape[]} */ (legend));
}

/**
 * A figure of Plotly's as a file, in the colours of a light page, as they are in print.
 * @param {any} graph its element
 * @param {typeof KINDS[number]} kind
 * @param {string} name
 */
export async function savePlot(graph, kind, name) {
  const { data, layout, offsetWidth: width, offsetHeight: height } = graph;
  const { Plotly } = /** @type {any} */ (window);
  const font = { ...layout.font, family: FONT }; // the page's own is not there in a picture
  const figure = { data, layout: { ...layout, font, paper_bgcolor: "#ffffff" } };
  const address = await Plotly.toImage(figure, { format: kind, width, height,
    scale: kind === "png" ? SHARP : 1 });
  const file = await (await fetch(address)).blob();
  saveFile(`${name}.${kind}`, file.type, file);
}
