/* Cause moves into effect, one thing at a time: the proposal's dot flies from the reward line to
   the trace; an accepted ending slides into the text, a rejected one falls away; the bead ticks;
   the vote grows by one. Every end state is there without motion too: these only lead to it. */
import { h } from "./drawing.js";
import { LAST } from "./words.js";

/** @typedef {import("./drawing.js").View} View */

const CHANCE = 3; // the phase that the dot flies into
const [FLIGHT, SLIDE, TICK, COUNT] = [380, 300, 200, 300]; // ms at 1× and below
const LEAST = 150;

/** @param {Element | null} node */
function centre(node) {
  const box = node?.getBoundingClientRect();
  return box?.width ? { x: box.x + box.width / 2, y: box.y + box.height / 2 } : null;
}

/**
 * What moves in a player. `before` is called when the page still shows what was, `after` once it
 * shows what is.
 * @param {HTMLElement} player
 */
export function motion(player) {
  /** @type {Animation[]} */
  let running = [];
  let last = "";
  let entered = false;
  let rate = 1;
  /** @type {{ x: number, y: number } | null} */
  let from = null;
  const find = (/** @type {string} */ part) => player.querySelector(part);

  /** @type {(node: Element | null, frames: Keyframe[], ms: number, delay?: number) => void} */
  function play(node, frames, ms, delay = 0) {
    const animation = node?.animate(frames, { duration: ms, delay, easing: "ease-out",
      fill: "backwards" });
    if (animation) running.push(animation);
  }

  function fly() {
    const pending = find(".qp-pending");
    const to = centre(pending);
    if (!from || !to) return;
    const ms = Math.max(LEAST, FLIGHT / rate);
    const flyer = h("i.flyer", { style: `left:${to.x}px;top:${to.y}px` });
    player.append(flyer);
    play(pending, [{ opacity: 0 }, { opacity: 0 }], ms);
    play(flyer, [{ translate: `${from.x - to.x}px ${from.y - to.y}px` }, { translate: "0" }], ms);
    running[running.length - 1].onfinish = () => flyer.remove();
    running[running.length - 1].oncancel = () => flyer.remove();
  }

  /** @param {View} view */
  function settle({ step }) {
    const [slide, tick, count] = [SLIDE, TICK, COUNT].map((ms) => Math.max(LEAST, ms / rate));
    play(find(".qp-new-row"), step.accepted
      ? [{ transform: "translateY(18px)", opacity: 0.4 }, {}]
      : [{ transform: "translateY(-10px)", opacity: 1 }, {}], slide);
    const isNew = step.accepted && step.changed;
    play(find(isNew ? ".qp-bead-now" : ".qp-bead-now b"), isNew
      ? [{ transform: "translateX(14px)", opacity: 0 }, {}]
      : [{ transform: "scale(1.9)" }, {}], tick, slide);
    play(find(".qp-plus"), [{ transform: "translateX(-16px)", opacity: 0 }, {}], count,
      slide + tick);
  }

  return {
    /**
     * @param {View} view
     * @param {number} speed
     */
    before({ run, t, phase, moving }, speed) {
      const now = `${run}/${t}/${phase}`;
      entered = moving && now !== last;
      last = now;
      rate = Math.max(1, speed);
      if (!moving || (entered && phase === LAST)) {
        for (const animation of running) animation.cancel();
        running = [];
      }
      from = entered && phase === CHANCE ? centre(find(".qp-dot-new")) : null;
    },
    /** @param {View} view */
    after(view) {
      if (!entered || !view.t) return;
      if (view.phase === CHANCE) fly();
      else if (view.phase === LAST) settle(view);
    },
  };
}
