/* The frame of a figure, and the axes of one over steps. */
import { put, set } from "../dom.js";
import { h, label, rule, s } from "./drawing.js";
import { axisEnd, ticks } from "./numbers.js";
import { plain } from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./parse.js").Trace} Trace */
/** @typedef {import("./drawing.js").Seek} Seek */
/** @typedef {[kind: string, sign: string, text: string | Node]} Key */

export const LEFT = 36;
export const RIGHT = 10;
export const TOP = 8;
export const LOW = 18;

/**
 * A figure with its title, the value at the position and a key.
 * @param {HTMLElement} node that becomes the figure
 * @param {string} title
 * @param {SVGElement | null} svg
 * @param {Key[]} keys
 */
export function frame(node, title, svg, ...keys) {
  const value = h("span.value");
  const signs = keys.map(([kind, sign, text]) => h("span", h(`b.k-${kind}`, sign), " ", text));
  const key = keys.length ? h("p.key", ...signs) : null;
  node.replaceChildren(.../** @type {Node[]} */ (
    [h("figcaption", title, value), svg, key].filter(Boolean)));
  return {
    node,
    signs,
    /**
     * Say the value at step t.
     * @param {string} text
     * @param {number} t
     */
    tell(text, t) {
      put(value, text);
      if (svg) set(svg, { "aria-label": `${title}, up to step ${t}: ${text}.` });
    },
  };
}

/** @param {Trace} trace */
export const lastStep = ({ chains }) => Math.max(...chains.map(({ steps }) => steps.length - 1));

/** @param {number} height */
export const canvas = (height) => s("svg.chart", { height, role: "img" });

/**
 * @param {SVGElement} svg
 * @param {number} width
 * @param {number} height
 */
export function resize(svg, width, height) {
  set(svg, { width, viewBox: `0 0 ${width} ${height}` });
}

/**
 * A panel over steps: it shows them up to the position, and takes one where it is pressed.
 * @param {HTMLElement} node that becomes the figure
 * @param {string} title
 * @param {number} height
 * @param {Seek} seek
 * @param {...Key} keys
 */
export function overSteps(node, title, height, seek, ...keys) {
  const id = `qp-clip-${Math.random()}`; // a page has this module in several scripts
  const svg = canvas(height);
  const clip = s("rect", { x: 0, y: -20, height: height + 40 });
  const head = rule("head", 0, 0, 0);
  const marks = s("g", { "clip-path": `url(#${id})` });
  const axes = s("g");
  const bottom = height - LOW;
  let steps = 1;
  let from = LEFT; // the place of the first step
  let x = (/** @type {number} */ t) => t;

  svg.append(s("clipPath", { id }, clip), axes, marks, head);
  svg.classList.add("qp-seek");
  const go = (/** @type {PointerEvent} */ event) => {
    const { left, width } = svg.getBoundingClientRect(); // of an enlarged page, too
    const along = ((event.clientX - left) * svg.viewBox.baseVal.width) / width - from;
    seek(Math.round((steps * along) / (x(steps) - from)));
  };
  svg.addEventListener("pointerdown", (event) => {
    go(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });

  return {
    ...frame(node, title, svg, ...keys),
    axes,
    marks,
    bottom,
    /**
     * The places of steps for new data or a new size; the axes begin anew.
     * @param {View} view
     * @param {number} width
     * @param {number} [before] pixels left free before the first step
     */
    scale({ trace, finished }, width, before = 0) {
      resize(svg, width, height);
      const last = lastStep(trace);
      steps = finished ? Math.max(last, 1) : axisEnd(last, trace.header.steps);
      from = LEFT + before;
      x = (t) => from + ((width - from - RIGHT) * t) / steps;
      set(head, { y1: 0, y2: bottom + 3 });
      const whole = ticks(0, steps).filter(Number.isInteger);
      axes.replaceChildren(...whole.map((t) => label(x(t), height - 3, plain(t))));
      return { x, steps };
    },
    /**
     * @param {number} y
     * @param {string} text
     */
    level(y, text, kind = "level") {
      axes.append(rule(kind, LEFT, x(steps), y), label(LEFT - 6, y + 4, text, "end"));
    },
    /** @param {number} t */
    move(t) {
      set(clip, { width: x(t) + 1 });
      set(head, { x1: x(t), x2: x(t) });
    },
  };
}
