/* A member's view, made for a phone: the question of the class, and a chain of one's own. */
import { differs, drawIcon, put, show } from "../dom.js";
import { fields } from "../learn/ask.js";
import { fixed, many, pair, visible } from "../player/words.js";
import { button, drawVotes, h, s } from "./drawing.js";
import { drawExhibit } from "../exhibit/exhibit.js";
import { BROKE, Refusal, ask, follow, formatCode, keep, plainCode, reasonOf } from "./net.js";
import { OwnChain } from "./own.js";

/** @typedef {import("./net.js").Seat} Seat */

const LONGEST = 2000; // characters, as components/session/user_text.py has it

/**
 * The state of the class as the server sends it to all screens (`room_message`).
 * @typedef {object} RoomState
 * @property {string} code
 * @property {string} prompt
 * @property {number} beta
 * @property {number} steps
 * @property {number} round
 * @property {number} goal the step up to which chains may go
 * @property {Omit<import("../engine/record.js").Run, "chains" | "pool" | "reference">} run
 * @property {number} pace seconds between two steps
 * @property {number} every seconds between two batches of a browser that draws
 * @property {string} no_browser why browsers cannot draw this class's chains; "" if they can
 * @property {boolean} opened
 * @property {string} trouble
 * @property {string} loading the title of the language model that the server loads; "" if none
 * @property {{ lesson: string, name: string, k: number, of: number, title: string, text: string,
 *   ask?: import("../learn/ask.js").Question,
 *   exhibit?: import("../exhibit/exhibit.js").Exhibit } | null} stop
 * @property {string} [value] the right one, once the answers are open
 * @property {string} [explanation] of the right one
 * @property {boolean} named members give their names
 * @property {string | null} reference the right answer of the problem, once it is shown
 * @property {string[]} right the same, each that counts
 * @property {boolean} has_answer whether the problem has a right answer
 */
/**
 * The state of one member's chain and predictions (`member_message`).
 * @typedef {object} MemberState
 * @property {number} number
 * @property {string} name in a class with names
 * @property {number} t
 * @property {number} replay_until the step that the chain of a saved class had reached
 * @property {"browser" | "server" | ""} drawer
 * @property {string} prediction at this stop; "" if there is none
 * @property {{ right: boolean | null, explanation: string }} [outcome] once the answers are open
 * @property {string} kept
 * @property {string} old
 * @property {string} new
 * @property {boolean} accepted
 * @property {number} reward
 * @property {number} before
 * @property {number} alpha
 * @property {number} u
 * @property {number} counted
 * @property {[string, number][]} votes
 * @property {string | null} answer
 * @property {number[]} rewards
 * @property {{ reached: number | null, best: number | null, left: number }} hand
 */

/**
 * @param {HTMLElement} host
 * @param {Seat} seat
 */
export async function memberView(host, seat) {
  const who = h("h1", "A room");
  const line = h("p.line", { role: "status" });
  const trouble = h("p.trouble", { role: "alert", hidden: true });
  const name = namePart(seat);
  const stop = stopPart(seat);
  const chain = chainPart();
  const hand = handPart(seat);
  document.title = `Room ${formatCode(seat.code)}`;
  const view = h("div.phone",
    h("header.me", who, h("span.code", formatCode(seat.code))), line, trouble, name.node, stop.node,
    chain.node, hand.node);
  const notice = h("div.phone", { hidden: true }, h("h1", "A room"),
    h("p.farewell", { role: "status" }, "Your place is open in another tab of this browser. This "
      + "tab continues when that one closes."),
    h("p.row", button("quiet", { onclick: () => window.location.reload() }, "Use this tab")));
  host.replaceChildren(view, notice);
  let waits = false; // for a newer tab to close
  /** @type {RoomState | null} */
  let room = null;
  /** @type {MemberState | null} */
  let mine = null;
  let why = typeof Worker === "function" ? "" : "it has no workers"; // the server draws
  let reopen = () => {};
  const own = new OwnChain(seat, draw, (sentence) => {
    why = sentence;
    reopen();
  });

  const reason = () => why || room?.no_browser || "";

  function draw() {
    if (!room || !mine) return;
    const all = reason() ? mine : { ...mine, ...own.toMessage() };
    put(who, `You are number ${mine.number}`);
    put(trouble, room.trouble);
    show(trouble, room.trouble);
    name.draw(room, mine);
    stop.draw(room, all);
    chain.draw(room, all, reason());
    hand.draw(all);
  }

  /**
   * @param {{ room?: RoomState, mine?: MemberState, over?: string, elsewhere?: boolean }} message
   */
  function receive(message) {
    waits = Boolean(message.elsewhere);
    show(notice, waits);
    show(view, !waits);
    if (message.over || waits) own.stop();
    if (message.over) farewell(host, message.over);
    if (message.over || waits) return waits;
    room = message.room ?? room;
    mine = message.mine ?? mine;
    if (room && mine && !reason()) own.update(room, mine);
    else own.stop();
    draw();
    return true;
  }

  const over = await follow(seat, receive, (joined, again) => {
    put(line, joined ? "" : "The connection is down. Your place and your answers are kept.");
    reopen = again;
    if (joined) stop.send();
  }, () => ({ draws: String(Number(!why)), waits: String(Number(waits)) }));
  own.stop();
  if (over) farewell(host, over);
}

