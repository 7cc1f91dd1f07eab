/* The parts of the app's page that several scripts use: its tabs and the player of Watch. */

/** @param {string} name of a page */
const tabOf = (name) => document.getElementById(`tab-${name}-button`);

/** @param {string} name of a page */
export const isChosen = (name) => tabOf(name)?.ariaSelected === "true";

/** @param {string} name of a page */
export function openPage(name) {
  if (!isChosen(name)) tabOf(name)?.click();
}

/** @returns {import("./player/player.js").Player | undefined} */
export const player = () =>
  /** @type {any} */ (document.querySelector("#watch-player .qp"))?.qalign;

/**
 * What matches a selector, as soon as it is there.
 * @param {string} selector
 * @returns {Promise<HTMLElement>}
 */
function waitFor(selector) {
  const now = /** @type {HTMLElement | null} */ (document.querySelector(selector));
  if (now) return Promise.resolve(now);
  return new Promise((done) => {
    const observer = new MutationObserver(() => {
      const node = /** @type {HTMLElement | null} */ (document.querySelector(selector));
      if (!node) return;
      observer.disconnect();
      done(node);
    });
    observer.observe(document.documentElement, { childList: true, subtree: true });
  });
}

/**
 * Open the Lab, as soon as it is there, at a section.
 * @param {(radios: HTMLInputElement[], anchors: string[]) => HTMLInputElement | undefined} find the
 *   radio button of the section; links name sections by `anchors`, in the same order
 */
export async function openLab(find) {
  (await waitFor("#tab-lab-button")).click();
  const { anchors = "" } = (await waitFor("[data-anchors]")).dataset;
  await waitFor("#lab-opened input");
  const radios = document.querySelectorAll("#lab-opened input");
  const section = find(/** @type {HTMLInputElement[]} */ ([...radios]), anchors.split(" "));
  section?.click();
  section?.focus();
}
