import assert from "node:assert/strict";
import test from "node:test";
import { Clock, SPEEDS } from "../../assets/web/player/clock.js";

/** A clock at a position. */
const at = (t, phase, speed = 1) => Object.assign(new Clock(), { t, phase, speed, passed: 0 });
const place = ({ t, phase }) => [t, phase];

test("a step takes 1.6 seconds at 1x, and half of it at 2x", () => {
  const clock = at(1, 0);
  clock.advance(1.59, 9);
  assert.deepEqual(place(clock), [1, 5]);
  clock.advance(0.02, 9);
  assert.deepEqual(place(clock), [2, 0]);
  const fast = at(1, 0, 2);
  fast.advance(0.81, 9);
  assert.deepEqual(place(fast), [2, 0]);
});

test("until a speed is chosen the first steps take four seconds or more, then it is faster", () => {
  const clock = new Clock();
  const ends = [];
  for (let now = 0; clock.t < 20; now += 0.05) {
    const { t } = clock;
    clock.advance(0.05, 99);
    if (clock.t > t) ends.push(now);
  }
  const steps = ends.slice(1).map((end, k) => end - ends[k]);
  assert.ok(steps.slice(0, 3).every((seconds) => seconds >= 4));
  assert.deepEqual(steps.map((x) => Math.round(x)), steps.map((x) => Math.round(x)).sort(
    (a, b) => b - a));
  assert.ok(steps.at(-1) < 1);
  clock.speed = 1;
  assert.equal(clock.rate, 1);
});

test("however time is cut, it comes to the same place", () => {
  for (const speed of SPEEDS.filter(Number.isFinite)) {
    const whole = at(1, 0, speed);
    const parts = at(1, 0, speed);
    whole.advance(5.03, 99);
    for (let k = 0; k < 503; k++) parts.advance(0.01, 99);
    assert.deepEqual(place(parts), place(whole));
  }
});

test("it waits at the end of the last step, and goes on when another comes", () => {
  const clock = at(2, 5);
  assert.equal(clock.advance(60, 2), true);
  assert.deepEqual([clock.t, clock.phase, clock.passed], [2, 5, 1]);
  assert.equal(clock.advance(0.1, 3), false);
  assert.deepEqual(place(clock), [3, 0]);
});

test("at instant speed each frame is a step, and no time is none", () => {
  const clock = at(1, 2, Infinity);
  clock.advance(0, 9);
  assert.deepEqual(place(clock), [1, 2]);
  clock.advance(0.016, 9);
  clock.advance(0.016, 9);
  assert.deepEqual(place(clock), [2, 5]);
});

test("a position is one that there is, and the first draft has no phases", () => {
  const clock = new Clock();
  clock.go(99, 7, 2);
  assert.deepEqual(place(clock), [7, 2]);
  assert.equal(clock.revealed, 6);
  clock.go(-3, 7, 2);
  assert.deepEqual(place(clock), [0, 5]);
  assert.equal(clock.revealed, 0);
});
