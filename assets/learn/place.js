/* Where a stop is: its page is opened, brought to its state, and one thing on it is lit. */

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
const VEIL = "learn-veil";
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
 * @param {string} [veil] a selector of what is hidden meanwhile
 */
export async function light(selector, veil = "") {
  ticket += 1;
  const mine = ticket;
  mark(LIT);
  mark(VEIL, veil);
  if (!selector) return;
  const node = await appears(selector, () => mine === ticket);
  if (!node) return;
  mark(VEIL, veil);
  node.classList.add(LIT);
  node.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
}

/**
 * Give a class to all that is at a selector, and to nothing else.
 * @param {string} name
 * @param {string} [selector]
 */
function mark(name, selector = "") {
  for (const node of document.querySelectorAll(`.${name}`)) node.classList.remove(name);
  for (const node of selector ? document.querySelectorAll(selector) : []) node.classList.add(name);
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
