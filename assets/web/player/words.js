/* Numbers and steps as people read them. */
import { wordsOf } from "./moves.js";
import { quantities } from "./numbers.js";

/** @typedef {import("./parse.js").Step} Step */
/** @typedef {import("./parse.js").Trace} Trace */

const MINUS = "−";
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @type {(x: number, digits?: number) => string} */
export const fixed = (x, digits = 2) => x.toFixed(digits).replace("-", MINUS);
/** @type {(x: number, digits?: number) => string} */
export const signed = (x, digits = 2) => (x >= 0 ? "+" : "") + fixed(x, digits);
/** @type {(x: number) => string} */
export const px = (x) => x.toFixed(1);
/**
 * A share in whole percent; only nothing is 0%, and only everything 100%.
 * @param {number} x
 */
export function percent(x) {
  if (x > 0 && x < 0.005) return "<1%";
  return x >= 0.995 && x < 1 ? ">99%" : `${Math.round(100 * x)}%`;
}
/**
 * Shares of one whole, each rounded by itself, so that equal counts have equal shares.
 * @param {number[]} counts
 */
export function percents(counts) {
  const whole = counts.reduce((a, b) => a + b, 0) || 1;
  return counts.map((n) => percent(n / whole));
}
/** @type {(n: number, word: string) => string} */
export const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/**
 * A number as all pages write it (`number` in qalign_study/sheet/words.py writes the same), with
 * zeros, so that factors multiply to what stands behind the sign of equality: 0.690, −12.4,
 * 12,345, 2.10 × 10⁻⁵.
 * @param {number} x
 * @returns {string}
 */
export function brief(x, digits = 3) {
  if (x < 0) return MINUS + brief(-x, digits);
  if (!x) return "0";
  if (x === Infinity) return "∞";
  const [mantissa, end] = x.toExponential(digits - 1).split("e");
  const power = +end;
  if (power < -3 || power > 5) {
    return `${mantissa} × 10${`${power}`.replace(/./g, (c) => RAISED[+c] ?? "⁻")}`;
  }
  const text = x.toFixed(Math.max(0, digits - 1 - power));
  return power < 3 ? text : text.replace(/\d(?=(\d{3})+\b)/g, "$&,");
}
/**
 * The same without zeros at the end.
 * @param {number} x
 */
export const plain = (x, digits = 6) =>
  brief(x, digits).replace(/(?:\.0+|(\.\d+?)0+)(?= |$)/, "$1");

/**
 * u and alpha in three digits, or in as many as show which one is larger.
 * @param {number} u
 * @param {number} alpha
 * @returns {[string, string]}
 */
export function pair(u, alpha, digits = 3) {
  const [a, b] = [brief(u, digits), brief(alpha, digits)];
  return a === b && u !== alpha ? pair(u, alpha, digits + 1) : [a, alpha === 1 ? "1" : b];
}

/**
 * A prompt for people: the messages of a conversation, each with its role.
 * @param {string} prompt
 */
export function promptText(prompt) {
  if (!prompt.trimStart().startsWith('[{"role"')) return prompt;
  try {
    /** @type {{ role: string, content: string }[]} */
    const messages = JSON.parse(prompt);
    return messages.map(({ role, content }) => `${role}: ${content}`).join("\n\n");
  } catch {
    return prompt;
  }
}

/**
 * Model text made safe to look at: controls and direction marks become visible signs.
 * @param {string} text
 */
