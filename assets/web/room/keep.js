/* A class as a file: a table, or a page with its figures that opens the class again. */
import { saveFile } from "../files.js";
import { many } from "../player/words.js";
import { drawClass, drawSaid, drawVotes, h } from "./drawing.js";

/**
 * What the server keeps of a class (components/room/snapshot.py).
 * @typedef {object} Kept
 * @property {object} session
 * @property {string} table
 * @property {{ title: string, ask: import("../learn/ask.js").Question, said: [string, number][],
 *   value: string | null, says: string }[]} stops
 */

const [WIDTH, HEIGHT] = [1000, 420];
const VOTES = { class: "The class, pooled", base: "The model alone", target: "The target" };

/**
 * @param {string} kind page or table
 * @param {Kept} kept
 * @param {import("./member.js").RoomTold} room
 * @param {{ figures: import("./lead.js").Figures, chains: Map<number, number[]>,
 *   single: number }} drawn
 */
export function saveClass(kind, { session, table, stops }, room, { figures, chains, single }) {
  const name = `qalign-class-${room.code}`;
  if (kind === "table") {
    saveFile(`${name}.csv`, "text/csv", table);
    return;
  }
  const { base = [], weights = [], worth = 0, votes = {}, trust } = figures;
  const said = stops.map(({ title, ask, said: given, value, says }) => h("section.card",
    h("h2", title), h("p.asked", ask.question), drawSaid(ask, given, value ?? undefined),
    h("p", says)));
  const names = { ...VOTES, base: `${VOTES.base}, ${many(base.length, "sample")}` };
  const bars = Object.entries(names).map(([key, called]) => h("div", h("h2", called),
    drawVotes(votes[key] ?? [], room.reference)));
  const style = document.querySelector("style")?.textContent ?? "";
  const main = h("main.page", h("h1", `Class ${room.code}, ${
    new Date().toISOString().slice(0, 10)}`), h("p", room.prompt),
  h("p", `${many(chains.size, "chain")}, β = ${room.beta}. ${trust?.says ?? ""}`),
  drawClass({ chains, base, weights, worth, steps: room.steps, single }, WIDTH, HEIGHT),
  ...bars, ...said);
  const held = encodeURIComponent(JSON.stringify(session));
  // a style is no XML: it is written as it is
  saveFile(`${name}.html`, "text/html", `<!doctype html><html lang="en" data-session="${held}">`,
    `<meta charset="utf-8"><title>Class ${room.code}</title><style>${style}</style>`,
    new XMLSerializer().serializeToString(main));
}

/**
 * The session that a saved page holds; null if it is another file.
 * @param {File} file
 */
export async function sessionIn(file) {
  const [, session = "null"] = /data-session="([^"]+)"/.exec(await file.text()) ?? [];
  return JSON.parse(decodeURIComponent(session));
}
