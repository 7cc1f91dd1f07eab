/* What belongs to the pages and not to the player: the settings drawer, the address bar, the status
   line, and the notice that settings have changed. */
import { amend, begin, link, linkedPage, opened, remember, stateOf, turnTo } from "./address.js";
import {
  copyLink,
  downloadTrace,
  listenForFigures,
  openTrace,
  savePage,
  saver,
} from "./actions.js";
import { redraw } from "./again.js";
import { betaSlider } from "./beta.js";
import { diagnostics, enough } from "./diagnostics.js";
import { closeFromOutside, showDrawer } from "./drawer.js";
import { follow, listen } from "./glossary.js";
import { holdLinked, holds, release } from "./hold.js";
import { QAlignList } from "../list/list.js";
import { drawHere, drawSeed, here, stopHere } from "./here.js";
import {
  CHAIN,
  RUN,
  SET,
  STEP,
  linkTo,
  named,
  namesRun,
  parametersOf,
  partsOf,
  placeOf,
} from "./links.js";
import { keepRun, takeRun } from "./outlive.js";
import { decideAlone, explainBestOfN } from "./rivals.js";
import { QAlignPresenter } from "../presenter/presenter.js";
import { answering } from "../rpc.js";
import { put } from "../dom.js";
import { openPage, player } from "../page.js";

/** @typedef {import("../player/player.js").Player} Player */
/** @typedef {import("./links.js").Page} Page */
/** @typedef {{ query: string, undrawable: string } | { error: string }} Linked */
/** @typedef {{ link_of: (header: string) => Promise<Linked> }} Linker */
/** @typedef {Linker & import("./actions.js").PageMaker} Server */
/** @typedef {import("./actions.js").Tell} Tell */

const ACTIVE = ["loading", "queued", "sampling"];
const ENDED = ["stopped", "finished", "failed"];
/** What a stopped run says, which is wrong before its first step (components/watch/page.py). */
const KEPT = "The steps drawn so far are kept. ▶ plays them.";
/** The link names a run of its own, so the recorded run is not what its step belongs to. */
const linked = namesRun(opened);
/** The settings of the run that each page shows. @type {Record<string, Record<string, unknown>>} */
const ran = {};
/** The settings that each page holds now, and held at first. @type {typeof ran} */
const current = {};
/** @type {typeof ran} */
const initial = {};
/** The states that come too late, where a run was ended. @type {Map<string, string[]>} */
const ended = new Map();
/** What Watch shows. @type {"recorded" | "run" | "file"} */
let source = "recorded";
let unlinked = ""; // why the file that is shown has no link
let outlived = ""; // what is said of a run from before the page was loaded again
let fromGallery = ""; // the name of the recorded run that is shown, if it is one of the gallery's

/** @param {string} text */
const parameters = (text) => Object.fromEntries(new URLSearchParams(text));

/** A menu's title is written over its input too, where it can wrap (shell.css). */
function showTitles() {
  for (const menu of document.querySelectorAll(":is(.q-pick, .q-menus) [role='combobox']")) {
    const { value } = /** @type {HTMLInputElement} */ (menu);
    menu.closest(".wrap-inner")?.setAttribute("data-title", value);
  }
}

/**
 * The sentence of a menu, which its line may cut, is whole under the pointer.
 * @param {Event} event
 */
function showSentence({ target }) {
  const sentence = /** @type {HTMLElement} */ (target);
  if (sentence.matches(".q-pick .info-text")) sentence.title = sentence.innerText;
}

/**
 * Gradio leaves a menu's list open when Tab leaves the menu; Escape closes it.
 * @param {KeyboardEvent} event
 */
function closeList({ target, key }) {
  const menu = /** @type {HTMLElement} */ (target);
  if (key !== "Tab" || menu.ariaExpanded !== "true") return;
  window.setTimeout(() => {
    const stop = (/** @type {Event} */ event) => event.stopPropagation(); // drawers close by it too
    document.body.addEventListener("keydown", stop);
    menu.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    document.body.removeEventListener("keydown", stop);
  });
}

/**
 * Settings have changed: what depends on them follows, and what does not is said to be older.
 * @param {Page} page
 * @param {string[]} names of the settings
 * @param {unknown[]} values of their widgets
 */
