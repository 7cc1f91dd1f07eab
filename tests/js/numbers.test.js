import assert from "node:assert/strict";
import test from "node:test";
import {
  affordable,
  axisEnd,
  leaders,
  quantities,
  rewardsOf,
  stateOf,
  tally,
  ticks,
  visitsAt,
  votes,
} from "../../assets/web/player/numbers.js";
import {
  effective,
  histogram,
  weights,
  whatIf,
  wilson,
} from "../../assets/web/player/statistics.js";
import { decideAlone, explainBestOfN, vote } from "../../assets/web/shell/rivals.js";
import { parse } from "../../assets/web/player/parse.js";
import { FOUR, RECORDED, SHARP } from "./traces.js";

const close = (a, b, most = 1e-12) => assert.ok(Math.abs(a - b) <= most, `${a} is not ${b}`);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const four = parse(FOUR).chains[0];
const recorded = parse(RECORDED);

test("alpha is min(1, exp((r' - r) / beta) |y| / |y'|)", () => {
  const q = quantities(four.steps[1], 2);
  close(q.ratio, (Math.exp(-2 / 2) * 3) / 2);
  close(q.reward, Math.exp(-1));
  close(q.lengths, 1.5);
});

test("the recorded run's own alphas are the formula's", () => {
  const { steps } = recorded.chains[0];
  assert.ok(steps.slice(1).every((step) => quantities(step, recorded.header.beta).agrees));
  const wrong = recorded.header.beta * 1.5;
  assert.ok(!steps.slice(1).every((step) => quantities(step, wrong).agrees));
});

test("a sharper target has a factor of its own, from the tokens' probabilities", () => {
  const { header, chains: [{ steps }], tilts } = parse(SHARP);
  assert.deepEqual(steps[1].logProbs, [-1, -0.5]);
  close(steps[1].sharp, 3 * (-1.5 - -3));
  const q = quantities(steps[1], header.beta);
  close(q.sharp, Math.exp(4.5));
  close(q.logRatio, 4.5 + Math.log(3 / 2));
  assert.ok(q.agrees);
  assert.ok(steps.every((step) => quantities(step, 0.01).logRatio === step.sharp
    + Math.log(step.oldLength / step.ids.length)));
  assert.deepEqual(tilts, [-3, -6]);
  const [likely, rare] = weights([0, 0], 1, tilts);
  close(likely / rare, Math.exp(3));
  assert.deepEqual(weights([0, 0], 1), [0.5, 0.5]);
  assert.ok(recorded.chains[0].steps.every((step) => step.sharp === 0));
});

test("log-probabilities of anybody's trace are one a token and none above 0", () => {
  for (const wrong of [[-1, -1], [0.5], ["x"], "no", [null], { length: 1 }]) {
    const bad = SHARP.replace('"log_probs":[-0.5]', `"log_probs":${JSON.stringify(wrong)}`);
    assert.notEqual(bad, SHARP);
    assert.throws(() => parse(bad), /log_probs/);
  }
  assert.throws(() => parse(SHARP.replace('"sharpness":4', '"sharpness":0.5')), /sharpness/);
});

test("at its own beta a step is decided as it was, at others by the same u", () => {
  const { beta } = recorded.header;
  const { steps } = recorded.chains[0];
  for (const step of steps.slice(1)) assert.equal(whatIf(step, beta).isAccepted, step.accepted);
  const tried = (factor) =>
    steps.slice(1).filter((x) => whatIf(x, beta * factor).isAccepted).length;
  assert.ok(tried(1000) > tried(1 / 1000));
  const rejected = { ...four.steps[1], logU: -0.6 };
  assert.deepEqual([0.5, 1, 50].map((b) => whatIf(rejected, b).isAccepted), [false, false, true]);
});

test("a state is counted until another takes its place", () => {
  assert.deepEqual([0, 1, 2, 3].map((t) => visitsAt(four, t)), [1, 2, 1, 2]);
  assert.deepEqual([0, 1, 2, 3].map((t) => stateOf(four, t).t), [0, 0, 2, 3]);
});

test("votes are the states' answers, without the burn-in", () => {
  assert.deepEqual(votes(four, 3, 0), [["5", 2], ["4", 2]]);
  assert.deepEqual(votes(four, 3, 1), [["4", 2], ["5", 1]]);
  assert.deepEqual(votes(four, 1, 0), [["5", 2]]);
  assert.deepEqual(rewardsOf(four, 3, 1), [0, 1, 1]);
});

test("votes of the recorded run are one a state", () => {
  const [chain] = recorded.chains;
  const last = chain.steps.length - 1;
  assert.equal(sum(votes(chain, last, 0).map(([, n]) => n)), last + 1);
});

test("a histogram shares out one, the ends take what is outside", () => {
  assert.deepEqual(histogram([-9, 0.1, 0.6, 9], null, 0, 1, 2), [0.5, 0.5]);
  assert.deepEqual(histogram([0.1, 0.9], [0.25, 0.75], 0, 1, 2), [0.25, 0.75]);
  assert.deepEqual(histogram([], null, 0, 1, 2), [0, 0]);
});

