/* The instructor's view: one scene at a time, large enough for the last row. */
import { put, show } from "../dom.js";
import { BACK, FORWARD, keyTable } from "../presenter/keys.js";
import { fixed, many, plain } from "../player/words.js";
import { drawExhibit } from "../exhibit/exhibit.js";
import {
  button, drawClass, drawPredictions, drawQr, drawVotes, h, stillOf, word,
} from "./drawing.js";
import { farewell } from "./member.js";
import { saveClass } from "./keep.js";
import { BROKE, Refusal, ask, follow, formatCode, linkOf } from "./net.js";
import { settings } from "./settings.js";

/** @typedef {import("./net.js").Seat} Seat */
/** @typedef {import("./member.js").RoomState} RoomState */
/** @typedef {import("./drawing.js").Class} Class */
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
const LETTERS = 26; // pixels, of figures on the projector
const HEIGHTS = [250, 190, 160]; // of a figure
const COLUMNS = 190; // the height of the columns of predicted numbers
const SHARES = [1.1, 1.3, 1.55, 2.2, 0.9, 0.75]; // of the width of a figure to that of the words
const MOST_VOTES = 3; // answers of a vote
const STUCK = 10; // steps without a change from which a chain is named
const HERE_ONLY = /^(localhost|127\.|\[::1\])/;

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
  const back = button("ctl", { onclick: () => turn(-1), aria: "Previous stop" }, "◀");
  const next = button("ctl", { onclick: () => turn(1), aria: "Next stop" }, "▶");
  const stops = h("a.stops", { target: "_blank" });
  const reveal = button("ctl", { onclick: () => revealAnswer() });
  const one = button("ctl", { onclick: () => go("step") }, "One step");
  const run = button("ctl.main", { onclick: () => play() });
  const table = keyTable({ h, button }, [
    ["PageDown", "Page ↓", `${FORWARD}step of the chains`, () => forward()],
    ["PageUp", "Page ↑", BACK, () => turn(-1)],
    ["ArrowRight", "→", "next stop", () => turn(1)],
    ["ArrowLeft", "←", "previous stop", () => turn(-1)],
    [" ", "Space", "run the chains, or pause them", () => !isDone() && play()],
    ["n", "N", "one step of the chains", () => go("step")],
    ["a", "A", "the answers of a stop, or the right answer of the problem", () => revealAnswer()],
    ...SCENES.map((name, k) => /** @type {import("../presenter/keys.js").Act} */ (
      [String(k + 1), String(k + 1), NAMES[name], () => turnTo(name)])),
  ]);
  const controls = h("footer.controls",
    h("div.group", back, stops, next), reveal, h("div.group.right", one, run, table.help));
  document.title = `Room ${formatCode(seat.code)}: instructor`;
  host.replaceChildren(h("div.lead",
    h("header", h("h1", formatCode(seat.code)), joined, h("nav", { aria: "Scenes" },
      ...tabs.values())), line, trouble, ...Object.values(nodes), controls, table.list));
  document.addEventListener("keydown", keys);
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
      say(error instanceof Refusal ? error.message : BROKE);
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

  const play = () => (!isDone() ? go(runs() ? "rest" : "run")
    : isSure("Begin again?") && go("again"));
  const revealAnswer = () => lead({ do: asks() ? "reveal" : "solve" });

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

  /** @param {KeyboardEvent} event */
  function keys(event) {
    const on = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || on.matches("input, textarea, select")) {
      return;
    }
    if (event.key === " " && on.matches("button, a")) return;
    if (table.press(event.key)) event.preventDefault();
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
    for (const node of [back, next, stops]) show(node, stop);
    for (const [name, tab] of tabs) {
      tab.hidden = (name === "question" && !stop) || (name === "game" && !all.game);
    }
    put(stops, stop ? `stop ${stop.k + 1} of ${stop.of}` : "");
    if (stop) {
      stops.title = `${stop.lesson}: show it on its page`;
      stops.href = `./?lesson=${stop.name}&stop=${stop.k + 1}&present=1`;
    }
    back.disabled = !stop || stop.k === 0;
    next.disabled = !stop || stop.k === stop.of - 1;
    const open = asks() ? room.opened : room.reference !== null;
    reveal.disabled = open;
    show(reveal, asks() || room.has_answer);
    put(reveal, asks() ? open ? "The answers are shown" : "Show the answers"
      : open ? `The right answer is ${room.reference || "unknown"}` : "Show the right answer");
    put(run, isDone() ? "Start again" : runs() ? "Pause" : "Run");
    set.fill(room);
    if (scene === "join") join.draw(room, all);
    if (scene === "question" && stop) question.draw(room, all);
    if (scene === "game") game.draw(all);
    if (scene === "class") sampler.draw(room, all, figures, chains);
  }

  /** @param {any} message */
  function receive(message) {
    if (message.over) {
      document.removeEventListener("keydown", keys);
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

/**
 * @param {Seat} seat
 * @param {Lead} lead
 */
function joinScene({ code, token }, lead) {
  const link = linkOf(code);
  const picture = h("div.picture");
  const count = h("p.count");
  const door = button("ctl", {});
  const only = HERE_ONLY.test(window.location.host) ? h("p.warn",
    "This address works only on this computer. To let others join, start the app with "
    + "GRADIO_SERVER_NAME=0.0.0.0, and open this page by the computer's address.") : null;
  let open = true;
  door.addEventListener("click", () => lead({ do: "door", open: !open }));
  const words = h("div.words",
    h("p.large", "Point your phone's camera here, or open"),
    h("p.link", link.replace(/^https?:\/\//, "").replace(/#.*/, "")),
    h("p.large", "and type"), h("p.code", formatCode(code)), count,
    h("p.quiet", "No account. The server writes nothing to disk."), only, door);
  const node = h("section.scene.join", picture, words);
  ask("qr", { code, link }, token)
    .then(({ rows }) => picture.replaceChildren(drawQr(rows, link)))
    .catch(() => put(picture, "The QR code could not be drawn; the link works."));
  return {
    node,
    /** @type {(room: RoomState, all: ClassState) => void} */
    draw(_, all) {
      open = all.door;
      put(count, `${many(all.members, "place")} taken of ${all.most}`
        + `${open ? "" : "; the door is closed"}`);
      put(door, open ? "Close the door" : "Open the door");
    },
  };
}

/**
 * Make all of a scene fit into the window: its columns and figures change their sizes, then it
 * leaves out the problem, which phones and the scene of the chains show, and only then everything
 * shrinks.
 * @param {HTMLElement} node
 * @param {(height: number) => void} redraw with figures of this height
 */
function fit(node, redraw) {
  const isFull = () => node.scrollHeight > node.clientHeight;
  node.style.setProperty("--fit", "1");
  for (const lean of ["", "problem"]) {
    node.dataset.lean = lean;
    for (const height of HEIGHTS) {
      for (const share of SHARES) {
        node.style.setProperty("--share", `${share}fr`);
        redraw(height);
        if (!isFull()) return;
      }
    }
  }
  for (let size = 0.96; size > 0.4 && isFull(); size -= 0.04) {
    node.style.setProperty("--fit", size.toFixed(2));
  }
}

/** The size of a figure's letters: on the projector, or on an instructor's phone. */
const letters = () => (window.innerWidth > 900 ? LETTERS : 16);

function questionScene() {
  const title = h("h2");
  const text = h("p.text");
  const question = h("p.ask");
  const explanation = h("p.explanation", { role: "status" });
  const picture = h("div.picture");
  const count = h("p.count");
  const exhibit = h("div.exhibit");
  const words = h("div.words", title, text, question, picture, explanation, count);
  const node = h("section.scene.question", words, exhibit);
  let lastKey = "";
  return {
    node,
    /** @type {(room: RoomState, all: ClassState) => void} */
    draw({ stop, opened, value, explanation: sentence }, { predictions, expected, right }) {
      if (!stop) return;
      const key = JSON.stringify([stop.lesson, stop.k, value, opened, node.clientWidth,
        node.clientHeight]);
      const n = predictions.reduce((sum, [, each]) => sum + each, 0);
      put(count, !stop.ask ? "" : right === null ? `${n} of ${expected} have answered`
        : `${right} of ${n} right${n < expected ? `, ${expected - n} without an answer` : ""}`);
      const { ask, exhibit: data } = stop;
      const drawPicture = () => picture.replaceChildren(...(ask ? [drawPredictions(ask, predictions,
        value, { width: words.clientWidth, height: COLUMNS, size: letters() })] : []));
      if (key === lastKey) {
        drawPicture();
        return;
      }
      lastKey = key;
      const isOpen = opened && Boolean(stop.ask);
      put(title, stop.title);
      put(text, stop.text);
      show(text, !isOpen); // The explanation takes its place.
      put(question, stop.ask?.question ?? "");
      put(explanation, isOpen ? sentence ?? "" : "");
      picture.style.minHeight = `${ask && ask.kind !== "choice" ? COLUMNS : 0}px`;
      fit(node, (height) => {
        drawPicture();
        exhibit.replaceChildren(...(data ? drawExhibit(data, { width: exhibit.clientWidth,
          height, size: letters() }) : []));
      });
    },
  };
}

/** @param {Lead} lead */
function classScene(lead) {
  const picture = h("div.picture");
  const wait = h("p.quiet");
  const key = h("p.key", h("i.k-pooled"), "the class", h("i.k-alone"), word("base", "model alone"),
    h("i.k-target"), word("target", "target"));
  const numbers = h("dl.numbers");
  const verdict = h("p.verdict");
  const problem = h("p.problem");
  const text = h("p.text", { role: "status" });
  const pooled = h("div");
  const alone = h("div");
  const single = h("div");
  const who = h("h3", "One chain alone");
  const leading = h("p.quiet");
  const stuck = h("p.quiet");
  const samples = h("h3");
  const less = button("ctl.small", { aria: "Previous chain" }, "◀");
  const more = button("ctl.small", { aria: "Next chain" }, "▶");
  const node = h("section.scene.class",
    h("div.main", h("div.row", h("h2", "All chains"), key), problem, picture, wait,
      text, numbers, verdict),
    h("div.votes", h("h3", "The class, pooled"), pooled,
      h("div.row", who, h("span.pair", less, more)), single, leading, stuck,
      samples, alone));
  /** @type {number[]} */
  let order = [];
  let at = 1;
  const choose = (/** @type {number} */ number) => lead({ do: "single", number });
  const turn = (/** @type {number} */ by) => {
    const k = (order.indexOf(at) + by + order.length) % order.length;
    if (order.length) choose(order[k]);
  };
  less.addEventListener("click", () => turn(-1));
  more.addEventListener("click", () => turn(1));

  /**
   * @param {RoomState} room
   * @param {ClassState} all
   * @param {Figures} figures
   * @param {Map<number, number[]>} chains
   */
  function draw(room, all, figures, chains) {
    order = [...chains.keys()].sort((a, b) => a - b);
    at = all.single;
    const { base = [], weights = [], worth = 0, votes = {} } = figures;
    const votesOf = (/** @type {string} */ name) => (room.run.extractor
      ? drawVotes((votes[name] ?? []).slice(0, MOST_VOTES), room.right)
      : h("p.quiet", "This problem has no answers to count."));
    put(problem, room.prompt);
    put(wait, chains.size ? "" : room.goal >= 0 ? "The first drafts are being written…"
      : "Press Run, or the space bar: each member's chain starts from its own draft.");
    show(wait, !chains.size);
    pooled.replaceChildren(votesOf("class"));
    single.replaceChildren(votesOf("single"));
    alone.replaceChildren(votesOf("base"));
    put(who, `Chain ${at} alone`);
    put(samples, base.length < all.pool ? `Model alone, ${base.length} of ${all.pool}`
      : "The model alone");
    put(text, all.text ? `Chain ${all.text.number}, step ${all.text.t}: ${all.text.text}` : "");
    show(text, all.text);
    show(verdict, !all.text);
    show(problem, !all.text);
    const [[answer, n] = ["", 0]] = figures.leaders ?? [];
    put(leading, n && chains.size > 1 ? `Most states say ${answer === "none" ? "nothing"
      : answer} in ${n} of ${many(chains.size, "chain")}` : "");
    const [longest, still] = [...chains].map(([number, r]) => [number, stillOf(r)])
      .reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
    put(stuck, still >= STUCK ? `Longest unchanged: chain ${longest}, ${still} steps` : "");
    show(less, order.length > 1);
    show(more, order.length > 1);
    numbers.replaceChildren(...cells(room, figures));
    put(verdict, figures.trust?.sentence ?? "");
    const data = { chains, base, weights, worth, steps: room.steps, single: at };
    picture.replaceChildren(); // Its height is what all other parts leave.
    picture.append(drawClass(data, picture.clientWidth, picture.clientHeight, letters(), choose));
  }

  return { node, draw };
}

function gameScene() {
  const state = h("p.large", { role: "status" });
  const list = h("ol.first");
  const node = h("section.scene.game", h("h2", "Can you beat your chain?"),
    h("p", "On your phone, below your chain, change its text as you like. Your score is ln π: how "
      + "likely the model finds the text, plus its reward divided by β. Reach a higher score than "
      + "your chain reached in its first 30 steps."), state, list);
  return {
    node,
    /** @param {ClassState} all */
    draw({ game }) {
      if (!game) return;
      put(state, `The best chain has reached ${fixed(game.chains)}. `
        + `${many(game.passed, "member")} passed their own chain.`);
      list.replaceChildren(...game.first.map(([number, best, reached]) => h("li",
        h("b", `Number ${number}: ${fixed(best)}`), h("span", `their chain: ${fixed(reached)}`),
        best > reached ? "✓ ahead" : "")));
    },
  };
}

/**
 * @param {RoomState} room
 * @param {Figures} figures
 */
function cells(room, { agreement = "…", states = 0, mean }) {
  const one = (/** @type {string} */ name, /** @type {string} */ value, kind = "") =>
    h(`div.${kind}`, h("dt", name), h("dd", value));
  return [
    one("mean reward: model alone", mean ? fixed(mean.base) : "…", "of-base"),
    one("class, later half", mean?.class === undefined ? "…" : fixed(mean.class), "of-class"),
    one("target", mean ? fixed(mean.target) : "…", "of-target"),
    one("R-hat", agreement),
    one("states", states.toLocaleString("en")),
    one("β", plain(room.beta)),
  ];
}