function settings(page, names, values) {
  const now = current[page] = named(names, values);
  window.requestAnimationFrame(showTitles);
  if (page === "watch") {
    player()?.setBurnIn(Number(now.burn_in) || 0);
    if ((player()?.position.last ?? 0) < 0) pose(String(now.prompt));
  }
  const line = /** @type {HTMLElement | null} */ (document.querySelector(`#${page}-stale`));
  const before = ran[page];
  if (!line || !before) return;
  const changed = JSON.stringify(before) !== JSON.stringify(now);
  line.classList.toggle("q-on", changed);
  // the player's own mark is enough where the problem is the same
  line.classList.toggle("qp-hidden", page === "watch" && before.prompt === now.prompt);
  if (page === "watch") player()?.age(changed);
  put(/** @type {Element} */ (line.querySelector("p")), before.prompt === now.prompt
    ? "The settings changed: run again to use them."
    : `The next run uses a different problem: ${now.prompt}`);
}

/**
 * Stop can be pressed while a run goes on.
 * @param {Page} page
 * @param {boolean} runs
 */
function enableStop(page, runs) {
  document.querySelector(`#${page}-stop`)?.setAttribute("aria-disabled", String(!runs));
}

/** Press "Run it live". */
const pressRun = () =>
  /** @type {HTMLElement | null} */ (document.querySelector("#watch-run"))?.click();

/** Whether a run of Watch goes on. */
function isRunning() {
  const line = /** @type {HTMLElement | null} */ (document.querySelector("#watch .q-status"));
  return !ended.has("watch") && ACTIVE.includes(line?.dataset.state ?? "");
}

/**
 * A problem that has not been run stands on the stage of Watch, unless a run goes on there.
 * @param {string} problem
 */
function pose(problem) {
  if (isRunning()) return;
  delete ran.watch; // nothing older is shown that its settings could differ from
  player()?.await(problem);
}

/**
 * A run begins with these settings, which go on to the server as they are.
 * @param {Page} page
 * @param {string[]} names
 * @param {unknown[]} values
 */
function run(page, names, values) {
  ended.delete(page);
  enableStop(page, true);
  ran[page] = named(names, values);
  settings(page, names, values);
  if (page === "watch") {
    stopHere();
    source = "run";
    fromGallery = outlived = "";
    showDrawer(false);
    player()?.expect(linked ? placeOf(opened) : null);
    delete opened[STEP];
  }
  return values;
}

/** The value that each status line shows. @type {WeakMap<HTMLElement, string>} */
const statusValues = new WeakMap();

/**
 * The status line's element shows what the server says of the run; where it leaves the run to the
 * browser, the run begins.
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 */
function status(element, props) {
  let message;
  try {
    message = JSON.parse(props.value);
  } catch {
    return;
  }
  const page = element.closest("#compare") ? "compare" : "watch";
  if (ended.get(page)?.includes(message.state)) {
    // the server reads the value: it must not hear of an ended run that it goes on
    const value = statusValues.get(element) ?? props.value;
    if (value !== props.value) props.value = value;
    return;
  }
  statusValues.set(element, props.value);
  element.dataset.state = message.state;
  enableStop(page, ACTIVE.includes(message.state));
  const isEmpty = page === "watch" && (player()?.position.last ?? 0) < 0;
  put(/** @type {Element} */ (element.querySelector("span")), isEmpty
    ? message.text.replace(KEPT, "No step was drawn.") : message.text);
  // the run's settings for the address bar, as the server spelt them; a file has its own
  if (message.query !== undefined && (page === "compare" || source === "run")) {
    remember(page, keepingStep(page, message.query));
  }
  if (message.notice !== undefined) player()?.tell(outlived || message.notice, true);
  if (message.draw !== undefined) {
    drawHere(JSON.parse(message.draw), {
      stream: (text) => player()?.stream(text),
      say(state, text) {
        props.value = JSON.stringify({ state, text });
        status(element, props);
      },
    }, pressRun);
  }
}

/** @type {(page: Page, query: string) => import("./links.js").Parameters} */
function keepingStep(page, query) {
  const { t = 0, chain = 0 } = player()?.position ?? {};
  return { ...parameters(query), ...(page === "watch" && t ? parametersOf(t, chain) : {}) };
}

/**
 * The query of a link that draws the player's run again.
 * @param {Player} api
 * @param {Linker} server
 */
const queryOf = ({ text }, server) => server.link_of(text.slice(0, text.indexOf("\n")));

/**
 * A file has taken the place of the run: the link has what draws its run again.
 * @param {Player} api
 * @param {Server} server
 */
async function linkFile(api, server) {
  source = "file";
  fromGallery = outlived = "";
  ran.watch = {};
  unlinked = "";
  sayUnseen(api);
  const { text } = api;
  const reply = await queryOf(api, server);
  if (source !== "file" || api.text !== text) return;
  if ("error" in reply) unlinked = `This file cannot be linked. ${reply.error}`;
  else remember("watch", keepingStep("watch", reply.query));
}

