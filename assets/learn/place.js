/* Where a stop is: its page is opened, brought to its state, and one thing on it is lit. */
import { builder, put } from "../dom.js";

/** @typedef {import("../player/player.js").Player} Player */
/**
 * @typedef {object} Place
 * @property {string} page
 * @property {string} run a recorded run
 * @property {number} step
 * @property {number} phase
 * @property {string} tab
 * @property {string} query of the Lab's controls, or of a problem set
 */

const LIT = "learn-lit";
const veils = builder("").h("style");
const PATIENCE = 20000; // ms at most that something may take to appear: the Lab's plots are large
const LAST = 5; // the phase in which a step is over

/** @returns {Player | undefined} */
export function player() {
  const node = /** @type {any} */ (document.querySelector("#watch-player .qp"));
  return node?.qalign;
}

/** Whether motion is unwanted. */
export const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

let ticket = 0; // the last that was asked for: what comes late for an earlier one is dropped

/**
 * Bring the page there.
 * @param {Place} place
 * @param {(query: string) => void} lead to settings of the Lab or of Results
 */
export function goTo(place, lead) {
  const tab = document.querySelector(`#tab-${place.page}-button`);
  if (tab?.getAttribute("aria-selected") === "false") /** @type {HTMLElement} */ (tab).click();
  const api = player();
  if (place.page === "watch" && api) {
    api.seek(place.step);
    if (place.phase < LAST) api.goPhase(place.phase);
    api.openTab(place.tab);
  } else if (place.query) lead(place.query);
}

/**
 * Light what there is at a selector once it is there; "" lights nothing.
 * @param {string} selector
 * @param {string} [veil] a selector of what is hidden meanwhile, from its first frame on
 */
export async function light(selector, veil = "") {
  ticket += 1;
  const mine = ticket;
  document.querySelector(`.${LIT}`)?.classList.remove(LIT);
  document.head.append(veils);
  put(veils, veil && `:is(${veil}) > * { visibility: hidden !important }`);
  if (!selector) return;
  const node = await appears(selector, () => mine === ticket);
  if (!node) return;
  node.classList.add(LIT);
  node.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
}

/**
 * The first element at a selector that is shown.
 * @param {string} selector
 * @param {() => boolean} wanted
 */
async function appears(selector, wanted) {
  for (const end = performance.now() + PATIENCE; wanted() && performance.now() < end;) {
    const found = [...document.querySelectorAll(selector)].find((node) => node.clientHeight);
    if (found) return found;
    await new Promise((resolve) => window.requestAnimationFrame(resolve));
  }
  return null;
}