/**
 * Replace the room by a sentence and a way back.
 * @param {HTMLElement} host
 * @param {string} why
 */
export function farewell(host, why) {
  const text = `${why[0].toUpperCase()}${why.slice(1)}`;
  host.replaceChildren(h("div.phone", h("h1", "A room"),
    h("p.farewell", { role: "alert" }, text.endsWith(".") ? text : `${text}.`),
    h("p.row", button("", { onclick: () => window.location.reload() }, "Try again"),
      h("a", { href: window.location.pathname }, "Open a room")), codeForm("Join another class")));
}

/**
 * A form that joins the room of the code that a visitor types.
 * @param {string} heading
 */
export function codeForm(heading) {
  const wrong = h("p.status", { role: "alert" });
  const typed = h("input", { id: "room-code", autocomplete: "off", autocapitalize: "characters",
    spellcheck: "false", maxlength: 20, placeholder: "ABCD EFGH" });
  return h("form.card", {
    onsubmit: () => {
      const code = plainCode(typed.value);
      if (code) window.location.hash = code;
      else put(wrong, "Type the code that the instructor's screen shows.");
    },
  }, h("h2", heading), h("label", { for: typed.id }, "Code"),
  h("div.row", typed, h("button.send", { type: "submit" }, "Join")), wrong);
}

/**
 * The form in which a member of a class with names gives the own one.
 * @param {Seat} seat
 */
function namePart({ code, token }) {
  const input = h("input", { id: "room-name", maxlength: 60, autocomplete: "name" });
  const status = h("p.small", { role: "status" });
  const stored = h("p.small", { role: "status" });
  const change = button("quiet", {
    onclick: () => {
      isOpen = true;
      show(form, true);
      input.select();
    },
  }, "Change it");
  const line = h("p.row", stored, change);
  let isOpen = false; // to change the name
  const form = h("form.card.name", {
    onsubmit: async () => {
      try {
        await ask("name", { code, name: input.value }, token);
        put(status, "");
        isOpen = false;
        show(form, false);
      } catch (error) {
        put(status, reasonOf(error));
      }
    },
  }, h("label", { for: input.id }, "Your name"),
  h("div.row", input, h("button.send", { type: "submit" }, "Save")),
  h("p.quiet", "Only this page and the instructor's saved file show it."), status);
  const node = h("div", line, form);
  return {
    node,
    /** @type {(room: RoomState, mine: MemberState) => void} */
    draw({ named }, { name }) {
      show(node, named);
      put(stored, `Your name: ${name}`);
      if (form.hidden) input.value = name;
      show(line, named && name);
      show(form, named && (!name || isOpen));
    },
  };
}

/** @param {RoomState} room */
export const loadingText = ({ loading }) => `The server is loading the model “${loading}”. The `
  + "first drafts follow.";

