/* The presenter's view: text, chance, votes and one figure, large enough for the last row of a
   room. It is a mode of the page, not a second player: attributes of the root select the parts,
   presenter.css lays out the player's own parts, and keys that the view does not use go to the
   player. A lesson has its words in a column of their own. Stops that are not about a step or a run
   show their exhibit, as a room does. */
import { builder, put } from "../dom.js";
import { later } from "../later.js";
import { QAlignLearn } from "../learn/learn.js";
import { setApart } from "../learn/memory.js";
import { openPage, player } from "../page.js";
import { KEYS } from "../player/transport.js";
import { share } from "../shell/address.js";
import { PRESENT } from "../shell/links.js";
import { BACK, FORWARD, keyTable } from "./keys.js";
import { afterTitle, notesWindow } from "./notes.js";
import { phaseAfter } from "./phases.js";

/** @typedef {import("../learn/learn.js").Now} Now */

const own = builder("pr-");
const { h } = own;
const root = document.documentElement;
/** The figures, of which one is shown, and where they are: "more" is the open tab of the player. */
const FIGURES = {
  votes: "[data-stage=votes]",
  trace: "[data-stage=trace]",
  time: ".qp-histogram",
  rate: ".qp-rate",
  whatif: ".qp-whatif",
  more: ".qp-view",
};
const STEP = "step"; // of a lesson: the texts of a step, and its numbers
const EXHIBIT = "exhibit"; // of a lesson: a stop that is not about a step or a run
const PROBLEM = "[data-stage=problem]"; // what a stop about the model's own samples highlights
const SIZE = [1280, 720]; // for which presenter.css is written
const DRAWS = /** @type {const} */ (["exhibit.js", "drawExhibit"]);
const FIGURE = { width: 690, height: 290, size: 26 }; // in an exhibit
/** The marks of options: no letters or numbers, which may be answers. */
const MARKS = ["▲", "◆", "●", "■", "★"];
const LOADING = "The lesson is loading…";
const NO_FIGURE = "The figure did not load because the server did not answer; press Page ↑ and "
  + "Page ↓ to try again.";
const BLOCKED = "The browser did not open a second window: allow pop-ups and press S.";

const isOn = () => line.isConnected;
const stage = () => /** @type {HTMLElement} */ (document.querySelector("#watch-player .qp"));
const notes = notesWindow(onKey);
const playerObserver = new MutationObserver(follow);
let isPassing = false; // a key to the player
/** @type {Element | null} the element that had the focus before */
let before = null;

const words = h("main.words", { aria: "Stop" });
const exhibit = h("section.exhibit", { aria: "Figure" });
exhibit.classList.add("room-exhibit");
const where = h("span");
const count = h("span.count");
const status = h("p", { role: "status" });
const dot = h("i.dot");

const keys = keyTable(own, [
  ["PageDown", "Page ↓", `${FORWARD}phase`, () => (QAlignLearn.now ? QAlignLearn.on() : phase(1))],
  ["PageUp", "Page ↑", BACK, () => (QAlignLearn.now ? QAlignLearn.back() : phase(-1))],
  ["ArrowDown", "↓", "next phase; on other pages, scroll down", () => down(1)],
  ["ArrowUp", "↑", "previous phase; scroll up", () => down(-1)],
  ["f", "F", "another figure", figure],
  ["d", "D", "pointer: a large dot instead of the mouse", () => root.toggleAttribute("data-dot")],
  ["s", "S", "notes and the next stop, in a second window", openNotes],
  ["Escape", "Esc", "leave", leave],
],
h("h2", "Keys of the player"),
h("dl", ...KEYS.slice(0, -2).flatMap(([key, what]) => [h("dt", key), h("dd", what)])));
const line = h("section.line", { aria: "Presenter" }, where, status, count, keys.help);

/** @param {number} by */
function phase(by) {
  const api = player();
  if (!api || QAlignLearn.isAwaited) return;
  const to = phaseAfter(api.position, by, api.position.last);
  api.seek(to.t);
  if (to.t) api.goPhase(to.phase);
}

/** @param {number} by */
function down(by) {
  const page = [...document.querySelectorAll(".tabitem")].find((each) => each.clientHeight);
  if (root.dataset.page === "watch") phase(by);
  else page?.scrollBy({ top: (by * page.clientHeight) / 3 });
}

/** Show the next figure. */
function figure() {
  const { present = "" } = root.dataset;
  if (present === EXHIBIT) return; // while a lesson loads too
  const there = Object.entries(FIGURES).filter(([, selector]) =>
    stage().querySelector(`${selector}:not([hidden])`)).map(([name]) => name);
  const all = QAlignLearn.now ? [STEP, ...there] : there.slice(1); // without one the votes stay
  root.dataset.present = all[(all.indexOf(present) + 1) % all.length];
}

function openNotes() {
  put(status, notes.open() ? "" : BLOCKED);
  follow();
}

/**
 * The words of a stop: its text and its question, or the question and its answer.
 * @param {Now} now
 */
function stopNodes({ lesson, stop: { title, text, ask }, answer, over }) {
  if (over) return [h("h1", afterTitle(lesson.title, "summary")), h("p", lesson.end),
    h("ul", ...lesson.learnt.map(([term]) => h("li", h("i", "▸"), term)))];
  if (!ask) return [h("h1", title), h("p", text)];
  if (!answer) {
    const options = ask.options.map(([, name], k) =>
      h("li", h("i", MARKS[k % MARKS.length]), name));
    return [h("h1", title), h("p", text), h("p.ask", ask.question), h("ul", ...options)];
  }
  const right = ask.options.find(([value]) => value === answer.value)?.[1] ?? answer.value;
  return [h("h1", title), h("p", ask.question),
    h("p.right", `✓ ${right}${ask.unit && !right.endsWith(ask.unit)
      ? ask.unit : ""}`), h("p", answer.explanation)];
}

