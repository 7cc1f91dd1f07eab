/* What is behind the player's tabs, fetched when the first of them is opened. */
import { drawLineage, drawTable } from "./tabs.js";
import { river } from "./river.js";
import { fill, prefixTree, writers } from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/**
 * What a tab can ask of its player.
 * @typedef {object} Tools
 * @property {(t: number, chain?: number) => void} go to a step
 * @property {() => number} width in pixels
 */

/**
 * The player's own tabs, by their names: each a function from the view to its nodes.
 * @param {Tools} tools
 * @returns {Record<string, (view: View) => Node[]>}
 */
function tabsOf(tools) {
  const tree = river(tools);
  return {
    tree: tree.draw,
    lineage: drawLineage,
    table: (view) => drawTable(view, tools.go),
  };
}

export const QAlignInside = { tabsOf, prefixTree, fill, writers };
