/* The Compare page's panel: lays out the view that the server wrote (words and numbers are its
   own), moves along the ladder of budgets, and saves downloads. */
import { put, show, swap } from "../dom.js";
import { saveFile } from "../files.js";
import { openPage } from "../page.js";
import { card, h } from "./card.js";
import { link } from "../shell/address.js";
import { partsOf } from "../shell/links.js";

/**
 * A step of the ladder: a part of the draws and what each method makes of it.
 * @typedef {object} Rung
 * @property {number} t
 * @property {number} n
 * @property {string} conclusion who says what
 * @property {string} line what is made equal
 * @property {string} waits what is not
 * @property {import("./card.js").Card[]} cards
 */
/**
 * @typedef {object} View
 * @property {string} state live, done, stopped or recorded
 * @property {string} budget
 * @property {Record<string, Rung[]>} ladders by budget
 * @property {string} prompt
 * @property {string | null} reference
 * @property {boolean} open_ended a text is what is chosen, no answer
 * @property {string} accounting what is counted as compute
 * @property {{ done: number, of: number, text: string }} progress
 * @property {string[]} texts
 */
/**
 * @typedef {object} Acts
 * @property {(at: { budget: string, t: number, n: number }) => void} cut another part is looked at
 * @property {(kind: string) => void} save
 */

const BUDGETS = [["flops", "Equal compute"], ["samples", "Equal samples"]];
const COPY = "Copy link";
const MORE = ["Show the texts and the costs", "Hide the texts and the costs"];
const ELSEWHERE = "?tab=results";
const WAITING = "Press Compare to run every method on this problem.";
const WASTE = "Each rejected proposal counts with probability α, and the state with 1 − α";

let hasOwnProblem = "prompt" in partsOf(new URLSearchParams(window.location.search)).compare;
let expected = "";
let ranked = "";

// whoever writes a problem here, or has one written, asked for it
for (const [happens, where] of [["input", "#compare-prompt, #compare-reference"],
  ["click", "#compare-new"]]) {
  document.addEventListener(happens, ({ target }) => {
    hasOwnProblem ||= Boolean(/** @type {Element} */ (target).closest?.(where));
  });
}

/** Results as a link, which opens without loading the page again. */
const results = () => h("a", {
  href: ELSEWHERE,
  onclick(/** @type {Event} */ event) {
    event.preventDefault();
    openPage("results");
  },
}, "See Results");

/** @param {HTMLButtonElement} button */
async function copyLink(button) {
  try {
    await navigator.clipboard.writeText(link());
    put(button, "Link copied");
  } catch {
    put(button, "Copy it from the address bar");
  }
}

/**
 * A panel in `host`.
 * @param {HTMLElement} host
 * @param {Acts} acts
 */
