/* Runs of Watch that the visitor's own browser draws (assets/engine); where it cannot, the server
   draws the same run. */
import { BrowserEngine } from "../engine/browser.js";

/** @typedef {import("../engine/record.js").Run} Run */
/**
 * What shows a run.
 * @typedef {object} Stage
 * @property {(text: string) => void} stream all lines so far
 * @property {(state: string, text: string) => void} say in the status line
 * @property {() => void} press "Run it live"
 */

const TICK = 100; // ms between two updates of the page

let why = ""; // it does not draw
/** @type {number | null} */
let again = null; // the seed of the run that the server takes over
let waiting = 0; // for the next update of the page

/** @param {string} name */
const address = (name) => new URL(name, document.baseURI).href;
const engine = new BrowserEngine({
  script: () => address("engine.js"),
  async file(name) {
    const found = await fetch(address(name));
    if (!found.ok) throw new Error("the models could not be fetched");
    return found.arrayBuffer();
  },
});

/** What the server is told with the settings: whether this browser draws, and if not why. */
export function here() {
  if (typeof Worker !== "function") why = "it has no workers";
  const said = JSON.stringify(again === null ? { why } : { why, seed: again });
  again = null;
  return said;
}

/** Nothing more is drawn here. */
export function stopHere() {
  engine.stop();
  window.clearTimeout(waiting);
  waiting = 0;
}

/**
 * Draw a run, and show it as it grows.
 * @param {Run} run
 * @param {Stage} stage
 */
export function drawHere(run, { stream, say, press }) {
  let text = "";
  let steps = 0;
  let began = 0;
  const seed = `seed ${run.seed}`;
  const show = () => {
    waiting = 0;
    stream(text);
    const rate = Math.round(1e3 * (steps - 1) / (Date.now() - began));
    if (steps) say("sampling", `Sampling in your browser at ${rate || 1} steps/s · ${seed}`);
  };
  engine.draw(run, {
    line(line) {
      text += line;
      if (line.includes('"type":"step"')) {
        began ||= Date.now();
        steps += 1;
      }
      waiting ||= window.setTimeout(show, steps > 1 ? TICK : 0);
    },
    ended() {
      stopHere();
      show();
      say("finished", `Finished, drawn in your browser · ${seed}`);
    },
    failed(sentence) {
      stopHere();
      why = sentence;
      again = run.seed;
      press();
    },
  });
}
