/* The one builder of nodes. What a page shows enters it as a text node or as an attribute, never as
   markup, and a handler is a function, never a text. */

/** @typedef {Node | string | number | boolean | null | undefined} Child */
/**
 * @template {string} N
 * @typedef {N extends `${infer T}.${string}` ? T : N} TagOf
 */
/**
 * @template {string} N
 * @typedef {TagOf<N> extends keyof HTMLElementTagNameMap
 *   ? HTMLElementTagNameMap[TagOf<N>] : HTMLElement} HtmlOf
 */
/**
 * @template {string} N
 * @typedef {TagOf<N> extends keyof SVGElementTagNameMap
 *   ? SVGElementTagNameMap[TagOf<N>] : SVGElement} SvgOf
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Set attributes; an absent or false one is left out, `aria` is its label, `on…` listens. A form is
 * for the script that listens: the browser does not send it.
 * @param {Element} node
 * @param {Record<string, any>} attributes
 */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onsubmit") node.addEventListener("submit", (event) => event.preventDefault());
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value != null && value !== false) {
      node.setAttribute(key === "aria" ? "aria-label" : key, value === true ? "" : String(value));
    }
  }
}

/**
 * @param {Element} node
 * @param {string} prefix
 * @param {string[]} classes
 * @param {any[]} rest its attributes, if they come first, and its children
 */
function fill(node, prefix, classes, rest) {
  const names = classes.filter(Boolean).map((name) => prefix + name);
  if (names.length) node.setAttribute("class", names.join(" "));
  const [first] = rest;
  const hasAttributes = first?.constructor === Object;
  if (hasAttributes) set(node, first);
  // strings and numbers become text nodes
  node.append(...(hasAttributes ? rest.slice(1) : rest).filter((child) => child != null));
  return node;
}

const PLAIN = ["title", "option", "style"]; // elements of text alone
const METHOD = /(best-of-(?:n|\d+))/i;

/**
 * The nodes of a text, in which no line ends within the name of a method.
 * @param {string} text
 * @returns {(string | Node)[]}
 */
const textNodes = (text) => text.split(METHOD).map((part, k) => {
  if (k % 2 === 0) return part;
  const name = document.createElement("nobr");
  name.textContent = part;
  return name;
});

/**
 * The builder of a page whose class names begin with `prefix`: `h("b.num", { title }, "text")`
 * makes an element of HTML, `s` one of SVG, `button` a button that submits nothing.
 * @param {string} prefix
 */
export function builder(prefix) {
  /**
   * @template {string} N
   * @param {N} name
   * @param {...(Record<string, any> | Child)} rest
   * @returns {HtmlOf<N>}
   */
  function h(name, ...rest) {
    const [tag, ...classes] = name.split(".");
    const children = PLAIN.includes(tag) ? rest : rest.flatMap((/** @type {any} */ one) =>
      (typeof one === "string" ? textNodes(one) : [one]));
    return /** @type {any} */ (fill(document.createElement(tag), prefix, classes, children));
  }
  /**
   * @template {string} N
   * @param {N} name
   * @param {...(Record<string, any> | Child)} rest
   * @returns {SvgOf<N>}
   */
  function s(name, ...rest) {
    const [tag, ...classes] = name.split(".");
    return /** @type {any} */ (fill(document.createElementNS(SVG, tag), prefix, classes, rest));
  }
  /**
   * @param {string} name
   * @param {Record<string, any>} attributes
   * @param {...Child} children
   */
  function button(name, attributes, ...children) {
    const node = h(`button.${name}`, { type: "button", ...attributes }, ...children);
    return /** @type {HTMLButtonElement} */ (node);
  }
  return { h, s, button };
}

/**
 * Write a text, if it is another one: a live region speaks what is written.
 * @param {Node} node
 * @param {string} text
 */
export function put(node, text) {
  if (node.textContent === text) return;
  node.textContent = text;
  if (node instanceof HTMLElement && METHOD.test(text)) node.replaceChildren(...textNodes(text));
}

/**
 * Put other children into a node. The focus stays on what has the same `data-key` as before; where
 * nothing has it any more, it goes to what is around.
 * @param {HTMLElement} node
 * @param {...Node} children
 */
export function swap(node, ...children) {
  const same = children.length === node.childNodes.length
    && children.every((child, k) => child === node.childNodes[k]);
  if (same) return; // taken out and put back they would lose the focus, and where they are scrolled
  const held = /** @type {HTMLElement | null} */ (document.activeElement);
  const key = held && held !== node && node.contains(held) ? held.dataset.key : undefined;
  node.replaceChildren(...children);
  if (key === undefined) return;
  const again = /** @type {HTMLElement | null} */ (node.querySelector(`[data-key="${key}"]`)
    ?? node.parentElement?.closest("[tabindex]"));
  again?.focus({ preventScroll: true });
}

/**
 * @param {HTMLElement} node
 * @param {unknown} on
 */
export function show(node, on) {
  node.hidden = !on;
}

/** A function that says whether its key differs from that of the call before. */
export function differs() {
  /** @type {unknown} */
  let last;
  return (/** @type {unknown} */ key) => {
    const other = key !== last;
    last = key;
    return other;
  };
}

/** The paths of icons, in a box of 24 by 24; those of `FILLED` are areas, the others lines. */
export const ICONS = {
  play: "M7 4.5v15l13-7.5z",
  pause: "M6 4.5h4.5v15H6zM13.5 4.5H18v15h-4.5z",
  back: "M18 5v14l-9-7zM6 5h2.5v14H6z",
  next: "M6 5v14l9-7zM15.5 5H18v14h-2.5z",
  yes: "M4 12.5l5.5 5.5L20 6.5",
  no: "M6 6l12 12M18 6L6 18",
  lock: "M7 11V8a5 5 0 0 1 10 0v3M5.5 11h13v9h-13z",
};
const FILLED = ["play", "pause", "back", "next"];

/** @typedef {keyof typeof ICONS} Icon */

/**
 * @param {Icon} name
 * @param {string} prefix of its class names
 */
export function drawIcon(name, prefix) {
  const kind = FILLED.includes(name) ? "" : "line";
  const { s } = builder(prefix);
  return s(`svg.icon.${kind}`, { viewBox: "0 0 24 24", "aria-hidden": "true" },
    s("path", { d: ICONS[name] }));
}
