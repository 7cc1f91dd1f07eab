/* The embedded models as the chain sees them: one continues a response, one scores it. */
import { uniforms } from "./randomness.js";

/** @typedef {import("./llama.js").Kept} Kept */
/** @typedef {import("./llama.js").Net} Net */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {{ kept: Kept, tokens: number[] }} Place tokens that were read, and what is kept */
/**
 * How the base LM is sampled.
 * @typedef {object} Sampling
 * @property {number} temperature
 * @property {number} max_new_tokens the limit on the length of a response, EOS included
 */
/**
 * @typedef {object} Response
 * @property {number[]} tokens EOS included
 * @property {string} text
 * @property {string[]} pieces the text of each token
 * @property {boolean} finished whether EOS ended it; else the limit did
 * @property {number[]} logProbs natural log of the probability of each token; of those that
 *   `extend` drew, as it returns them
 */

/** A net that remembers what it read: a sequence is read on from the longest kept beginning. */
export class Reader {
  /** @param {Net} net */
  constructor(net) {
    this.net = net;
    /** @type {Place[]} */
    this.places = []; // the least recently used first
  }

  /**
   * Remember at least so many sequences.
   * @param {number} n
   */
  reserve(n) {
    while (this.places.length < n) this.places.unshift({ kept: this.net.keep(), tokens: [] });
  }

  /**
   * A place that holds as much of the beginning of `tokens` as any does, but not the last token.
   * @param {number[]} tokens
   * @returns {Place}
   */
  open(tokens) {
    const { places, net: { width } } = this;
    const shared = places.map((place) => nShared(place.tokens, tokens.slice(0, -1)));
    const n = Math.max(...shared);
    const source = places[shared.indexOf(n)];
    const place = places[places[0] === source ? 1 : 0];
    place.kept.numbers.set(source.kept.numbers.subarray(0, n * width));
    place.tokens = tokens.slice(0, n);
    this.places = [...places.filter((one) => one !== source && one !== place), source, place];
    return place;
  }

  /**
   * Read the rest of `tokens`; the net then has the logits, or the score, after the last one.
   * @param {Place} place
   * @param {number[]} tokens
   */
  read(place, tokens) {
    this.net.read(place.kept, tokens, place.tokens.length);
    place.tokens = [...tokens];
  }
}

/**
 * How many tokens two sequences have in common from their beginning.
 * @param {number[]} a
 * @param {number[]} b
 */
function nShared(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/**
 * Cumulative probabilities of the next token: float32 probabilities, summed in float64.
 * @param {Float32Array} logits
 * @param {number} temperature
 */
export function cumulative(logits, temperature) {
  const divisor = Math.fround(temperature);
  const p = logits.map((logit) => logit / divisor);
  const most = p.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (let i = 0; i < p.length; i++) sum += p[i] = Math.exp(p[i] - most);
  const cdf = new Float64Array(p.length);
  let total = 0;
  for (let i = 0; i < p.length; i++) cdf[i] = total += Math.fround(p[i] / sum);
  if (!(total > 0)) throw new Error("the model computed numbers that are not finite");
  return cdf;
}

/**
 * Invert a distribution function at u: the first token whose cumulative probability is above.
 * @param {Float64Array} cdf its last value is the total
 * @param {number} u in [0, 1)
 */
export function invert(cdf, u) {
  const target = u * cdf[cdf.length - 1];
  let low = 0;
  let high = cdf.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cdf[middle] > target) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The language model as sampled. */
export class LanguageModel {
  /**
   * @param {Reader} reader
   * @param {Tokenizer} tokenizer
   * @param {Sampling} sampling
   */
  constructor(reader, tokenizer, sampling) {
    this.reader = reader;
    this.tokenizer = tokenizer;
    this.sampling = sampling;
    this.config = reader.net.config;
  }

  /**
   * The prompt `x`: the chat template, ending where the response begins.
   * @param {string} prompt
   */
  encode(prompt) {
    if (!prompt.trim()) throw new Error("the prompt is empty; type a question or a task");
    const ids = this.tokenizer.prompt(prompt);
    const { max_position_embeddings: context } = this.config;
    const { max_new_tokens: limit } = this.sampling;
    if (ids.length + limit > context) {
      throw new Error(`the prompt has ${ids.length} tokens and the response may have ${limit}, `
        + `together more than the context of ${context}; shorten the prompt or lower `
        + "the setting max_new_tokens");
    }
    return ids;
  }

  /**
   * Cumulative probabilities of the token after a prefix of a response.
   * @param {number[]} promptIds
   * @param {number[]} prefix
   */
  law(promptIds, prefix) {
    const tokens = [...promptIds, ...prefix];
    this.reader.read(this.reader.open(tokens), tokens);
    return cumulative(this.reader.net.logits(), this.sampling.temperature);
  }

  /**
   * Draw `y_{i:} ~ p_LM(. | x, y_{<i})` and return all of `y`.
   * @param {number[]} promptIds
   * @param {number[]} prefix
   * @param {bigint} seed
   * @returns {Response}
   */
  extend(promptIds, prefix, seed) {
    const { reader, config: { eos_token_id: eos } } = this;
    const { temperature, max_new_tokens: limit } = this.sampling;
    const u = uniforms(seed);
    const read = [...promptIds, ...prefix];
    const tokens = [...prefix];
    const logProbs = [];
    const place = reader.open(read);
    let finished = false;
    while (!finished && tokens.length < limit) {
      reader.read(place, read);
      const cdf = cumulative(reader.net.logits(), temperature);
      const token = invert(cdf, u(tokens.length));
      logProbs.push(Math.log((cdf[token] - (cdf[token - 1] ?? 0)) / cdf[cdf.length - 1]));
      read.push(token);
      tokens.push(token);
      finished = token === eos;
    }
    return { tokens, finished, logProbs, ...this.tokenizer.decode(tokens) };
  }
}

/** A reward model that reads the language model's own ids. */
export class RewardModel {
  /** @param {Reader} reader */
  constructor(reader) {
    this.reader = reader;
    this.config = reader.net.config;
  }

  /**
   * The reward `r(x, y)`: one finite number.
   * @param {number[]} promptIds
   * @param {number[]} tokens
   */
  score(promptIds, tokens) {
    const read = [...promptIds, ...tokens];
    // transformers pools the last id that is not padding, wherever it stands
    while (read.length > 1 && read[read.length - 1] === this.config.pad_token_id) read.pop();
    this.reader.read(this.reader.open(read), read);
    const reward = this.reader.net.score();
    if (!Number.isFinite(reward)) {
      throw new Error(`the reward model returned ${reward}; one finite number was expected`);
    }
    return reward;
  }
}
