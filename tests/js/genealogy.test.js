import assert from "node:assert/strict";
import test from "node:test";
import { lastStays } from "../../assets/player/beads.js";
import { prefixTree, writers } from "../../assets/player/genealogy.js";
import { parse } from "../../assets/player/parse.js";
import { FOUR, RECORDED } from "./traces.js";

const four = parse(FOUR).chains[0];
const [recorded] = parse(RECORDED).chains;
const LAST = recorded.steps.length - 1;

test("each token is written by the last accepted step that drew it", () => {
  assert.deepEqual(writers(four, 1), [0, 0, 0]);
  assert.deepEqual(writers(four, 3), [0, 0, 3, 3]);
});

test("the tree shares beginnings and counts what left it", () => {
  const { tree, distinct } = prefixTree(four, 3, 9);
  assert.equal(distinct, 2);
  assert.deepEqual([tree.from, tree.to, tree.visits], [0, 2, 4]);
  assert.equal(tree.stubs, 1); // [1, 9] leaves within the first two tokens
  assert.deepEqual(tree.children.map((c) => [c.from, c.to, c.visits]), [[2, 3, 2], [2, 4, 2]]);
});

test("every state of the recorded run is one visit of one leaf", () => {
  const { tree, distinct } = prefixTree(recorded, LAST, Infinity);
  const all = (branch) => [branch, ...branch.children.flatMap(all)];
  const leaves = all(tree).filter((branch) => branch.state);
  assert.equal(leaves.length, distinct);
  assert.equal(leaves.reduce((n, { state }) => n + state.visits, 0), LAST + 1);
  const rejected = recorded.steps.slice(1).filter((x) => !x.accepted && x.changed).length;
  assert.equal(all(tree).reduce((n, branch) => n + branch.stubs, 0), rejected);
});

test("beads are the last stays, and each is counted as long as it lasted", () => {
  assert.deepEqual(lastStays(four, 3), [{ at: 0, visits: 2 }, { at: 2, visits: 2 }]);
  const last = lastStays(recorded, LAST);
  assert.ok(last.length <= 9);
  assert.equal(last[0].at + last.reduce((n, { visits }) => n + visits, 0), LAST + 1);
});
