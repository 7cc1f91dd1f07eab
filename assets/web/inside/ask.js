/* Questions to the server about single texts (components/watch/inside.py). */
import { replyOf } from "../rpc.js";

/** @typedef {[text: string, logP: number]} Other */
/** @typedef {[logP: number | null, others: Other[]]} TokenScore */
/** @typedef {import("../player/player.js").Ask} Ask */

const KEPT = 400; // texts

// a newer question of this page ends an older one, and nobody else's
const who = [...window.crypto.getRandomValues(new Uint8Array(8))].join("-");

/**
 * What can be asked about the texts of a trace.
 * @param {Ask} ask
 */
export function scoringClient(ask) {
  /** @type {Map<string, TokenScore[]>} */
  const known = new Map();
  /** @type {(header: string, ids: number[]) => string} */
  const key = (header, ids) => `${header}/${ids.join()}`;
  return {
    /** @type {(header: string, ids: number[]) => TokenScore[] | undefined} */
    known: (header, ids) => known.get(key(header, ids)),
    /**
     * What the model thinks of each token of some texts.
     * @param {string} header the trace's first line
     * @param {number[][]} texts
     * @param {number} [top] likely tokens to tell
     * @returns {Promise<TokenScore[][]>}
     */
    async scoreTokens(header, texts, top = 3) {
      const reply = await replyOf(ask.score({ who, header, texts, top }));
      if (known.size > KEPT) known.clear();
      if (top) texts.forEach((ids, k) => known.set(key(header, ids), reply.texts[k]));
      return reply.texts;
    },
    /**
     * @param {{ header: string, tokens: number[], cut: number, words: string, ends: boolean,
     *   seed: number }} request
     * @returns {Promise<Judged>}
     */
    rewrite: (request) => replyOf(ask.rewrite({ who, ...request })),
  };
}

/**
 * What is known of a text.
 * @typedef {object} Text
 * @property {number[]} tokens
 * @property {string[]} pieces
 * @property {boolean} finished
 * @property {string | null} answer
 * @property {boolean} [right] the verdict of the run's grader, where comparing texts is not enough
 * @property {number} reward
 * @property {number | null} log_prob null for what the model never writes
 * @property {number | null} log_target
 * @property {TokenScore[]} scores
 */
/** @typedef {{ old: Text, new: Text, gain: number | null, log_alpha: number | null,
 *   typed: number }} Judged */
