/* The instructor's view: one scene at a time, large enough for the last row. */
import { put, show } from "../dom.js";
import { gameScene } from "./contest.js";
import { controlBar } from "./controls.js";
import { button, h } from "./drawing.js";
import { joinScene } from "./join.js";
import { saveClass } from "./keep.js";
import { farewell } from "./member.js";
import { BROKE, ask, follow, formatCode, reasonOf } from "./net.js";
import { questionScene } from "./question.js";
import { classScene } from "./sampler.js";
import { settings } from "./settings.js";

/** @typedef {import("./net.js").Seat} Seat */
/** @typedef {import("./member.js").RoomState} RoomState */
/**
 * The state of the class as the server sends it to the instructor (`class_message`).
 * @typedef {object} ClassState
 * @property {number} members
 * @property {number} here
 * @property {number} most
 * @property {boolean} door
 * @property {[string, number][]} predictions
 * @property {number} expected members who are here or have answered
 * @property {number} minutes
 * @property {number} drafts
 * @property {number} done
 * @property {number} single
 * @property {{ number: number, t: number, text: string } | null} text of a chain that was pressed
 * @property {number | null} right answers at this stop, once they are open
 * @property {number} pool samples of the model alone, once all are drawn
 * @property {{ chains: number, passed: number,
 *   first: [number: number, best: number, reached: number][] } | null} game
 */
/**
 * The figures of all chains together (`Figures` in components/room/messages.py).
 * @typedef {object} Figures
 * @property {number[]} [base]
 * @property {number[]} [weights]
 * @property {number} [worth]
 * @property {{ base: number, target: number, class?: number }} [mean]
 * @property {Record<string, [string, number][]>} [votes]
 * @property {[string, number][]} [leaders]
 * @property {number} [states]
 * @property {number | null} [rhat]
 * @property {string} [agreement] R-hat in words: "infinite" where the number is null
 * @property {number} [chains]
 * @property {{ level: string, sentence: string, next: string }} [trust]
 */
/** @typedef {(what: object) => Promise<any>} Lead */

const SCENES = /** @type {const} */ (["join", "question", "class", "game", "settings"]);
/** @typedef {typeof SCENES[number]} Scene */
const NAMES = { join: "Join", question: "Question", class: "The class", game: "The game",
  settings: "Settings" };
/** @param {string} what */
const isSure = (what) => window.confirm(`${what} Chains that you have not saved are lost.`);
const SIZE = [1280, 720]; // for which the instructor's view is written

/**
 * @param {HTMLElement} host
 * @param {Seat} seat
 * @param {import("./settings.js").Offered} offered
 */