export function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) =>
      String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
    .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
      `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/**
 * Keep what the run's grader decided of an answer, where comparing texts would not tell.
 * @param {{ verdicts: Map<string, boolean> }} trace
 * @param {{ answer?: string | null, right?: boolean | null }} line
 */
export function keepVerdict({ verdicts }, { answer, right }) {
  if (answer != null && right != null) verdicts.set(answer, right);
}

/**
 * Whether an answer is right: what the run's grader decided, else whether it is the right answer's
 * text, or one of a JSON list of them.
 * @param {{ header: { reference?: string | null }, verdicts: Map<string, boolean> }} trace
 * @param {string | null} answer
 * @returns {boolean}
 */
export function isRight({ header: { reference }, verdicts }, answer) {
  if (answer === null || reference == null) return false;
  const verdict = verdicts.get(answer);
  if (verdict !== undefined) return verdict;
  if (!reference.startsWith('["')) return answer === reference;
  try {
    return JSON.parse(reference).includes(answer);
  } catch {
    return answer === reference;
  }
}

const LONG = 14; // characters of an answer that has room everywhere
const MOST = 40;

/**
 * A long answer, from the part at which it differs from the right one, or from the first answer of
 * the trace: answers that begin alike would look alike.
 * @param {Trace} trace
 * @param {string} answer
 */
function distinct({ header, answers }, answer) {
  const model = header.reference ?? answers[0] ?? "";
  let at = 0;
  while (at < answer.length && answer[at] === model[at]) at += 1;
  const from = at < answer.length ? answer.lastIndexOf(", ", at) + 1 : 0;
  const text = answer.length > LONG && from ? `…${answer.slice(from).trim()}` : answer;
  return text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text;
}

/**
 * Whether answers are read in the run's texts, though the first ones may have none.
 * @param {Trace} trace
 */
export function hasAnswers({ header, answers }) {
  return Boolean(header.extractor) || answers.length > 0;
}

/**
 * An answer, with whether it is right where that is known.
 * @param {Trace} trace
 * @param {string | null} answer
 */
export function answerText(trace, answer) {
  if (answer === null) return "no answer";
  const name = distinct(trace, visible(answer));
  if (trace.header.reference == null) return name;
  return `${name} ${isRight(trace, answer) ? "✓" : "✗"}`;
}

/**
 * How a text ends, in quotes: most of a chain's texts begin alike.
 * @param {Step} step
 */
export function ending({ pieces, finished }) {
  const textPieces = finished ? pieces.slice(0, -1) : pieces; // without the end's sign
  const text = visible(textPieces.slice(-40).join("")).replace(/\s+/g, " ").trim();
  return text.length > 24 ? `“…${text.slice(-24)}”` : `“${text}”`;
}

/**
 * A list as people write it: "1, 2 and 3".
 * @param {(string | number)[]} items
 */
export const listed = (items) => (items.length < 2 ? String(items[0] ?? "")
  : `${items.slice(0, -1).join(", ")} and ${items[items.length - 1]}`);

/** What follows the list of answers where chains have different ones. */
export const UNMET = " they disagree;";

/**
 * Whether the answers that lead in several chains are the same.
 * @param {Trace} trace
 * @param {(string | null)[]} leading of each chain
 */
export function agreement(trace, leading) {
  const all = [...new Set(leading)];
  const name = (/** @type {string | null} */ answer) => answerText(trace, answer);
  if (all.length === 1) return `All ${leading.length} chains say ${name(all[0])}.`;
  const parts = all.map((answer) => {
    const who = trace.chains.filter((_, k) => leading[k] === answer).map(({ id }) => id + 1);
    const one = who.length === 1;
    return `${one ? "chain" : "chains"} ${listed(who)} ${one ? "says" : "say"} ${name(answer)}`;
  });
  const text = parts.join(", ");
  return `${text[0].toUpperCase()}${text.slice(1)}:${UNMET} `
    + "do not trust the pooled vote yet.";
}

/**
 * Whether there is a reward: without one beta plays no role.
 * @param {Trace} trace
 */
export const rewarded = ({ header }) => header.rm !== "none";

/**
 * Who reads the answers, where it is the user's own file: its name without the folder.
 * @param {{ extractor?: string | null }} header
 */
export const graderName = ({ extractor }) => (typeof extractor === "string"
  && extractor.includes(".py:") ? ` · answers read by ${visible(extractor.replace(/.*[/\\]/, ""))}`
  : "");

/** The phases of a step; a position names one by its place. */
export const PHASES = ["Cut", "Rewrite", "Score", "Chance", "Coin", "Verdict"];
export const LAST = PHASES.length - 1;

/** What each phase says, from step, beta and how u and alpha are written. */
/** @type {((step: Step, beta: number) => string)[]} */
const STORY = [
  (step) => wordsOf(step).story,
  (step) => rewritten(step),
  (step, beta) => {
    const { difference } = quantities(step, beta);
    if (step.refused !== null) return "Without a proposal there is nothing to score.";
    if (difference === 0) return "Both texts have the same reward.";
    const better = difference > 0 ? "higher" : "lower";
    const [now, before] = [fixed(step.reward), fixed(step.oldReward)];
    return `The reward model scores the proposal ${better}: ${now} against ${before}.`;
  },
  (step, beta) => {
    const { logRatio, u, alpha } = quantities(step, beta);
    if (step.refused !== null) return "There is no proposal, so the old text stays.";
    const { noun } = wordsOf(step);
    const all = step.sharp ? `Reward, probability and ${noun}` : `Reward and ${noun}`;
    return logRatio >= 0
      ? `${all} together make α = 1, so the proposal is certain to be accepted.`
      : `So the proposal is accepted with probability ${pair(u, alpha)[1]}.`;
  },
  (step, beta) => {
    const { u, alpha } = quantities(step, beta);
    return `The coin is a random number between 0 and 1: u = ${pair(u, alpha)[0]}.`;
  },
  (step, beta) => {
    const q = quantities(step, beta);
    const [u, alpha] = pair(q.u, q.alpha);
    if (step.refused !== null) {
      return `Refused: ${step.refused}. The old text stays and is counted again.`;
    }
    if (!step.accepted) {
      return `Rejected: ${u} is not below ${alpha}. The old text stays and is counted again.`;
    }
    const why = q.alpha === 1 ? "α is 1, so acceptance was certain" : `${u} is below ${alpha}`;
    return `Accepted: ${why}. The proposal becomes the current text.`;
  },
];

/** @param {Step} step */
function rewritten(step) {
  const { index, again, refused } = step;
  if (refused !== null) return `The move makes no proposal: ${refused}.`;
  const start = index || !again ? `keeps the first ${many(index, "token")}` : "keeps no beginning";
  const end = again ? `, rewrites one block and keeps the last ${many(again, "token")}.`
    : " and rewrites the rest.";
  const kept = index === 0 && !again
    ? "The model keeps nothing and writes a new text."
    : `The model ${start}${end}`;
  return step.changed ? kept : `${kept} It wrote the same text again.`;
}

/**
 * One sentence or two for what happens in a phase of a step.
 * @param {Step} step
 * @param {number} phase
 * @param {number} beta
 */
export function narrate(step, phase, beta) {
  if (step.t > 0) return STORY[phase](step, beta);
  const length = many(step.ids.length, "token");
  const reward = fixed(step.reward);
  return `The chain starts from one ordinary draft of the model: ${length}, reward ${reward}.`;
}
