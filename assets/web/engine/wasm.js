/* The same net in WebAssembly (net.c): 1 instance a model, with its own memory. */
import { CHUNK, fuse } from "./llama.js";

/** @typedef {import("./llama.js").Config} Config */
/** @typedef {import("./llama.js").Kept} Kept */
/** @typedef {import("./llama.js").Net} Net */
/** @typedef {import("./safetensors.js").Weights} Weights */

const HEAD_ROWS = 984; // VOCABULARY of net.c

/** @implements {Net} */
export class WasmNet {
  /**
   * Compile-time shapes must be the model's.
   * @param {WebAssembly.Module} module net.wasm
   * @param {Weights} weights
   * @param {Config} config
   */
  constructor(module, weights, config) {
    this.config = config;
    this.net = /** @type {any} */ (new WebAssembly.Instance(module).exports);
    const size = [config.hidden_size, config.intermediate_size, config.num_attention_heads,
      config.num_key_value_heads, config.head_dim, config.num_hidden_layers,
      config.max_position_embeddings, HEAD_ROWS, CHUNK];
    const shape = new Int32Array(this.net.memory.buffer, this.net.shape_at(), size.length);
    if (size.some((wanted, k) => wanted !== shape[k]) || config.vocab_size > HEAD_ROWS
      || config.rms_norm_eps !== 1e-5) {
      throw new Error("net.wasm was built for models of a different shape");
    }
    this.width = config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim;
    const { embed, head, norm, score, cos, sin, layers } = fuse(weights, config);
    const matrices = [embed, head, norm, score ?? norm, cos, sin,
      ...layers.flatMap(({ qkv, out, gateUp, down }) => [qkv, out, gateUp, down])];
    const places = matrices.map((numbers) => this.put(numbers));
    this.at = this.alloc(4 * places.length);
    new Uint32Array(this.net.memory.buffer, this.at).set(places);
    this.last = 0; // the row of the last token that was read
  }

  /** @param {number} bytes */
  alloc(bytes) {
    const at = this.net.alloc(bytes);
    if (!at) throw new Error("there is too little memory for the model");
    return at;
  }

  /** @param {Float32Array} numbers */
  put(numbers) {
    const at = this.alloc(4 * numbers.length);
    new Float32Array(this.net.memory.buffer, at).set(numbers);
    return at;
  }

  /** @returns {Kept} */
  keep() {
    const n = this.config.max_position_embeddings * this.width;
    const at = this.alloc(4 * n);
    const { memory } = this.net;
    // memory that grows takes its views away, so each use has a view of its own
    return { at, get numbers() {
      return new Float32Array(memory.buffer, at, n);
    } };
  }

  /**
   * @param {Kept} kept
   * @param {number[]} tokens
   * @param {number} start
   */
  read(kept, tokens, start) {
    const { net } = this;
    for (let at = start; at < tokens.length; at += CHUNK) {
      const chunk = tokens.slice(at, at + CHUNK);
      new Int32Array(net.memory.buffer, net.tokens_at(), CHUNK).set(chunk);
      net.read(this.at, kept.at, at, chunk.length);
      this.last = chunk.length - 1;
    }
  }

  logits() {
    const { net } = this;
    net.head(this.at, this.last);
    return new Float32Array(net.memory.buffer, net.logits_at(), this.config.vocab_size);
  }

  score() {
    return this.net.score(this.at, this.last);
  }
}
