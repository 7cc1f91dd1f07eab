/* A member's own chain, drawn in the member's browser. All steps are drawn at once and shown at the
   pace of the class; the server gets the states in batches and counts them. */
import { BrowserEngine, SERVED } from "../engine/browser.js";
import { tally } from "../player/numbers.js";
import { Refusal, ask } from "./net.js";

/** @typedef {import("./member.js").MemberState} MemberState */
/** @typedef {import("./member.js").RoomState} RoomState */
/**
 * @typedef {object} State
 * @property {number[]} tokens
 * @property {string[]} pieces
 * @property {string} text
 * @property {number} reward
 * @property {string | null} answer
 */
/**
 * A step: the state after it, the same as the server gets it (null if the chain stayed), and the
 * step since which it has been the state.
 * @typedef {{ state: State, since: number,
 *   message: [text: string, reward: number, logProb: number] | null }
 *   & Pick<MemberState, "kept" | "old" | "new" | "accepted" | "reward" | "before" | "alpha" | "u">
 *   } OwnStep
 */

const MOST_ANSWERS = 4; // answers of the vote, as in components/room/messages.py

export class OwnChain {
  /**
   * @param {import("./net.js").Seat} seat
   * @param {() => void} show called when the state to show has changed
   * @param {(sentence: string) => void} failed called at most once: the chain is the server's now
   */
  constructor(seat, show, failed) {
    this.seat = seat;
    this.show = show;
    this.failed = failed;
    this.engine = new BrowserEngine(SERVED);
    /** @type {RoomState | null} */
    this.room = null;
    /** @type {MemberState | null} */
    this.mine = null; // as the server sent it
    /** @type {OwnStep[]} */
    this.steps = [];
    this.at = -1; // the step that is shown
    this.counted = -1; // the last one that the server has counted
    this.due = 0; // ms at which the next batch goes out
    this.busy = false; // sending
    this.clock = 0;
  }

  /**
   * Take a new state of the class and of the member from the server.
   * @param {RoomState} room
   * @param {MemberState} mine
   */
  update(room, mine) {
    const isNew = this.room?.round !== room.round;
    this.room = room;
    this.mine = mine;
    if (isNew) {
      this.steps = [];
      this.at = this.counted = -1;
      this.engine.draw({ ...room.run, reference: null, chain: mine.number, chains: 1, pool: 0,
        logProb: true }, {
        line: (line) => this.add(JSON.parse(line)),
        ended() {},
        failed: (sentence) => this.fail(sentence),
      });
      this.clock ||= window.setInterval(() => this.tick(), 1e3 * room.pace);
    }
    this.counted = Math.max(this.counted, mine.t);
    this.at = Math.max(this.at, mine.t, mine.replay_until);
  }

  /** Stop drawing and sending. */
  stop() {
    window.clearInterval(this.clock);
    this.clock = 0;
    this.room = null; // the next update starts again
    this.engine.stop();
  }

  /** @param {string} sentence */
  fail(sentence) {
    this.stop();
    this.failed(sentence);
  }

  /**
   * Add a line of the chain's trace.
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
      message: isNew ? [text, reward, line.log_prob] : null,
      since: isNew || !last ? t : last.since,
      kept, old: now.text.slice(kept.length), new: text.slice(kept.length), accepted, reward,
      before: now.reward, alpha: Math.exp(line.log_alpha ?? -Infinity),
      u: t ? Math.exp(line.log_u ?? -Infinity) : 0,
    });
    if (t === this.at) this.show(); // after a reload
  }

  /** Show at most one more step, and send a batch if one is due. */
  tick() {
    const { goal, every } = /** @type {RoomState} */ (this.room);
    if (this.at < goal && this.steps[this.at + 1]) {
      // A random delay, so that a class that starts to run does not send all batches at once.
      if (this.counted >= this.at) this.due = Date.now() + 1e3 * every * (0.5 + Math.random());
      this.at += 1;
      this.show();
    }
    if (!this.busy && Date.now() >= this.due) this.send();
  }

  /** Send the states that the server lacks; a batch that does not arrive is sent again. */
  async send() {
    const room = /** @type {RoomState} */ (this.room);
    const t = this.counted + 1;
    const states = this.steps.slice(t, this.at + 1).map(({ message }) => message);
    if (!states.length) return;
    this.busy = true;
    this.due = Date.now() + 1e3 * room.every;
    try {
      const { code, token } = this.seat;
      const reply = await ask("states", { code, round: room.round, t, states }, token);
      if (this.room?.round === room.round) {
        this.counted = reply.t;
        Object.assign(this.mine ?? {}, { hand: reply.hand });
        this.show();
      }
    } catch (error) {
      if (error instanceof Refusal) this.fail("the server refused its states");
    }
    this.busy = false;
  }

  /** Return the fields that the server would send if it drew this chain. */
  toMessage() {
    const step = this.steps[this.at];
    if (!step) return { t: -1 };
    const past = this.steps.slice(0, this.at + 1).map(({ state }) => state);
    const votes = tally(past.map(({ answer }) => answer)).map(([answer, n]) =>
      /** @type {[string, number]} */ ([answer, n / past.length]))
      .filter(([answer]) => answer !== null).slice(0, MOST_ANSWERS);
    return { ...step, t: this.at, counted: this.at - step.since + 1, votes,
      answer: step.state.answer, rewards: past.map(({ reward }) => reward) };
  }
}
