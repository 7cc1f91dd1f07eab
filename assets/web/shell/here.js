/* Runs of Watch that the visitor's own browser draws (assets/web/engine); where it cannot, the
   server draws the same run. */
import { BrowserEngine, SERVED } from "../engine/browser.js";

/** @typedef {import("../engine/browser.js").Stage} Stage */
/** @typedef {import("../engine/record.js").Run} Run */
const AGAIN = 500; // ms between two presses

let why = ""; // it does not draw
/** @type {number | null} */
let again = null; // the seed of the run that is drawn once more

const engine = new BrowserEngine(SERVED);

/** What the server is told with the settings: whether this browser draws, and if not why. */
export function here() {
  if (typeof Worker !== "function") why = "it has no workers";
  const request = JSON.stringify(again === null ? { why } : { why, seed: again });
  again = null;
  return request;
}

/** Nothing more is drawn here. */
export const stopHere = () => engine.stop();

/**
 * Draw with this seed, whatever the form holds. Press until the server has taken the run: Gradio
 * ignores a press while the one before goes on.
 * @param {number} seed
 * @param {() => void} press "Run it live"
 */
export function drawSeed(seed, press) {
  again = seed;
  const untilTaken = () => {
    if (again === null) return;
    press();
    window.setTimeout(untilTaken, AGAIN);
  };
  untilTaken();
}

/**
 * Draw a run and show it as it grows; where that fails, the server takes over.
 * @param {Run} run
 * @param {Pick<Stage, "stream" | "say">} stage
 * @param {() => void} press "Run it live"
 */
export function drawHere(run, stage, press) {
  engine.show(run, { ...stage, failed(sentence) {
    why = sentence;
    drawSeed(run.seed, press);
  } });
}
