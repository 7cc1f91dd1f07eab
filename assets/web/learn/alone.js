/* Lessons on a page without a server: the page carries them and the outcome of every prediction. */

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
