/* The presenter's second window: the notes of this stop, and the next stop. */
import { builder } from "../dom.js";
import { LAST, PHASES, narrate } from "../player/words.js";

/** @typedef {import("../learn/learn.js").Now} Now */
/** @typedef {import("../player/player.js").Player} Player */

const { h } = builder("");
const LOOK = ":root{color-scheme:light dark}body{font:22px/1.45 sans-serif;margin:1em}"
  + "main{max-width:40em}h1{font-size:1.1em}h2{font-size:1em;margin-top:1.5em}"
  + "aside{border-left:5px solid;padding-left:.7em;font-weight:600}";

/** A lesson's title and what follows it. @param {string} title @param {string} part */
export const afterTitle = (title, part) => `${title}${/[?!]$/.test(title) ? "" : ":"} ${part}`;

/**
 * @param {Now} now
 * @returns {Node[]}
 */
function stopNotes({ lesson, k, stop: { title, text, notes, ask }, over, answer }) {
  if (over) return [h("h1", afterTitle(lesson.title, "the end")), h("p", lesson.end),
    ...lesson.learnt.flatMap(([term, reply]) => [h("h2", term), h("p", reply)])];
  const next = lesson.stops[k + 1];
  const question = ask ? [h("h2", ask.question), h("ul",
    ...ask.options.map(([, name]) => h("li", name)))] : [];
  return [
    h("h1", `${lesson.title}, ${k + 1} of ${lesson.stops.length}: ${title}`),
    h("p", text), h("aside", notes), ...question,
    answer ? h("p", answer.explanation) : h("p", ask ? "Page down shows the answer." : ""),
    h("h2", next ? `Next: ${next.title}` : "Next: the end"), h("p", next?.text ?? lesson.end),
  ];
}

/**
 * @param {Player} player
 * @returns {Node[]}
 */
function stepNotes({ trace, position: { t, last, chain } }) {
  const { steps } = trace.chains.find(({ id }) => id === chain) ?? { steps: [] };
  if (!steps.length) return [h("p", "Waiting for the first step…")];
  const { beta } = trace.header;
  const sentences = t ? PHASES.map((_, phase) => narrate(steps[t], phase, beta))
    : [narrate(steps[0], LAST, beta)];
  const next = steps[t + 1];
  return [
    h("h1", `Step ${t} of ${last}`), h("ol", ...sentences.map((sentence) => h("li", sentence))),
    h("h2", next ? `Next: step ${t + 1}` : "That was the last step"),
    h("p", next ? narrate(next, LAST, beta) : ""),
  ];
}

/** @param {(event: KeyboardEvent) => void} onkey the handler of its keys */
export function notesWindow(onkey) {
  /** @type {Window | null} */
  let other = null;
  return {
    /** Open it; returns whether the browser allowed it. */
    open() {
      other = window.open("", "qalign-notes", "popup,width=760,height=700");
      if (!other) return false;
      other.document.title = "Notes · QAlign Explorer";
      other.document.documentElement.lang = "en";
      other.document.head.append(h("style", LOOK));
      other.onkeydown = onkey;
      return true;
    },
    /** @type {(now: Now | null, player: Player) => void} */
    tell(now, player) {
      if (!other || other.closed) return;
      const page = h("main", ...(now ? stopNotes(now) : stepNotes(player)));
      other.document.body.replaceChildren(page);
    },
    close() {
      other?.close();
      other = null;
    },
  };
}
