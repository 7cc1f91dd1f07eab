/* The engine of the embedded models, put together: files in, the lines of a trace out. */
import { LlamaNet } from "./llama.js";
import { LanguageModel, Reader, RewardModel } from "./models.js";
import { record } from "./record.js";
import { readSafetensors } from "./safetensors.js";
import { Tokenizer } from "./tokenizer.js";
import { WasmNet } from "./wasm.js";

/**
 * The files of a model.
 * @typedef {object} Files
 * @property {ArrayBuffer} weights model.safetensors
 * @property {import("./llama.js").Config} config config.json
 */
/** @typedef {import("./record.js").Run} Run */

/** A language model and a reward model that share a tokenizer. */
export class Engine {
  /**
   * @param {Files} lm
   * @param {Files} rm
   * @param {import("./tokenizer.js").File} tokenizer tokenizer.json
   * @param {WebAssembly.Module | null} module net.wasm; without it plain JavaScript computes
   */
  constructor(lm, rm, tokenizer, module) {
    const reader = (/** @type {Files} */ { weights, config }) => {
      const read = readSafetensors(weights);
      return new Reader(module ? new WasmNet(module, read, config) : new LlamaNet(read, config));
    };
    this.lm = reader(lm);
    this.rm = new RewardModel(reader(rm));
    this.tokenizer = new Tokenizer(tokenizer);
  }

  /**
   * The models as a run samples them.
   * @param {Run} run
   */
  models(run) {
    for (const { reader } of [this.rm, { reader: this.lm }]) reader.reserve(2 * run.chains + 2);
    return { lm: new LanguageModel(this.lm, this.tokenizer, run), rm: this.rm };
  }

  /**
   * Draw a run.
   * @param {Run} run
   * @returns {Generator<string>} the lines of its trace, as they happen
   */
  record(run) {
    const { lm, rm } = this.models(run);
    return record(lm, rm, run);
  }
}
