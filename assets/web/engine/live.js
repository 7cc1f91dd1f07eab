/* A page that draws by itself: settings of the next run above the player, and the engine with its
   models in the page (qalign_study/export/browser.py). */
import { builder, put } from "../dom.js";
import { BrowserEngine } from "./browser.js";

/** @typedef {import("../player/player.js").Player} Player */
/** @typedef {import("./record.js").Run} Run */
/**
 * What the page carries.
 * @typedef {object} PagePayload
 * @property {Run} run that the page opens with
 * @property {[string, string][]} problems others, each with its answer
 * @property {Record<string, string>} files in base64, by their places below assets/
 * @property {string} worker the worker's script
 */

const { h, button } = builder("ql-");
/** @type {[keyof Run, string, Record<string, number | string>][]} */
const NUMBERS = [
  ["beta", "β", { min: 0.001, max: 1000, step: "any" }],
  ["seed", "Seed", { min: 0, max: 2 ** 31 - 1 }],
  ["steps", "Steps", { min: 1, max: 1024 }],
  ["chains", "Chains", { min: 1, max: 8 }],
  ["pool", "Pool", { min: 0, max: 1024 }],
];

/**
 * How answers to a prompt are read, as `usual_extractor` of qalign_core/run.py.
 * @param {string} prompt
 */
function extractorOf(prompt) {
  if (/^(Please w|W)rite/.test(prompt)) return null;
  return prompt.includes("How many of each") ? "amounts" : "number";
}

/**
 * Put the settings into `element`; returns what draws a run with them.
 * @param {HTMLElement} element
 * @param {() => Player} player
 * @param {PagePayload} payload
 */
function mount(element, player, { run, problems, files, worker }) {
  const engine = new BrowserEngine({
    script: () => URL.createObjectURL(new Blob([worker], { type: "text/javascript" })),
    file: async (name) => Uint8Array.from(atob(files[name]), (c) => c.charCodeAt(0)).buffer,
  });
  let reference = run.reference;
  let next = 0; // of the problems
  const status = h("p.status", { role: "status" }, "This page draws new runs without a network.");
  const prompt = h("textarea.prompt", { aria: "Problem", rows: 2, required: true,
    oninput: () => {
      reference = null; // nobody knows the answer to a changed problem
    } }, run.prompt);
  const inputs = NUMBERS.map(([name, label, range]) => {
    const input = h("input", { type: "number", name, required: true, value: run[name], ...range });
    return { name, input, node: h("label", label, " ", input) };
  });
  const settings = h("details", h("summary", "Settings of the next run"), prompt,
    h("div.row", ...inputs.map(({ node }) => node)));
  const say = (/** @type {string} */ state, /** @type {string} */ text) => {
    form.dataset.state = state;
    put(status, text);
  };
  function draw() {
    if (!form.checkValidity()) settings.setAttribute("open", ""); // what is wrong is inside
    if (!form.reportValidity()) return;
    const numbers = Object.fromEntries(
      inputs.map(({ name, input }) => [name, Number(input.value)]));
    player().expect(null);
    say("loading", "Loading the models…");
    engine.show({ ...run, ...numbers, prompt: prompt.value, reference,
      extractor: extractorOf(prompt.value) }, {
      stream: (text) => player().stream(text),
      say,
      failed: (sentence) => say("failed", `This browser cannot draw here: ${sentence}. Reload `
        + "the page to play its own run."),
    });
  }
  function stop() {
    engine.stop();
    player().stop();
    say("stopped", "Stopped. The steps drawn so far are kept.");
  }
  function pose() {
    [prompt.value, reference] = problems[next];
    next = (next + 1) % problems.length;
    engine.stop();
    say("idle", "");
    player().await(prompt.value);
  }
  const form = h("form", { onsubmit: draw },
    h("div.row", h("button.go", { type: "submit" }, "Run it live"),
      button("", { onclick: stop }, "Stop"), button("", { onclick: pose }, "New problem"), status),
    settings);
  element.replaceChildren(form);
  return { draw };
}

/** What a page that draws calls it by. */
export const QAlignLive = { mount };
