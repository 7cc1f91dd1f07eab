/* What the player's parts draw with. A part is made once, `{ node, draw }`; `draw(view)` brings its
   node to what the view says and touches only what differs from the view before. */
import { builder, drawIcon, show } from "../dom.js";
import { answerText, isRight, visible } from "./words.js";

/** @typedef {import("./parse.js").Trace} Trace */
/** @typedef {import("./parse.js").Chain} Chain */
/** @typedef {import("./parse.js").Step} Step */
/** @typedef {import("../dom.js").Child} Child */

/**
 * All that is on the page at one moment.
 * @typedef {object} View
 * @property {Trace} trace
 * @property {Chain} chain
 * @property {Step} step the one that is looked at
 * @property {number} t its number
 * @property {number} phase
 * @property {number} passed how much of the phase, 0 to 1
 * @property {boolean} moving whether a phase is played bit by bit
 * @property {number} seen the last step whose verdict is out
 * @property {number} burnIn
 * @property {boolean} finished whether nothing more will come
 * @property {string} run names the trace and the chain
 * @property {string} data names all that is drawn but the position: run, what has come of it, size
 * @property {Sizes} sizes
 */
/**
 * Widths in pixels.
 * @typedef {object} Sizes
 * @property {number} all
 * @property {number} trace
 * @property {number} panel
 * @property {number} score
 */
/**
 * @typedef {object} Part
 * @property {HTMLElement} node
 * @property {(view: View) => void} draw
 */
/** @typedef {(t: number) => void} Seek */

export const PREFIX = "qp-";
const own = builder(PREFIX);
export const h = own.h;
export const s = own.s;
export const button = own.button;

/** @param {import("../dom.js").Icon} name */
export const icon = (name) => drawIcon(name, PREFIX);

/**
 * A text in a drawing.
 * @param {number} x
 * @param {number} y
 * @param {string} text
 */
export function label(x, y, text, anchor = "middle", kind = "tick") {
  return s(`text.${kind}`, { x, y, "text-anchor": anchor }, text);
}

/**
 * A level line.
 * @param {string} kind
 * @param {number} x1
 * @param {number} x2
 * @param {number} y
 */
export function rule(kind, x1, x2, y) {
  return s(`line.${kind}`, { x1, x2, y1: y, y2: y });
}

/**
 * A drawing with what it says in words.
 * @param {number} width
 * @param {number} height
 * @param {string} aria
 * @param {...Child} children
 */
export function chart(width, height, aria, ...children) {
  const viewBox = `0 0 ${width} ${height}`;
  return s("svg.chart", { width, height, viewBox, role: "img", aria }, ...children);
}

/**
 * From values, as a trace's rewards, to places between `from` and `to`.
 * @param {{ lo: number, hi: number }} ends the least and the greatest
 * @param {number} from
 * @param {number} to
 */
export function scaleOf(ends, from, to) {
  const range = ends.hi > ends.lo ? ends : { lo: ends.lo - 1, hi: ends.hi + 1 };
  const room = 0.06 * (range.hi - range.lo);
  const lo = range.lo - room;
  const hi = range.hi + room;
  const at = (/** @type {number} */ r) => from + ((to - from) * (r - lo)) / (hi - lo);
  return Object.assign(at, { lo, hi });
}

/**
 * Spans for a step's tokens; the end-of-text id is drawn as a sign of its own.
 * @param {Step} step
 * @param {number} from
 */
export function tokenSpans(step, from) {
  return step.pieces.slice(from).map((piece, j, all) => {
    if (!step.finished || j < all.length - 1) return h("span.tok", visible(piece));
    const title = "the end-of-text token, counted in the length";
    return h("span.tok.eos", { title }, visible(piece));
  });
}

/**
 * Have a scroller show "…" at its edge while some of its content lies beyond.
 * @param {HTMLElement} scroller
 */
export function signMore(scroller) {
  const sign = h("i.more", "…");
  const end = h("i.end");
  scroller.append(sign, end);
  new IntersectionObserver((all) => show(sign, !all.pop()?.isIntersecting),
    { root: scroller }).observe(end);
  return scroller;
}

/** The colour of answers that have none of their own, as a style. */
export const OTHERS = "--c:var(--a6)";

/**
 * Colour of an answer, as a style: --a0 for the right one, --a1 to --a5 for those with most states.
 * @param {Trace} trace
 * @param {string | null} answer
 */
export function answerStyle(trace, answer) {
  if (answer === null) return OTHERS;
  if (isRight(trace, answer)) return "--c:var(--a0)";
  const place = trace.colours.indexOf(answer) + 1;
  return place ? `--c:var(--a${place})` : OTHERS;
}

/** @param {string} style */
export const swatch = (style) => h("i.swatch.own", { style });

/**
 * A name with its colour. Its words may be cut where there is no room, its mark never.
 * @param {string} style
 * @param {string} text
 */
export function nameNodes(style, text) {
  const words = text.replace(/ [✓✗]$/, "");
  return [swatch(style), h("span.caption", words), text.slice(words.length + 1)];
}

/**
 * An answer's place in a drawing says in words which one it is.
 * @param {Trace} trace
 * @param {string | null} answer
 */
export const answerTitle = (trace, answer) => s("title", answerText(trace, answer));
