/* The byte-level BPE of assets/models/lm/tokenizer.json, and the models' chat template. */

// \s and \d of JavaScript are other sets than those of the tokenizers library
const WORDS = / ?\p{Nd}| ?\p{L}+| ?[^\p{White_Space}\p{L}\p{Nd}]|\p{White_Space}/gu;
const UNFINISHED = "\ufffd"; // what stands for bytes that are no character (yet)

/**
 * @typedef {object} File tokenizer.json
 * @property {{ vocab: Record<string, number>, merges: [string, string][] }} model
 * @property {{ content: string, id: number }[]} added_tokens
 */

export class Tokenizer {
  /** @param {File} file */
  constructor({ model, added_tokens: special }) {
    this.ids = new Map(Object.entries(model.vocab));
    this.ranks = new Map(model.merges.map((pair, rank) => [pair.join(" "), rank]));
    this.special = new Map(special.map(({ content, id }) => [content, id]));
    const quoted = special.map(({ content }) => content.replace(/[^\w<>]/g, "\\$&"));
    this.specials = new RegExp(`(${quoted.join("|")})`);
    this.letters = byteLetters();
    /** @type {Map<number, string>} */
    this.names = new Map([...this.special].map(([name, id]) => [id, name]));
    const byteOf = new Map(this.letters.map((letter, byte) => [letter, byte]));
    /** @type {Map<number, number[]>} */
    this.bytes = new Map([...this.ids].map(([token, id]) =>
      [id, [...token].map((letter) => Number(byteOf.get(letter)))]));
    /** @type {Map<string, number[]>} */
    this.known = new Map(); // ids of words
  }

  /**
   * Ids of a text; names of special tokens in it are these tokens.
   * @param {string} text
   */
  encode(text) {
    return text.split(this.specials).flatMap((part) => {
      const id = this.special.get(part);
      return id === undefined ? [...part.matchAll(WORDS)].flatMap(([word]) => this.word(word)) : id;
    });
  }

  /**
   * Ids of a conversation of one user turn, ending where the assistant's text begins.
   * @param {string} text
   */
  prompt(text) {
    return this.encode(`<bos><user>${text}<assistant>`);
  }

  /**
   * Merge pairs of parts, the lowest rank first, until no pair is left.
   * @param {string} word
   */
  word(word) {
    const known = this.known.get(word);
    if (known) return known;
    const parts = Array.from(new TextEncoder().encode(word), (byte) => this.letters[byte]);
    const rank = (/** @type {number} */ k) =>
      this.ranks.get(`${parts[k]} ${parts[k + 1]}`) ?? Infinity;
    for (;;) {
      let best = 0;
      for (let k = 1; k + 1 < parts.length; k++) if (rank(k) < rank(best)) best = k;
      if (rank(best) === Infinity) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    const ids = parts.map((part) => Number(this.ids.get(part)));
    this.known.set(word, ids);
    return ids;
  }

  /**
   * The text of ids without special tokens, and the text of each id. A token that ends inside a
   * character has the piece of the characters that it completes; a special token its name.
   * @param {number[]} tokens
   * @returns {{ text: string, pieces: string[] }}
   */
  decode(tokens) {
    const ordinary = tokens.filter((id) => !this.names.has(id));
    const text = utf8(ordinary.flatMap((id) => this.bytes.get(id) ?? []));
    /** @type {number[]} */
    let waiting = [];
    let n = 0;
    const pieces = tokens.map((id) => {
      const name = this.names.get(id);
      if (name !== undefined) return name;
      waiting.push(...this.bytes.get(id) ?? []);
      const piece = utf8(waiting);
      n += 1;
      if (piece.endsWith(UNFINISHED) && n < ordinary.length) return "";
      waiting = [];
      return piece;
    });
    return { text, pieces };
  }
}

/** @param {number[]} bytes */
const utf8 = (bytes) =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));

/** The letter that stands for each byte: bytes that cannot be seen have letters from 256 on. */
function byteLetters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const seen = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(seen ? byte : next++);
  });
}
