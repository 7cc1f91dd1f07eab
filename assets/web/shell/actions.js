/* What can be done with the player's trace. */
import { put } from "../dom.js";
import { chooseFile, saveFile } from "../files.js";
import { later } from "../later.js";
import { link } from "./address.js";
import { LIMITS, TraceError } from "../player/parse.js";

/** @typedef {import("../player/player.js").Player} Player */
/** @typedef {import("../export/export.js").Tell} Tell */

const END = '{"type":"end","reason":"stopped","message":""}\n';

/** @typedef {{ before: string, behind: string } | { error: string }} Around */
/** @typedef {{ header: string, run: string, live: boolean }} PageRequest */
/** @typedef {{ page_parts: (request: PageRequest) => Promise<Around> }} PageMaker */

/** @param {Player} player */
const fileName = ({ trace }) => `qalign-seed-${trace.header.seed ?? 0}`;

/** What saves. */
export const saver = () => later("save.js", "QAlignSave");

/** @param {Player} player */
export function downloadTrace(player) {
  const { trace, text } = player;
  saveFile(`${fileName(player)}.jsonl`, "application/x-ndjson", text, trace.end ? "" : END);
}

/**
 * One file that plays the trace from a disk; the server says what stands around it.
 * @param {Player} player
 * @param {PageMaker} server
 * @param {string} run its name in the gallery, if it is there
 * @param {boolean} live whether the file draws new runs too
 * @param {Tell} tell
 */
export async function savePage(player, server, run, live, tell) {
  const text = player.text;
  const header = text.slice(0, text.indexOf("\n"));
  const reply = await server.page_parts({ header, run, live });
  if ("error" in reply) {
    tell(`The page was not saved. ${reply.error}`);
    return;
  }
  // as qalign_study/export/player.py: in JSON a "<" stands in strings alone
  const data = text.replaceAll("<", "\\u003c");
  saveFile(`${fileName(player)}.html`, "text/html", reply.before, data, reply.behind);
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
      document.querySelector(".qp-note")?.scrollIntoView({ block: "nearest" });
    }
  });
}

/**
 * @param {string} what the link has, as a sentence
 * @param {Tell} tell
 */
export async function copyLink(what, tell) {
  const address = link();
  try {
    await window.navigator.clipboard.writeText(address);
    tell(`The link was copied. ${what}`.trim());
  } catch {
    tell(`${what} Copy this link: ${address}`.trim());
  }
}

/** Buttons under a figure save that (components/common/saving.py). */
export function listenForFigures() {
  document.addEventListener("click", async ({ target }) => {
    const pressed = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (target).closest("[data-save]"));
    if (!pressed) return;
    const { save, figure } = pressed.dataset;
    const place = document.querySelector(`#${figure}`);
    try {
      await (await saver()).figure(place, save, figure);
    } catch {
      put(pressed, "Not saved: try again");
    }
  });
}
