/* What is behind the player's tabs, fetched when the first of them is opened. */
import { scoringClient } from "./ask.js";
import { handTab } from "./hand.js";
import { river } from "./river.js";
import { drawLineage, drawTable } from "./tabs.js";
import { tokensTab } from "./tokens.js";
import { prefixTree, writers } from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/**
 * What a tab can ask of its player, and of the server if there is one.
 * @typedef {object} Asks
 * @property {(t: number, chain?: number) => void} go to a step
 * @property {() => number} width in pixels
 * @property {() => View} view that is shown now
 * @property {() => string} header the first line of the trace
 * @property {import("../player/player.js").Ask} [ask]
 */
/** @typedef {Asks & { client: ReturnType<typeof scoringClient> | null }} Tools */

/**
 * The player's own tabs, by their names: each a function from the view to its nodes.
 * @param {Asks} asks
 * @returns {Record<string, (view: View) => Node[]>}
 */
function tabsOf(asks) {
  const tools = { ...asks, client: asks.ask ? scoringClient(asks.ask) : null };
  return {
    tree: river(tools).draw,
    tokens: tokensTab(tools).draw,
    hand: handTab(tools).draw,
    lineage: drawLineage,
    table: (view) => drawTable(view, tools.go),
  };
}

export const QAlignInside = { tabsOf, prefixTree, writers };
