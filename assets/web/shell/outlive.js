/* A live run outlives its page: when the page is loaded again, by a visitor or since its server was
   restarted, the steps that it had are there. The tab keeps them, and nobody else. */

/** @typedef {import("../player/player.js").Player} Player */

const KEY = "qalign-run";
let restored = ""; // the run of the page before, while nothing has taken its place

/** @returns {string} the live run that the page showed when it was loaded again, if it did */
export function takeRun() {
  const [navigation] = window.performance.getEntriesByType("navigation");
  const isAgain = /** @type {PerformanceNavigationTiming} */ (navigation)?.type === "reload";
  try {
    restored = (isAgain && window.sessionStorage.getItem(KEY)) || "";
    window.sessionStorage.removeItem(KEY);
  } catch { /* a browser may refuse to store */ }
  return restored;
}

/** @param {Player} player whose live run is kept when the page is left */
export function keepRun(player) {
  window.addEventListener("pagehide", () => {
    const { text, position } = player;
    if (position.source !== "live" && text !== restored) return;
    try {
      window.sessionStorage.setItem(KEY, text);
    } catch { /* it is larger than the browser stores */ }
  });
}
