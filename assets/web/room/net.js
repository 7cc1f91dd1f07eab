/* The requests of a room's page. Their addresses are relative to the page's own. */
import { keepValue, readKept } from "../store.js";

/**
 * A place in a room, or its lead; `waiting` is an answer that could not be sent yet.
 * @typedef {{ code: string, token: string, lead: boolean,
 *   waiting?: { stop: number, prediction: string } }} Seat
 */

const KEY = "qalign-rooms";
const KEPT = 8; // rooms whose places are remembered
const FIRST = 500; // ms before another try
const LONGEST = 8000;
const AGAIN = "again"; // why a connection is cut
const SILENT = 25000; // ms without data from a server that sends some every 10 s

/** Shown while the connection is down. */
export const BROKE = "The connection is down. Try again in a moment.";

/** A request that the server refused; the message is the server's sentence. */
export class Refusal extends Error {}

/** Why a request came to nothing, as a sentence. @param {unknown} error */
export const reasonOf = (error) => (error instanceof Refusal ? error.message : BROKE);

/**
 * @param {string} action
 * @param {object} payload
 * @param {string} [token]
 * @returns {Promise<any>}
 */
export async function ask(action, payload, token = "") {
  const answer = await fetch(`room/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(payload),
  });
  return read(answer);
}

/**
 * Return the JSON value of an answer.
 * @param {Response} answer
 */
async function read(answer) {
  if (answer.ok) return answer.json();
  const { detail } = await answer.json().catch(() => ({ detail: "The server did not answer." }));
  throw new Refusal(sentence(String(detail)));
}

/** @param {string} text */
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, ".");

/**
 * Follow a room until it is over. Each message of the server is passed to `receive`, and a broken
 * connection is made again. Returns the server's reason when it refuses.
 * @param {Seat} seat
 * @param {(message: any) => boolean} receive whether to go on
 * @param {(joined: boolean, again: () => void) => void} joined `again` reconnects
 * @param {() => Record<string, string>} options further parameters of the request
 * @returns {Promise<string>}
 */
export async function follow({ code, token }, receive, joined, options = () => ({})) {
  let wait = FIRST;
  for (;;) {
    const line = new AbortController();
    const cut = () => line.abort();
    let silence = 0;
    const restartTimer = () => {
      window.clearTimeout(silence);
      silence = window.setTimeout(cut, SILENT);
    };
    window.addEventListener("offline", cut);
    restartTimer();
    try {
      const query = new URLSearchParams({ code, ...options() });
      const answer = await fetch(`room/follow?${query}`, {
        headers: { Authorization: `Bearer ${token}` },
        cache: "no-store",
        signal: line.signal,
      });
      if (!answer.ok || !answer.body) await read(answer);
      joined(true, () => line.abort(AGAIN));
      wait = FIRST;
      const body = /** @type {ReadableStream<Uint8Array>} */ (answer.body);
      for await (const message of events(body, restartTimer)) if (!receive(message)) return "";
    } catch (error) {
      if (error instanceof Refusal) return error.message;
      // Any other error is a defect of this script.
      if (!line.signal.aborted && !(error instanceof TypeError)) throw error;
    } finally {
      window.clearTimeout(silence);
      window.removeEventListener("offline", cut);
    }
    if (line.signal.reason === AGAIN) continue;
    joined(false, () => {});
    await new Promise((resolve) => {
      window.setTimeout(resolve, wait);
      window.addEventListener("online", resolve, { once: true });
    });
    wait = Math.min(LONGEST, 1.6 * wait);
  }
}

/**
 * @param {ReadableStream<Uint8Array>} body
 * @param {() => void} onData called whenever data arrives
 */
async function* events(body, onData) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onData();
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
  }
}

/** @returns {Seat[]} the places that this browser has, the newest last */
function readSeats() {
  const seats = readKept(KEY, /** @type {Seat[]} */ ([]));
  return Array.isArray(seats) ? seats : [];
}

/** @param {string} code */
export const seatIn = (code) => readSeats().find((seat) => seat.code === code);

/** @param {Seat} seat */
export function keep(seat) {
  const others = readSeats().filter(({ code }) => code !== seat.code);
  keepValue(KEY, [...others, seat].slice(-KEPT));
}

/** @param {string} text a code as it was typed, or as a link has it */
export const plainCode = (text) => text.toUpperCase().replace(/[^A-Z2-9]/g, "");

/** @param {string} code */
export const formatCode = (code) => `${code.slice(0, 4)} ${code.slice(4)}`;

/** The page's own address, as a link to a room. @param {string} code */
export const linkOf = (code) =>
  `${window.location.origin}${window.location.pathname}#${code}`;
