/* What belongs to the page and not to the player: the settings drawer, the address bar, the status
   line, and the notice that settings have changed. */
import { keys, remember } from "./address.js";
import { copyLink, downloadTrace, openTrace } from "./actions.js";
import { betaSlider } from "./beta.js";
import { diagnostics } from "./diagnostics.js";
import { closeFromOutside, onOpened, showDrawer } from "./drawer.js";
import { PAGE, STEP, named, namesRun, pageOf, replacing, stepOf } from "./links.js";
import { put } from "../dom.js";

/** @typedef {import("../player/player.js").Player} Player */

const opened = new URLSearchParams(window.location.search); // the link as it was opened
/** The link names a run of its own, so the recorded run is not what its step belongs to. */
const linked = namesRun(opened);
/** @type {string | null} */
let ran = null; // the settings of the run that is shown
let live = false;

/** @returns {Player | undefined} */
const player = () => /** @type {any} */ (document.querySelector("#watch-player .qp"))?.qalign;

/**
 * Settings have changed: what depends on them follows, and what does not is said to be older.
 * @param {string[]} names of the settings
 * @param {unknown[]} values of their widgets
 */
function settings(names, values) {
  player()?.setBurnIn(Number(named(names, values).burn_in) || 0);
  const stale = ran !== null && ran !== JSON.stringify(values);
  document.querySelector("#watch-stale")?.classList.toggle("q-on", stale);
}

/**
 * A run begins with these settings, which go on to the server as they are.
 * @param {string[]} names
 * @param {unknown[]} values
 */
function run(names, values) {
  ran = JSON.stringify(values);
  live = true;
  settings(names, values);
  showDrawer(false);
  player()?.expect(linked ? stepOf(opened) : null);
  opened.delete(STEP);
  return values;
}

/**
 * The status line's element shows what the server says of the run.
 * @param {HTMLElement} element
 * @param {string} value
 */
function status(element, value) {
  let said;
  try {
    said = JSON.parse(value);
  } catch {
    return;
  }
  element.dataset.state = said.state;
  put(/** @type {Element} */ (element.querySelector("span")), said.text);
  // the run's settings for the address bar, as the server spelt them
  if (said.query !== undefined) remember(replacing(keys(), said.query, "run"));
  if (said.notice !== undefined) player()?.tell(said.notice);
}

closeFromOutside();

/** What Gradio's events and components call. */
export const QAlignShell = {
  linked,
  settings,
  run,
  status,
  diagnostics,
  drawer: showDrawer,
  get step() {
    return stepOf(opened);
  },
  /** Open the page that the link names. */
  open() {
    const name = pageOf(opened);
    if (name) /** @type {any} */ (document.querySelector(`#tab-${name}-button`))?.click();
  },
  page(/** @type {string} */ name) {
    remember({ [PAGE]: name === "watch" ? null : name });
  },
  seek(/** @type {number} */ t) {
    if (live || !linked) remember({ [STEP]: t });
  },
  /** The lab's settings for the address bar. */
  lab(/** @type {string} */ text) {
    remember(replacing(keys(), text, "lab"));
  },
  stop() {
    player()?.stop();
  },
  /** What can be done with the player's trace, by the buttons' titles. */
  actions: {
    "Download trace": downloadTrace,
    "Open a trace"(/** @type {Player} */ api) {
      openTrace(api, () => {
        live = false;
      });
    },
    "Copy link": copyLink,
  },
  /** @type {(...given: [any, any, any, any, any]) => void} */
  beta(element, props, trigger, server, watch) {
    const rewards = () => player()?.trace.base ?? [];
    betaSlider(element, props, trigger, server, watch, { rewards, opened: onOpened });
  },
};
