/* The gallery: recorded runs, each one click away. Their traces come when they are asked for. */
import { builder } from "../dom.js";

const { h, button } = builder("qg-");
/** @type {HTMLDialogElement | null} */
let list = null;

/**
 * One recorded run, as the server tells of it.
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} title
 * @property {string} says what there is to see
 * @property {string} facts models and settings
 * @property {string} command what draws it again
 * @property {string} query the settings, for a link that puts them in place
 * @property {string} page where it is shown: "watch" or "compare"
 */
/** @typedef {{ text: string } | { error: string }} Recorded */
/** @typedef {{ recorded_text: (name: string) => Promise<Recorded> }} Server */

/**
 * @param {HTMLElement} host
 * @param {Entry[]} entries
 * @param {Server} server
 */
function mount(host, entries, server) {
  const shell = /** @type {any} */ (window).QAlignShell;

  /**
   * @param {Entry} entry
   * @param {number | null} [step]
   */
  async function choose(entry, step = null) {
    list?.close();
    if (entry.page === "compare") {
      shell.turn("compare");
      return;
    }
    const said = await server.recorded_text(entry.name)
      .catch(() => ({ error: "The server did not answer." }));
    if ("error" in said) shell.tell(said.error);
    else shell.recorded(entry, said.text, step);
  }

  /** @param {Entry} entry */
  const card = (entry) => h("li.card",
    button("pick", { "data-name": entry.name, onclick: () => choose(entry) },
      h("b", entry.title), h("span", entry.says), h("small", entry.facts)),
    h("details", h("summary", "Draw it again"),
      h("p", "From the command line:"), h("code", entry.command),
      h("p", h("a", { href: `?${entry.query}` }, "Put its settings in place"),
        ", to run it live here.")));

  list = h("dialog.list", { aria: "Gallery of recorded runs", onclick: leave },
    h("div.head", h("h2", "Gallery"), button("close", { onclick: () => list?.close() }, "Close")),
    h("p", "Recorded runs. Choosing one plays it at once; no model is loaded."),
    h("ol.cards", ...entries.map(card)));

  /**
   * A press beside the dialog, which then is the target itself.
   * @param {Event} event
   */
  function leave({ target }) {
    if (target === list) list?.close();
  }
  host.replaceChildren(list);
  const wanted = entries.find(({ name }) => name === shell.wanted);
  if (wanted) choose(wanted, shell.step);
}

/** Show the list. */
const open = () => list?.showModal();

export const QAlignGallery = { mount, open };
