/* A Llama-shaped decoder in plain JavaScript: the reference for net.c, and what runs where
   WebAssembly cannot. Activations are float32 and sums float64, so that a number does not depend on
   how many positions are read at once. */

/** @typedef {import("./safetensors.js").Weights} Weights */
/**
 * The shape of a model, as its config.json has it.
 * @typedef {object} Config
 * @property {number} hidden_size
 * @property {number} intermediate_size
 * @property {number} num_attention_heads
 * @property {number} num_key_value_heads
 * @property {number} num_hidden_layers
 * @property {number} head_dim
 * @property {number} max_position_embeddings
 * @property {number} vocab_size
 * @property {number} rms_norm_eps
 * @property {number} pad_token_id
 * @property {number} bos_token_id
 * @property {number} eos_token_id
 * @property {{ rope_theta: number }} rope_parameters
 */
/**
 * Keys and values of one sequence: those of a position stand side by side, layer by layer.
 * @typedef {object} Kept
 * @property {Float32Array} numbers [positions, layers, keys and values]
 * @property {number} [at] their address in WebAssembly's memory
 */
/**
 * What both nets do.
 * @typedef {object} Net
 * @property {Config} config
 * @property {number} width numbers that are kept of one position
 * @property {() => Kept} keep a place for keys and values
 * @property {(kept: Kept, tokens: number[], start: number) => void} read run the tokens from
 *   `start` on, whose predecessors are kept
 * @property {() => Float32Array} logits of the token after the last one that was read
 * @property {() => number} score reward of the sequence that ends in the last one that was read
 */

export const CHUNK = 64; // positions that are read at once, at most
const HEAD_ROWS = 8; // the head's rows are padded to a multiple of this

/**
 * Weights as both nets multiply with them, in float32: q, k and v in one matrix, gate and up in
 * one, each with the gain of the norm before it.
 * @param {Weights} weights
 * @param {Config} config
 */
export function fuse(weights, config) {
  const { hidden_size: hidden, vocab_size: vocabulary } = config;
  const stacked = (/** @type {string[]} */ names, /** @type {Float32Array} */ gain) => {
    const parts = names.map((name) => weights[`${name}.weight`]);
    const out = new Float32Array(parts.reduce((n, part) => n + part.length, 0));
    let at = 0;
    for (const part of parts) {
      for (let i = 0; i < part.length; i++) out[at++] = part[i] * gain[i % hidden];
    }
    return out;
  };
  const embed = weights["model.embed_tokens.weight"];
  const head = new Float32Array(Math.ceil(vocabulary / HEAD_ROWS) * HEAD_ROWS * hidden);
  head.set(embed);
  const layers = Array.from({ length: config.num_hidden_layers }, (_, k) => {
    const layer = `model.layers.${k}`;
    return {
      qkv: stacked(["q", "k", "v"].map((name) => `${layer}.self_attn.${name}_proj`),
        weights[`${layer}.input_layernorm.weight`]),
      out: weights[`${layer}.self_attn.o_proj.weight`],
      gateUp: stacked(["gate", "up"].map((name) => `${layer}.mlp.${name}_proj`),
        weights[`${layer}.post_attention_layernorm.weight`]),
      down: weights[`${layer}.mlp.down_proj.weight`],
    };
  });
  return { embed, head, norm: weights["model.norm.weight"], score: weights["score.weight"], layers,
    ...rotations(config) };
}

/**
 * Cosine and sine of each position's angles, which are float32 in Python too.
 * @param {Config} config
 */
function rotations({ head_dim: size, max_position_embeddings: positions, rope_parameters }) {
  const half = size / 2;
  const cos = new Float32Array(positions * half);
  const sin = new Float32Array(positions * half);
  for (let i = 0; i < half; i++) {
    const power = Math.fround(rope_parameters.rope_theta ** Math.fround((2 * i) / size));
    const frequency = Math.fround(1 / power);
    for (let position = 0; position < positions; position++) {
      const angle = Math.fround(position * frequency);
      cos[position * half + i] = Math.cos(angle);
      sin[position * half + i] = Math.sin(angle);
    }
  }
  return { cos, sin };
}

