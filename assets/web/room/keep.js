/* A class as a file: a table, or a page with its figures that opens the class again. */
import { saveFile } from "../files.js";
import { many } from "../player/words.js";
import { drawClass, drawKey, drawPredictions, drawVotes, h } from "./drawing.js";

/**
 * A class as the server saves it (components/room/snapshot.py).
 * @typedef {object} SavedClass
 * @property {{ members: { number: number, name: string }[] }} session
 * @property {string} table
 * @property {{ title: string, ask: import("../learn/ask.js").Question,
 *   predictions: [string, number][], value: string | null, explanation: string }[]} stops
 */

const [WIDTH, HEIGHT] = [1000, 420];
const VOTES = { class: "The class, pooled", base: "The model alone", target: "The target" };

/**
 * @param {string} kind page or table
 * @param {SavedClass} saved
 * @param {import("./member.js").RoomState} room
 * @param {{ figures: import("./lead.js").Figures, chains: Map<number, number[]>,
 *   single: number }} figureData
 */
export function saveClass(kind, { session, table, stops }, room, { figures, chains, single }) {
  const name = `qalign-class-${room.code}`;
  if (kind === "table") {
    saveFile(`${name}.csv`, "text/csv", table);
    return;
  }
  const { base = [], weights = [], worth = 0, votes = {}, trust } = figures;
  const cards = stops.map(({ title, ask, predictions, value, explanation }) => h("section.card",
    h("h2", title), h("p.ask", ask.question), drawPredictions(ask, predictions, value ?? undefined),
    h("p", explanation)));
  const names = { ...VOTES, base: `${VOTES.base}, ${many(base.length, "sample")}` };
  const bars = Object.entries(names).map(([key, heading]) => h("div", h("h2", heading),
    drawVotes(votes[key] ?? [], room.right)));
  const style = document.querySelector("style")?.textContent ?? "";
  const main = h("main.page", h("h1", `Class ${room.code}, ${
    new Date().toISOString().slice(0, 10)}`), h("p", room.prompt),
  h("p", `${many(chains.size, "chain")}, β = ${room.beta}. ${trust?.sentence ?? ""}`),
  h("div.row", h("h2", "The reward of each chain"), drawKey()),
  drawClass({ chains, base, weights, worth, steps: room.steps, single }, WIDTH, HEIGHT),
  room.named ? h("p.names", `Chains by name: ${session.members.map(({ number, name }) =>
    `${number} ${name || "(no name)"}`).join(", ")}`) : null, ...bars, ...cards);
  const data = encodeURIComponent(JSON.stringify(session));
  // A style is not XML, so it is written without serializing.
  saveFile(`${name}.html`, "text/html", `<!doctype html><html lang="en" data-session="${data}">`,
    `<meta charset="utf-8"><title>Class ${room.code}</title><style>${style}</style>`,
    new XMLSerializer().serializeToString(main));
}

/**
 * Return the session that a saved page holds; null for any other file.
 * @param {File} file
 */
export async function sessionIn(file) {
  const [, session = "null"] = /data-session="([^"]+)"/.exec(await file.text()) ?? [];
  return JSON.parse(decodeURIComponent(session));
}
