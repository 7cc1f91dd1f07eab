/* The current text with its cut, and the proposal: what is kept, what is given up, what is new. */
import { differs, put } from "../dom.js";
import { h, icon, tokenSpans } from "./drawing.js";
import { LAST } from "./words.js";

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
function written({ t, phase, moving, passed }, n) {
  if (t && !phase) return 0;
  return phase === 1 && moving ? Math.ceil(n * Math.min(1, passed / 0.85)) : n;
}

/**
 * What the two texts are called.
 * @param {View} view
 */
function names({ step, t, phase }) {
  if (t === 0) return ["now", "draft"];
  if (phase < LAST) return ["now", "proposed"];
  return step.accepted ? ["before", "now"] : ["stays", "rejected"];
}

/** @returns {import("./drawing.js").Part} */
export function textPane() {
  const kept = h("span.kept");
  const old = h("span.old");
  const fresh = h("span.new");
  const lock = h("span");
  const oldName = h("b.lane");
  const newName = h("b.lane");
  let scrolled = 0;
  const node = h("div.text", {
    dir: "ltr",
    tabindex: 0,
    role: "region",
    aria: "Current text and proposal",
    onscroll: () => {
      scrolled = node.scrollTop;
    },
  }, h("span.lock", icon("lock"), lock), kept, h("span.old-row", oldName, old),
  h("span.new-row", newName, fresh));
  const isNew = differs();
  let typed = 0; // tokens of the proposal that are shown
  let marked = -1;

  /** @param {View} view */
  function build({ chain, step, t }) {
    const before = t ? tokenSpans(chain.steps[step.old], 0) : [];
    kept.replaceChildren(...before.slice(0, step.index));
    old.replaceChildren(...before.slice(step.index));
    fresh.replaceChildren(...tokenSpans(step, step.index));
    for (let j = step.index; step.changed && j < step.first; j++) {
      fresh.children[j - step.index]?.classList.add("qp-same");
    }
    put(lock, step.index ? `kept ${step.index}` : "kept none");
    typed = fresh.children.length;
    marked = -1;
    if (scrolled) {
      scrolled = 0;
      node.scrollTop = 0;
    }
  }

  /**
   * @param {number} cut
   * @param {number} at
   */
  function mark(cut, at) {
    if (at === marked) return;
    const token = (/** @type {number} */ k) => (k < cut ? kept.children[k] : old.children[k - cut]);
    token(marked)?.classList.remove("qp-mark");
    token(at)?.classList.add("qp-mark");
    marked = at;
  }

  /** @param {number} to */
  function type(to) {
    for (let j = Math.min(to, typed); j < Math.max(to, typed); j++) {
      fresh.children[j].classList.toggle("qp-off", j >= to);
    }
    typed = to;
  }

  return {
    node,
    draw(view) {
      if (isNew(`${view.run}/${view.t}`)) build(view);
      mark(view.step.index, markerAt(view));
      type(written(view, fresh.children.length));
      const [before, after] = names(view);
      put(oldName, before);
      put(newName, after);
    },
  };
}
