/* A live run outlives its page: when that page is loaded again, by a visitor, by Back or since its
   server was restarted, the steps that it had are there. The tab keeps them, and nobody else. */

/** @typedef {import("../player/player.js").Player} Player */

const KEY = "qalign-run";
/** The address without the place in the run: the same as long as the run is shown. */
const runHere = () => window.location.search.replace(/[?&](step|chain)=\d+/g, "");
const opened = runHere();
let restored = ""; // the run of the page before, while nothing has taken its place

/** @returns {string} the live run that the page showed before it was loaded again, if it did */
export function takeRun() {
  const [navigation] = window.performance.getEntriesByType("navigation");
  // a page that has just begun may have no entry
  const { type = "navigate" } = /** @type {PerformanceNavigationTiming} */ (navigation ?? {});
  try {
    const kept = JSON.parse(window.sessionStorage.getItem(KEY) ?? "null");
    if (!kept) return "";
    // the address of a page that is reloaded may be older than its run
    if (type === "reload" ? !kept.isLeft : type !== "navigate" && kept.run === opened) {
      restored = kept.text;
      window.sessionStorage.removeItem(KEY);
    } else window.sessionStorage.setItem(KEY, JSON.stringify({ ...kept, isLeft: true }));
  } catch { /* a browser may refuse to store */ }
  return restored;
}

/** @param {Player} player whose live run is kept when the page is left */
export function keepRun(player) {
  window.addEventListener("pagehide", () => {
    const { text, position } = player;
    if (position.source !== "live" && text !== restored) return;
    try {
      window.sessionStorage.setItem(KEY, JSON.stringify({ run: runHere(), text }));
    } catch { /* it is larger than the browser stores */ }
  });
}
