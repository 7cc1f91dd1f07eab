/* The visitor's progress in the lessons, stored in this browser only: where they are in each, what
   they answered, and that the first pass need not start by itself again. */
import { keepValue, readKept } from "../store.js";

/**
 * The prediction at a stop, the words for it that the visitor saw, and its outcome: `right` is null
 * if that was shown without a prediction.
 * @typedef {{ prediction: string, words: string } & import("./learn.js").Verdict} Answer
 */
/** @typedef {{ at: number, done: boolean, answers: Record<number, Answer> }} Progress */

const KEY = "qalign-lessons";

/** The names that stored answers had before. */
const OLD_NAMES = /** @type {const} */ ([["said", "prediction"], ["says", "explanation"]]);

/** @param {any} value an answer, or any other value of the store */
function withNewNames(value) {
  for (const [old, name] of OLD_NAMES) {
    if (!value || !Object.hasOwn(value, old)) continue;
    value[name] = value[old];
    delete value[old];
  }
  return value;
}

/** Without anything kept, this is a first visit. */
const read = () => (
  /** @type {{ seen: boolean, lessons: Record<string, Progress> }} */
  ({ seen: false, lessons: {}, ...readKept(KEY, {}, (_, value) => withNewNames(value)) }));

let kept = read();
let apart = false;

/**
 * In front of a class, earlier progress is ignored and nothing is stored.
 * @param {boolean} on
 */
export function setApart(on) {
  apart = on;
  kept = on ? { seen: true, lessons: {} } : read();
}

/** Whether a class looks on. */
export const isApart = () => apart;

function keep() {
  if (!apart) keepValue(KEY, kept);
}

/** Whether the first pass has been finished or refused. */
export const isSeen = () => kept.seen;

export function setSeen() {
  kept.seen = true;
  keep();
}

/**
 * @param {string} lesson
 * @returns {Progress}
 */
export const progress = (lesson) => kept.lessons[lesson] ?? { at: 0, done: false, answers: {} };

/**
 * @param {string} lesson
 * @param {Partial<Progress>} change
 */
export function remember(lesson, change) {
  kept.lessons[lesson] = { ...progress(lesson), ...change };
  keep();
}