/** @param {Seat} seat */
function stopPart(seat) {
  const place = h("p.small");
  const title = h("h2");
  const text = h("p");
  const status = h("p.status", { role: "status" });
  const press = h("button.send", { type: "submit" }, "Send");
  const slot = h("div.slot");
  const form = h("form", { novalidate: true, onsubmit: predict }, slot, press);
  const exhibit = h("div.exhibit");
  const node = h("section.card.stop", place, title, text, exhibit, form, status);
  const isNew = differs();
  /** @type {ReturnType<typeof fields> | null} */
  let answer = null;
  let at = "";
  let k = 0;
  let trying = ""; // why the last answer was refused, or that it waits to be sent

  async function predict() {
    const prediction = answer?.read() ?? "";
    if (!prediction) {
      put(status, "Choose an answer, or write a number, first. A wrong guess costs nothing.");
      return;
    }
    seat.waiting = { stop: k, prediction };
    await send();
  }

  /** Send the answer that waits, if there is one; without a connection it waits on. */
  async function send() {
    const { waiting } = seat;
    if (!waiting) return;
    trying = "";
    try {
      await ask("predict", { code: seat.code, ...waiting }, seat.token);
    } catch (error) {
      trying = error instanceof Refusal ? error.message : "Waiting to be sent: your answer is kept "
        + "and is sent when the connection returns.";
      put(status, trying);
      if (!(error instanceof Refusal)) return keep(seat);
    }
    if (seat.waiting === waiting) delete seat.waiting;
    keep(seat);
  }

  /**
   * @param {RoomState} room
   * @param {MemberState} mine
   */
  function draw(room, mine) {
    const { stop } = room;
    show(node, stop);
    if (!stop) return;
    const key = `${stop.lesson}/${stop.k}`;
    if (key !== at) {
      [at, k] = [key, stop.k];
      if (seat.waiting?.stop !== k) trying = "";
      put(place, `${stop.lesson}: stop ${stop.k + 1} of ${stop.of}`);
      put(title, stop.title);
      put(text, stop.text);
      answer = stop.ask ? fields(stop.ask) : null;
      slot.replaceChildren(...(answer ? [answer.node] : []));
      show(form, answer);
      node.scrollIntoView({ block: "nearest" });
    }
    if (stop.exhibit && isNew(key + JSON.stringify(stop.exhibit))) {
      exhibit.replaceChildren(...drawExhibit(stop.exhibit));
    }
    drawStatus(room, mine);
  }

  /**
   * @param {RoomState} room
   * @param {MemberState} mine
   */
  function drawStatus({ opened, value }, { prediction, outcome }) {
    show(press, answer && !opened);
    status.dataset.right = String(outcome?.right ?? "");
    if (!answer) {
      status.replaceChildren();
    } else if (opened && outcome) {
      answer.show(prediction, value ?? "");
      const { right, explanation } = outcome;
      const sign = right === null ? [] : [drawIcon(right ? "yes" : "no", "room-")];
      status.replaceChildren(...sign, prediction ? "" : "You sent no answer. ", explanation);
    } else if (!trying) {
      put(press, prediction ? "Change" : "Send");
      put(status, prediction
        ? `You said: ${answer.label(prediction)}. You can change it until the answers are shown.`
        : "");
    }
  }

  return { node, draw, send };
}

function chainPart() {
  const title = h("h2", "Your own chain");
  const step = h("span.small");
  const problem = h("p.problem");
  const kept = h("span.kept");
  const tail = h("span.tail");
  const text = h("p.text", { dir: "ltr" }, kept, tail);
  const away = h("p.away");
  const verdict = h("p.verdict", { role: "status" });
  const answer = h("p.answer");
  const line = h("div");
  const votes = h("div");
  const body = h("div", text, away, verdict, answer,
    h("h3", "Its reward, step after step"), line, h("h3", "Its votes"), votes);
  const wait = h("p.quiet");
  const where = h("p.small.where");
  const node = h("section.card.chain", h("div.row", title, step), problem, wait, body, where);

  /**
   * @param {RoomState} room
   * @param {MemberState} mine
   * @param {string} why this browser does not draw
   */
  function draw(room, mine, why) {
    const begun = mine.t >= 0;
    const rests = mine.t >= room.goal && mine.t < room.steps;
    put(step, begun ? `step ${mine.t} of ${room.steps}${rests ? " · the class is paused" : ""}`
      : "");
    put(problem, room.prompt);
    put(wait, begun ? "" : !rests ? why && room.loading ? loadingText(room)
      : "Your first draft is being written…"
      : "Your chain begins when the instructor starts the class.");
    show(wait, !begun);
    put(where, !why ? "Drawn in your browser." : mine.drawer ? `Drawn on the server: ${why}.`
      : `Your browser cannot draw a chain (${why}), and the server cannot draw more chains: `
        + "watch the screen.");
    show(body, begun);
    if (!begun) return;
    const first = mine.t === 0;
    node.dataset.verdict = first ? "" : mine.accepted ? "yes" : "no";
    put(kept, visible(mine.kept));
    put(tail, visible(mine.accepted ? mine.new : mine.old));
    put(away, first ? "" : visible(mine.accepted ? mine.old : mine.new));
    show(away, !first);
    put(verdict, describeStep(mine, first));
    show(answer, room.run.extractor);
    answer.replaceChildren("Your text says ", h("b", mine.answer ?? "no answer"));
    line.replaceChildren(drawLine(mine.rewards, room.steps));
    if (room.run.extractor) votes.replaceChildren(drawVotes(mine.votes, room.right));
  }

  return { node, draw };
}

