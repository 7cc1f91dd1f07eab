/* A trace (JSON lines, version 2 or 3) as the player needs it. A file is anybody's word: each line
   is checked, and the first that cannot be is named in one sentence. */
import { isRight, keepVerdict } from "./words.js";

/**
 * What the first line says of a run.
 * @typedef {object} Header
 * @property {string} lm
 * @property {string} rm
 * @property {string} prompt
 * @property {number} beta
 * @property {number} sharpness of the target: power of the model's probability
 * @property {number} steps
 * @property {number} [seed]
 * @property {string | null} [reference] the right answer, if it is known
 * @property {string | null} [extractor] how answers are read
 * @property {string} [move] how proposals are made
 */
/**
 * One step: its proposal beside the state that it would replace.
 * @typedef {object} Step
 * @property {number} t
 * @property {number} index how many tokens were kept
 * @property {number[]} ids the proposal's tokens, EOS included
 * @property {string[]} pieces their texts
 * @property {boolean} finished
 * @property {number} reward
 * @property {string | null} answer
 * @property {number} logAlpha
 * @property {number} logU
 * @property {boolean} accepted
 * @property {number} first the first token that differs from the state, -1 if none does
 * @property {boolean} changed
 * @property {number} old the step whose proposal was the state
 * @property {number} oldLength
 * @property {number} oldReward
 * @property {number[]} logProbs ln of each token's probability as drawn; none where it was not kept
 * @property {number} again how many of the state's last tokens were kept too: a block's step
 * @property {number | null} correction log of what the move adds; null: old over new length
 * @property {string} move the name of the move
 * @property {string | null} refused why there is no proposal; the state then stands in its place
 * @property {string[]} vain the tokens that were drawn in vain
 * @property {number} sharp (sharpness - 1) (ln p(y') - ln p(y)): 0 of the paper's target
 */
/**
 * One chain; a list's item t counts the steps 1 to t.
 * @typedef {object} Chain
 * @property {number} id
 * @property {Step[]} steps
 * @property {number[]} stateAt the step whose proposal is the state at t
 * @property {number[]} since the step at which that state came
 * @property {number[]} accepted
 * @property {number[]} changed proposals that differ from the state
 * @property {number[]} moves those of them that were accepted
 * @property {number[]} generated tokens
 */
/**
 * @typedef {object} Trace
 * @property {Header} header
 * @property {number[]} base rewards of the model alone
 * @property {number[]} tilts (sharpness - 1) ln p of each of them; none of the paper's target
 * @property {(string | null)[]} alone what its samples answer, where their texts were kept
 * @property {number[]} lengths how many tokens each has, 0 where that was not kept
 * @property {number[]} spent tokens that the first 1, 2, … of them took
 * @property {Chain[]} chains
 * @property {string[]} answers in the order of their appearance
 * @property {Map<string, number>} states of all chains that have each answer
 * @property {Map<string, boolean>} verdicts of the run's grader, where texts are not enough
 * @property {string[]} colours the wrong answers that have a colour of their own, each in its place
 * @property {{ reason: string, message: string } | null} end
 * @property {number} lines
 * @property {number} read characters
 * @property {number} version changes with every reading
 * @property {number} lo the lowest reward
 * @property {number} hi the highest reward
 */

const COLOURS = 5; // of wrong answers, --a1 to --a5

export const LIMITS = { characters: 16e6, steps: 50000, chains: 64, tokens: 32768 };

/** What is wrong with a trace, in one sentence. */
export class TraceError extends Error {}

/** @typedef {(x: any) => boolean} Test */

/** @type {Test} */
const isText = (x) => typeof x === "string";
/** @type {Test} */
const isCount = (x) => Number.isSafeInteger(x) && x >= 0;
/** @type {Test} */
const isNumber = (x) => typeof x === "number" && Math.abs(x) <= 1e300;
/** @type {Test} */
const isLog = (x) => x === null || (isNumber(x) && x <= 0);
/** @type {Test} */
const isLogProb = (x) => isNumber(x) && x <= 0;
/** What a later header repeats. @type {(keyof Header)[]} */
const SAME = ["lm", "rm", "prompt", "beta", "sharpness", "seed"];
/** @type {(x: any, test: Test, most: number) => boolean} */
const isList = (x, test, most) => Array.isArray(x) && x.length <= most && x.every(test);
/** @type {(x: any) => boolean} */
const isRecord = (x) => x !== null && typeof x === "object" && !Array.isArray(x);

