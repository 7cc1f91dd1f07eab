/* The address bar follows the open page: it has that page's state, and no other's. */
import { isChosen, openPage } from "../page.js";
import { LESSON, PAGES, linkTo, pageOf, partsOf } from "./links.js";

/** @typedef {import("./links.js").Page} Page */
/** @typedef {import("./links.js").Parameters} Parameters */

const PACE = 500; // ms: browsers throttle more than two changes a second or so
const query = new URLSearchParams(window.location.search);
const parts = partsOf(query);
/** @type {Page} */
let open = pageOf(query) ?? "watch";
let waiting = 0;
let followed = false; // until then the link is what the server reads the pages' states from

/** What the link said when it was opened: the page, if it named one, and Watch's state. */
export const linkedPage = pageOf(query);
export const opened = { ...parts.watch };

/** The address of the open page as it is; the word that a tab was left may come late. */
export const link = () => linkTo(window.location.href, PAGES.find(isChosen) ?? open, parts);

function follow() {
  if (waiting || !followed) return;
  waiting = window.setTimeout(() => {
    waiting = 0;
    // of the page that this entry was made for: another may be chosen, and its word not be here
    const address = linkTo(window.location.href, open, parts);
    if (address !== window.location.href) {
      window.history.replaceState(window.history.state, "", address);
    }
  }, PACE);
}

/**
 * The pages have been asked for: the address follows from now on, and Back from one page to another
 * leads to the first one. The stops of a lesson turn pages too, without entries of their own.
 * @param {Page | null} page the first one, unless another is open already
 */
export function begin(page) {
  followed = true;
  open = page ?? open;
  follow();
  window.addEventListener("popstate", () => {
    open = pageOf(new URLSearchParams(window.location.search)) ?? "watch";
    openPage(open);
  });
}

/**
 * A page is looked at.
 * @param {Page} page
 */
export function turnTo(page) {
  if (!isChosen(page)) return; // left again: this word came late
  if (followed && page !== open && !parts.all[LESSON]) {
    window.history.pushState(window.history.state, "", linkTo(window.location.href, page, parts));
  }
  open = page;
  follow();
}

/**
 * A page's state from now on.
 * @param {Page} page
 * @param {Parameters} state
 */
export function remember(page, state) {
  parts[page] = state;
  follow();
}

/** A page's state now. @param {Page} page */
export const stateOf = (page) => parts[page];

/**
 * One parameter of a page's state.
 * @param {Page} page
 * @param {string} key
 * @param {string | number} value
 */
export function amend(page, key, value) {
  remember(page, { ...parts[page], [key]: String(value) });
}

/**
 * What belongs to no page: a lesson, its stop, the presenter's view; "" takes it away.
 * @param {string} key
 * @param {string | number} value
 */
export function share(key, value) {
  if (value) parts.all[key] = String(value);
  else delete parts.all[key];
  follow();
}
