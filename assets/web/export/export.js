/* "Save": all that can be taken home of the run that is shown, in one dialog. This script and the
   encoder that it needs are fetched when they are first asked for. */
import { builder, put, show } from "../dom.js";
import { saveFile } from "../files.js";
import { PHASES } from "../player/words.js";
import { MOST, framesOf, makeGif } from "./animation.js";
import { coloursOf, measurer } from "./canvas.js";
import { KINDS, chartsOf, figuresOf, saveDrawing, savePlot } from "./figures.js";
import { COLOURS, drawStep, momentOf, votesFigure } from "./step.js";

/** @typedef {import("../player/player.js").Player} Player */
/** @typedef {(sentence: string) => void} Tell */
/**
 * What the page does itself: each says in a sentence how it went.
 * @typedef {{ link: (tell: Tell) => unknown, page: (live: boolean, tell: Tell) => unknown,
 *   trace: () => unknown, linked: () => Promise<import("../shell/shell.js").Linked> }} Deeds
 */

const { h, button } = builder("qs-");
const SECONDS = [1, 2, 3, 5, 8]; // a step
const USUAL = 3;
const SPAN = 10; // steps that are proposed
const SHARP = 2; // pixels of a step's PNG for one of the drawing: 2560 by 1440

/**
 * A button; what goes wrong when it is pressed is said.
 * @param {string} word
 * @param {string} what it does, where the word alone does not say it
 * @param {() => unknown} act
 * @param {Tell} tell
 */
const does = (word, what, act, tell) => button("", { aria: what, async onclick() {
  tell("");
  try {
    await act();
  } catch (error) {
    tell(`Nothing was saved. ${/** @type {Error} */ (error).message}`);
  }
} }, word);

/**
 * @param {string} title
 * @param {string} sentence
 * @param {...HTMLElement} children
 */
const row = (title, sentence, ...children) => h("section.row", h("h3", title), h("p", sentence),
  h("div.buttons", ...children));

/**
 * Both kinds of a picture.
 * @param {string} title
 * @param {(kind: typeof KINDS[number]) => unknown} act
 * @param {Tell} tell
 */
const both = (title, act, tell) => KINDS.map((kind) =>
  does(kind.toUpperCase(), `${title} as ${kind.toUpperCase()}`, () => act(kind), tell));

/**
 * The range of steps, their pace, and the file that is made of them.
 * @param {{ t: number, last: number }} position
 * @param {string} name of the file
 * @param {(frame: import("./animation.js").Frame) => import("./svg.js").Shape} draw
 * @param {Tell} tell
 */
function animation({ t, last }, name, draw, tell) {
  const first = Math.max(0, Math.min(t, last - SPAN + 1));
  const number = (/** @type {string} */ aria, /** @type {number} */ value) =>
    h("input", { type: "number", min: 0, max: last, value, aria });
  const from = number("First step", first);
  const to = number("Last step", Math.min(last, first + SPAN - 1));
  const pace = h("select", { aria: "Seconds per step" }, ...SECONDS.map((n) =>
    h("option", { value: n, selected: n === USUAL }, `${n} s`)));
  const meter = h("progress", { max: 1, value: 0, aria: "Made so far" });
  const cancel = button("", { onclick: () => stop() }, "Cancel");
  const work = h("div.work", { hidden: true }, meter, cancel);
  /** @type {AbortController | null} */
  let working = null;

  const stop = () => working?.abort();

  async function make() {
    const [a, b] = [from, to].map(({ value }) => Number(value));
    const can = [a, b].every(Number.isInteger) && a >= 0 && a <= b && b <= last && b - a < MOST;
    if (!can) throw new Error(`Choose steps from 0 to ${last}, ${MOST} of them at most.`);
    working = new AbortController();
    meter.value = 0;
    show(work, true);
    maker.disabled = true;
    cancel.focus();
    const { signal } = working;
    try {
      const bytes = await makeGif({
        frames: framesOf(a, b, Number(pace.value)),
        draw,
        signal,
        tell(done) {
          meter.value = done;
        },
      });
      saveFile(`${name}-${a}-to-${b}.gif`, "image/gif", bytes);
      tell(`Saved, ${(new Blob([bytes]).size / 1e6).toFixed(1)} MB.`);
    } catch (error) {
      if (!signal.aborted) throw error;
      tell("Cancelled: nothing was saved.");
    } finally {
      maker.disabled = false;
      if (document.activeElement === cancel) maker.focus();
      show(work, false);
    }
  }

  const maker = does("GIF", "Animation as GIF", make, tell);
  const node = row("Animation", "Each step with its cut, its proposal and its verdict, for slides.",
    h("label", "steps ", from), h("label", "to ", to), h("label", pace, " per step"), maker, work);
  return { node, stop };
}