/** @returns {Trace} */
export function newTrace() {
  return {
    header: /** @type {any} */ (null), // until its line has come
    base: [],
    tilts: [],
    alone: [],
    lengths: [],
    spent: [],
    chains: [],
    answers: [],
    states: new Map(),
    verdicts: new Map(),
    colours: [],
    end: null,
    lines: 0,
    read: 0,
    version: 0,
    lo: Infinity,
    hi: -Infinity,
  };
}

/**
 * Read the lines that arrived since the last call.
 * @param {Trace} trace
 * @param {string} text everything so far
 * @param {boolean} [whole] nothing will follow, so the last line needs no end
 */
export function feed(trace, text, whole) {
  if (text.length > LIMITS.characters) throw new TraceError("This trace is larger than 16 MB.");
  for (;;) {
    let stop = text.indexOf("\n", trace.read);
    if (stop < 0) {
      if (!whole || trace.read >= text.length) break;
      stop = text.length;
    }
    const line = text.slice(trace.read, stop);
    trace.read = stop + 1;
    trace.lines += 1;
    if (line.trim()) readLine(trace, line);
  }
  trace.version += 1;
  return trace;
}

/**
 * Parse a whole trace.
 * @param {string} text
 */
export function parse(text) {
  const trace = feed(newTrace(), text, true);
  if (!trace.header) throw new TraceError("This file is empty, not a trace.");
  if (!trace.chains.length) throw new TraceError("This trace has no steps.");
  return trace;
}

/**
 * @param {Trace} trace
 * @param {unknown} ok
 * @param {string} sentence
 */
function need(trace, ok, sentence) {
  if (!ok) throw new TraceError(`Line ${trace.lines}: ${sentence}.`);
}

/**
 * @param {Trace} trace
 * @param {unknown} ok
 * @param {string} name
 */
function needField(trace, ok, name) {
  need(trace, ok, `“${name}” is missing or wrong`);
}

/**
 * @param {Trace} trace
 * @param {string} line
 */
function readLine(trace, line) {
  let x;
  try {
    x = JSON.parse(line);
  } catch {
    need(trace, false, "this is not JSON; a trace is JSON lines");
  }
  need(trace, isRecord(x), "expected an object");
  if (!trace.header || x.type === "header") {
    readHeader(trace, x);
    return;
  }
  if (x.type !== "end") trace.end = null; // a run that was stopped and has gone on
  if (x.type === "sample") {
    needField(trace, x.n === trace.base.length && x.n < LIMITS.steps, "n");
    needField(trace, isNumber(x.reward), "reward");
    readDraw(trace, x);
    trace.base.push(x.reward);
    if (x.log_probs) trace.tilts.push(tilt(trace, sum(x.log_probs)));
    trace.alone.push(x.answer ?? null);
    const length = x.cost?.[0] ?? x.tokens?.length ?? 0;
    trace.lengths.push(length);
    trace.spent.push((trace.spent.at(-1) ?? 0) + length);
    span(trace, x.reward);
  } else if (x.type === "end") {
    needField(trace, isText(x.reason), "reason");
    trace.end = { reason: x.reason, message: isText(x.message) ? x.message : "" };
  } else if (x.type === "step") {
    readStep(trace, x);
  } else {
    need(trace, false, `unknown type ${JSON.stringify(x.type)}`);
  }
}

/**
 * @param {Trace} trace
 * @param {any} x
 */
function readHeader(trace, x) {
  need(trace, x.type === "header", "expected a trace, whose first line is its header");
  const known = x.version === 2 || x.version === 3;
  need(trace, known, `trace version ${String(x.version)} is not known, expected 2 or 3`);
  need(trace, [x.lm, x.rm, x.prompt].every(isText), "the header needs lm, rm and prompt");
  needField(trace, isNumber(x.beta) && x.beta > 0, "beta");
  const sharpness = x.sharpness ?? x.alpha ?? 1; // version 2 called it alpha
  needField(trace, isNumber(sharpness) && sharpness >= 1, "sharpness");
  needField(trace, isCount(x.steps) && x.steps <= LIMITS.steps, "steps");
  const [there, header] = [trace.header, { ...x, sharpness }];
  need(trace, !there || SAME.every((name) => there[name] === header[name]),
    "a second header must continue the same run, and this one is of a different run");
  trace.header = header;
  trace.end = null;
}

