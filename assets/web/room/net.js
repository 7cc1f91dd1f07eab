/* What a room's page and its server say to one another. Addresses are relative to the page's. */

/**
 * A place in a room, or its lead; `waiting` is an answer that could not be sent yet.
 * @typedef {{ code: string, token: string, lead: boolean,
 *   waiting?: { stop: number, said: string } }} Seat
 */

const KEY = "qalign-rooms";
const KEPT = 8; // rooms whose places are remembered
const FIRST = 500; // ms before another try
const LONGEST = 8000;
const AGAIN = "again"; // why a connection is cut
const SILENT = 25000; // ms without a word of a server that sends one every 10 s

/** What a screen says while its connection is down. */
export const BROKE = "The connection is down. Try again in a moment.";

/** What the server refused, in its own sentence. */
export class Refusal extends Error {}

/**
 * @param {string} what
 * @param {object} said
 * @param {string} [token]
 * @returns {Promise<any>}
 */
export async function ask(what, said, token = "") {
  const answer = await fetch(`room/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(said),
  });
  return read(answer);
}

/**
 * What an answer holds.
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
 * Follow a room until it is over: what the server sends is handed on, and a connection that breaks
 * is made again. Ends when the server refuses, with its reason.
 * @param {Seat} seat
 * @param {(told: any) => boolean} hear whether to go on
 * @param {(joined: boolean, again: () => void) => void} joined `again` makes the connection anew
 * @param {() => boolean} draws whether this browser draws the member's chain
 * @returns {Promise<string>}
 */
export async function follow({ code, token }, hear, joined, draws = () => false) {
  let wait = FIRST;
  for (;;) {
    const line = new AbortController();
    const cut = () => line.abort();
    let silence = 0;
    const heard = () => {
      window.clearTimeout(silence);
      silence = window.setTimeout(cut, SILENT);
    };
    window.addEventListener("offline", cut);
    heard();
    try {
      const answer = await fetch(`room/follow?code=${code}&draws=${Number(draws())}`, {
        headers: { Authorization: `Bearer ${token}` },
        cache: "no-store",
        signal: line.signal,
      });
      if (!answer.ok || !answer.body) await read(answer);
      joined(true, () => line.abort(AGAIN));
      wait = FIRST;
      const body = /** @type {ReadableStream<Uint8Array>} */ (answer.body);
      for await (const told of events(body, heard)) if (!hear(told)) return "";
    } catch (error) {
      if (error instanceof Refusal) return error.message;
      if (!line.signal.aborted && !(error instanceof TypeError)) throw error; // a defect of ours
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
 * @param {() => void} heard called with whatever arrives
 */
async function* events(body, heard) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
  }
}

/** @returns {Seat[]} the places that this browser has, the newest last */
function kept() {
  try {
    const found = JSON.parse(window.localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/** @param {string} code */
export const seatIn = (code) => kept().find((seat) => seat.code === code);

/** @param {Seat} seat */
export function keep(seat) {
  const others = kept().filter(({ code }) => code !== seat.code);
  try {
    window.localStorage.setItem(KEY, JSON.stringify([...others, seat].slice(-KEPT)));
  } catch {
    // a browser that keeps nothing: the place lasts as long as the page
  }
}

/** @param {string} text a code as it was typed, or stands in a link */
export const plainCode = (text) => text.toUpperCase().replace(/[^A-Z2-9]/g, "");

/** @param {string} code */
export const shownCode = (code) => `${code.slice(0, 4)} ${code.slice(4)}`;

/** The page's own address, as a link to a room. @param {string} code */
export const linkOf = (code) =>
  `${window.location.origin}${window.location.pathname}#${code}`;