/**
 * All that can be taken home of what the player shows.
 * @param {Player} api
 * @param {Server} server
 */
async function save(api, server) {
  const element = document.querySelector("#watch-player .qp");
  try {
    const [{ open }] = await Promise.all([saver(), api.complete()]);
    open(api, element, {
      page: (/** @type {boolean} */ live, /** @type {Tell} */ tell) =>
        savePage(api, server, fromGallery, live, tell),
      trace: () => downloadTrace(api),
      linked: () => queryOf(api, server),
      link(/** @type {Tell} */ tell) {
        if (source === "file" && unlinked) tell(unlinked);
        else copyLink(source === "file" ? "It draws the run of this file again." : "", tell);
      },
    });
  } catch {
    api.tell("The server did not answer: nothing can be saved now.");
  }
}

/** @type {((line: string) => void) | null} fills the form with a trace's first line */
let fill = null;
let unfilled = ""; // the line that waits for it
let summary = ""; // what the player says of the run that is shown
let adopted = ""; // its problem
let isFilling = false;
/** What waits for that. @type {(() => void)[]} */
const waiting = [];

/** The settings of the run that the player has opened are those of the next run. */
function adopt() {
  const { text } = /** @type {Player} */ (player());
  delete ran.watch; // its settings are on their way
  unfilled = text.slice(0, text.indexOf("\n"));
  adopted = String(JSON.parse(unfilled).prompt).trim();
  fill?.(unfilled);
}

/** @param {Player} api */
function sayUnseen(api) {
  if (isRunning()) api.tell("The live run continues in the background; press Stop to end it.");
}

/**
 * Show a recorded run, as soon as there is a player, and say what there is to see.
 * @param {{ name: string, title: string, summary: string, text: string }} entry
 * @param {import("./links.js").Place | null} place to open at
 */
function recorded(entry, place) {
  const api = player();
  if (!api) {
    window.requestAnimationFrame(() => recorded(entry, place));
    return;
  }
  source = "recorded";
  outlived = "";
  fromGallery = entry.name;
  api.open(entry.text, entry.title);
  adopt();
  remember("watch", { [RUN]: entry.name });
  if (place) api.seek(...place);
  summary = entry.summary;
  api.tell(summary);
  sayUnseen(api);
}

/**
 * Show the live run of this page before it was loaded again.
 * @param {Player} api
 */
function outlive(api) {
  keepRun(api);
  const text = takeRun();
  if (!text) return;
  api.open(text, "Live run");
  api.seek(api.position.last);
  source = "run";
  if (!linked) adopt(); // its link has its settings already
  outlived = "The page was loaded again. The steps that were drawn before are kept.";
  api.tell(outlived);
}

