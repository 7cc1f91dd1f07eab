/* The panel of lessons, among them the first pass. Texts and questions come from the server
   (components/learn); the visitor's answers stay in this browser. */
import { builder, drawIcon, put, show } from "../dom.js";
import { player } from "../page.js";
import { answering, replyOf } from "../rpc.js";
import { share } from "../shell/address.js";
import { LESSON, STOP } from "../shell/links.js";
import { fields } from "./ask.js";
import { isApart, isSeen, progress, remember, setSeen } from "./memory.js";
import { goTo, light, still } from "./place.js";
import { saveSheet } from "./sheet.js";

/** @typedef {import("./memory.js").Answer} Answer */
/** @typedef {import("./place.js").Place} Place */
/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} title
 * @property {string} summary
 * @property {number} minutes
 * @property {number} stops
 */
/**
 * @typedef {object} Stop
 * @property {string} title
 * @property {string} text
 * @property {string} notes for the presenter
 * @property {Place} at
 * @property {string} highlight a selector
 * @property {import("./ask.js").Question} [ask]
 */
/**
 * @typedef {object} Lesson
 * @property {string} name
 * @property {string} title
 * @property {string} summary
 * @property {Stop[]} stops
 * @property {string} end
 * @property {[question: string, text: string][]} learnt for its end
 * @property {string[]} onward
 * @property {Record<string, string>} runs the first line of each recorded run that it shows
 */
/** @typedef {{ right: boolean | null, value: string, explanation: string }} Verdict */
/** @typedef {Verdict & { at: Place, highlight: string }} Outcome */
/**
 * @typedef {object} Server
 * @property {(name: string) => Promise<Lesson>} lesson
 * @property {(request: { lesson: string, stop: number, prediction: string }) =>
 *   Promise<Outcome>} check
 * @property {(name: string) => Promise<string>} run
 * @property {(request: { lesson: string, stop: number, answered: boolean }) =>
 *   Promise<import("../exhibit/exhibit.js").Exhibit>} [exhibit] of a page with a presenter's view
 */
/** @typedef {{ first: Lesson | null, list: Entry[], value: string }} Props */

const { h, button } = builder("learn-");
const query = new URLSearchParams(window.location.search);
const linked = query.get(LESSON) ?? ""; // the lesson that a link names
/** A link to something, or a visitor who has seen the first pass, is not interrupted. */
const isFirst = !isSeen() && [...query.keys()].every((key) => key === "__theme");
const UNCHECKED = "Your prediction was not checked because the server did not answer; try again.";
const NO_OUTCOME = unloaded("outcome of your prediction");
const NO_RUN = unloaded("recorded run");
const RUN = "run="; // the prefix of a run of the gallery in a lesson's `onward`
const DRAWING = "The figure is being drawn…";

/**
 * Where a lesson is, for the presenter's view.
 * @typedef {object} Now
 * @property {Lesson} lesson
 * @property {number} k the stop; behind the last one, all of them
 * @property {Stop} stop the last one there too
 * @property {boolean} over
 * @property {Answer} [answer] to the question of the stop
 * @property {Place} at what the page shows
 * @property {string} highlight a selector
 */

/** @type {Props} */
let props = { first: null, list: [], value: "" };
/** @type {Server} */
let server;
/** @type {(page: string, query: string) => Promise<void>} */
let lead = async () => {};
/** @type {(page: string, query: string) => void} */
let arrived = () => {};
/** @type {Lesson | null} */
let lesson = null;
let isAwaited = Boolean(linked); // the lesson of the link has not come yet
let k = 0; // the stop
/** @type {ReturnType<typeof fields> | null} */
let form = null;
/** @type {Record<number, Outcome>} where an answered stop of this visit ends */
let ends = {};

// the panel
const called = h("b.called");
const tagline = h("span.tagline");
const count = h("span");
const bar = h("progress", { max: 1, value: 0, aria: "Progress" });
const title = h("h2", { tabindex: -1 });
const text = h("p");
const room = h("div.room", { "aria-hidden": "true" }); // all texts: the panel is always as tall
const question = h("form", { novalidate: true, onsubmit: () => check() });
const status = h("p.status", { role: "status" });
const fault = h("p.fault", { role: "alert" }); // in the panel, or above the page without one
const back = button("back", { onclick: () => turn(k - 1) }, "Back");
const unsaid = button("quiet", { onclick: () => check(true) }, "Show me");
const next = button("next", { onclick: () => (waits() ? check() : turn(k + 1)) });
const onward = h("div.onward");
const learnt = h("dl.learnt");
const live = button("live", {
  onclick: () => {
    close();
    /** @type {any} */ (window).QAlignShell.drawAgain();
  },
}, "Run it live");
const never = button("quiet", { onclick: () => close(true) }, "Never again");
const skip = button("quiet", { onclick: () => close() });
const panel = h("aside.panel", {
  aria: "Lesson",
  onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") close(); // in its fields too
  },
}, h("div.head", h("p", called, tagline), count, bar),
h("div.body", h("div.words", { "aria-live": "polite" }, title, text, room), question, status,
  learnt, onward),
