/* What a room's page and its server say to one another. Addresses are relative to the page's. */

/** @typedef {{ code: string, token: string, lead: boolean }} Seat a place in a room, or its lead */

const KEY = "qalign-rooms";
const KEPT = 8; // rooms whose places are remembered
const FIRST = 500; // ms before another try
const LONGEST = 8000;

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
 * Follow a room until it is over: what the server tells is handed on; a line that breaks is taken
 * up again. Ends when the server refuses, and says why.
 * @param {Seat} seat
 * @param {(told: any) => boolean} hear whether to go on
 * @param {(joined: boolean) => void} joined
 * @returns {Promise<string>}
 */
export async function follow({ code, token }, hear, joined) {
  let wait = FIRST;
  for (;;) {
    try {
      const answer = await fetch(`room/follow?code=${code}`, {
        headers: { Authorization: `Bearer ${token}` },
        cache: "no-store",
      });
      if (!answer.ok || !answer.body) await read(answer);
      joined(true);
      wait = FIRST;
      const body = /** @type {ReadableStream<Uint8Array>} */ (answer.body);
      for await (const told of events(body)) if (!hear(told)) return "";
    } catch (error) {
      if (error instanceof Refusal) return error.message;
    }
    joined(false);
    await new Promise((resolve) => window.setTimeout(resolve, wait));
    wait = Math.min(LONGEST, 1.6 * wait);
  }
}

/** @param {ReadableStream<Uint8Array>} body */
async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
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