/**
 * The dialog for what a player shows.
 * @param {Player} player
 * @param {HTMLElement} element its element
 * @param {Deeds} deeds
 */
function open(player, element, deeds) {
  player.toggle(false);
  const { trace } = player;
  const { t, phase, chain, last, burnIn } = player.position;
  const seed = `qalign-seed-${trace.header.seed ?? 0}`;
  const colours = coloursOf(element, COLOURS);
  const wide = measurer();
  const here = momentOf(trace, chain, t, phase, burnIn);
  const figures = [votesFigure(here, colours, wide), ...figuresOf(element, colours, here)];

  const status = h("p.status", { role: "status" });
  const tell = (/** @type {string} */ sentence) => put(status, sentence);
  const animated = animation({ t, last }, `${seed}-steps`, (frame) =>
    drawStep(momentOf(trace, chain, frame.t, frame.phase, burnIn), colours, wide), tell);
  const live = does("HTML that draws", "Page that draws, as HTML", () => deeds.page(true, tell),
    tell);
  const why = h("p");
  live.hidden = true; // until the server has said that a browser can draw this run
  deeds.linked().then((reply) => {
    const reason = "error" in reply ? reply.error : reply.undrawable;
    live.hidden = Boolean(reason);
    put(why, reason ? `No page that draws: ${reason.replace(/\.$/, "")}.`
      : "With the embedded models (5 MB), it can also draw new runs.");
  });
  const dialog = h("dialog.dialog", { aria: "Save", onclose() {
    animated.stop();
    dialog.remove();
  } },
  h("div.top", h("div.head", h("h2", "Save"),
    button("", { onclick: () => dialog.close() }, "Close")), status),
  row("Link", "The link opens this step and can draw the run again.",
    does("Copy link", "Copy link", () => deeds.link(tell), tell)),
  row("Page", "One file that plays the run offline, from a disk or on a slide.",
    does("HTML", "Page as HTML", () => deeds.page(false, tell), tell), live, why),
  row("Trace", "All texts and numbers of the run, for “Open a trace” and the command line.",
    does("JSON lines", "Trace as JSON lines", deeds.trace, tell)),
  row("Step", t ? `Step ${t}, “${PHASES[phase]}”, as a picture for a slide.`
    : "The first draft, as a picture for a slide.", ...both("Step", (kind) =>
    saveDrawing(`${seed}-step-${t}`, drawStep(here, colours, wide), kind, SHARP), tell)),
  animated.node,
  h("section.row", h("h3", "Figures"), h("ul.figures", ...figures.map(({ title, draw }) =>
    h("li", h("span", title), h("div.buttons", ...both(title, (kind) =>
      saveDrawing(`${seed}-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`, draw(), kind),
    tell)))))));
  (element.closest(".gradio-container") ?? document.body).append(dialog); // the pages' colours
  dialog.showModal();
}

/**
 * A figure of a page as a file: a graph of Plotly's, or the charts of a sheet.
 * @param {Element} place what it is in
 * @param {typeof KINDS[number]} kind
 * @param {string} name
 */
async function figure(place, kind, name) {
  const graph = place.matches(".js-plotly-plot") ? place : place.querySelector(".js-plotly-plot");
  if (graph) await savePlot(graph, kind, name);
  else await saveDrawing(name, chartsOf(place), kind);
}

/** What the pages call it by. */
export const QAlignSave = { open, figure };
