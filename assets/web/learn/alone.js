/* Lessons on a page without a server: the page carries them and the outcome of every prediction. */

/** @typedef {import("./learn.js").Lesson} Lesson */
/** @typedef {import("./learn.js").Said} Said */
/**
 * What comes of a prediction: by its value, or by how near it is to a number.
 * @typedef {{ said: Record<string, Said>, near?: number, within: number, right: Said }} Outcomes
 */
/**
 * @typedef {object} Carried
 * @property {import("./learn.js").Entry[]} list
 * @property {Record<string, Lesson>} lessons
 * @property {Record<string, Outcomes[]>} outcomes by lesson and stop
 * @property {Record<string, string>} runs the text of each recorded run
 */

/**
 * Answers as a server does.
 * @param {Carried} carried
 * @returns {import("./learn.js").Server}
 */
export const answering = ({ lessons, outcomes, runs }) => ({
  async lesson(name) {
    return lessons[name];
  },
  async check({ lesson, stop, said }) {
    const { said: by, near, within, right } = outcomes[lesson][stop];
    if (near === undefined || !said) return by[said];
    const isRight = Math.abs(Number(said) - near) <= within;
    return isRight ? right : { ...by[""], right: false };
  },
  async run(name) {
    return runs[name];
  },
});