test("importance weights are the softmax of r / beta, however large", () => {
  const w = weights([1000, 1001], 0.5);
  close(sum(w), 1);
  close(w[1] / w[0], Math.exp(2), 1e-9);
});

test("weights are worth as many samples as they are spread over", () => {
  close(effective([0.25, 0.25, 0.25, 0.25]), 4);
  close(effective(weights([0, 50, 0], 1)), 1, 1e-9);
});

test("Wilson's interval holds k / n and stays within 0 and 1", () => {
  assert.deepEqual(wilson(0, 0), [0, 1]);
  const [lo, hi] = wilson(8, 10); // Wilson 1927: 0.4902 to 0.9433
  close(lo, 0.4902, 5e-5);
  close(hi, 0.9433, 5e-5);
  for (const k of [0, 5, 10]) {
    const [low, high] = wilson(k, 10);
    const rising = [0, low, k / 10, high, 1];
    assert.ok(rising.slice(1).every((x, j) => x >= rising[j] - 1e-12));
  }
});

test("ticks are round and inside, and zero is no rounding error", () => {
  assert.deepEqual(ticks(0, 64), [0, 20, 40, 60]);
  const tenths = ticks(-0.35, 0.35, 7);
  assert.deepEqual(tenths.map((x) => Number(x.toFixed(9))), [-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3]);
  assert.ok(tenths.includes(0));
  assert.ok(ticks(1, 1).length <= 2);
});

test("the axis of a run that goes on doubles, and ends where the run will", () => {
  assert.deepEqual([0, 12, 63, 64, 200, 600, 1024].map((n) => axisEnd(n, 1024)),
    [64, 64, 64, 128, 256, 1024, 1024]);
  assert.deepEqual([0, 24].map((n) => axisEnd(n, 24)), [24, 24]);
});

test("of equally many votes, the answer that appears first wins, whatever the rewards", () => {
  assert.deepEqual(tally(["7", "9", "9", "7", null]), [["7", 2], ["9", 2], [null, 1]]);
  assert.deepEqual(tally(["9", "7", "7", "9"])[0], ["9", 2]); // the control: the other order
  const steps = ["7", "9", "9", "7"].map((answer, k) => ({ answer, reward: k }));
  assert.deepEqual(leaders({ steps, stateAt: [0, 1, 2, 3] }), ["7", "7", "9", "7"]);
});

test("of answers with equal weight the first to appear wins, and no answer casts no vote", () => {
  assert.equal(vote(["a", "b", "b", null, null, null]), "b");
  assert.equal(vote(["a", "b"]), "a");
  assert.equal(vote(["a", "b"], [0.4, 0.6]), "b");
  assert.equal(vote([null]), null);
});

test("as many samples are compared as the chain's tokens pay for, at least one", () => {
  assert.equal(affordable([40, 90, 130], 100), 2);
  assert.equal(affordable([40, 90, 130], 130), 3);
  assert.equal(affordable([40, 90, 130], 10), 1);
  assert.equal(affordable([], 10), 0);
  const { spent, base } = recorded;
  assert.equal(spent.length, base.length);
  assert.ok(spent.every((sum, k) => sum > (spent[k - 1] ?? 0)));
});

test("the rules without a chain decide from the first samples alone", () => {
  const trace = {
    header: { rm: "embedded", beta: 1 }, base: [0, 0, 3, 9], tilts: [], alone: ["a", "a", "b", "c"],
  };
  assert.deepEqual(decideAlone(trace, 2), [["bon", "a"], ["mv", "a"], ["wmv", "a"]]);
  assert.deepEqual(decideAlone(trace, 3), [["bon", "b"], ["mv", "a"], ["wmv", "b"]]);
  assert.deepEqual(decideAlone({ ...trace, header: { rm: "none", beta: 1 } }, 4), [["mv", "a"]]);
});

test("why best-of-n is right or wrong here is read from rewards of right and wrong samples", () => {
  const trace = {
    header: { rm: "embedded", reference: "a" }, verdicts: new Map(),
    base: [2, 0, 3.5], alone: ["a", "b", "b"],
  };
  assert.doesNotMatch(explainBestOfN(trace, 1), /here/);
  assert.match(explainBestOfN(trace, 2), /\(here a right text leads by 2\.00\)/);
  assert.match(explainBestOfN(trace, 3), /\(here a wrong text leads by 1\.50\)/);
  const wrong = { ...trace, base: new Array(16).fill(1), alone: new Array(16).fill("b") };
  assert.match(explainBestOfN(wrong, 16), /none of these samples is right/);
  assert.doesNotMatch(explainBestOfN(wrong, 15), /none/);
  assert.match(explainBestOfN({ ...trace, base: [1, 0, 1] }, 3), /share it, and the first/);
  const unknown = { ...trace, header: { rm: "embedded", reference: null } };
  assert.doesNotMatch(explainBestOfN(unknown, 3), /here/);
  assert.equal(explainBestOfN({ ...trace, header: { rm: "none" } }, 3), "");
});
