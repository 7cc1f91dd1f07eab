/* Lessons on a page without a server: the page carries them and the outcome of every prediction. */

import { drawExhibit } from "../exhibit/exhibit.js";
import { QAlignLearn } from "./learn.js";

/** @typedef {import("./learn.js").Lesson} Lesson */
/** @typedef {import("./learn.js").Outcome} Outcome */
/**
 * The outcomes of a stop: by the value of the prediction, or by its distance from a number.
 * @typedef {{ predictions: Record<string, Outcome>, near?: number, within: number,
 *   right: Outcome, wrong: Outcome }} Outcomes
 */
/**
 * @typedef {object} StaticLessons
 * @property {import("./learn.js").Entry[]} list
 * @property {Record<string, Lesson>} lessons
 * @property {Record<string, Outcomes[]>} outcomes by lesson and stop
 * @property {Record<string, import("../exhibit/exhibit.js").Exhibit[][]>} exhibits by lesson and
 *   stop: without and with the answer; none of a stop on Watch
 * @property {Record<string, string>} runs the text of each recorded run
 */

/**
 * Return a stand-in for the server that answers from the page's own data.
 * @param {StaticLessons} data
 * @returns {import("./learn.js").Server}
 */
export const staticServer = ({ lessons, outcomes, runs }) => ({
  async lesson(name) {
    return lessons[name];
  },
  async check({ lesson, stop, prediction }) {
    const { predictions, near, within, right, wrong } = outcomes[lesson][stop];
    if (near === undefined || !prediction) return predictions[prediction];
    return Math.abs(Number(prediction) - near) <= within ? right : wrong;
  },
  async run(name) {
    return runs[name];
  },
});

const FIGURE = { width: 690, height: 290, size: 15 };

/**
 * Take the player's place with the exhibit of a stop that is not on Watch.
 * @param {StaticLessons} data
 * @param {HTMLElement} player
 * @param {HTMLElement} exhibit
 */
export function followStops({ exhibits }, player, exhibit) {
  QAlignLearn.onturn = () => {
    const { now } = QAlignLearn;
    const isAway = Boolean(now && now.at.page !== "watch");
    player.hidden = isAway;
    exhibit.hidden = !isAway;
    if (!now || !isAway) return;
    const k = Math.min(now.k, now.lesson.stops.length - 1);
    const data = exhibits[now.lesson.name][k][Number(Boolean(now.answer))];
    exhibit.replaceChildren(...drawExhibit(data, FIGURE));
  };
}
