/* One step of the run that is shown, drawn again by the server (components/watch/inside.py). */
import { brief } from "../player/words.js";

/** @typedef {{ tokens: number[], reward: number, accepted: boolean }} Redrawn */

// a newer request of this page ends an older one, and nobody else's
const who = [...window.crypto.getRandomValues(new Uint8Array(8))].join("-");

/**
 * Draw a step again, and report in one sentence whether it is the same.
 * @param {(request: object) => Promise<Redrawn | { error: string }>} call
 * @param {{ text: string }} player that shows it
 * @param {import("../player/drawing.js").View} view
 */
export async function redraw(call, { text }, { chain, t }) {
  const step = chain.steps[t];
  const header = text.slice(0, text.indexOf("\n"));
  const tokens = t ? chain.steps[step.old].ids : [];
  const reply = await call({ who, header, chain: chain.id, t, tokens });
  if ("error" in reply) return reply.error;
  const isSame = reply.accepted === step.accepted && String(reply.tokens) === String(step.ids);
  if (!isSame) return "Drawn again, it differs: this server’s models are not those of the run.";
  const gap = Math.abs(reply.reward - step.reward);
  const reward = gap ? ` The reward differs by ${brief(gap, 1)}.` : "";
  return `Drawn again: same text, same verdict.${reward}`;
}
