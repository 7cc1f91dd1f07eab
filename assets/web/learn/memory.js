/* What a visitor's own browser keeps of lessons, and nobody else: where they are in each, what they
   answered, and that the first pass need not start by itself again. */

/**
 * What was predicted at a stop, and what came of it.
 * @typedef {object} Answer
 * @property {string} said the value
 * @property {string} words the same as the visitor saw it
 * @property {boolean | null} right null if it was shown unasked
 * @property {string} value what the core says
 * @property {string} says the explanation
 */
/** @typedef {{ at: number, done: boolean, answers: Record<number, Answer> }} Progress */

const KEY = "qalign-lessons";

/** @returns {{ seen: boolean, lessons: Record<string, Progress> }} */
function read() {
  const none = { seen: false, lessons: {} };
  try {
    return { ...none, ...JSON.parse(window.localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return none; // a browser that keeps nothing, or another program's words: a first visit
  }
}

let kept = read();
let apart = false;

/**
 * In front of a class nothing is remembered of before, and nothing is kept of it.
 * @param {boolean} on
 */
export function setApart(on) {
  apart = on;
  kept = on ? { seen: true, lessons: {} } : read();
}

function keep() {
  if (apart) return;
  try {
    window.localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // then it lasts as long as the page
  }
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
