/* The river on its canvas: the branches in view, their words, and the marks of answers. */
import { answerStyle } from "../player/drawing.js";
import { answerText } from "../player/words.js";
import { GAP, ROW, isRejected, textOf } from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./tree.js").Branch} Branch */
/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {{ left: number, right: number, y: number, half: number, branch: Branch }} Strip */
/** @typedef {{ x: number, to: number, y: number }} Box */
/**
 * What is drawn, and where a branch is on the canvas.
 * @typedef {object} Scene
 * @property {Tree} tree
 * @property {View} view
 * @property {number} unit pixels of a state
 * @property {number} row pixels of a row
 * @property {number} width of the canvas
 * @property {number} high of the canvas
 * @property {number} letters their size in pixels
 * @property {number} top where the tree begins
 * @property {(branch: Branch) => number} left
 * @property {(branch: Branch) => number} right
 * @property {Branch | null} selected
 * @property {Branch | null} under the pointer
 */
/**
 * A scene while it is drawn.
 * @typedef {Scene & { pen: CanvasRenderingContext2D, colour: Record<string, string>,
 *   here: Set<Branch> }} Drawing `here` leads to the text of the step
 */

const LETTER = 6.1 / 12; // width of a letter, relative to its size
const DETAIL = 2.5; // pixels below which a branch is drawn without what it parts into
const FEWEST = 6; // letters of a text that are worth drawing
const COLOURS = ["yes", "no", "ink", "soft", "card", "a0", "a1", "a2", "a3", "a4", "a5", "a6"];

/**
 * @param {string} text
 * @param {number} letters that there is room for
 */
function foldText(text, letters) {
  if (text.length > letters && letters < FEWEST) return "";
  return text.length > letters ? `${text.slice(0, letters - 1).trimEnd()}…` : text;
}

/**
 * Draw a scene, and return the branches in view.
 * @param {HTMLCanvasElement} canvas
 * @param {Scene} scene
 */
export function paint(canvas, scene) {
  const drawing = { ...scene, ...clear(canvas, scene), here: branchesOf(scene) };
  const strips = drawBranches(drawing);
  // where there is no room for all words, those of the wider branches stay
  const path = strips.filter(({ branch }) => drawing.here.has(branch));
  const others = strips.filter(({ branch }) => !drawing.here.has(branch))
    .sort((a, b) => b.half - a.half);
  /** @type {Box[]} */
  const boxes = [];
  for (const one of [...path, ...others]) write(drawing, one, boxes);
  return strips;
}

/** @type {(canvas: HTMLCanvasElement, scene: Scene) => Pick<Drawing, "pen" | "colour">} */
function clear(canvas, { width, high, letters }) {
  const ratio = window.devicePixelRatio || 1;
  const [w, k] = [Math.round(width * ratio), Math.round(high * ratio)];
  if (canvas.width !== w || canvas.height !== k) {
    Object.assign(canvas, { width: w, height: k });
    Object.assign(canvas.style, { width: `${width}px`, height: `${high}px` });
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const styles = window.getComputedStyle(canvas);
  const colour = Object.fromEntries(
    COLOURS.map((name) => [name, styles.getPropertyValue(`--${name}`)]));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, high);
  pen.font = `${letters}px ${styles.fontFamily}`;
  return { pen, colour };
}

/**
 * The branches that lead to the text of the step.
 * @param {Scene} scene
 */
function branchesOf({ tree, view }) {
  /** @type {Set<Branch>} */
  const here = new Set();
  const at = tree.ends.get(view.chain)?.[view.chain.stateAt[view.seen]];
  for (let node = at ?? null; node; node = node.parent) here.add(node);
  return here;
}

/** @param {Drawing} drawing */
function drawBranches(drawing) {
  const { pen, colour, tree, unit, width, high, top, left, right, selected, under } = drawing;
  /** @type {Strip[]} */
  const strips = [];
  const waiting = [tree.root];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    const { place } = node;
    if (place.bottom + top < -30 || place.top + top > high + 30) continue;
    const thick = unit * node.time;
    const [x0, x1] = [left(node), right(node)];
    if (x0 > width + GAP) continue;
    const y = place.y + top;
    strips.push({ left: x0, right: x1, y, half: thick / 2, branch: node });
    stretch(drawing, node, x0, y, x1, y);
    if (node === selected || node === under) {
      pen.globalAlpha = node === selected ? 1 : 0.55;
      pen.strokeStyle = colour.ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(x0 - 2, y - thick / 2 - 3, x1 - x0 + 4, thick + 6);
    }
    if (place.bottom - place.top < DETAIL && node.children.length) continue;
    let from = y - thick / 2;
    for (const child of node.children) {
      const half = (unit * child.time) / 2;
      const start = isRejected(child) ? Math.min(y + thick / 2, from) : from + half;
      stretch(drawing, child, x1, start, left(child), child.place.y + top);
      from += 2 * half;
      waiting.push(child);
    }
  }
  pen.globalAlpha = 1;
  return strips;
}