/**
 * y[m, nOut] = x[m, nIn] @ w[nOut, nIn].T, plus what is in y if `more`; four outputs at a time.
 * @param {Float32Array} w
 * @param {Float32Array} x
 * @param {Float32Array} y
 * @param {number} m
 * @param {number} nIn
 * @param {number} nOut
 * @param {boolean} more
 */
function product(w, x, y, m, nIn, nOut, more) {
  for (let row = 0; row < m; row++) {
    const from = row * nIn;
    const to = row * nOut;
    for (let o = 0; o < nOut; o += 4) {
      const p = o * nIn;
      const q = p + nIn;
      const r = q + nIn;
      const s = r + nIn;
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      for (let i = 0; i < nIn; i++) {
        const v = x[from + i];
        a += v * w[p + i];
        b += v * w[q + i];
        c += v * w[r + i];
        d += v * w[s + i];
      }
      y[to + o] = more ? y[to + o] + a : a;
      y[to + o + 1] = more ? y[to + o + 1] + b : b;
      y[to + o + 2] = more ? y[to + o + 2] + c : c;
      y[to + o + 3] = more ? y[to + o + 3] + d : d;
    }
  }
}

/** @implements {Net} */
export class LlamaNet {
  /**
   * @param {Weights} weights
   * @param {Config} config
   */
  constructor(weights, config) {
    this.config = config;
    this.weights = fuse(weights, config);
    this.hidden = config.hidden_size;
    this.keys = config.num_key_value_heads * config.head_dim; // numbers in a layer's keys
    this.qkvWidth = config.num_attention_heads * config.head_dim + 2 * this.keys;
    this.width = config.num_hidden_layers * 2 * this.keys;
    const rows = (/** @type {number} */ size) => new Float32Array(CHUNK * size);
    this.x = rows(this.hidden); // the residual stream
    this.unit = rows(this.hidden); // x divided by its root mean square
    this.qkv = rows(this.qkvWidth);
    this.mixed = rows(this.hidden); // what attention returns
    this.gateUp = rows(2 * config.intermediate_size);
    this.activated = rows(config.intermediate_size);
    this.attention = new Float64Array(config.max_position_embeddings); // one head's weights
    this.sums = new Float64Array(config.head_dim);
    this.out = new Float32Array(this.weights.head.length / this.hidden);
    this.last = 0; // the row of the last token that was read
  }

  /** @returns {Kept} */
  keep() {
    return { numbers: new Float32Array(this.config.max_position_embeddings * this.width) };
  }

  /**
   * @param {Kept} kept
   * @param {number[]} tokens
   * @param {number} start
   */
  read(kept, tokens, start) {
    for (let at = start; at < tokens.length; at += CHUNK) {
      const chunk = tokens.slice(at, at + CHUNK);
      this.readChunk(kept.numbers, chunk, at);
      this.last = chunk.length - 1;
    }
  }

  logits() {
    const { hidden, last, out } = this;
    const state = this.unit.subarray(last * hidden, (last + 1) * hidden);
    product(this.weights.head, state, out, 1, hidden, out.length, false);
    return out.subarray(0, this.config.vocab_size);
  }

  score() {
    let total = 0;
    for (let i = 0; i < this.hidden; i++) {
      total += this.unit[this.last * this.hidden + i] * this.weights.score[i];
    }
    return Math.fround(total);
  }

