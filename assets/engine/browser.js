/* The page's end of the engine: a worker for each reward model, started when it is first needed. */

/** @typedef {import("./record.js").Run} Run */
/** @typedef {import("./worker.js").Told} Told */
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

const PATIENCE = 20000; // ms in which a worker that works has read its models
/** @type {Record<string, string>} */
const FOLDERS = { embedded: "rm", "embedded-weak": "rm-weak" };

/** Draws runs in workers, one run at a time. */
export class BrowserEngine {
  /** @param {Source} source */
  constructor(source) {
    this.source = source;
    /** @type {Map<string, Promise<Worker>>} */
    this.workers = new Map(); // by the reward model
    this.n = 0; // runs so far
    this.stop = () => {}; // the run that is drawn
  }

  /**
   * Draw a run, in place of the one that is drawn now.
   * @param {Run} run
   * @param {Listener} listener
   */
  async draw(run, listener) {
    this.stop();
    const id = ++this.n;
    let over = false;
    this.stop = () => {
      over = true;
    };
    const fail = (/** @type {string} */ sentence) => {
      this.workers.delete(run.rm);
      if (!over) listener.failed(sentence);
      over = true;
    };
    try {
      const worker = await this.worker(run.rm);
      if (over) return;
      this.stop = () => {
        over = true;
        worker.postMessage({ do: "stop" });
      };
      worker.onmessage = (/** @type {MessageEvent<Told>} */ { data }) => {
        if ("failed" in data) fail(data.failed);
        else if (over || !("id" in data) || data.id !== id) return;
        else if ("line" in data) listener.line(data.line);
        else listener.ended();
      };
      worker.onerror = ({ message }) => fail(message);
      worker.postMessage({ do: "draw", id, run });
    } catch (error) {
      fail(/** @type {Error} */ (error).message);
    }
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
