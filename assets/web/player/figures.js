/* The figures below the stage, whose script is fetched when one of them comes into view. */
import { put } from "../dom.js";
import { later } from "../later.js";
import { h } from "./drawing.js";

/** By their classes (charts.js). */
const FIGURES = ["whatif", "histogram", "lengths", "rate"];
const CHARTS = /** @type {const} */ (["charts.js", "QAlignCharts"]);

/**
 * @param {import("./drawing.js").Seek} seek
 * @param {() => void} redraw the player, once the script is there
 */
export function figureRow(seek, redraw) {
  const nodes = FIGURES.map((name) => h(`figure.panel.${name}`));
  /** @type {import("./drawing.js").Part[]} */
  let parts = []; // once their script is there

  /** Draw them, in view or not. */
  async function complete() {
    const { fill } = await later(...CHARTS);
    if (!parts.length) parts = fill(nodes, seek);
    redraw();
  }
  const reached = new IntersectionObserver((all) => {
    if (!all.some((one) => one.isIntersecting)) return;
    reached.disconnect();
    complete().catch(() => put(nodes[1], "The server did not answer: load the page again."));
  });
  if (CHARTS[1] in globalThis) complete();
  else for (const figure of nodes) reached.observe(figure);
  return {
    nodes,
    complete,
    /** @param {import("./drawing.js").View} view */
    draw(view) {
      for (const part of parts) part.draw(view);
    },
  };
}
