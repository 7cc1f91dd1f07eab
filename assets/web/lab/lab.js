/* The Theory lab: a section's words and figures, as the server wrote them. A figure's graph stays
   in the page and takes new data; plotly.js, which is large, is fetched with the first figure. */
import { builder, put } from "../dom.js";
import { openLab } from "../page.js";
import { answering } from "../rpc.js";

const { h } = builder("lab-");

/** @typedef {string | [name: string, attributes: Record<string, string>, ...parts: any[]]} Words */
/** @typedef {{ drawing: string, table: Words }} Figure the drawing is plotly's, as JSON */
/** @typedef {{ words: Words[], figures: Figure[] }} View */

// plotly.js would name clip paths and patterns by the page's address, which changes with the
// settings: then they are not found. A plot that is to be exported names them by their ids alone.
const CONFIG = { _exportedPlot: true };
const UNANSWERED = "The server did not answer; reload the page to try again.";
/** @type {Promise<unknown> | null} */
let plotly = null;
/** plotly.js, once it is there; its module sets the name. */
const drawer = () => /** @type {any} */ (window).Plotly;

/**
 * Nodes for words: texts as they are, elements as the server named them.
 * @param {Words} words
 * @returns {Node | string}
 */
function nodeOf(words) {
  if (typeof words === "string") return words;
  const [name, attributes, ...parts] = words;
  return h(name, attributes, ...parts.map(nodeOf));
}

/**
 * A figure with its table: the functions that show new numbers and a new drawing.
 * @param {Element} section
 */
function figure(section) {
  const graph = /** @type {any} */ (section.querySelector(".lab-plot")); // plotly.js adds `data`
  const details = /** @type {HTMLDetailsElement} */ (section.querySelector("details"));
  const numbers = /** @type {Element} */ (details.lastElementChild);
  /** @type {Words} */
  let table = "";
  let drawing = "";
  let width = 0;

  function tell() {
    if (details.open) numbers.replaceChildren(nodeOf(table));
  }
  function draw() {
    if (!drawing) return;
    const { data, layout } = JSON.parse(drawing);
    graph.style.height = `${layout.height}px`;
    width = graph.offsetWidth;
    layout.width = width;
    if (!width || !drawer()) return;
    if (graph.data) drawer().react(graph, data, layout);
    else drawer().newPlot(graph, data, layout, CONFIG);
  }
  details.addEventListener("toggle", tell);
  // not the window's size alone: what was hidden when it was drawn has a width when it is shown
  new ResizeObserver(() => {
    if (graph.offsetWidth !== width) draw();
  }).observe(graph);
  plotly?.then(draw, () => put(graph, UNANSWERED));
  return {
    tell(/** @type {Words} */ next) {
      table = next;
      tell();
    },
    draw(/** @type {string} */ next) {
      if (next === drawing) return;
      drawing = next;
      draw();
    },
  };
}

/**
 * A section's view in its element.
 * @param {HTMLElement} element Gradio's, with places for the words and for each figure
 * @param {{ value: string, plotly: string }} props
 * @param {(name: string, onChange: () => void) => void} watch
 * @param {{ initial?: (none: null) => Promise<string | object> }} server which has what the section
 *   shows until a setting changes, if it is the one that the page opens with
 */
function mount(element, props, watch, server) {
  // without Gradio's module of it, plotly.js is in the page's head
  plotly ??= props.plotly
    ? import(new URL(props.plotly, document.baseURI).href)
    : Promise.resolve();
  const wordsPlace = /** @type {Element} */ (element.querySelector(".lab-words"));
  const figures = [...element.querySelectorAll(".lab-figure")].map(figure);
  function show(/** @type {string} */ value) {
    if (!value) return;
    /** @type {View} */
    const view = JSON.parse(value);
    wordsPlace.replaceChildren(...view.words.map(nodeOf));
    view.figures.forEach(({ table }, k) => figures[k].tell(table));
    view.figures.forEach(({ drawing }, k) => figures[k].draw(drawing));
  }
  watch("value", () => show(props.value));
  show(props.value);
  if (!props.value) {
    answering(server).initial?.(null).then((reply) => {
      if (props.value) return; // a setting has changed meanwhile
      if (typeof reply === "string") show(reply);
      else put(wordsPlace, UNANSWERED);
    });
  }
}

const ANCHOR = "#lab-section-";

/**
 * Open the section that a link names.
 * @param {string} link as in `href="#lab-section-worth"`
 */
const open = (link) =>
  openLab((radios, anchors) => radios[anchors.indexOf(link.slice(ANCHOR.length))]);

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest?.(`a[href^="${ANCHOR}"]`);
  if (!link) return;
  event.preventDefault();
  open(link.getAttribute("href") ?? "");
});
if (window.location.hash.startsWith(ANCHOR)) {
  open(window.location.hash);
  // the address bar has the open page's state in its query
  const { pathname, search } = window.location;
  window.history.replaceState(window.history.state, "", pathname + search);
}

/** What Gradio's components call. */
export const QAlignLab = { mount };