h("div.foot", live, back, unsaid, next, skip, never));

document.addEventListener("keydown", onKey);

/** Return a function that is true as long as this stop of this lesson is shown. */
function whetherHere() {
  const [mine, at] = [lesson, k];
  return () => lesson === mine && k === at;
}

const isFirstPass = () => lesson?.name === props.first?.name;
const answers = () => (lesson ? progress(lesson.name).answers : {});
/** True while a prediction has to be made before the outcome is shown. */
const waits = () => Boolean(lesson?.stops[k]?.ask && !answers()[k]);

/** @param {string} part of a stop */
function unloaded(part) {
  return `The ${part} did not load because the server did not answer; go to another stop and back `
    + "to try again.";
}

/** Report below the stop what did not come. @param {string} sentence */
function fail(sentence) {
  put(fault, sentence);
  status.after(fault);
  QAlignLearn.onturn();
}

function clearFault() {
  put(fault, "");
  fault.remove();
}

/**
 * Open a lesson where it was left.
 * @param {string} name
 * @param {boolean} [focus]
 * @param {number} [wanted] a stop that a link names, from 1
 */
async function open(name, focus = true, wanted = 0) {
  const { first } = props;
  clearFault();
  try {
    lesson = first?.name === name ? first : await replyOf(server.lesson(name));
  } catch {
    const entry = props.list.find((each) => each.name === name);
    put(fault, `The lesson “${entry?.title}” did not load because the server did not answer; `
      + "reload the page to try again.");
    document.body.prepend(fault);
    isAwaited = false;
    return QAlignLearn.onturn();
  }
  isAwaited = false;
  const { at, done } = progress(lesson.name);
  if (done) remember(lesson.name, { done: false, at: 0, answers: {} });
  ends = {};
  share(LESSON, lesson.name);
  document.body.prepend(panel);
  document.body.classList.add("learn-open");
  document.body.classList.toggle("learn-first", isFirstPass());
  put(called, isFirstPass() ? "QAlign Explorer" : lesson.title);
  put(tagline, isFirstPass() ? document.querySelector(".q-head p")?.textContent ?? "" : "");
  room.replaceChildren(...(isFirstPass() ? lesson.stops : []).map((stop) => h("p", stop.text)));
  const there = turn(Math.min(wanted ? wanted - 1 : done ? 0 : at, lesson.stops.length - 1));
  if (focus) title.focus({ preventScroll: true }); // now: the page may take seconds to get there
  await there;
}

/**
 * Arrows turn the stops, and Escape skips the first pass, where nothing else has them: no field,
 * no player, not the browser.
 * @param {KeyboardEvent} event
 */
function onKey({ key, altKey, ctrlKey, metaKey, defaultPrevented }) {
  const at = document.activeElement;
  const free = at === document.body || (panel.contains(at) && !at?.matches("input"));
  if (!lesson || !free || altKey || ctrlKey || metaKey || defaultPrevented) return;
  if (key === "ArrowRight" && !next.hidden) next.click();
  else if (key === "ArrowLeft") back.click();
  else if (key === "Escape" && isFirstPass() && panel.isConnected) close();
}

/** @param {boolean} [forGood] */
function close(forGood = false) {
  if (!lesson) return;
  if (forGood) setSeen();
  lesson = null;
  share(LESSON, "");
  share(STOP, "");
  light("");
  clearFault();
  panel.remove();
  document.body.classList.remove("learn-open", "learn-first");
  makeRoom();
  listAll();
  QAlignLearn.onturn();
}

/**
 * Go to a stop, or behind the last one.
 * @param {number} to
 */
