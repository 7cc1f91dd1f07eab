/* What only a browser knows: the page's colours, how wide a text is, and a drawing as pixels. */
import { builder } from "../dom.js";
import { FONT, markup } from "./svg.js";

/** @typedef {import("./svg.js").Shape} Shape */

const { h } = builder("");

/**
 * A canvas and what draws on it.
 * @param {number} width
 * @param {number} height
 */
export function canvas(width, height) {
  const node = h("canvas", { width, height });
  const pen = /** @type {CanvasRenderingContext2D} */ (
    node.getContext("2d", { willReadFrequently: true }));
  return { node, pen };
}

/** @returns {import("./svg.js").Wide} */
export function measurer() {
  const { pen } = canvas(1, 1);
  return (text, size, bold = false) => {
    pen.font = `${bold ? "bold " : ""}${size}px ${FONT}`;
    return pen.measureText(text).width;
  };
}

/**
 * The values of an element's own properties, as its style sheets have them.
 * @param {Element} element
 * @param {string[]} names
 */
export function coloursOf(element, names) {
  const style = getComputedStyle(element);
  return Object.fromEntries(names.map((name) =>
    [name, style.getPropertyValue(`--${name}`).trim()]));
}

/**
 * Draw a picture over a canvas, as large as that is.
 * @param {Shape} shape
 * @param {ReturnType<typeof canvas>} onto
 */
export async function paint(shape, { node, pen }) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(markup(shape))}`;
  await image.decode();
  pen.drawImage(image, 0, 0, node.width, node.height);
}

/**
 * A picture as a file of pixels.
 * @param {Shape} shape
 * @param {number} scale
 * @returns {Promise<Blob>}
 */
export async function png(shape, scale) {
  const [, { width, height }] = shape;
  const onto = canvas(scale * width, scale * height);
  await paint(shape, onto);
  const file = await new Promise((done) => onto.node.toBlob(done));
  if (!file) throw new Error("This browser cannot make a picture of this size.");
  return file;
}
