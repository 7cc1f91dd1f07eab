/* Where a stop is: its page is opened, brought to its state, and one thing on it is lit. */
import { builder, put } from "../dom.js";

/** @typedef {import("../player/player.js").Player} Player */
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

const LIT = "learn-lit";
// out of the flow: it moves nothing
const SAID = "position: absolute; padding: 8px; font-size: 18px; line-height: 1.3;";
const veils = builder("").h("style");
const PACE = 150; // ms between looks for what is to be lit
const LAST = 5; // the phase in which a step is over

/** @returns {Player | undefined} */
export function player() {
  const node = /** @type {any} */ (document.querySelector("#watch-player .qp"));
  return node?.qalign;
}

/** Whether motion is unwanted. */
export const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

let watch = 0;

/**
 * Bring the page there.
 * @param {Place} place
 * @param {(page: string, query: string) => Promise<void>} lead to settings of the Lab or of Results
 * @returns {Promise<void> | undefined} settled when the Lab or Results has drawn them
 */
export function goTo(place, lead) {
  const tab = document.querySelector(`#tab-${place.page}-button`);
  if (tab?.getAttribute("aria-selected") === "false") /** @type {HTMLElement} */ (tab).click();
  const api = player();
  if (place.page === "watch" && api) {
    api.seek(place.step, place.chain);
    if (place.phase < LAST) api.goPhase(place.phase);
    api.openTab(place.tab);
  } else if (place.query) return lead(place.page, place.query);
}

/**
 * Light what there is at a selector, as soon as it is there and wherever it moves to: a page that
 * is brought to another state may still show what it showed before. "" lights nothing.
 * @param {string} selector
 * @param {string} [veil] a selector of what is hidden meanwhile, from its first frame on
 * @param {string} [why] what is said in its place
 */
export function light(selector, veil = "", why = "Hidden until the prediction is made.") {
  window.clearInterval(watch);
  /** @type {Element | undefined} */
  let node;
  let height = 0;
  const look = () => {
    const isLit = node?.clientHeight && node.classList.contains(LIT);
    if (isLit && node && node.clientHeight <= height) return; // what grows may have left the window
    document.querySelector(`.${LIT}`)?.classList.remove(LIT);
    node = [...document.querySelectorAll(selector)].find((each) => each.clientHeight);
    node?.classList.add(LIT);
    height = node?.clientHeight ?? 0;
    node?.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
  };
  document.querySelector(`.${LIT}`)?.classList.remove(LIT);
  document.head.append(veils);
  put(veils, veil && `:is(${veil}) > * { visibility: hidden !important } `
    + `:is(${veil})::before { content: "${why}"; ${SAID} }`);
  if (!selector) return;
  look();
  watch = window.setInterval(look, PACE);
}