async function turn(to) {
  if (!lesson) return;
  const { stops } = lesson;
  clearFault();
  const hasFocus = panel.contains(document.activeElement);
  k = Math.max(0, Math.min(stops.length, to));
  const over = k === stops.length;
  if (over && isFirstPass()) setSeen();
  remember(lesson.name, over ? { done: true } : { at: k });
  share(STOP, over ? "" : k + 1);
  const stop = stops[Math.min(k, stops.length - 1)];
  put(count, over ? "" : `${k + 1} of ${stops.length}`);
  bar.value = k / stops.length;
  put(title, over ? "That was it" : stop.title);
  put(text, over ? lesson.end : stop.text);
  learnt.replaceChildren(...(over ? lesson.learnt : []).map(([term, answer]) =>
    h("div", h("dt", term), h("dd", answer))));
  form = !over && stop.ask ? fields(stop.ask) : null;
  // without a button in the form the Enter key on a choice would not send it
  const enter = h("button", { type: "submit", hidden: true });
  question.replaceChildren(...(form ? [form.node, enter] : []));
  showOutcome(answers()[k]);
  onward.replaceChildren(...(over ? endButtons(lesson) : []));
  buttons();
  QAlignLearn.onturn();
  // The question is before the buttons, so the Tab key leads there from the title; at the end, the
  // button that was pressed is gone.
  if ((form || over) && hasFocus) title.focus({ preventScroll: true });
  if (over) return light("");
  const isHere = whetherHere();
  const at = k;
  const before = answers()[at];
  if (form && before) form.show(before.prediction, before.value);
  const request = { lesson: lesson.name, stop: at, prediction: "" };
  try {
    if (before) ends[at] ??= await replyOf(server.check(request));
  } catch {
    if (isHere()) fail(NO_OUTCOME);
  }
  if (isHere()) await move((before && ends[at]) ?? stop);
}

/**
 * Show the outcome of a prediction, or nothing.
 * @param {Answer} [answer]
 */
function showOutcome(answer) {
  const sign = answer?.right == null ? [] : [drawIcon(answer.right ? "yes" : "no", "learn-")];
  status.dataset.right = String(answer?.right ?? "");
  status.replaceChildren(...sign, answer?.explanation ?? "");
}

/** Return the buttons at the end of a lesson. @param {Lesson} over */
function endButtons(over) {
  const titles = Object.fromEntries(props.list.map((entry) => [entry.name, entry.title]));
  const save = button("go", { onclick: () => saveSheet(over, answers()) }, "Save my answers");
  const others = over.onward.map((name) => (name.startsWith(RUN) ? recorded(name)
    : button("go", { onclick: () => open(name) }, titles[name])));
  return isFirstPass() ? others : [save, ...others];
}

/** A run to go on with, as the gallery shows it. @param {string} name */
function recorded(name) {
  /** @type {HTMLElement | null} */
  const pick = document.querySelector(`[data-name="${name.slice(RUN.length)}"]`);
  return button("go", {
    onclick: () => {
      close();
      pick?.click();
    },
  }, pick?.querySelector("b")?.textContent ?? "");
}

function buttons() {
  const over = k === lesson?.stops.length;
  show(never, isFirstPass() && !over);
  show(live, isFirstPass());
  show(room, !over);
  put(skip, over ? "Close" : isFirstPass() ? "Skip" : "Leave");
  show(skip, true);
  back.disabled = k === 0;
  next.disabled = false;
  show(unsaid, waits());
  show(next, !over);
  put(next, waits() ? "Check" : k === (lesson?.stops.length ?? 0) - 1 ? "Finish" : "Next");
}

/**
 * Check the prediction, or give it up, and show its outcome.
 * @param {boolean} [givenUp]
 */
async function check(givenUp = false) {
  if (!lesson || !form || !waits() || next.disabled) return; // each prediction is judged once
  const prediction = givenUp ? "" : form.read();
  if (!prediction && !givenUp) {
    put(status, "Predict first; a wrong guess costs nothing.");
    return;
  }
  const isHere = whetherHere();
  const [at, { name }] = [k, lesson];
  next.disabled = true;
  clearFault();
  try {
    ends[at] = await replyOf(server.check({ lesson: name, stop: at, prediction }));
  } catch {
    if (!isHere()) return;
    buttons();
    fail(UNCHECKED);
    return;
  }
  const { right, value, explanation } = ends[at];
  const words = prediction && form.label(prediction);
  const answer = { prediction, words, right, value, explanation };
  remember(name, { answers: { ...progress(name).answers, [at]: answer } });
  if (!isHere()) return;
  if (ends[at].at.query) put(status, DRAWING);
  await move(ends[at]); // The explanation of a figure is never shown with the old figure.
  if (!isHere() || !form) return;
  form.show(prediction, value);
  showOutcome(answer);
  status.scrollIntoView({ block: "nearest" });
  buttons();
  QAlignLearn.onturn();
  next.focus({ preventScroll: true });
}

