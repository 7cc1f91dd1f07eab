/* The run that a player shows: one from a file, a live one that grows, or a problem that waits. */
import { feed, newTrace, parse } from "./parse.js";

/** @typedef {import("./parse.js").Trace} Trace */

/**
 * The first line of a trace's text.
 * @param {string} text
 */
const headOf = (text) => text.slice(0, text.indexOf("\n") + 1);

/** What is shown, and what a text that arrives does to it. */
export class ShownRun {
  trace = newTrace();
  text = ""; // of the trace
  source = ""; // file, live or next
  name = "";
  isOld = false; // the settings of the next run are others
  isStopped = false;
  number = 0; // runs so far
  posed = ""; // a problem that waits for its run
  isRequested = false; // whether that run has been asked for
  #left = ""; // the head of a run that something else has taken the place of

  get head() {
    return headOf(this.text);
  }

  /** Whether nothing more will come. */
  get isFinished() {
    return Boolean(this.trace.end || this.isStopped || this.source === "file");
  }

  /** Whether a problem waits, and no run of it has been asked for. */
  get waits() {
    return Boolean(this.posed && !this.isRequested);
  }

  /**
   * Show a whole trace; a bad one throws one clear sentence and changes nothing.
   * @param {string} text
   * @param {string} name
   */
  open(text, name) {
    const trace = parse(text);
    if (this.source === "live") this.#left = this.head;
    this.#replace(trace, text, "file", name);
  }

  /**
   * Take all that a live run has sent so far.
   * @param {string} text
   * @returns {"new" | "more" | ""} whether it begins or goes on, or is of no run that is shown
   */
  take(text) {
    const first = headOf(text);
    if (!first || first === this.#left) return ""; // a file was opened while this run went on
    if (this.waits) return ""; // the run that a new problem has ended
    if (this.source === "live" && this.text.startsWith(first) && text.length >= this.text.length) {
      feed(this.trace, text);
      this.text = text;
      return "more";
    }
    const trace = feed(newTrace(), text);
    if (!trace.chains.length) return ""; // what was there stays until there is a step
    this.#replace(trace, text, "live", "Live run");
    return "new";
  }

  /**
   * Let a new problem take the place of the run.
   * @param {string} problem
   * @returns {boolean} false for a late event of the problem whose run has been asked for
   */
  pose(problem) {
    if (this.isRequested && this.posed === problem) return false;
    if (this.source === "live") this.#left = this.head;
    this.#replace(newTrace(), "", "next", "New problem");
    this.posed = problem;
    return true;
  }

  /** A run of the settings has been asked for. */
  expect() {
    this.isRequested = true;
    this.source = "next";
    this.#left = "";
  }

  /** Nothing more of a live run is drawn. */
  stop() {
    this.isRequested = false;
    if (this.source !== "live" || this.trace.end) return;
    this.isStopped = true;
    this.trace.version += 1;
  }

  /** @type {(trace: Trace, text: string, source: string, name: string) => void} */
  #replace(trace, text, source, name) {
    Object.assign(this, { trace, text, source, name });
    Object.assign(this, { isOld: false, isStopped: false, isRequested: false, posed: "" });
    this.number += 1;
  }
}
