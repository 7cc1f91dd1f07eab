/* Markers and lines by the names that figures have for them, drawn as the figures draw them. */
import { builder } from "../dom.js";

const { s } = builder("q-");

/** @type {Record<string, string>} */
const MARKERS = {
  circle: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
  diamond: "M0 -6L6 0L0 6L-6 0z",
  "triangle-up": "M0 -5.5L5.5 4L-5.5 4z",
  square: "M-4.5 -4.5H4.5V4.5H-4.5z",
  pentagon: "M0 -5.5L5.5 -1.3L3.4 5L-3.4 5L-5.5 -1.3z",
  x: "M-4 -4L4 4M4 -4L-4 4",
};
/** @type {Record<string, string>} */
const DASHES = { dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };

/**
 * How an idea is drawn: its line with its marker.
 * @param {string} id
 * @param {import("../dictionary.js").Idea} idea
 */
export function look(id, { marker, line, width }) {
  const [shape, open] = marker.split(/-(?=open$)/);
  const style = `--c: var(--c-${id})`;
  const stroke = { d: "M1 0H43", "stroke-width": width, "stroke-dasharray": DASHES[line] };
  const at = { d: MARKERS[shape], transform: "translate(22 0)" };
  return s("svg.look", { viewBox: "0 -8 44 16", style, "aria-hidden": "true" },
    line ? s("path", stroke) : null,
    MARKERS[shape] ? s(`path.${open ? "hollow" : shape === "x" ? "cross" : "full"}`, at) : null);
}
