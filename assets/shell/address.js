/* The address bar follows the page. */
import { withQuery } from "./links.js";

/** @typedef {import("./links.js").Changes} Changes */

const PACE = 500; // ms: browsers throttle more than two changes a second or so
let waiting = 0;
/** @type {Changes} */
let due = {};

export const query = () => new URL(window.location.href).searchParams;

/** The names in the bar, and those that are about to be. */
export const keys = () => [...query().keys(), ...Object.keys(due)];

/**
 * Change the query soon.
 * @param {Changes} changes
 */
export function remember(changes) {
  due = { ...due, ...changes };
  if (waiting) return;
  waiting = window.setTimeout(() => {
    waiting = 0;
    const next = withQuery(window.location.href, due);
    due = {};
    if (next !== window.location.href) {
      window.history.replaceState(window.history.state, "", next);
    }
  }, PACE);
}
