/* Where the player is: a step, a phase of it and how much of the phase has passed. */
import { LAST } from "./words.js";

/** The speed that nobody has chosen: slow at first, then faster by itself. */
export const AUTO = 0;
export const SPEEDS = [AUTO, 0.25, 0.5, 1, 2, 4, 8, Infinity];

const SECONDS = [0.34, 0.34, 0.24, 0.24, 0.24, 0.2]; // of each phase; together 1.6, at 1x
const START = 0.9; // seconds for the first draft at 1x
/** Until how many steps have been played, how fast: the first ones take 4.6 seconds each. */
const PACE = [[3, 0.35], [6, 0.6], [12, 1], [Infinity, 2]];

/** A position in a chain that goes on with time. */
export class Clock {
  t = 0;
  phase = LAST;
  passed = 1; // of the phase, 0 to 1
  playing = false;
  speed = AUTO;
  played = 0; // steps, from their beginning to their end

  /** How fast it goes now. */
  get rate() {
    return this.speed === AUTO ? PACE.find(([most]) => this.played < most)?.[1] ?? 1 : this.speed;
  }

  /** The last step whose verdict is out. */
  get revealed() {
    return this.phase === LAST || this.t === 0 ? this.t : this.t - 1;
  }

  /**
   * Go to a step that there is, at the end of a phase.
   * @param {number} t
   * @param {number} last the last step so far
   */
  go(t, last, phase = LAST) {
    this.t = Math.max(0, Math.min(last, t));
    this.phase = this.t === 0 ? LAST : phase; // the first draft has no phases
    this.passed = 1;
  }

  /** Go back to the first draft, before it is shown. */
  rewind() {
    this.t = 0;
    this.passed = 0;
  }

  /**
   * Let time pass, not beyond the end of step `last`.
   * @param {number} seconds
   * @param {number} last
   * @returns {boolean} whether the end of that step is reached
   */
  advance(seconds, last) {
    if (this.speed === Infinity) return seconds > 0 && this.#jump(last);
    for (let left = seconds; left > 0;) {
      const whole = (this.t === 0 ? START : SECONDS[this.phase]) / this.rate;
      const rest = whole * (1 - this.passed);
      if (left < rest) {
        this.passed += left / whole;
        return false;
      }
      left -= rest;
      this.passed = 1;
      if (this.phase < LAST) {
        this.phase += 1;
      } else if (this.t >= last) {
        return true;
      } else {
        this.played += Number(this.t > 0);
        this.t += 1;
        this.phase = 0;
      }
      this.passed = 0;
    }
    return false;
  }

  /**
   * One step a frame.
   * @param {number} last
   */
  #jump(last) {
    this.passed = 1;
    if (this.phase === LAST && this.t >= last) return true;
    if (this.phase === LAST) this.t += 1;
    this.phase = LAST;
    return false;
  }
}
