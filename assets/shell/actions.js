/* What can be done with the player's trace. */
import { chooseFile, saveFile } from "../files.js";
import { link } from "./address.js";
import { LIMITS, TraceError } from "../player/parse.js";

/** @typedef {import("../player/player.js").Player} Player */

const END = '{"type":"end","reason":"stopped","message":""}\n';

/** @param {Player} player */
export function downloadTrace({ trace, text }) {
  const name = `qalign-seed-${trace.header.seed ?? 0}.jsonl`;
  saveFile(name, "application/x-ndjson", text, trace.end ? "" : END);
}

/**
 * @param {Player} player
 * @param {() => void} opened told when a file has taken the place of the run
 */
export function openTrace(player, opened) {
  chooseFile(".jsonl,.ndjson,.json,.txt", async (file) => {
    try {
      if (file.size > LIMITS.characters) throw new TraceError("It is larger than 16 MB.");
      player.open(await file.text(), "Opened file");
      opened();
    } catch (error) {
      player.tell(`This file was not opened. ${/** @type {Error} */ (error).message}`);
    }
  });
}

/**
 * @param {Player} player
 * @param {string} what the link has, as a sentence
 */
export async function copyLink(player, what) {
  const address = link();
  try {
    await window.navigator.clipboard.writeText(address);
    player.tell(`The link is on the clipboard. ${what}`.trim());
  } catch {
    player.tell(`${what} Copy this link: ${address}`.trim());
  }
}
