/* The gallery: recorded runs, each one click away. Their traces come when they are asked for. */
import { builder } from "../dom.js";
import { answering } from "../rpc.js";

const { h, button } = builder("qg-");
/** @type {HTMLDialogElement | null} */
let list = null;

/**
 * One recorded run, as the server tells of it.
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} title
 * @property {string} summary what there is to see
 * @property {string} facts models and settings
 * @property {string} command what draws it again
 * @property {string} query the settings, for a link that puts them in place
 * @property {string} page where it is shown: "watch" or "compare"
 */
/** @typedef {{ text: string, title: string, summary: string } | { error: string }} Recorded */
/** @typedef {{ recorded: (name: string) => Promise<Recorded> }} Server */

/**
 * @param {HTMLElement} host
 * @param {Entry[]} entries
 * @param {Server} server
 */
function mount(host, entries, server) {
  const shell = /** @type {any} */ (window).QAlignShell;
  const { recorded } = answering(server);

  /**
   * @param {string} name of an entry, or of a chain of a folder of results
   * @param {import("../shell/links.js").Place | null} [place]
   */
  async function choose(name, place = null) {
    list?.close();
    if (entries.find((entry) => entry.name === name)?.page === "compare") {
      shell.turn("compare");
      return;
    }
    const reply = await recorded(name);
    if ("error" in reply) shell.tell(reply.error);
    else shell.recorded({ ...reply, name }, place);
  }

  /** @param {Entry} entry */
  const card = (entry) => h("li.card",
    button("pick", { "data-name": entry.name, onclick: () => choose(entry.name) },
      h("b", entry.title), h("span", entry.summary), h("small", entry.facts)),
    h("details", { ontoggle: showWhole }, h("summary", "How to draw it again"),
      h("p", "From the command line:"), h("code", entry.command),
      h("p", h("a", { href: `?${entry.query}` }, "Use its settings"),
        " to run it live here.")));

  list = h("dialog.list", { aria: "Gallery of recorded runs", onclick: leave },
    h("div.head", h("h2", "Gallery"), button("close", { onclick: () => list?.close() }, "Close")),
    h("p", "Choose a recorded run to play it at once, without loading a model."),
    h("ol.cards", ...entries.map(card)));

  /** How to draw a run again is on the screen once it is asked for. @param {Event} event */
  function showWhole({ currentTarget }) {
    const details = /** @type {HTMLDetailsElement} */ (currentTarget);
    if (details.open) details.scrollIntoView({ block: "nearest" });
  }

  /**
   * A press beside the dialog, which then is the target itself.
   * @param {Event} event
   */
  function leave({ target }) {
    if (target === list) list?.close();
  }
  host.replaceChildren(list);
  if (shell.wanted) choose(shell.wanted, shell.place);
  // a list of problems leads to its chains; a press with a key opens them as links do
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest('a[href^="?run="]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    shell.turn("watch");
    choose(new URLSearchParams(link.getAttribute("href") ?? "").get("run") ?? "");
  });
}

/** Show the list. */
const open = () => list?.showModal();

export const QAlignGallery = { mount, open };
