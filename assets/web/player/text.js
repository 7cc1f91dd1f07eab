/* The current text with its cut, and the proposal: what is kept, what is there now, what is new.
   Each is a lane that scrolls by itself, so that however long the texts are the cut is in view: the
   kept lane stands at its end, the two others at their beginning. */
import { differs, put } from "../dom.js";
import { answerStyle, h, icon, nameNodes, signMore, tokenSpans } from "./drawing.js";
import { LAST, answerText, hasAnswers, many } from "./words.js";

/** @typedef {import("./drawing.js").View} View */

/**
 * Where the marker stands that looks for a place: it runs once over all tokens and then on to the
 * cut. -1 where there is none.
 * @param {View} view
 */
export function markerAt({ step, t, phase, moving, passed }) {
  if (phase || !t) return -1;
  const done = moving ? Math.min(1, passed / 0.8) : 1;
  return Math.round((step.oldLength + step.index) * done) % step.oldLength;
}

/**
 * How many of n new tokens are written.
 * @param {View} view
 * @param {number} n
 */
function countWritten({ t, phase, moving, passed }, n) {
  if (t && !phase) return 0;
  return phase === 1 && moving ? Math.ceil(n * Math.min(1, passed / 0.85)) : n;
}

/**
 * What the two texts are called.
 * @param {View} view
 */
function names({ step, t, phase }) {
  if (t === 0) return ["now", "first draft"];
  if (phase < LAST) return ["now", "proposed"];
  if (step.refused !== null) return ["stays", "refused"];
  return step.accepted ? ["before", "now"] : ["stays", "rejected"];
}

/**
 * A part of the texts with its name.
 * @param {string} kind
 * @param {string} aria
 */
function lane(kind, aria) {
  const name = h("span");
  const answer = h("span.name-of");
  const text = h(`span.${kind}`);
  const scroller = signMore(h("div.lane-text", { tabindex: 0, role: "group", aria }, text));
  return { name, answer, text, node: h(`div.${kind}-row`, h("b.lane", name, answer), scroller) };
}

/** @returns {import("./drawing.js").Part} */
export function textPane() {
  const kept = lane("kept", "What is kept");
  const old = lane("old", "Current text");
  const fresh = lane("new", "Proposal");
  const again = lane("again", "What is kept again");
  const lock = h("span");
  kept.name.append(icon("lock"), lock);
  const node = signMore(h("div.text", { dir: "ltr", "data-stage": "text" },
    kept.node, old.node, fresh.node, again.node));
  const isNew = differs();
  const isOther = differs();
  let typed = 0; // tokens of the proposal that are shown
  let marked = -1;

  /** @param {View} view */
  function build({ chain, step, t }) {
    const before = t ? tokenSpans(chain.steps[step.old], 0) : [];
    kept.text.replaceChildren(...before.slice(0, step.index));
    const end = before.length - step.again;
    const newSpans = step.refused === null ? tokenSpans(step, step.index)
      : step.vain.map((piece) => h("span", piece));
    old.text.replaceChildren(...before.slice(step.index, end));
    fresh.text.replaceChildren(...newSpans.slice(0, newSpans.length - step.again));
    again.text.replaceChildren(...before.slice(end));
    again.node.hidden = !step.again;
    put(again.name, "kept again");
    again.name.title = `${many(step.again, "token")} after the block`;
    for (let j = step.index; step.changed && j < step.first; j++) {
      fresh.text.children[j - step.index]?.classList.add("qp-same");
    }
    put(lock, step.index ? `kept ${step.index}` : "kept none");
    kept.name.title = `${many(step.index, "token")} before the cut`;
    typed = fresh.text.children.length;
    marked = -1;
  }

  /**
   * @param {number} cut
   * @param {number} at
   */
  function mark(cut, at) {
    if (at === marked) return;
    const token = (/** @type {number} */ k) => /** @type {HTMLElement | undefined} */ (
      k < cut ? kept.text.children[k] : old.text.children[k - cut]
        ?? again.text.children[k - cut - old.text.children.length]);
    token(marked)?.classList.remove("qp-mark");
    const marked_ = token(at);
    marked_?.classList.add("qp-mark");
    marked = at;
    // the text is one piece now, which scrolls as a whole: not while the marker runs
    if (marked_ && at === cut) node.scrollTop = marked_.offsetTop - node.clientHeight / 2;
  }

  /** Show the answer of each text, which may be beyond its lane's edge. @param {View} view */
  function nameAnswers({ trace, chain, step, t, phase, moving }) {
    const isWritten = step.refused === null && (phase > 1 || !moving);
    const fill = (/** @type {HTMLElement} */ place, /** @type {boolean} */ on,
      /** @type {string | null} */ answer) =>
      place.replaceChildren(...(on && hasAnswers(trace)
        ? nameNodes(answerStyle(trace, answer), answerText(trace, answer)) : []));
    fill(old.answer, t > 0, chain.steps[step.old].answer);
    fill(fresh.answer, isWritten, step.answer);
  }

  /** @param {number} to */
  function type(to) {
    for (let j = Math.min(to, typed); j < Math.max(to, typed); j++) {
      fresh.text.children[j].classList.toggle("qp-off", j >= to);
    }
    typed = to;
  }

  return {
    node,
    draw(view) {
      if (isNew(`${view.run}/${view.t}`)) build(view);
      mark(view.step.index, markerAt(view));
      type(countWritten(view, fresh.text.children.length));
      const [before, after] = names(view);
      if (isOther(`${view.data}/${view.t}/${view.phase}/${view.moving}`)) nameAnswers(view);
      put(old.name, before);
      put(fresh.name, after);
    },
  };
}