/**
 * A stretch of a branch: pale for all of its time, dark for what has passed of it.
 * @param {Drawing} drawing
 * @param {Branch} node
 * @param {number} x0
 * @param {number} y0
 * @param {number} x1
 * @param {number} y1
 */
function stretch({ pen, colour, unit, row, here }, node, x0, y0, x1, y1) {
  if (x1 <= x0) return;
  const middle = (x0 + x1) / 2;
  if (isRejected(node)) {
    pen.strokeStyle = colour.no;
    pen.globalAlpha = 0.25 + 0.55 * Math.min(1, row / ROW);
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    pen.stroke();
    pen.setLineDash([]);
    return;
  }
  pen.fillStyle = colour.yes;
  const dark = here.has(node) ? 1 : 0.5;
  for (const [time, alpha] of [[node.time, 0.22], [node.now, dark]]) {
    if (!time && node.time) continue;
    const half = Math.max(1, unit * time) / 2;
    pen.globalAlpha = alpha;
    pen.beginPath();
    pen.moveTo(x0, y0 - half);
    pen.bezierCurveTo(middle, y0 - half, middle, y1 - half, x1, y1 - half);
    pen.lineTo(x1, y1 + half);
    pen.bezierCurveTo(middle, y1 + half, middle, y0 + half, x0, y0 + half);
    pen.fill();
  }
}

/**
 * The words of a branch, and the vote of a text that ends there.
 * @param {Drawing} drawing
 * @param {Strip} one
 * @param {Box[]} boxes by other words
 */
function write({ pen, colour, view, unit, width, here, letters }, one, boxes) {
  const { left: x0, right: x1, y, half, branch: node } = one;
  const rows = node.place.bottom - node.place.top;
  const pale = isRejected(node);
  const inside = 2 * half >= letters;
  /** @type {(text: string, x: number, line: number, ink: string) => void} */
  const say = (text, x, line, ink) => {
    const box = { x, y: line, to: x + LETTER * letters * text.length };
    if (!text || boxes.some((other) => Math.abs(other.y - line) < letters && other.x < box.to
      && box.x < other.to)) return;
    boxes.push(box);
    if (ink !== colour.card) { // a rim, so that no line behind the words crosses them
      pen.save();
      Object.assign(pen, { strokeStyle: colour.card, lineWidth: 4, lineJoin: "round" });
      pen.strokeText(text, x, line);
      pen.restore();
    }
    pen.fillStyle = ink;
    pen.fillText(text, x, line);
  };
  if (inside || rows >= letters) {
    const from = Math.max(x0, 4) + 4; // what is in view of a long one
    const room = Math.floor((Math.min(x1, width) - from) / (LETTER * letters));
    const text = foldText(textOf(node).trim(), room);
    const dark = here.has(node) && unit * node.now >= letters;
    say(text, from, inside ? y + letters / 3 : y - half - 3,
      pale ? colour.soft : dark ? colour.card : colour.ink);
  }
  if (!node.leaf || x1 > width) return;
  const { answer } = node.step;
  if (pale && rows >= 4) mark(pen, colour, x1, y);
  if (!pale) {
    pen.fillStyle = colour[answerStyle(view.trace, answer).replace(/.*--(a\d).*/, "$1")];
    pen.beginPath();
    pen.arc(x1 + 5, y, Math.min(4.5, Math.max(1, rows / 2)), 0, 7);
    pen.fill();
  }
  if (rows < letters) return;
  const votes = pale ? "rejected" : `×${node.time}`;
  say(`${answerText(view.trace, answer)} ${votes}`, x1 + 14, y + letters / 3,
    pale ? colour.soft : colour.ink);
}

/** @type {(pen: CanvasRenderingContext2D, colour: Record<string, string>, x: number,
 *   y: number) => void} */
function mark(pen, colour, x, y) {
  pen.beginPath();
  for (const [dx, dy] of [[1, 0], [5, -4], [9, 0], [5, 4], [1, 0]]) pen.lineTo(x + dx, y + dy);
  Object.assign(pen, { strokeStyle: colour.no, lineWidth: 1.2, globalAlpha: 1 });
  pen.stroke();
}
