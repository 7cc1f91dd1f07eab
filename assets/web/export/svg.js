/* A drawing as plain values, and the file it makes: SVG 1.1 without styles, scripts or links, which
   browsers, slides and drawing programs read alike. A text is escaped, so it stays one there. */

/**
 * An element: its name, its attributes (an absent one is null) and what is in it.
 * @typedef {[name: string, attributes: Record<string, any>, ...parts: any[]]} Shape
 */
/** @typedef {(text: string, size: number, bold?: boolean) => number} Wide how wide a text is */

/** Arial, and what has the same widths where there is none. */
export const FONT = "Arial, 'Liberation Sans', Arimo, Helvetica, sans-serif";

// what a file of XML cannot have, half a pair of code units among it
const NO_XML = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu;
/** @type {Record<string, string>} */
const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** @param {string | number} value */
const escapeText = (value) => String(typeof value === "number" ? Number(value.toFixed(2)) : value)
  .replace(NO_XML, "\uFFFD").replace(/[&<>"]/g, (sign) => SIGNS[sign]);

/**
 * The text of a drawing's file.
 * @param {Shape} shape
 * @returns {string}
 */
export function markup([name, attributes, ...parts]) {
  const attributeText = Object.entries(attributes).filter(([, value]) => value != null)
    .map(([key, value]) => ` ${key}="${escapeText(value)}"`).join("");
  const inside = parts.filter((part) => part != null)
    .map((part) => (Array.isArray(part) ? markup(/** @type {Shape} */ (part)) : escapeText(part)));
  return `<${name}${attributeText}>${inside.join("")}</${name}>`;
}

/**
 * A drawing of its own.
 * @param {number} width
 * @param {number} height
 * @param {string} ground its colour
 * @param {string} title what it shows, in words
 * @param {string} about where that is from
 * @param {...(Shape | null)} parts
 * @returns {Shape}
 */
export const drawing = (width, height, ground, title, about, ...parts) => ["svg", {
  xmlns: "http://www.w3.org/2000/svg",
  version: "1.1",
  width,
  height,
  viewBox: `0 0 ${width} ${height}`,
  "font-family": FONT,
}, ["title", {}, title], ["desc", {}, about],
["rect", { width, height, fill: ground }], ...parts];

/**
 * A text; its parts may be texts or spans.
 * @param {number} x
 * @param {number} y of its baseline
 * @param {number} size
 * @param {string} fill
 * @param {string | (Shape | string)[]} content
 * @param {Record<string, any>} [more]
 * @returns {Shape}
 */
export const text = (x, y, size, fill, content, more = {}) =>
  ["text", { x, y, "font-size": size, fill, ...more },
    ...(Array.isArray(content) ? content : [content])];

export const BOLD = { "font-weight": "bold" };
export const END = { "text-anchor": "end" };
export const MIDDLE = { "text-anchor": "middle" };

/**
 * The lines of a text in a width; words that are wider than a line are broken.
 * @param {string} content
 * @param {number} width
 * @param {number} size
 * @param {Wide} wide
 * @param {boolean} [bold]
 */
export function wrap(content, width, size, wide, bold = false) {
  const fits = (/** @type {string} */ part) => wide(part.trimEnd(), size, bold) <= width;
  const lines = [];
  for (const paragraph of content.split("\n")) {
    let line = "";
    for (const word of paragraph.match(/\S*\s*/g) ?? []) {
      if (line && !fits(line + word)) {
        lines.push(line);
        line = "";
      }
      let rest = [...word];
      while (!fits(line + rest.join(""))) {
        let n = 1;
        while (n < rest.length && fits(rest.slice(0, n + 1).join(""))) n += 1;
        lines.push(rest.slice(0, n).join(""));
        rest = rest.slice(n);
        if (!rest.length) break;
      }
      line += rest.join("");
    }
    lines.push(line);
  }
  return lines;
}

/**
 * As much of a text as there is room for, in one line.
 * @param {string} content
 * @param {number} width
 * @param {number} size
 * @param {Wide} wide
 */
export function clipText(content, width, size, wide, bold = false) {
  const [first, ...more] = wrap(content.slice(0, 400), width - size, size, wide, bold);
  return more.length || content.length > 400 ? `${first.trimEnd()}…` : first;
}
