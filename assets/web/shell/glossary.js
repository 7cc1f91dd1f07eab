/* The glossary: a word's meaning beside the word, and all of them in one drawer. */
import { IDEAS } from "../dictionary.js";
import { builder, set } from "../dom.js";
import { openLab } from "../page.js";
import { look } from "./looks.js";

/** @typedef {import("../dictionary.js").Idea} Idea */

const { h, button } = builder("q-");
const HASH = "#glossary";
const SOON = 250; // ms that the pointer rests on a word, or is away from it
const MARGIN = 8; // px to the window's edges

/**
 * A link to the section of the Lab that shows an idea; it opens there, and nothing is loaded again.
 * @param {Idea} idea
 */
function labLink({ lab, link }) {
  return h("a", { href: link, onclick: (/** @type {MouseEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    close();
    drawer.close();
    openLab((radios) => radios.find(({ value }) => value === lab));
  } }, `See it in the Lab: ${lab}`);
}

/**
 * @param {string} id
 * @param {Idea} idea
 */
function heading(id, idea) {
  return [(idea.marker || idea.line) && look(id, idea), h("b", idea.word),
    idea.symbol && h("i", idea.symbol)].filter((part) => part !== "");
}

/** @param {Idea} idea */
const meaning = (idea) => [h("p", idea.sentence), h("p.formula", idea.formula),
  idea.lab && labLink(idea)];

// a word's meaning, beside the word
const box = h("div.meaning", { id: "q-meaning", popover: "manual", role: "note" });
/** @type {HTMLElement | null} */
let open = null; // the word whose meaning is shown
let held = false; // by a press: it stays when the pointer leaves
let pressed = false; // it was held when this press began
let waiting = 0;

/**
 * @param {any} target
 * @returns {HTMLElement | null}
 */
const termAt = (target) => target?.closest?.("[data-term]") ?? null;
/** @param {EventTarget | null} target */
const inside = (target) => termAt(target) === open || box.contains(/** @type {Node} */ (target));

/** @param {HTMLElement} word */
function show(word) {
  window.clearTimeout(waiting);
  const id = word.dataset.term ?? "";
  const idea = IDEAS[id];
  if (word === open || !idea) return;
  close();
  open = word;
  held = false;
  box.replaceChildren(h("p.meaning-head", ...heading(id, idea)), ...meaning(idea));
  word.after(box); // what follows the word for the keyboard
  set(word, { "aria-describedby": box.id });
  box.showPopover?.();
  place();
}

function close() {
  window.clearTimeout(waiting);
  if (!open) return;
  if (box.contains(document.activeElement)) open.focus({ preventScroll: true });
  open.removeAttribute("aria-describedby");
  open = null;
  box.remove();
}

/** Below the word, or above it where there is no room; inside the window, beside its scroll bar. */
function place() {
  if (!open?.isConnected) return close();
  const word = open.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(word.left, document.documentElement.clientWidth - width - MARGIN);
  const below = word.bottom + 4;
  const fits = below + height + MARGIN <= window.innerHeight;
  Object.assign(box.style, {
    left: `${Math.max(MARGIN, left)}px`,
    top: `${fits ? below : Math.max(MARGIN, word.top - height - 4)}px`,
  });
}

/** @param {() => void} act */
function soon(act) {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(act, SOON);
}

// all of them, in one drawer
const list = h("div.glossary-list");
const drawer = h("dialog.glossary", { aria: "Glossary", onclose: forget },
  h("div.glossary-head", h("h2", "Glossary"),
    button("close", { onclick: () => drawer.close() }, "Close")), list);

function fill() {
  const parts = [...new Set(Object.values(IDEAS).map(({ part }) => part))];
  list.replaceChildren(...parts.flatMap((part) => [h("h3", part), h("dl",
    ...Object.entries(IDEAS).filter(([, idea]) => idea.part === part).flatMap(([id, idea]) =>
      [h("dt", { id: `glossary-${id}`, tabindex: -1 }, ...heading(id, idea)),
        h("dd", ...meaning(idea))]))]));
}

/** @param {string} [id] of the idea at which it opens */
function openDrawer(id) {
  close();
  const page = document.querySelector(".gradio-container") ?? document.body;
  if (!drawer.isConnected) page.append(drawer);
  if (!list.firstChild) fill();
  if (!drawer.open) drawer.showModal();
  list.querySelector(`#glossary-${CSS.escape(id ?? "")}`)?.scrollIntoView();
}

/** The address no longer names it. */
function forget() {
  if (!window.location.hash.startsWith(HASH)) return;
  const { pathname, search } = window.location;
  window.history.replaceState(window.history.state, "", pathname + search);
}

/** Open it where the address names it. */
export function follow() {
  const { hash } = window.location;
  if (hash === HASH) openDrawer();
  else if (hash.startsWith(`${HASH}-`)) openDrawer(hash.slice(HASH.length + 1));
}

/** Words answer to the pointer, to the keyboard and to a press, wherever they are. */
export function listen() {
  let rests = ""; // where the pointer is
  // not pointerover: a page that moves brings words under a pointer that rests
  document.addEventListener("pointermove", ({ target, pointerType, clientX, clientY }) => {
    const at = `${clientX} ${clientY}`;
    if (pointerType === "touch" || at === rests) return;
    rests = at;
    const word = termAt(target);
    if (word && word !== open) soon(() => show(word));
    else if (open && inside(target)) window.clearTimeout(waiting);
    else if (open && !held && !open.matches(":focus-visible")) soon(close);
    else if (!open) window.clearTimeout(waiting);
  });
  document.addEventListener("focusin", ({ target }) => {
    const word = termAt(target);
    if (word?.matches(":focus-visible")) show(word);
    else if (open && !inside(target)) close();
  });
  document.addEventListener("pointerdown", ({ target }) => {
    pressed = held && open !== null && termAt(target) === open;
    if (open && !inside(target)) close();
  }, true);
  document.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    const word = termAt(target);
    if (word) {
      if (pressed || (event.detail === 0 && word === open)) return close();
      show(word);
      held = true;
    } else if (target.closest?.("[data-glossary]")) openDrawer();
    else if (target === drawer) drawer.close();
  });
  // before whatever else a press of Escape closes
  window.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !(open || drawer.open)) return;
    event.preventDefault();
    event.stopPropagation();
    if (open) close();
    else drawer.close();
  }, true);
  const follows = () => open && place();
  for (const kind of ["scroll", "resize"]) window.addEventListener(kind, follows, true);
  window.addEventListener("hashchange", follow);
}