/** @param {{ at: Place, highlight: string }} to */
async function move({ at, highlight }) {
  const isHere = whetherHere();
  const api = player();
  if (!lesson) return;
  const line = lesson.runs[at.run] ?? "";
  makeRoom();
  if (isApart() && at.page !== "watch") return light(""); // the presenter shows its exhibit
  if (at.page === "watch" && api && !api.text.startsWith(line)) {
    let run = "";
    try {
      run = await replyOf(server.run(at.run));
    } catch {
      light("");
      if (isHere()) fail(NO_RUN);
      return;
    }
    if (!isHere()) return; // a stop reached since then shows another run
    api.open(run, "Recorded run");
    /** @type {any} */ (window).QAlignShell?.adopt(); // A page of homework has no shell.
  }
  const drawing = goTo(at, lead);
  const veil = waits() ? lesson.stops[k].ask?.veil : "";
  if (drawing && at.page === "results") {
    light(highlight, veil || highlight, DRAWING); // it may take seconds
  }
  await drawing;
  if (isHere()) light(highlight, veil);
}

/** Have the page scroll so that the panel does not cover the highlight. */
function makeRoom() {
  const above = getComputedStyle(panel).position === "sticky" ? panel.offsetHeight : 0;
  document.documentElement.style.scrollPaddingTop = `${above + 8}px`;
}

// the list of lessons, on its page
/** @type {HTMLElement | null} */
let listed = null;

/** @param {Entry} entry */
function row({ name, title: heading, summary, minutes, stops }) {
  const { at, done, answers: byStop } = progress(name);
  const all = Object.values(byStop);
  const right = all.filter((answer) => answer.right).length;
  const state = done ? "done" : at ? `at ${at + 1} of ${stops}` : `${stops} stops`;
  const score = all.length ? `, ${right} of ${all.length} predicted right` : "";
  return h("li", h("h3", heading), h("p", summary),
    h("span.state", `${minutes} min · ${state}${score}`),
    button("go", { onclick: () => open(name), aria: `${done ? "Again" : "Start"}: ${heading}` },
      done ? "Again" : at ? "Go on" : "Start"));
}

function listAll() {
  listed?.replaceChildren(h("ol.list", ...props.list.map(row)));
}

/** The functions that Gradio's components call. */
export const QAlignLearn = {
  /** A lesson opens by itself, so the recorded run waits for it. */
  waits: Boolean(linked) || isFirst,
  /** True until the lesson of the link can be shown. */
  get isAwaited() {
    return isAwaited;
  },
  /** What did not load, and what to do; else "". */
  get fault() {
    return fault.textContent;
  },
  /** Called when a stop is left, reached or answered. */
  onturn() {},
  /** @returns {Now | null} */
  get now() {
    if (!lesson) return null;
    const { stops } = lesson;
    const stop = stops[Math.min(k, stops.length - 1)];
    const { at, highlight } = ends[Math.min(k, stops.length - 1)] ?? stop;
    return { lesson, k, stop, over: k === stops.length, answer: answers()[k], at, highlight };
  },
  /** The Lab or Results has drawn what a query asks for. */
  arrived: (/** @type {string} */ page, /** @type {string} */ query) => arrived(page, query),
  /** As the buttons of the panel, except that the outcome is shown without a prediction. */
  on: () => (waits() ? check(true) : turn(k + 1)),
  back: () => turn(k - 1),
  again: () => turn(k),
  /** @type {NonNullable<Server["exhibit"]>} */
  exhibit: (place) => replyOf(/** @type {NonNullable<Server["exhibit"]>} */ (
    server.exhibit)(place)),
  /** @type {(initial: Props, calls: Server, trigger: (event: string) => void) => void} */
  mount(initial, calls, trigger) {
    props = initial;
    server = answering(calls);
    lead = (page, settings) => new Promise((done) => {
      arrived = (where, what) => (where === page && what === settings ? done() : undefined);
      const again = props.value === settings;
      props.value = settings;
      if (again) trigger("change"); // Gradio reports a changed value itself.
    });
    const known = props.list.some(({ name }) => name === linked);
    isAwaited = known;
    if (linked && !known) {
      put(fault, `There is no lesson called “${linked.slice(0, 40)}”.`);
      document.body.prepend(fault);
    }
    if (!known) QAlignLearn.onturn();
    const start = () => {
      if (!player()) window.requestAnimationFrame(start);
      else if (known) open(linked, true, Math.trunc(Number(query.get(STOP))) || 0);
      else if (props.first && !linked) open(props.first.name, false);
      else player()?.toggle(!still());
    };
    if (QAlignLearn.waits) start();
    listAll();
  },
  list(/** @type {HTMLElement} */ element) {
    listed = element;
    listAll();
  },
};
