import assert from "node:assert/strict";
import test from "node:test";
import { compare, matches, numberOf } from "../../assets/web/list/list.js";

test("cells are sorted as numbers where they begin with one, and what is none is last", () => {
  const cells = ["1.21, not mixed", "–", "−3", "10", "1,000"];
  assert.deepEqual([...cells].sort((a, b) => compare(a, b)),
    ["−3", "1.21, not mixed", "10", "1,000", "–"]);
  assert.deepEqual([...cells].sort((a, b) => compare(a, b, -1)),
    ["1,000", "10", "1.21, not mixed", "−3", "–"]);
  assert.deepEqual(["p-10", "p-9"].sort((a, b) => compare(a, b)), ["p-9", "p-10"]);
  assert.ok(Number.isNaN(numberOf("none, wrong")));
});

test("a row is shown if it has every word", () => {
  assert.ok(matches("p-1 47, wrong 1.21, not mixed", "Wrong mixed"));
  assert.ok(!matches("p-1 47, right 1.21, not mixed", "wrong mixed"));
  assert.ok(matches("anything", ""));
});
