/* The page's end of the engine: a worker for each reward model, started when it is first needed. */

/** @typedef {import("./record.js").Run} Run */
/** @typedef {import("./worker.js").WorkerReply} Told */
/**
 * Where the worker's script and the models' files come from.
 * @typedef {object} Source
 * @property {() => string} script address of the worker's script
 * @property {(name: string) => Promise<ArrayBuffer>} file its bytes, by its place below assets/
 */
/**
 * Who is told of a run.
 * @typedef {object} Listener
 * @property {(line: string) => void} line a line of the trace, as it happens
 * @property {() => void} ended
 * @property {(sentence: string) => void} failed nothing more will come
 */

/**
 * What shows a run.
 * @typedef {object} Stage
 * @property {(text: string) => void} stream all lines so far
 * @property {(state: string, text: string) => void} say how the run stands
 * @property {(sentence: string) => void} failed nothing more will come
 */

const PATIENCE = 20000; // ms in which a worker that works has read its models, or drawn a line
const TICK = 100; // ms between two updates of a page
/** @type {Record<string, string>} */
const FOLDERS = { embedded: "rm", "embedded-weak": "rm-weak" };

/** @param {string} name */
const address = (name) => new URL(name, document.baseURI).href;

/**
 * Where the app's own pages have it from.
 * @type {Source}
 */
export const SERVED = {
  script: () => address("engine.js"),
  async file(name) {
    const response = await fetch(address(name));
    if (!response.ok) throw new Error("the models could not be fetched");
    return response.arrayBuffer();
  },
};

/** Draws runs in workers, one run at a time. */
export class BrowserEngine {
  /** @param {Source} source */
  constructor(source) {
    this.source = source;
    /** @type {Map<string, Promise<Worker>>} */
    this.workers = new Map(); // by the reward model
    this.n = 0; // of the run that is drawn
    /** @type {Worker | null} */
    this.busy = null; // what draws it
  }

  /** Nothing more is drawn, or told, of the run. */
  stop() {
    this.n += 1;
    this.busy?.postMessage({ do: "stop" });
    this.busy = null;
  }

  /**
   * Draw a run, in place of the one that is drawn now.
   * @param {Run} run
   * @param {Listener} listener
   */
  async draw(run, listener) {
    this.stop();
    const id = this.n;
    let silent = false;
    const fail = (/** @type {string} */ sentence) => {
      window.clearInterval(watch);
      this.workers.delete(run.rm);
      if (this.n !== id) return;
      this.busy?.terminate();
      this.stop();
      listener.failed(sentence);
    };
    // a worker that the browser ends, for its memory for instance, says nothing more
    const watch = window.setInterval(() => {
      if (this.n !== id) window.clearInterval(watch);
      else if (silent) fail("the worker stopped answering");
      silent = true;
    }, PATIENCE);
    try {
      const worker = await this.worker(run.rm);
      if (this.n !== id) return;
      this.busy = worker;
      worker.onmessage = (/** @type {MessageEvent<Told>} */ { data }) => {
        silent = false;
        if ("failed" in data) fail(data.failed);
        else if (!("id" in data) || data.id !== this.n) return;
        else if ("line" in data) listener.line(data.line);
        else {
          window.clearInterval(watch);
          listener.ended();
        }
      };
      worker.onerror = ({ message }) => fail(message);
      worker.postMessage({ do: "draw", id, run });
    } catch (error) {
      fail(/** @type {Error} */ (error).message);
    }
  }

  /**
   * Draw a run and show it as it grows.
   * @param {Run} run
   * @param {Stage} stage
   */
  show(run, { stream, say, failed }) {
    const seed = `seed ${run.seed}`;
    let text = "";
    let steps = 0;
    let began = 0;
    let waiting = 0;
    const update = () => {
      waiting = 0;
      if (this.n !== id) return;
      stream(text);
      const rate = Math.round(1e3 * (steps - 1) / (Date.now() - began));
      const pace = rate > 1 ? `, ${rate} steps per second` : "";
      if (steps) say("sampling", `Sampling in your browser${pace} · ${seed}`);
    };
    this.draw(run, {
      line(line) {
        text += line;
        if (line.includes('"type":"step"')) {
          began ||= Date.now();
          steps += 1;
        }
        waiting ||= window.setTimeout(update, steps > 1 ? TICK : 0);
      },
      ended() {
        window.clearTimeout(waiting);
        update();
        say("finished", `All texts are drawn, in your browser · ${seed}`);
      },
      failed,
    });
    const id = this.n;
  }

  /**
   * A worker that has the models.
   * @param {string} rm
   */
  worker(rm) {
    const worker = this.workers.get(rm) ?? this.start(FOLDERS[rm]);
    this.workers.set(rm, worker);
    return worker;
  }

  /**
   * @param {string} folder of the reward model
   * @returns {Promise<Worker>}
   */
  async start(folder) {
    const { file, script } = this.source;
    const json = async (/** @type {string} */ name) =>
      JSON.parse(new TextDecoder().decode(await file(name)));
    const model = async (/** @type {string} */ at) => ({
      weights: await file(`models/${at}/model.safetensors`),
      config: await json(`models/${at}/config.json`),
    });
    const [lm, rm, tokenizer, wasm] = await Promise.all([model("lm"), model(folder),
      json("models/lm/tokenizer.json"), file("engine/net.wasm")]);
    const worker = new Worker(script());
    return new Promise((resolve, reject) => {
      const give = (/** @type {string} */ reason) => {
        worker.terminate();
        reject(new Error(reason));
      };
      const late = window.setTimeout(() => give("the worker did not answer"), PATIENCE);
      worker.onmessage = (/** @type {MessageEvent<Told>} */ { data }) => {
        window.clearTimeout(late);
        if ("failed" in data) give(data.failed);
        else resolve(worker);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        window.clearTimeout(late);
        give(event.message || "the worker did not start");
      };
      worker.postMessage({ do: "load", lm, rm, tokenizer, wasm }, [lm.weights, rm.weights]);
    });
  }
}
