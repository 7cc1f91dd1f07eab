import assert from "node:assert/strict";
import test from "node:test";
import { meaning } from "../../assets/web/shell/beta.js";

test("beta's meaning is in odds, in spreads and in best-of-n", () => {
  const facts = { spread: 2, matching: [{ n: 8, beta: 2 }, { n: 64, beta: 0.5 }] };
  assert.deepEqual(meaning(1, null),
    ["A reward higher by 1 makes a text 2.72 times as likely.", "", ""]);
  assert.match(meaning(1, facts)[1], /^β is 0\.5 times the spread .* \(2, one .* deviation\)\.$/);
  const ends = ["about as closely as best-of-64.", "more closely than best-of-64.",
    "less closely than best-of-8."];
  assert.deepEqual([0.5, 0.3, 3].map((beta) => meaning(beta, facts)[2]),
    ends.map((end) => `Follows the reward ${end}`));
  assert.equal(meaning(1, { note: "Too few." })[2], "Too few.");
});

test("a small beta makes large factors, written as everywhere", () => {
  assert.match(meaning(0.1, null)[0], / 22,026 times as likely/);
  assert.match(meaning(0.05, null)[0], / 4.85 × 10⁸ times as likely/);
});
