/* The bar of the instructor's view: the stops, their answers and the chains, by press or by key. */
import { put, show } from "../dom.js";
import { BACK, FORWARD, keyTable } from "../presenter/keys.js";
import { button, h } from "./drawing.js";

/** @typedef {import("./lead.js").Scene} Scene */
/**
 * What the instructor can do.
 * @typedef {object} Acts
 * @property {(by: number) => void} turn to another stop
 * @property {(to: Scene) => void} turnTo a scene
 * @property {() => void} forward as a clicker's button asks
 * @property {(restarts?: boolean) => void} play run the chains, pause them or start them again
 * @property {() => void} reveal the answers
 * @property {() => void} step once
 */

/**
 * @param {Acts} acts
 * @param {Record<Scene, string>} scenes their names, in order
 */
export function controlBar(acts, scenes) {
  const back = button("ctl", { onclick: () => acts.turn(-1), aria: "Previous stop" }, "◀");
  const next = button("ctl", { onclick: () => acts.turn(1), aria: "Next stop" }, "▶");
  const stops = h("a.stops", { target: "_blank" });
  const reveal = button("ctl", { onclick: () => acts.reveal() });
  const one = button("ctl", { onclick: () => acts.step() }, "One step");
  const run = button("ctl.main", { onclick: () => acts.play() });
  const table = keyTable({ h, button }, [
    ["PageDown", "Page ↓", `${FORWARD}step of the chains`, () => acts.forward()],
    ["PageUp", "Page ↑", BACK, () => acts.turn(-1)],
    ["ArrowRight", "→", "next stop", () => acts.turn(1)],
    ["ArrowLeft", "←", "previous stop", () => acts.turn(-1)],
    [" ", "Space", "run the chains, or pause them", () => acts.play(false)],
    ["n", "N", "one step of the chains", () => acts.step()],
    ["a", "A", "the answers of a stop, or the right answer of the problem", () => acts.reveal()],
    ...Object.entries(scenes).map(([name, title], k) =>
      /** @type {import("../presenter/keys.js").Act} */ (
        [String(k + 1), String(k + 1), title, () => acts.turnTo(/** @type {Scene} */ (name))])),
  ]);
  const node = h("footer.controls",
    h("div.group", back, stops, next), reveal, h("div.group.right", one, run, table.help));

  /** @param {KeyboardEvent} event */
  function press(event) {
    const on = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || on.matches("input, textarea, select")) {
      return;
    }
    if (event.key === " " && on.matches("button, a")) return;
    if (table.press(event.key)) event.preventDefault();
  }

  /**
   * @param {import("./member.js").RoomState} room
   * @param {{ asks: boolean, isDone: boolean, runs: boolean }} now whether the scene has a
   *   question, all chains are drawn, and they run on by themselves
   */
  function draw(room, { asks, isDone, runs }) {
    const { stop } = room;
    for (const one of [back, next, stops]) show(one, stop);
    put(stops, stop ? `stop ${stop.k + 1} of ${stop.of}` : "");
    if (stop) {
      stops.title = `${stop.lesson}: show it on its page`;
      stops.href = `./?lesson=${stop.name}&stop=${stop.k + 1}&present=1`;
    }
    back.disabled = !stop || stop.k === 0;
    next.disabled = !stop || stop.k === stop.of - 1;
    const open = asks ? room.opened : room.reference !== null;
    reveal.disabled = open;
    show(reveal, asks || room.has_answer);
    put(reveal, asks ? open ? "The answers are shown" : "Show the answers"
      : open ? `The right answer is ${room.reference || "unknown"}` : "Show the right answer");
    put(run, isDone ? "Start again" : runs ? "Pause" : "Run");
  }

  return { node, list: table.list, press, draw };
}
