/* Where the visitor is in the run that is shown, and every way to go elsewhere. */
import { Clock } from "./clock.js";
import { JUMPS, following } from "./jumps.js";
import { LAST } from "./words.js";

/** @typedef {import("./run.js").ShownRun} ShownRun */

export class Position {
  clock = new Clock();
  chainId = 0;
  /** @type {[t: number, chain: number] | null} */
  wanted = null; // the step to go to once the run has got there

  /**
   * @param {ShownRun} run
   * @param {(speak: boolean) => void} changed
   */
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
  }

  get chain() {
    const { chains } = this.run.trace;
    return chains.find(({ id }) => id === this.chainId) ?? chains[0];
  }

  get last() {
    return (this.chain?.steps.length ?? 0) - 1;
  }

  /** Whether the last step is shown to its end, and nothing will come. */
  get isOver() {
    const { t, phase } = this.clock;
    return t >= this.last && phase === LAST && this.run.isFinished;
  }

  /** @param {number} t */
  go(t, phase = LAST, speak = true) {
    if (this.last < 0) return;
    this.clock.go(t, this.last, phase);
    this.changed(speak);
  }

  /** @param {number} t */
  seek(t) {
    this.clock.playing = false;
    this.go(t);
  }

  /** @param {number} t */
  scrub(t) {
    this.clock.playing = false;
    this.go(t, LAST, false);
  }

  /** @param {number} by */
  move(by) {
    this.wanted = null;
    this.seek(this.clock.t + by);
  }

  /** @param {number} phase */
  goPhase(phase) {
    this.clock.playing = false;
    this.go(this.clock.t || Math.min(1, this.last), phase);
  }

  /**
   * Go to the next step of a kind.
   * @param {number} kind
   * @returns {boolean} whether there is one
   */
  jump(kind) {
    const places = this.chain ? JUMPS[kind].places(this.run.trace, this.chain) : [];
    if (places.length) this.seek(following(places, this.clock.t));
    return places.length > 0;
  }

  /** @param {boolean} on whether to play */
  toggle(on) {
    this.clock.playing = on;
    if (on && this.isOver) this.clock.rewind();
    this.changed(!on);
  }

  /**
   * Go to a step of a chain.
   * @param {number} t
   * @param {number} id
   */
  visit(t, id) {
    this.chainId = id;
    this.chainId = this.chain?.id ?? 0;
    this.seek(t);
  }

  /** @param {number} id */
  setChain(id) {
    this.chainId = id;
    this.go(this.clock.t);
  }

  /**
   * Start with another run.
   * @param {boolean} plays
   */
  restart(plays) {
    this.chainId = this.run.trace.chains[0]?.id ?? 0;
    this.clock.rewind();
    this.clock.phase = LAST;
    this.clock.playing = plays;
  }

  /** Go to the step that is wanted, once the run has it. */
  arrive() {
    const { wanted } = this;
    const there = this.run.trace.chains.find(({ id }) => id === wanted?.[1]);
    if (!wanted || !there || there.steps.length <= wanted[0]) return;
    this.visit(...wanted);
    this.wanted = null;
  }

  /**
   * Let time pass.
   * @param {number} seconds
   */
  advance(seconds) {
    if (!this.clock.advance(seconds, this.last) || !this.run.isFinished) return;
    this.clock.playing = false;
    this.changed(true);
  }
}