/**
 * @param {Trace} trace
 * @param {number} r
 */
function span(trace, r) {
  trace.lo = Math.min(trace.lo, r);
  trace.hi = Math.max(trace.hi, r);
}

/** @param {number[]} values */
const sum = (values) => values.reduce((a, b) => a + b, 0);

/**
 * What a sharper target makes of a log-probability, or of the difference of two.
 * @param {Trace} trace
 * @param {number} logProb
 */
const tilt = ({ header }, logProb) => (header.sharpness - 1) * logProb;

/**
 * Check what the lines of steps and samples may have: an answer, a cost, and log-probabilities, one
 * for each of the line's tokens. What the grader decided of the answer is kept.
 * @param {Trace} trace
 * @param {any} x
 */
function readDraw(trace, x) {
  needField(trace, x.answer == null || isText(x.answer), "answer");
  needField(trace, x.right == null || typeof x.right === "boolean", "right");
  needField(trace, x.cost == null || isList(x.cost, isCount, 8), "cost");
  const n = (x.tokens?.length ?? 0) + (x.kept_again ?? 0);
  const each = isList(x.log_probs, isLogProb, LIMITS.tokens) && x.log_probs.length === n;
  needField(trace, x.log_probs == null || each, "log_probs");
  keepVerdict(trace, x);
}

/**
 * The name of the move of a step. In older traces of several moves a step has none, and its line
 * shows which of the three moves of their time made it.
 * @param {Header} header
 * @param {any} x
 * @param {number} lengths the old length over the new one
 */