/** Show the words and the figure of a stop that is left, reached or answered. */
async function showStop() {
  if (!isOn()) return;
  const { now, isAwaited, fault } = QAlignLearn;
  root.toggleAttribute("data-lesson", Boolean(now || isAwaited || fault));
  words.replaceChildren(...(now ? stopNodes(now) : isAwaited ? [h("h1", LOADING)] : []),
    ...(fault ? [h("p", { role: "alert" }, fault)] : []));
  root.dataset.page = now?.at.page ?? "watch";
  const highlighted = Object.entries(FIGURES)
    .find(([, selector]) => selector === now?.highlight)?.[0];
  const isHidden = now?.stop.ask?.veil && !now.answer;
  const isAway = now?.at.page !== "watch" || now.highlight === PROBLEM;
  if (isAwaited || (now && (isAway || isHidden))) root.dataset.present = EXHIBIT;
  else if (now) root.dataset.present = highlighted ?? STEP;
  else if (!Object.hasOwn(FIGURES, root.dataset.present ?? "")) root.dataset.present = "trace";
  follow();
  if (root.dataset.present !== EXHIBIT || !now) return;
  const place = { lesson: now.lesson.name, stop: Math.min(now.k, now.lesson.stops.length - 1),
    answered: now.over || Boolean(now.answer) };
  /** @type {(Node | string)[]} */
  let nodes = [h("p", { role: "alert" }, NO_FIGURE)];
  try {
    const [data, draw] = await Promise.all([QAlignLearn.exhibit(place), later(...DRAWS)]);
    nodes = draw(data, FIGURE);
  } catch {} // the sentence says so
  if (JSON.stringify(QAlignLearn.now) === JSON.stringify(now)) {
    exhibit.replaceChildren(...nodes);
    exhibit.dataset.stop = JSON.stringify(place);
  }
}

/** Show in the line below and in the notes where the player is. */
function follow() {
  const api = player();
  const { now } = QAlignLearn;
  if (!api || !isOn()) return;
  const { t, last } = api.position;
  put(where, now ? afterTitle(now.lesson.title, now.over ? "the end" : now.stop.title) : "");
  const isStep = root.dataset.present !== EXHIBIT;
  put(count, isStep ? `Step ${Math.max(0, t)} of ${Math.max(0, last)}` : "");
  notes.tell(now, api);
}

function fit() {
  const [wide, high] = [window.innerWidth / SIZE[0], window.innerHeight / SIZE[1]];
  root.style.setProperty("--u", String(Math.min(wide, high)));
}

/** Begin, as soon as there is a player. */
function enter() {
  if (isOn()) return;
  root.dataset.present ??= "trace";
  if (!player()) {
    window.requestAnimationFrame(enter);
    return;
  }
  before = document.activeElement;
  fit();
  document.body.append(words, exhibit, line, dot, keys.list);
  window.addEventListener("resize", fit);
  playerObserver.observe(stage(), { attributeFilter: ["data-t", "data-phase"] });
  share(PRESENT, 1);
  setApart(true);
  if (!QAlignLearn.now) openPage("watch");
  QAlignLearn.again();
  player()?.toggle(false);
  showStop();
  stage().focus({ preventScroll: true });
}

function leave() {
  for (const node of [words, exhibit, line, dot, keys.list]) node.remove();
  for (const name of ["present", "page", "dot", "lesson"]) delete root.dataset[name];
  window.removeEventListener("resize", fit);
  playerObserver.disconnect();
  notes.close();
  share(PRESENT, "");
  setApart(false);
  QAlignLearn.again();
  /** @type {HTMLElement | null} */ (before)?.focus({ preventScroll: true });
}

/**
 * Pass a key to the player, wherever the focus is; returns whether the player used it.
 * @param {KeyboardEvent} event
 */
function passToPlayer({ key, shiftKey }) {
  isPassing = true;
  const free = stage().dispatchEvent(new KeyboardEvent("keydown",
    { key, shiftKey, bubbles: true, cancelable: true }));
  isPassing = false;
  return !free;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const { key, ctrlKey, metaKey, altKey } = event;
  if (isPassing || ctrlKey || metaKey || altKey) return;
  if (!isOn()) {
    const on = /** @type {Element} */ (event.target);
    if (key.toLowerCase() === "p" && on.closest(".qp, .learn-panel")
      && !on.closest("input, select")) enter();
    return;
  }
  const isFree = !keys.press(key) && (QAlignLearn.isAwaited || !passToPlayer(event));
  if (!isFree) event.preventDefault();
  if (!isFree || QAlignLearn.isAwaited) event.stopPropagation();
}

document.addEventListener("keydown", onKey, true);
document.addEventListener("pointermove", ({ clientX, clientY }) => {
  if (isOn()) dot.style.translate = `${clientX}px ${clientY}px`;
});
window.addEventListener("pagehide", notes.close);
QAlignLearn.onturn = showStop;
if (new URLSearchParams(window.location.search).has(PRESENT)) enter();

export const QAlignPresenter = { enter };
