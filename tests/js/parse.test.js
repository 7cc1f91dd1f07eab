import assert from "node:assert/strict";
import test from "node:test";
import { LIMITS, TraceError, feed, newTrace, parse } from "../../assets/web/player/parse.js";
import { FOUR, HEADER, RECORDED, lines, step } from "./traces.js";

const V2 = { ...HEADER, version: 2 };
const refused = (text, pattern) => assert.throws(() => parse(text), (error) => {
  assert.ok(error instanceof TraceError);
  assert.match(error.message, pattern);
  assert.match(error.message, /^[^\n]+\.$/);
  return true;
});

test("a rejected step leaves the state, an accepted one becomes it", () => {
  const [chain] = parse(FOUR).chains;
  assert.deepEqual(chain.stateAt, [0, 0, 2, 3]);
  assert.deepEqual(chain.since, [0, 0, 2, 2]); // the same text again is the same stay
  assert.deepEqual(chain.accepted, [0, 0, 1, 2]);
  assert.deepEqual(chain.changed, [0, 1, 2, 2]);
  assert.deepEqual(chain.moves, [0, 0, 1, 1]);
  assert.deepEqual(chain.generated, [3, 4, 6, 8]);
});

test("a proposal is what was kept and what was written", () => {
  const { steps } = parse(FOUR).chains[0];
  assert.deepEqual(steps[1].ids, [1, 9]);
  assert.deepEqual(steps[2].pieces, ["a", "b", "d", "e"]);
  assert.deepEqual(steps.map((x) => x.first), [-1, 1, 2, -1]);
  assert.deepEqual(steps.map((x) => x.oldLength), [3, 3, 3, 4]);
  assert.deepEqual(steps.map((x) => x.oldReward), [0, 0, 0, 1]);
});

test("a proposal that is a beginning of the state differs where it ends", () => {
  const { steps } = parse(lines(HEADER, step(0, { tokens: [1, 2, 3], pieces: [] }),
    step(1, { index: 1, tokens: [2], pieces: [] }))).chains[0];
  assert.equal(steps[1].first, 2);
  assert.deepEqual(steps[1].pieces, [" 1", " 2"]);
});

test("lines are read as they come, a line that has not ended is waited for", () => {
  const trace = newTrace();
  for (let k = 0; k < RECORDED.length; k += 997) feed(trace, RECORDED.slice(0, k));
  const whole = parse(RECORDED);
  feed(trace, RECORDED);
  assert.deepEqual({ ...trace, version: 0 }, { ...whole, version: 0 });
  assert.equal(whole.chains[0].steps.length, whole.header.steps + 1);
});

test("the range of rewards is that of all that is drawn", () => {
  const { lo, hi } = parse(FOUR);
  assert.deepEqual([lo, hi], [-2, 1]);
});

test("samples of the model alone come one by one, a run that has ended may go on", () => {
  const samples = [0, 1].map((n) => ({ type: "sample", n, reward: n - 3 }));
  const stopped = parse(lines(V2, samples[0], step(0), { type: "end", reason: "stopped" }));
  assert.deepEqual(stopped.end, { reason: "stopped", message: "" });
  const trace = parse(lines(V2, samples[0], step(0), { type: "end", reason: "stopped" },
    samples[1], step(1)));
  assert.deepEqual([trace.base, trace.lo, trace.end], [[-3, -2], -3, null]);
});

const first = step(0);
const BROKEN = {
  "nothing": ["", /empty/],
  "no JSON": ["hello", /Line 1: this is not JSON/],
  "half a line": [lines(HEADER, first).slice(0, -9), /Line 2: this is not JSON/],
  "a list": ["[1]", /Line 1: expected an object/],
  "null": ["null", /Line 1: expected an object/],
  "no header": [lines(first), /first line is its header/],
  "another version": [lines({ ...HEADER, version: 1 }), /version 1 is not known/],
  "a second header of another run": [lines(HEADER, first, { ...HEADER, seed: 8 }),
    /of a different run/],
  "a version with a text": [lines({ ...HEADER, version: {} }), /is not known, expected 2 or 3/],
  "beta below zero": [lines({ ...HEADER, beta: -1 }), /“beta”/],
  "too many steps": [lines({ ...HEADER, steps: LIMITS.steps + 1 }), /“steps”/],
  "no steps": [lines(HEADER), /no steps/],
  "an unknown type": [lines(HEADER, { type: "__proto__" }), /unknown type "__proto__"/],
  "a chain that is none": [lines(HEADER, step(0, { chain: -1 })), /“chain”/],
  "a step twice": [lines(HEADER, first, first), /step 0 of chain 0 came where step 1 was expected/],
  "an index in the first draft": [lines(HEADER, step(0, { index: 1 })), /“index”/],
  "an index outside": [lines(HEADER, first, step(1, { index: 2 })), /“index”/],
  "no tokens": [lines(HEADER, step(0, { tokens: [], pieces: [] })), /“tokens”/],
  "a token that is none": [lines(HEADER, step(0, { tokens: [0.5, 1] })), /“tokens”/],
  "an id beyond all": [lines(HEADER, step(0, { tokens: [2 ** 60, 1] })), /“tokens”/],
  "a reward of 400 digits": [
    lines(HEADER, first).replace('"reward":0', `"reward":1${"0".repeat(400)}`), /“reward”/],
  "a reward that is hardly finite": [lines(HEADER, step(0, { reward: 1e308 })), /“reward”/],
  "yes for a number": [lines(HEADER, step(0, { reward: true })), /“reward”/],
  "a number for yes": [lines(HEADER, step(0, { finished: 1 })), /“finished”/],
  "a piece too few": [lines(HEADER, step(0, { pieces: ["a"] })), /“pieces”/],
  "a piece that is no text": [lines(HEADER, step(0, { pieces: ["a", {}] })), /“pieces”/],
  "a reward that is a text": [lines(HEADER, step(0, { reward: "1" })), /“reward”/],
  "a chance above one": [lines(HEADER, first, step(1, { log_alpha: 0.1 })), /“log_alpha”/],
  "a verdict against its numbers": [
    lines(HEADER, first, step(1, { log_alpha: -2, log_u: -1 })), /contradicts alpha and u/],
  "a rejected first draft": [lines(HEADER, step(0, { accepted: false })), /contradicts/],
  "an answer that is no text": [lines(HEADER, step(0, { answer: 4 })), /“answer”/],
  "a cost that is no list": [lines(HEADER, step(0, { cost: 3 })), /“cost”/],
  "a sample out of turn": [lines(V2, { type: "sample", n: 1, reward: 0 }), /“n”/],
  "a sample without a reward": [lines(V2, { type: "sample", n: 0 }), /“reward”/],
};
for (const [kind, [text, message]] of Object.entries(BROKEN)) {
  test(`refused in one sentence: ${kind}`, () => refused(text, message));
}

test("a trace that is too large is not read", () => {
  refused(" ".repeat(LIMITS.characters + 1), /larger than 16 MB/);
});