function moveOf({ move = "suffix" }, x, lengths) {
  if (x.move != null || !/[*+( ]/.test(move)) return x.move ?? move;
  if (x.kept_again || x.refused != null) return "block";
  return Math.abs(x.log_correction - Math.log(lengths)) > 1e-9 ? "entropy" : "suffix";
}

/**
 * Refuse a step that cannot be.
 * @param {Trace} trace
 * @param {any} x
 * @param {number} t the step that is due
 * @param {Step | null} old the step of the state before
 */
function checkStep(trace, x, t, old) {
  const due = `step ${String(x.t)} of chain ${x.chain} came where step ${t} was expected`;
  need(trace, x.t === t && t <= LIMITS.steps, due);
  const most = old ? old.ids.length - 1 : 0;
  needField(trace, isCount(x.index) && x.index <= most, "index");
  const refused = x.refused != null;
  needField(trace, !refused || (isText(x.refused) && old !== null), "refused");
  const again = x.kept_again ?? 0;
  const room = old ? old.ids.length - x.index : 0;
  needField(trace, isCount(again) && again <= room, "kept_again");
  needField(trace, x.move == null || isText(x.move), "move");
  needField(trace, x.log_correction == null || isNumber(x.log_correction), "log_correction");
  const some = isList(x.tokens, isCount, LIMITS.tokens) && (x.tokens.length > 0 || refused);
  needField(trace, some, "tokens");
  const lengths = [0, x.tokens.length];
  const texts = isList(x.pieces, isText, LIMITS.tokens) && lengths.includes(x.pieces.length);
  needField(trace, texts, "pieces");
  needField(trace, refused || isNumber(x.reward), "reward");
  needField(trace, isLog(x.log_alpha) && isLog(x.log_u), "log_alpha");
  needField(trace, typeof x.accepted === "boolean", "accepted");
  needField(trace, refused || typeof x.finished === "boolean", "finished");
  readDraw(trace, x);
}

/**
 * The first token that differs from the state, -1 if none does.
 * @param {number[]} ids
 * @param {number[]} before
 * @param {number} from
 */
function firstDifference(ids, before, from) {
  const shared = Math.min(ids.length, before.length);
  for (let j = from; j < shared; j++) {
    if (ids[j] !== before[j]) return j;
  }
  return ids.length === before.length ? -1 : shared;
}

/**
 * @param {Trace} trace
 * @param {number} id
 * @returns {Chain}
 */
function newChain(trace, id) {
  /** @type {Chain} */
  const chain = {
    id,
    steps: [],
    stateAt: [],
    since: [],
    accepted: [],
    changed: [],
    moves: [],
    generated: [],
  };
  trace.chains.push(chain);
  trace.chains.sort((a, b) => a.id - b.id);
  return chain;
}

/**
 * @param {Trace} trace
 * @param {any} x
 */
function readStep(trace, x) {
  needField(trace, isCount(x.chain) && x.chain < LIMITS.chains, "chain");
  const known = trace.chains.find((c) => c.id === x.chain);
  const t = known ? known.steps.length : 0;
  const old = known ? known.steps[known.stateAt[t - 1]] : null;
  checkStep(trace, x, t, old);
  const logAlpha = x.log_alpha ?? -Infinity;
  const logU = x.log_u ?? -Infinity;
  const isAccepted = t === 0 || logAlpha === 0 || logU < logAlpha;
  need(trace, x.accepted === isAccepted, "the verdict contradicts alpha and u");

  const words = x.pieces.length ? x.pieces : x.tokens.map((/** @type {number} */ n) => ` ${n}`);
  const again = x.kept_again ?? 0;
  const refused = x.refused ?? null;
  /** The state's list, with a line's in place of what was written again; all of it if refused. */
  const splice = (/** @type {any[] | undefined} */ was, /** @type {any[]} */ now, tail = again) => {
    if (!was) return now;
    if (refused !== null) return was;
    return was.slice(0, x.index).concat(now, tail ? was.slice(-tail) : []);
  };
  const ids = splice(old?.ids, x.tokens);
  const first = old ? firstDifference(ids, old.ids, x.index) : -1;
  const chain = known ?? newChain(trace, x.chain);
  const logProbs = splice(old?.logProbs, x.log_probs ?? [], 0); // a line has the tail's too
  const both = logProbs.length === ids.length && old?.logProbs.length === old?.ids.length;
  /** @type {Step} */
  const step = {
    t,
    index: x.index,
    ids,
    pieces: splice(old?.pieces, words),
    finished: refused === null ? x.finished : old?.finished,
    reward: refused === null ? x.reward : old?.reward,
    answer: x.answer ?? null,
    logAlpha,
    logU,
    accepted: x.accepted,
    first,
    changed: first >= 0,
    old: old ? chain.stateAt[t - 1] : 0,
    oldLength: old ? old.ids.length : ids.length,
    oldReward: old ? old.reward : x.reward,
    again,
    move: moveOf(trace.header, x, (old?.ids.length ?? 0) / ids.length),
    correction: refused === null ? x.log_correction ?? null : -Infinity,
    refused,
    vain: refused === null ? [] : words,
    logProbs,
    sharp: old && both ? tilt(trace, sum(logProbs) - sum(old.logProbs)) : 0,
  };
  addStep(chain, step, x.cost ? x.cost[0] + (x.cost[2] ?? 0) : x.tokens.length);
  if (step.answer !== null && !trace.answers.includes(step.answer)) {
    trace.answers.push(step.answer);
  }
  const now = chain.steps[chain.stateAt[t]].answer;
  if (now !== null) colour(trace, now);
  span(trace, step.reward);
}

/**
 * Count a state's answer. Once all colours are given, an answer that has more states takes that of
 * the one with fewest, so whatever leads has its own, however late it came.
 * @param {Trace} trace
 * @param {string} answer
 */
function colour(trace, answer) {
  const { states, colours } = trace;
  const n = (states.get(answer) ?? 0) + 1;
  states.set(answer, n);
  if (isRight(trace, answer) || colours.includes(answer)) return;
  const counts = colours.map((other) => states.get(other) ?? 0);
  const least = Math.min(...counts);
  if (colours.length < COLOURS) colours.push(answer);
  else if (n > least) colours[counts.lastIndexOf(least)] = answer;
}

/**
 * @param {Chain} chain
 * @param {Step} step
 * @param {number} generated tokens
 */
function addStep(chain, step, generated) {
  const { t, accepted, changed } = step;
  const before = (/** @type {number[]} */ list) => (t ? list[t - 1] : 0);
  const count = (/** @type {number[]} */ list, /** @type {number | boolean} */ n) => {
    list.push(before(list) + Number(n));
  };
  count(chain.accepted, t > 0 && accepted); // the first draft is no proposal
  count(chain.changed, changed);
  count(chain.moves, changed && accepted);
  count(chain.generated, generated);
  chain.stateAt.push(accepted ? t : before(chain.stateAt));
  chain.since.push(accepted && changed ? t : before(chain.since));
  chain.steps.push(step);
}
