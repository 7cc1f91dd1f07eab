/* A text with its tokens shaded by how surprising the model finds them; a token that is pointed at
   or reached tells how likely it was, and what else could have stood there. */
import { put, set } from "../dom.js";
import { chart, h, label, rule, s } from "../player/drawing.js";
import { fixed, percent, px, visible } from "../player/words.js";

/** @typedef {import("./ask.js").TokenScore} TokenScore */
/**
 * @typedef {object} ShadedText
 * @property {string[]} pieces
 * @property {boolean} finished
 * @property {TokenScore[]} [scores] once it is known
 */

const MOST = 5; // bits; no token is shaded darker, or its bar higher
const DARKEST = 42; // percent of the colour, on which words can still be read
const HIGH = 76;
const BAR = 14;

/** How surprising a token is, in bits: 0 if it was certain. @param {TokenScore} score */
export const bits = ([logP]) => (logP === null ? Infinity : Math.max(0, -logP / Math.LN2));

/** A probability in words. @param {number | null} logP */
export function share(logP) {
  if (logP === null) return "never";
  const p = Math.exp(logP);
  if (p > 0.995) return "over 99%";
  if (p < 0.001) return "under 0.1%";
  return p < 0.01 ? `${fixed(100 * p, 1)}%` : percent(p);
}

/** @param {string} piece */
const quoted = (piece) => `“${visible(piece).replaceAll("\n", "↵")}”`;

/**
 * What the model thinks of a token, in a sentence or two.
 * @param {ShadedText} text
 * @param {number} at
 */
export function opinion({ pieces, scores }, at) {
  const where = `${quoted(pieces[at])}, token ${at + 1} of ${pieces.length}`;
  if (!scores) return `${where}.`;
  const [logP, others] = scores[at];
  const likeliest = others.map(([piece, p]) => `${quoted(piece)} ${share(p)}`).join(", ");
  const how = logP === null ? "the model, as sampled, never writes it here" : share(logP);
  return `${where}: ${how}.${likeliest ? ` Likeliest here: ${likeliest}.` : ""}`;
}

/**
 * @param {string} aria
 * @param {(at: number) => void} [press] what a press on a token does
 */
export function shadedText(aria, press) {
  const text = h("p.shaded", { role: "group", aria, "data-key": "shaded" });
  const opinionLine = h("p.opinion", { "aria-live": "polite" });
  /** @type {ShadedText} */
  let current = { pieces: [], finished: false };
  const at = (/** @type {EventTarget | null} */ target) => {
    const token = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (target).closest?.("[data-at]"));
    return token ? Number(token.dataset.at) : -1;
  };
  /** @param {number} k */
  function tell(k) {
    if (k >= 0) put(opinionLine, opinion(current, k));
  }
  /** @param {number} k */
  function reach(k) {
    const next = /** @type {HTMLElement | undefined} */ (text.children[k]);
    if (!next) return;
    for (const token of text.querySelectorAll("[tabindex='0']")) set(token, { tabindex: -1 });
    set(next, { tabindex: 0 });
    next.focus();
  }
  text.addEventListener("pointerover", ({ target }) => tell(at(target)));
  text.addEventListener("focusin", ({ target }) => tell(at(target)));
  text.addEventListener("click", ({ target }) => {
    const k = at(target);
    if (k < 0) return;
    reach(k);
    press?.(k);
  });
  text.addEventListener("keydown", (event) => {
    const k = at(event.target);
    const { key, ctrlKey, metaKey, altKey } = event;
    if (k < 0 || ctrlKey || metaKey || altKey) return;
    if (key === "ArrowRight") reach(k + 1);
    else if (key === "ArrowLeft") reach(k - 1);
    else if (key === "Home") reach(0);
    else if (key === "End") reach(current.pieces.length - 1);
    else if ((key === "Enter" || key === " ") && press) press(k);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return {
    nodes: [text, opinionLine],
    /**
     * @param {ShadedText} next
     * @param {(at: number) => string} [kindOf] a further class of a token
     */
    show(next, kindOf = () => "") {
      const last = next.pieces.length - 1;
      const active = Math.max(0, [...text.children].findIndex((token) =>
        token === document.activeElement));
      const held = text.contains(document.activeElement);
      current = next;
      text.replaceChildren(...next.pieces.map((piece, k) => {
        const darkness = next.scores ? Math.min(MOST, bits(next.scores[k])) / MOST : 0;
        const kind = next.finished && k === last ? ".eos" : "";
        return h(`span.tok.shade${kind}.${kindOf(k)}`, {
          "data-at": k,
          tabindex: k === Math.min(active, last) ? 0 : -1,
          role: press && "button",
          style: `--k:${px(DARKEST * darkness)}%`,
        }, visible(piece));
      }));
      if (held) reach(Math.min(active, last));
      else put(opinionLine, "");
    },
  };
}

/**
 * A bar for each token, as high as the token is surprising, with the cut.
 * @param {ShadedText} text
 * @param {number} cut tokens that were kept
 * @param {number} first the first token that is another one than before; -1 if none is
 * @param {number} width
 */
export function surprise({ scores = [], pieces }, cut, first, width) {
  const left = 34;
  const room = width - left - 8;
  const step = Math.min(BAR, room / pieces.length);
  const bottom = HIGH - 18;
  const y = (/** @type {number} */ v) => bottom - ((bottom - 8) * Math.min(MOST, v)) / MOST;
  const x = (/** @type {number} */ k) => left + step * k;
  const bars = (/** @type {number} */ from, /** @type {number} */ to) =>
    scores.slice(from, to).map((one, k) =>
      `M${px(x(from + k) + 0.5)} ${bottom}V${px(y(bits(one)) - 0.8)}h${px(Math.max(1, step - 1))}`
        + `V${bottom}Z`).join("");
  const end = x(pieces.length);
  const marks = cut >= 0 ? [s("line.cut-line", { x1: x(cut), x2: x(cut), y1: 2, y2: bottom + 4 }),
    label(x(cut), HIGH - 3, "cut", cut < 3 ? "start" : "middle")] : [];
  const changed = first >= 0 && first - cut > 3
    ? [label(x(first) + step / 2, HIGH - 3, "differs from here", "start")] : [];
  return chart(width, HIGH, "How surprising each token was to the model, in bits.",
    label(left - 6, bottom + 4, "0", "end"), label(left - 6, 14, `${MOST} bits`, "end"),
    rule("axis", left, end, bottom), s("path.kept-bars", { d: bars(0, Math.max(0, cut)) }),
    s("path.new-bars", { d: bars(Math.max(0, cut), pieces.length) }), ...marks, ...changed);
}
