/* While the settings of a link are on their way from the server, their widgets take no input: the
   reply would overwrite it, and a run that began before would have other settings. */
import { namesRun } from "./links.js";

/** @typedef {import("./links.js").Page} Page */
/** @typedef {import("./links.js").Parameters} Parameters */

/** What starts a run of each page with linked settings, and what changes them. */
const PARTS = {
  watch: "#watch-bar, #watch-pick, #watch-drawer",
  compare: "#compare-bar, #compare-pick, #compare-settings",
  lab: ".lab",
};

/** @typedef {keyof typeof PARTS} Held */

/** What stops holding each page. @type {Map<Held, () => void>} */
const releases = new Map();

/** @param {Held} page */
function hold(page) {
  /** @type {HTMLElement | null} */
  let pressed = null;
  const parts = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll(PARTS[page])]);
  // before the browser can deliver an input to a part that was just added
  const added = new MutationObserver(() => parts().forEach((part) => part.inert = true));
  added.observe(document, { childList: true, subtree: true });
  // a lesson's button presses "Run it live" by a script, which `inert` does not stop
  function defer(/** @type {MouseEvent} */ event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!target.closest(PARTS[page])) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    pressed = target;
  }
  window.addEventListener("click", defer, true);
  releases.set(page, () => {
    added.disconnect();
    window.removeEventListener("click", defer, true);
    for (const part of parts()) part.inert = false;
    pressed?.click();
  });
}

/**
 * Hold the pages whose settings a link names.
 * @param {Record<Page, Parameters>} parts of the link
 */
export function holdLinked(parts) {
  for (const page of /** @type {Held[]} */ (Object.keys(PARTS))) {
    if (namesRun(parts[page])) hold(page);
  }
}

/** True while a page waits for the settings of a link. @param {Page} page */
export const holds = (page) => releases.has(/** @type {Held} */ (page));

/**
 * The settings of the link are in place, or the server did not answer.
 * @param {Page} page
 */
export function release(page) {
  const held = /** @type {Held} */ (page);
  releases.get(held)?.();
  releases.delete(held);
}
