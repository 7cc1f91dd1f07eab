/* The tabs below the player: its own, fetched when the first is opened, and those of a page. */
import { put, set, show, swap } from "../dom.js";
import { later } from "../later.js";
import { button, h } from "./drawing.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {Node[] | Promise<Node[]>} Nodes */
/** @typedef {Record<string, [string, (view: View) => Nodes]>} Extra tabs: title, what is in them */

const TABS = {
  tree: "Tree of texts",
  tokens: "Token by token",
  hand: "Your hand",
  lineage: "Who wrote what",
  table: "Table",
};
const SERVER_TABS = ["tokens", "hand"]; // of a server
const PATIENCE = 250; // ms that a position must stay before an extra tab is drawn
const PACE = 150; // ms between drawings of a tab while playing

/**
 * @param {Extra} extra
 * @param {import("../inside/inside.js").Asks} tools
 * @param {(pauses: boolean) => void} redraw the player, which stays where it is if it pauses
 */
export function tabRow(extra, tools, redraw) {
  let tab = "";
  let drawnKey = ""; // what of which view is in it
  let at = 0; // when that was drawn
  let ticket = 0;
  const view = h("div.view", { role: "tabpanel", aria: "More", hidden: true });
  const titles = { ...Object.fromEntries(
    Object.entries(extra).map(([key, [title]]) => [key, title])), ...TABS };
  const all = Object.entries(titles).filter(([key]) => tools.ask || !SERVER_TABS.includes(key));
  const buttons = all.map(([key, title]) => button("tab", {
    role: "tab",
    "aria-selected": "false",
    "data-tab": key,
    onclick: () => open(tab === key ? "" : key),
  }, title));
  /** @param {View} now */
  const keyOf = (now) => `${tab}/${now.data}/${now.seen}`;
  /** @type {Record<string, (now: View) => Node[]> | null} */
  let own = null; // what is in the player's own, once it has been fetched

  async function fetchOwn() {
    own = (await later("inside.js", "QAlignInside")).tabsOf(tools);
    drawnKey = "";
    redraw(false);
  }
  /** @param {string} next */
  function open(next) {
    tab = next;
    drawnKey = "";
    ticket += 1;
    for (const one of buttons) set(one, { "aria-selected": String(one.dataset.tab === tab) });
    show(view, tab);
    view.replaceChildren();
    redraw(SERVER_TABS.includes(tab)); // so that their text stays
  }
  /** @param {View} now */
  function draw(now) {
    drawnKey = keyOf(now);
    if (!(tab in TABS)) drawExtra(now);
    else if (own) swap(view, ...own[tab](now));
    else fetchOwn().catch(() => put(view, "The server did not answer: open this tab again."));
  }
  /** @param {View} now */
  function drawExtra(now) {
    ticket += 1;
    const mine = ticket;
    const [, make] = extra[tab];
    window.setTimeout(async () => {
      if (mine !== ticket) return;
      const nodes = await make(now);
      if (mine === ticket) swap(view, ...nodes);
    }, PATIENCE);
  }
  return {
    node: h("div", { role: "tablist", aria: "More views" }, ...buttons),
    view,
    open,
    /** Close the open tab, if one is. */
    close() {
      const was = tab !== "";
      if (view.contains(document.activeElement)) {
        buttons.find((one) => one.dataset.tab === tab)?.focus();
      }
      if (was) open("");
      return was;
    },
    /**
     * Whether the open tab shows another view than there is.
     * @param {View} now
     */
    waits: (now) => Boolean(tab && drawnKey !== keyOf(now)),
    /**
     * @param {View} now
     * @param {number} time
     * @param {boolean} isPlaying
     */
    follow(now, time, isPlaying) {
      if (!tab || drawnKey === keyOf(now)) return;
      if (isPlaying && time - at <= PACE) return;
      at = time;
      draw(now);
    },
  };
}
