/* The engine in a Web Worker. It gets the models once, then runs; it answers with the lines of each
   run's trace. Between two lines it looks for messages, so that Stop is noticed at once. */
import { Engine } from "./engine.js";

/** @typedef {import("./engine.js").Files} Files */
/** @typedef {import("./record.js").Run} Run */
/**
 * @typedef {object} Load
 * @property {"load"} do
 * @property {Files} lm
 * @property {Files} rm
 * @property {import("./tokenizer.js").File} tokenizer
 * @property {ArrayBuffer} wasm
 */
/** @typedef {Load | { do: "draw", id: number, run: Run } | { do: "stop" }} WorkerRequest */
/**
 * @typedef {{ ready: "WebAssembly" | "JavaScript" } | { id: number, line: string }
 *   | { id: number, ended: true } | { failed: string }} WorkerReply
 */

/** @type {Engine} */
let engine;
let current = 0; // the run that is drawn, 0 if none is

/** @param {WorkerReply} reply */
const tell = (reply) => self.postMessage(reply);

/** Let messages in: a timer would wait 4 ms. */
function others() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve(null);
    };
    port2.postMessage(null);
  });
}

/** @param {Load} request */
async function load({ lm, rm, tokenizer, wasm }) {
  const module = await WebAssembly.compile(wasm).catch(() => null); // no SIMD, or not allowed
  engine = new Engine(lm, rm, tokenizer, module);
  tell({ ready: module ? "WebAssembly" : "JavaScript" });
}

/**
 * @param {number} id
 * @param {Run} run
 */
async function draw(id, run) {
  current = id;
  for (const line of engine.record(run)) {
    tell({ id, line });
    await others();
    if (current !== id) return; // stopped, or another run took its place
  }
  tell({ id, ended: true });
}

self.onmessage = async (/** @type {MessageEvent<WorkerRequest>} */ { data }) => {
  try {
    if (data.do === "load") await load(data);
    else if (data.do === "draw") await draw(data.id, data.run);
    else current = 0;
  } catch (error) {
    tell({ failed: /** @type {Error} */ (error).message });
  }
};
