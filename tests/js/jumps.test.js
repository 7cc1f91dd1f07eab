import assert from "node:assert/strict";
import test from "node:test";
import { JUMPS, following } from "../../assets/web/player/jumps.js";
import { leaders, stateOf, votes } from "../../assets/web/player/numbers.js";
import { parse } from "../../assets/web/player/parse.js";
import { FOUR, RECORDED } from "./traces.js";

const recorded = parse(RECORDED);
const [chain] = recorded.chains;
const steps = chain.steps.slice(1);
const places = (key, trace = recorded) =>
  JUMPS.find((jump) => jump.key === key).places(trace, trace.chains[0]);
const where = (is) => steps.filter(is).map((step) => step.t);

test("each jump goes to the steps that its title names", () => {
  assert.deepEqual(places("N"), where((x) => x.accepted && x.changed));
  assert.deepEqual(places("W"), where((x) => x.accepted && x.reward < x.oldReward));
  assert.deepEqual(places("B"), where((x) => !x.accepted && x.reward > x.oldReward));
});

test("the longest stay is gone to where it is longest", () => {
  const [at] = places("L");
  const stay = (t) => t - chain.since[t];
  assert.ok(steps.every(({ t }) => stay(t) <= stay(at)));
});

test("the leading answer changes where another has more states than any before", () => {
  const lead = leaders(chain);
  for (let t = 0; t < lead.length; t++) {
    const counted = votes(chain, t, 0);
    assert.equal(counted.find(([answer]) => answer === lead[t])[1], counted[0][1]);
  }
  assert.deepEqual(places("V"), where(({ t }) => lead[t] !== lead[t - 1]));
  assert.equal(lead[0], stateOf(chain, 0).answer);
});

test("after the last place comes the first, and a kind without any has none", () => {
  assert.equal(following([3, 8], 0), 3);
  assert.equal(following([3, 8], 3), 8);
  assert.equal(following([3, 8], 8), 3);
  assert.deepEqual(places("B", parse(FOUR)), []);
  assert.ok(JUMPS.every(({ none }) => /^[a-z].*[a-z]$/.test(none)));
});