function mount(host, { cut, save }) {
  /** @type {View | null} */
  let data = null;
  let budget = "flops";
  /** @type {number | null} */
  let at = null; // the rung; the last one, if it is none
  let recycled = false;
  let stopped = false;
  let begun = false; // a run whose first draws have not come

  const prompt = h("h2.prompt");
  const known = h("p.right-one");
  const note = h("p.note", { hidden: true });
  const meter = h("progress", { max: 1, value: 0, aria: "Drawn so far" });
  const progressText = h("span");
  const progress = h("div.progress", meter, progressText);
  const conclusion = h("strong", { "aria-live": "polite" });
  const rank = h("span");
  const conclusionLine = h("p.conclusion", conclusion, " ", rank, " ", results());
  const line = h("p.line");
  const accounting = h("p.accounting");
  const switches = BUDGETS.map(([value, words]) =>
    h("button", { type: "button", value, onclick: () => choose(value) }, words));
  const aria = "How much of the compute is used";
  const slider = h("input.n", { type: "range", min: 0, step: 1, aria });
  const scale = h("div.scale", h("span", "less"), slider, h("span", "all of it"));
  const bench = h("div.budget", line,
    h("div.switch", { role: "group", aria: "Equal for all methods" }, ...switches), scale,
    accounting);
  const columns = h("div.columns");
  const more = h("button.more", { type: "button", "aria-expanded": "false" }, MORE[0]);
  const waste = h("input.waste", { type: "checkbox" });
  const saves = ["csv", "json"].map((kind) => h(`button.save-${kind}`,
    { type: "button", onclick: () => save(kind) }, `Download ${kind.toUpperCase()}`));
  const copy = /** @type {HTMLButtonElement} */ (
    h("button.link", {
      type: "button",
      onclick: () => copyLink(copy),
      onblur: () => put(copy, COPY),
    }, COPY));
  const tools = h("div.tools", more,
    h("label", { title: WASTE }, waste, "Count rejected proposals too (waste recycling)"),
    h("span.spacer"), ...saves, copy);
  host.classList.add("qc");
  host.replaceChildren(prompt, known, note, progress, conclusionLine, bench, columns, tools);

  const rungs = () => data?.ladders[budget] ?? [];
  const rung = () => rungs()[at ?? rungs().length - 1];

  function tell() {
    if (rung()) cut({ budget, t: rung().t, n: rung().n });
  }
  function choose(/** @type {string} */ next) {
    budget = next;
    at = null;
    draw();
    tell();
  }
  slider.addEventListener("input", () => {
    const k = Number(slider.value);
    at = k === rungs().length - 1 ? null : k;
    draw();
  });
  slider.addEventListener("change", tell);
  more.addEventListener("click", () => {
    const open = host.classList.toggle("qc-open");
    more.setAttribute("aria-expanded", String(open));
    put(more, MORE[Number(open)]);
  });
  waste.addEventListener("change", () => {
    recycled = waste.checked;
    draw();
  });

  /** A text that someone has scrolled stays where it is while new samples arrive. */
  function drawCards(/** @type {Rung} */ here, /** @type {string[]} */ texts) {
    const boxes = () => [...columns.querySelectorAll(".qc-text")];
    const scrolled = boxes().map((box) => ({ text: box.textContent, top: box.scrollTop }));
    columns.style.setProperty("--methods", String(here.cards.length));
    swap(columns, ...here.cards.map((one) => card(one, texts, recycled)));
    boxes().forEach((box, k) => {
      if (scrolled[k]?.text === box.textContent) box.scrollTop = scrolled[k].top;
    });
  }
  function drawBench(/** @type {Rung} */ here, /** @type {View} */ view) {
    put(conclusion, here.conclusion);
    put(rank, ranked);
    put(line, here.line);
    put(accounting, `${view.accounting} ${here.waits}`);
    for (const one of switches) {
      one.setAttribute("aria-pressed", String(one.value === budget));
      one.disabled = !view.ladders[one.value];
    }
    slider.max = String(Math.max(rungs().length - 1, 0));
    slider.value = String(at ?? rungs().length - 1);
    slider.setAttribute("aria-valuetext", here.line);
    show(scale, rungs().length > 1);
  }
  function draw() {
    if (!data) return;
    put(copy, COPY);
    if (!data.ladders[budget]) budget = data.budget;
    const live = data.state === "live" && !stopped;
    const other = expected !== "" && !live && !begun && expected !== data.prompt.trim();
    const sentence = other ? WAITING : "";
    put(prompt, other ? expected : data.prompt);
    put(known, other || data.reference === null ? "" : `The right answer is ${data.reference}.`);
    put(note, sentence);
    show(note, sentence);
    show(progress, live);
    meter.max = data.progress.of;
    meter.value = data.progress.done;
    put(progressText, data.progress.text);
    const here = other ? undefined : rung();
    for (const part of [conclusionLine, bench, columns]) show(part, here);
    show(tools, here && data.state !== "live");
    host.dataset.state = live ? "live" : other ? "waiting" : data.state;
    if (!here) return;
    drawBench(here, data);
    drawCards(here, data.texts);
    host.classList.toggle("qc-texts", data.open_ended);
    host.dataset.n = String(here.n);
  }

  return {
    /** Show what the server wrote. */
    view(/** @type {string} */ text) {
      /** @type {View} */
      let next;
      try {
        next = JSON.parse(text);
      } catch {
        return;
      }
      if (stopped && next.state === "live") return;
      stopped = begun = false;
      if (next.state === "live" || !data || data.state === "live") {
        budget = next.budget;
        at = null;
      }
      data = next;
      draw();
    },
    stop() {
      stopped = data?.state === "live";
      begun = false;
      draw();
    },
    start() {
      stopped = false;
      begun = true;
    },
    draw,
    get state() {
      return { data, budget, at };
    },
  };
}

/** What Gradio's events and components call. */
export const QAlignCompare = {
  mount,
  /**
   * A problem that is chosen on Watch is Compare's too, until somebody asks for another one there.
   * @template T
   * @param {T[]} watched its prompt, answer, and how that is read
   * @param {T[]} own what Compare holds of them
   */
  follow: (watched, own) =>
    (hasOwnProblem || /** @type {any} */ (window).QAlignShell.isAdopted(String(watched[0]))
      ? own : watched),
  /** What whole sets say of the methods. */
  rank(/** @type {string} */ text) {
    ranked = text;
    QAlignCompare.panel()?.draw();
  },
  /** The problem that the next comparison is drawn for. */
  expect(/** @type {string} */ problem) {
    expected = problem.trim();
    QAlignCompare.panel()?.draw();
  },
  /** Hand a text to the visitor as a file. */
  download(/** @type {string} */ name, /** @type {string} */ text) {
    saveFile(name, name.endsWith(".csv") ? "text/csv" : "application/json", text);
  },
  /** @returns {ReturnType<typeof mount> | undefined} */
  panel: () => /** @type {any} */ (document.querySelector("#compare-panel .qc"))?.qalignCompare,
};
