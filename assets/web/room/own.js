/* A member's own chain, drawn in the member's browser. All steps are drawn at once and shown at the
   pace of the class; the server gets the states in batches and counts them. */
import { BrowserEngine, SERVED } from "../engine/browser.js";
import { tally } from "../player/numbers.js";
import { Refusal, ask } from "./net.js";

/** @typedef {import("./member.js").Mine} Mine */
/** @typedef {import("./member.js").RoomTold} RoomTold */
/**
 * @typedef {object} State
 * @property {number[]} tokens
 * @property {string[]} pieces
 * @property {string} text
 * @property {number} reward
 * @property {string | null} answer
 */
/**
 * A step as `Mine` has it.
 * @typedef {object} Drawn
 * @property {State} state after it
 * @property {[text: string, reward: number, logProb: number] | null} sent the state as the server
 *   gets it; null if the chain stayed
 * @property {number} since the step at which the state came
 * @property {string} kept
 * @property {string} old
 * @property {string} new
 * @property {boolean} accepted
 * @property {number} reward
 * @property {number} before
 * @property {number} alpha
 * @property {number} u
 */

const SHOWN = 4; // answers of the vote, as components/room/messages.py has it

export class OwnChain {
  /**
   * @param {import("./net.js").Seat} seat
   * @param {() => void} show called when there is something else to show
   * @param {(sentence: string) => void} failed called at most once: the chain is the server's now
   */
  constructor(seat, show, failed) {
    this.seat = seat;
    this.show = show;
    this.failed = failed;
    this.engine = new BrowserEngine(SERVED);
    /** @type {RoomTold | null} */
    this.room = null;
    /** @type {Mine | null} */
    this.mine = null; // as the server told it
    /** @type {Drawn[]} */
    this.steps = [];
    this.at = -1; // the step that is shown
    this.sent = -1; // the last one that the server has counted
    this.due = 0; // ms at which the next batch goes out
    this.busy = false; // sending
    this.clock = 0;
  }

  /**
   * What the server told.
   * @param {RoomTold} room
   * @param {Mine} mine
   */
  hear(room, mine) {
    const isNew = this.room?.round !== room.round;
    this.room = room;
    this.mine = mine;
    if (isNew) {
      this.steps = [];
      this.at = this.sent = -1;
      this.engine.draw({ ...room.run, reference: null, chain: mine.number, chains: 1, pool: 0,
        logProb: true }, {
        line: (line) => this.add(JSON.parse(line)),
        ended() {},
        failed: (sentence) => this.fail(sentence),
      });
      this.clock ||= window.setInterval(() => this.tick(), 1e3 * room.pace);
    }
    this.sent = Math.max(this.sent, mine.t);
    this.at = Math.max(this.at, mine.t, mine.had);
  }

  /** Nothing more is drawn or sent. */
  stop() {
    window.clearInterval(this.clock);
    this.engine.stop();
  }

  /** @param {string} sentence */
  fail(sentence) {
    this.stop();
    this.failed(sentence);
  }

  /**
   * A line of the chain's trace.
   * @param {any} line
   */
  add(line) {
    if (line.type !== "step") return;
    const { t, index, finished, reward, accepted } = line;
    const last = this.steps.at(-1);
    const pieces = [...last?.state.pieces.slice(0, index) ?? [], ...line.pieces];
    const tokens = [...last?.state.tokens.slice(0, index) ?? [], ...line.tokens];
    const text = line.text ?? (finished ? pieces.slice(0, -1) : pieces).join("");
    const proposal = { tokens, pieces, text, reward, answer: line.answer };
    const now = last?.state ?? proposal;
    const isNew = accepted && (!last || String(tokens) !== String(now.tokens));
    const kept = last ? pieces.slice(0, index).join("") : "";
    this.steps.push({
      state: isNew ? proposal : now,
      sent: isNew ? [text, reward, line.log_prob] : null,
      since: isNew || !last ? t : last.since,
      kept, old: now.text.slice(kept.length), new: text.slice(kept.length), accepted, reward,
      before: now.reward, alpha: Math.exp(line.log_alpha ?? -Infinity),
      u: t ? Math.exp(line.log_u ?? -Infinity) : 0,
    });
    if (t === this.at) this.show(); // after a reload
  }

  /** A step at most, and a batch if it is time. */
  tick() {
    const { goal, every } = /** @type {RoomTold} */ (this.room);
    if (this.at < goal && this.steps[this.at + 1]) {
      // a class that begins to run does not send at one moment
      if (this.sent >= this.at) this.due = Date.now() + 1e3 * every * (0.5 + Math.random());
      this.at += 1;
      this.show();
    }
    if (!this.busy && Date.now() >= this.due) this.send();
  }

  /** Send the states that the server lacks; what does not arrive is sent again. */
  async send() {
    const room = /** @type {RoomTold} */ (this.room);
    const t = this.sent + 1;
    const states = this.steps.slice(t, this.at + 1).map(({ sent }) => sent);
    if (!states.length) return;
    this.busy = true;
    this.due = Date.now() + 1e3 * room.every;
    try {
      const { code, token } = this.seat;
      const found = await ask("moved", { code, round: room.round, t, states }, token);
      if (this.room?.round === room.round) {
        this.sent = found.t;
        Object.assign(this.mine ?? {}, { hand: found.hand });
        this.show();
      }
    } catch (error) {
      if (error instanceof Refusal) this.fail("the server refused its states");
    }
    this.busy = false;
  }

  /** What the server would tell of this chain if it drew it. */
  told() {
    const step = this.steps[this.at];
    if (!step) return { t: -1 };
    const past = this.steps.slice(0, this.at + 1).map(({ state }) => state);
    const votes = tally(past.map(({ answer }) => answer)).map(([answer, n]) =>
      /** @type {[string, number]} */ ([answer, n / past.length]))
      .filter(([answer]) => answer !== null).slice(0, SHOWN);
    return { ...step, t: this.at, counted: this.at - step.since + 1, votes,
      answer: step.state.answer, rewards: past.map(({ reward }) => reward) };
  }
}