export async function leadView(host, seat, offered) {
  /** @type {RoomState | null} */
  let room = null;
  /** @type {ClassState | null} */
  let all = null;
  /** @type {Figures} */
  let figures = {};
  /** @type {Map<number, number[]>} */
  let chains = new Map();
  /** @type {Scene} */
  let scene = "join";
  let round = -1;

  const trouble = h("p.trouble", { role: "alert", hidden: true });
  const line = h("p.line", { role: "status" });
  const joined = h("b.joined");
  const tabs = new Map(SCENES.map((name) => [name,
    button("tab", { onclick: () => turnTo(name) }, NAMES[name])]));
  const [join, question, sampler, game] = [joinScene(seat, lead), questionScene(),
    classScene(lead), gameScene()];
  const set = settings(offered, "Start again with these", async (problem) => {
    if (chains.size && !isSure("Begin again?")) return;
    await lead({ do: "again", ...problem });
    turnTo("class");
  });
  const end = button("quiet", {
    onclick: () => isSure("Close this room for everybody?") && lead({ do: "end" }),
  }, "Close this room for good");
  const saving = h("p.row", ...["page", "table"].map((kind) => button("ctl", {
    onclick: async () => {
      const saved = await lead({ do: "keep" });
      if (saved && room) saveClass(kind, saved, room, figureData());
    },
  }, kind === "page" ? "Save as a page" : "Save as a table (CSV)")));
  const figureData = () => ({ figures, chains, single: all?.single ?? 1 });
  /** @type {Record<Scene, HTMLElement>} */
  const nodes = {
    join: join.node,
    question: question.node,
    class: sampler.node,
    game: game.node,
    settings: h("section.scene.settings",
      h("div", h("h2", "A different problem or β"), set.node),
      h("div", h("h2", "Keep this class"), saving,
        h("p.quiet", "Both contain the predictions, the votes and the chains since the class "
          + "last started. The page also shows the figures. A room that is opened from the page "
          + "next week has the same members, answers and chains."), end)),
  };
  const controls = controlBar({ turn, turnTo, forward, play, reveal: revealAnswer,
    step: () => go("step") }, NAMES);
  document.title = `Room ${formatCode(seat.code)}: instructor`;
  host.replaceChildren(h("div.lead",
    h("header", h("h1", formatCode(seat.code)), joined, h("nav", { aria: "Scenes" },
      ...tabs.values())), line, trouble, ...Object.values(nodes), controls.node, controls.list));
  document.addEventListener("keydown", controls.press);
  window.addEventListener("resize", () => {
    enlarge();
    draw();
  });
  enlarge();
  const was = window.history.state?.scene; // before a reload
  turnTo(SCENES.includes(was) ? was : "join");

  /** True while the chains run on by themselves; after a single step they pause. */
  const runs = () => Boolean(room && room.goal >= room.steps);
  const isDone = () => Boolean(all?.members && all.done >= all.members);
  const asks = () => scene !== "class" && Boolean(room?.stop?.ask);

  /** @param {object} what */
  async function lead(what) {
    try {
      const answer = await ask("lead", { code: seat.code, ...what }, seat.token);
      say("");
      return answer;
    } catch (error) {
      say(reasonOf(error));
    }
  }

  /**
   * Show a sentence above the scene, which is then less high.
   * @param {string} text
   */
  function say(text) {
    if (line.textContent === text) return;
    put(line, text);
    draw();
  }

  /** @param {"run" | "step" | "rest" | "again"} what */
  async function go(what) {
    if (scene !== "class") turnTo("class");
    await lead({ do: what });
  }

  function play(restarts = true) {
    if (!isDone()) go(runs() ? "rest" : "run");
    else if (restarts && isSure("Begin again?")) go("again");
  }
  function revealAnswer() {
    lead({ do: asks() ? "reveal" : "solve" });
  }

  /** @param {number} by */
  async function turn(by) {
    const stop = room?.stop;
    if (!stop) return;
    const k = Math.max(0, Math.min(stop.of - 1, stop.k + by));
    turnTo("question");
    if (k !== stop.k) await lead({ do: "turn", stop: k });
  }

  /** Do what a clicker's forward button asks for. */
  function forward() {
    if (!room?.stop) go("step");
    else if (scene !== "question") turnTo("question");
    else if (room.stop.ask && !room.opened) revealAnswer();
    else turn(1);
  }

  /** @param {Scene} to */
  function turnTo(to) {
    scene = to;
    window.history.replaceState({ scene }, "");
    for (const name of SCENES) {
      show(nodes[name], name === to);
      if (name === to) tabs.get(name)?.setAttribute("aria-current", "page");
      else tabs.get(name)?.removeAttribute("aria-current");
    }
    draw();
  }

  /** Enlarge the view with the window; on a phone it keeps its size. */
  function enlarge() {
    const by = Math.min(window.innerWidth / SIZE[0], window.innerHeight / SIZE[1]);
    host.style.setProperty("--u", String(window.innerWidth > 900 ? by : 1));
  }

  function draw() {
    if (!room || !all) return;
    const { stop } = room;
    put(joined, `${all.here} of ${all.members} here`);
    put(trouble, room.trouble);
    // Only one of the two is shown, because a scene has to fit.
    show(trouble, room.trouble && !line.textContent);
    for (const [name, tab] of tabs) {
      tab.hidden = (name === "question" && !stop) || (name === "game" && !all.game);
    }
    controls.draw(room, { asks: asks(), isDone: isDone(), runs: runs() });
    set.fill(room);
    if (scene === "join") join.draw(room, all);
    if (scene === "question" && stop) question.draw(room, all);
    if (scene === "game") game.draw(all);
    if (scene === "class") sampler.draw(room, all, figures, chains);
  }

  /** @param {any} message */
  function receive(message) {
    if (message.over) {
      document.removeEventListener("keydown", controls.press);
      farewell(host, message.over);
      return false;
    }
    if (line.textContent === BROKE) put(line, "");
    if (message.room) {
      room = message.room;
      all = message.class;
      if (message.from === 0 || round !== message.room.round) chains = new Map();
      round = message.room.round;
      for (const [number, reward] of message.walk) {
        chains.set(number, [...(chains.get(number) ?? []), reward]);
      }
    }
    if (message.figures) figures = message.figures;
    draw();
    return true;
  }

  const why = await follow(seat, receive, (isConnected) =>
    say(isConnected ? "" : "The connection is down. The room is kept."));
  if (why) farewell(host, why);
}
