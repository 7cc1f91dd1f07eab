/* Open the page of a stop, bring it to its state, and highlight one part of it. */
import { builder, put } from "../dom.js";
import { openPage, player } from "../page.js";

/**
 * @typedef {object} Place
 * @property {string} page
 * @property {string} run a recorded run
 * @property {number} step
 * @property {number} phase
 * @property {number} chain
 * @property {string} tab
 * @property {string} query of the Lab's controls, or of a problem set
 */

const HIGHLIGHT = "learn-highlight";
// Out of the flow, so that it moves nothing.
const NOTE = "position: absolute; padding: 8px; font-size: 18px; line-height: 1.3;";
const veils = builder("").h("style");
const PACE = 150; // ms between looks for the part to highlight
const LAST = 5; // the phase in which a step is over

/** Whether motion is unwanted. */
export const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

let watch = 0;

/**
 * Bring the page to a place.
 * @param {Place} place
 * @param {(page: string, query: string) => Promise<void>} lead to settings of the Lab or of Results
 * @returns {Promise<void> | undefined} settled when the Lab or Results has drawn them
 */
export function goTo(place, lead) {
  openPage(place.page);
  const api = player();
  if (place.page === "watch" && api) {
    api.seek(place.step, place.chain);
    if (place.phase < LAST) api.goPhase(place.phase);
    api.openTab(place.tab);
  } else if (place.query) return lead(place.page, place.query);
}

/**
 * Highlight the part of the page that matches a selector, as soon as it exists and wherever it
 * moves to: a page on its way to a new state may still show the old one. "" highlights nothing.
 * @param {string} selector
 * @param {string} [veil] a selector of the parts that are hidden meanwhile
 * @param {string} [why] the sentence shown in their place
 */
export function light(selector, veil = "", why = "Hidden until the prediction is made.") {
  window.clearInterval(watch);
  /** @type {Element | undefined} */
  let node;
  let height = 0;
  const look = () => {
    const isHighlighted = node?.clientHeight && node.classList.contains(HIGHLIGHT);
    // A part that grows may have left the window.
    if (isHighlighted && node && node.clientHeight <= height) return;
    document.querySelector(`.${HIGHLIGHT}`)?.classList.remove(HIGHLIGHT);
    node = [...document.querySelectorAll(selector)].find((each) => each.clientHeight);
    node?.classList.add(HIGHLIGHT);
    height = node?.clientHeight ?? 0;
    node?.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
  };
  document.querySelector(`.${HIGHLIGHT}`)?.classList.remove(HIGHLIGHT);
  document.head.append(veils);
  put(veils, veil && `:is(${veil}) > * { visibility: hidden !important } `
    + `:is(${veil})::before { content: "${why}"; ${NOTE} }`);
  if (!selector) return;
  look();
  watch = window.setInterval(look, PACE);
}