  /**
   * Tokens at positions start, start + 1, ...; their final hidden states are left in `unit`.
   * @param {Float32Array} kept
   * @param {number[]} tokens
   * @param {number} start
   */
  readChunk(kept, tokens, start) {
    const { x, unit, qkv, mixed, gateUp, activated, hidden, weights, config } = this;
    const { intermediate_size: ff } = config;
    const m = tokens.length;
    tokens.forEach((token, row) =>
      x.set(weights.embed.subarray(token * hidden, (token + 1) * hidden), row * hidden));
    weights.layers.forEach((layer, k) => {
      this.normalize(m);
      product(layer.qkv, unit, qkv, m, hidden, this.qkvWidth, false);
      this.rotateAndKeep(kept, k, start, m);
      for (let row = 0; row < m; row++) this.attend(kept, k, start + row, row);
      product(layer.out, mixed, x, m, hidden, hidden, true);
      this.normalize(m);
      product(layer.gateUp, unit, gateUp, m, hidden, 2 * ff, false);
      for (let row = 0; row < m; row++) { // silu(gate) * up
        for (let i = 0; i < ff; i++) {
          const gate = gateUp[row * 2 * ff + i];
          activated[row * ff + i] = gate / (1 + Math.exp(-gate)) * gateUp[row * 2 * ff + ff + i];
        }
      }
      product(layer.down, activated, x, m, ff, hidden, true);
    });
    this.normalize(m);
    for (let i = 0; i < m * hidden; i++) unit[i] *= weights.norm[i % hidden];
  }

  /**
   * Each row of x divided by its root mean square; the next weights hold the norm's gain.
   * @param {number} m
   */
  normalize(m) {
    const { x, unit, hidden } = this;
    for (let row = 0; row < m; row++) {
      const at = row * hidden;
      let squares = 0;
      for (let i = 0; i < hidden; i++) squares += x[at + i] * x[at + i];
      const scale = 1 / Math.sqrt(squares / hidden + this.config.rms_norm_eps);
      for (let i = 0; i < hidden; i++) unit[at + i] = x[at + i] * scale;
    }
  }

  /**
   * Turn queries and keys by their position, and keep keys and values.
   * @param {Float32Array} kept
   * @param {number} layer
   * @param {number} start
   * @param {number} m
   */
  rotateAndKeep(kept, layer, start, m) {
    const { qkv, keys, qkvWidth, width, weights: { cos, sin } } = this;
    const { head_dim: size, num_attention_heads: heads, num_key_value_heads: kvHeads }
      = this.config;
    const half = size / 2;
    for (let row = 0; row < m; row++) {
      const angles = (start + row) * half;
      for (let head = 0; head < heads + kvHeads; head++) {
        const at = row * qkvWidth + head * size;
        for (let i = 0; i < half; i++) {
          const a = qkv[at + i];
          const b = qkv[at + half + i];
          qkv[at + i] = a * cos[angles + i] - b * sin[angles + i];
          qkv[at + half + i] = b * cos[angles + i] + a * sin[angles + i];
        }
      }
      const from = row * qkvWidth + heads * size;
      kept.set(qkv.subarray(from, from + 2 * keys), (start + row) * width + layer * 2 * keys);
    }
  }

  /**
   * softmax(q k) v of every head at one position, over all positions up to it.
   * @param {Float32Array} kept
   * @param {number} layer
   * @param {number} position
   * @param {number} row
   */
  attend(kept, layer, position, row) {
    const { qkv, mixed, attention, sums, keys, width, hidden, qkvWidth } = this;
    const { head_dim: size, num_attention_heads: heads, num_key_value_heads: kvHeads }
      = this.config;
    const scale = size ** -0.5;
    for (let head = 0; head < heads; head++) {
      const query = row * qkvWidth + head * size;
      const shared = Math.floor(head * kvHeads / heads); // heads that share keys stand together
      const first = layer * 2 * keys + shared * size;
      let most = -Infinity;
      for (let p = 0, k = first; p <= position; p++, k += width) {
        let dot = 0;
        for (let i = 0; i < size; i++) dot += qkv[query + i] * kept[k + i];
        attention[p] = dot * scale;
        most = Math.max(most, attention[p]);
      }
      let total = 0;
      sums.fill(0);
      for (let p = 0, v = first + keys; p <= position; p++, v += width) {
        const weight = Math.exp(attention[p] - most);
        total += weight;
        for (let i = 0; i < size; i++) sums[i] += weight * kept[v + i];
      }
      for (let i = 0; i < size; i++) mixed[row * hidden + head * size + i] = sums[i] / total;
    }
  }
}