/** Whoever changes a problem by hand, in whichever way, knows another answer or none. */
function forgetAnswers() {
  document.addEventListener("input", ({ target }) => {
    const field = /** @type {Element} */ (target).closest("#watch-prompt, #compare-prompt");
    const [page] = field?.id.split("-") ?? [];
    const answer = /** @type {HTMLInputElement | null} */ (
      page ? document.querySelector(`#${page}-reference :is(input, textarea)`) : null);
    if (!answer?.value) return;
    answer.value = "";
    answer.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

holdLinked(partsOf(new URLSearchParams(window.location.search)));
closeFromOutside();
forgetAnswers();
document.addEventListener("focusout", showTitles);
document.addEventListener("pointerover", showSentence);
document.addEventListener("keydown", closeList);
listen();
listenForFigures();
QAlignList.listen();

/** What Gradio's events and components call. */
export const QAlignShell = {
  linked,
  link,
  settings,
  run,
  /** What goes to the server when a run of Watch begins. */
  runWatch: (/** @type {string[]} */ names, /** @type {unknown[]} */ values) =>
    [here(), ...run("watch", names, values)],
  status,
  diagnostics,
  enough,
  redraw,
  drawer: showDrawer,
  get place() {
    return placeOf(opened);
  },
  /**
   * Open the page that the link names, and the glossary if it does.
   * @param {Page} first where an address without a query leads
   */
  open(first) {
    follow();
    const page = linkedPage ?? (first === "watch" || window.location.search ? null : first);
    begin(page);
    for (const page of /** @type {Page[]} */ (["watch", "compare"])) {
      if (!document.querySelector(`#${page}-stop[aria-disabled]`)) enableStop(page, false);
    }
    if (page) openPage(page);
  },
  page: turnTo,
  release,
  /**
   * What the widgets hold before anything is changed: without a link, the recorded run's settings.
   * @param {Page} page
   * @param {string[]} names of the settings
   * @param {unknown[]} values
   */
  first(page, names, values) {
    initial[page] = named(names, values);
    if (!holds(page)) ran[page] ??= initial[page];
  },
  /** Draw the run that Watch shows, with its seed where the settings are still its own. */
  drawAgain() {
    const { prompt, beta, seed } = player()?.trace.header ?? {};
    const [start, now] = [initial.watch, current.watch ?? initial.watch];
    const isSame = start?.prompt === prompt && start?.beta === beta
      && JSON.stringify(start) === JSON.stringify(now);
    if (isFilling) waiting.push(pressRun);
    else if (isSame && seed != null) drawSeed(seed, pressRun);
    else pressRun();
  },
  adopt,
  /** True of the problem of a run that is only shown: nobody chose it. */
  isAdopted: (/** @type {string} */ problem) => problem.trim() === adopted,
  /** @type {(props: { value: string }, trigger: (event: string) => void) => void} */
  fills(props, trigger) {
    fill = (line) => {
      const again = props.value === line;
      props.value = line;
      isFilling = true;
      if (again) trigger("change"); // Gradio reports a changed value itself.
    };
    if (unfilled) fill(unfilled);
  },
  /** The form holds the settings of the run that is shown. */
  filled(/** @type {string[]} */ names, /** @type {unknown[]} */ values,
    /** @type {string} */ notice) {
    isFilling = false;
    ran.watch = named(names, values);
    settings("watch", names, values);
    if (notice && source !== "run") player()?.tell(`${summary} ${notice}`.trim());
    for (const act of waiting.splice(0)) act();
  },
  /** The run of the gallery that the link names. */
  wanted: opened[RUN],
  recorded,
  outlive,
  answering,
  turn: openPage,
  tell(/** @type {string} */ sentence) {
    player()?.tell(sentence);
  },
  pose,
  /**
   * What other rules decide on the run that Watch shows, and Compare with its settings.
   * @type {(of: () => Player, server: Server) => import("../player/player.js").Rivals}
   */
  compare: (of, server) => ({
    decide: decideAlone,
    caution: explainBestOfN,
    async open() {
      const reply = await queryOf(of(), server);
      if ("error" in reply) of().tell(`This run cannot be compared. ${reply.error}`);
      else window.location.assign(linkTo(window.location.href, "compare",
        { ...partsOf(new URLSearchParams()), compare: parameters(reply.query) }));
    },
  }),
  seek(/** @type {number} */ t, /** @type {number} */ chain) {
    if (source === "recorded" && !fromGallery && linked) return;
    const state = { ...stateOf("watch"), ...parametersOf(t, chain) };
    if (!chain) delete state[CHAIN];
    remember("watch", state);
  },
  /** The lab's settings for the address bar. */
  lab(/** @type {string} */ text) {
    remember("lab", parameters(text));
  },
  /** The problem set that Results shows. */
  set(/** @type {string} */ name) {
    amend("results", SET, name);
  },
  /** The menus of Results have changed. */
  titles() {
    window.requestAnimationFrame(showTitles);
  },
  /**
   * The server gets what the status line says: it does not know a run that the browser draws.
   * @type {<T>(page: Page, statusText: T, late?: string[]) => T}
   */
  stop(page, statusText, late = ACTIVE) {
    ended.set(page, late);
    if (page === "watch") {
      stopHere();
      player()?.stop();
    }
    return statusText;
  },
  /** A new problem takes the place of a run: how that run ended is not shown any more. */
  next: (/** @type {unknown[]} */ values) =>
    QAlignShell.stop("watch", values, [...ACTIVE, ...ENDED]),
  /** A search for a beta begins: nothing covers its status, its slider and Stop. */
  tune(/** @type {unknown[]} */ values) {
    ended.delete("watch");
    enableStop("watch", true);
    showDrawer(false);
    return values;
  },
  /**
   * What can be done with the player's trace, by the buttons' titles.
   * @param {Server} server
   * @returns {Record<string, (player: Player) => unknown>}
   */
  actions: (server) => ({
    // a phone is no projector, and has no key to leave by
    ...(window.innerWidth > 640 ? { "Presenter’s view": QAlignPresenter.enter } : {}),
    "Save…": (api) => save(api, server),
    "Open a trace": (api) => openTrace(api, () => linkFile(api, server)),
  }),
  /** @type {(...given: [any, any, any, any, any]) => void} */
  beta(element, props, trigger, server, watch) {
    window.requestAnimationFrame(showTitles); // the menus of its line are there now
    const rewards = () => (props.page === "watch" ? player()?.trace.base ?? [] : []);
    betaSlider(element, props, trigger, server, watch, rewards);
  },
};