/**
 * The game: the server scores a text that the member wrote; the member tries to score higher than
 * the own chain.
 * @param {Seat} seat
 */
function handPart({ code, token }) {
  const words = h("textarea", { rows: 4, maxlength: LONGEST, spellcheck: "false",
    aria: "Your text" });
  const send = h("button.send", { type: "submit" }, "Score it");
  const status = h("p.status", { role: "status" });
  const score = h("p.score");
  const form = h("form", { onsubmit: scoreText }, words, send);
  const node = h("section.card.hand", h("h2", "A game: your hand"),
    h("p", "Can you reach a higher ln π than your chain in its first 30 steps? Change its text as "
      + "you like. ln π is high for a text that the model finds likely and that has a high reward. "
      + "Your text is not part of the chain."), score, form, status);
  /** The chain's text, which the field shows until the member changes it. */
  let offered = "";

  async function scoreText() {
    if (!words.value.trim()) {
      put(status, "Write a text first.");
      return;
    }
    send.disabled = true;
    put(status, "Running the models…");
    try {
      const reply = await ask("score", { code, words: words.value }, token);
      put(status, reply.log_pi === null ? "The model, as it is sampled, never writes this text."
        : `Your text: ln π = ${fixed(reply.log_pi)}.`);
    } catch (error) {
      put(status, reasonOf(error));
    }
    send.disabled = false;
  }

  return {
    node,
    /** @param {MemberState} mine */
    draw({ t, hand: { reached, best, left }, accepted, kept, old, new: fresh }) {
      show(node, reached !== null);
      if (status.textContent === BROKE) put(status, "");
      if (reached === null || t < 0) return;
      if (words.value === offered) {
        offered = kept + (accepted || t === 0 ? fresh : old);
        words.value = offered;
      }
      show(form, left);
      put(score, `Your chain has reached ${fixed(reached)}. `
        + `${best === null ? "" : `You: ${fixed(best)}${best > reached ? ", ahead" : ""}. `}`
        + `${many(left, "text")} left to try.`);
    },
  };
}

/**
 * Describe whether the last rewrite was accepted, and why.
 * @param {MemberState} mine
 * @param {boolean} first
 */
function describeStep(mine, first) {
  if (first) return `Your first draft: reward ${fixed(mine.reward)}.`;
  const [u, alpha] = pair(mine.u, mine.alpha);
  const rewards = `reward ${fixed(mine.before)} → ${fixed(mine.reward)}`;
  if (mine.accepted) {
    const why = mine.alpha === 1 ? "α is 1" : `the coin ${u} is below α, ${alpha}`;
    return `Accepted: ${why} (${rewards}). The struck-out text is gone.`;
  }
  return `Rejected: the coin ${u} is not below α, ${alpha} (${rewards}). `
    + `Your text stays and has been counted ${many(mine.counted, "time")}.`;
}

/**
 * @param {number[]} rewards
 * @param {number} steps
 */
function drawLine(rewards, steps) {
  const [width, height] = [340, 70];
  const low = Math.min(...rewards);
  const span = Math.max(...rewards) - low || 1;
  const x = (/** @type {number} */ t) => 6 + ((width - 12) * t) / steps;
  const y = (/** @type {number} */ r) => height - 8 - ((height - 16) * (r - low)) / span;
  const last = rewards.length - 1;
  const d = rewards.map((r, t) => `${t ? "L" : "M"}${x(t).toFixed(1)} ${y(r).toFixed(1)}`).join("");
  return s("svg.spark", { viewBox: `0 0 ${width} ${height}`, role: "img",
    aria: `Rewards from ${fixed(rewards[0])} to ${fixed(rewards[last])}` },
  s("path.single", { d }), s("circle.dot", { cx: x(last), cy: y(rewards[last]), r: 4 }));
}
