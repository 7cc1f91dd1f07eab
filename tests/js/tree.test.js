import assert from "node:assert/strict";
import test from "node:test";
import { lastStays } from "../../assets/web/player/beads.js";
import {
  arrange,
  fill,
  isRejected,
  pinch,
  prefixTree,
  ranges,
  rowThatFits,
  stepsOf,
  textOf,
  unitOf,
  writers,
} from "../../assets/web/inside/tree.js";
import { parse } from "../../assets/web/player/parse.js";
import { FOUR, RECORDED, STUCK } from "./traces.js";

const four = parse(FOUR).chains[0];
const [recorded] = parse(RECORDED).chains;
const stuck = parse(STUCK).chains;
const LAST = recorded.steps.length - 1;

test("each token is written by the last accepted step that drew it", () => {
  assert.deepEqual(writers(four, 1), [0, 0, 0]);
  assert.deepEqual(writers(four, 3), [0, 0, 3, 3]);
});

const through = (node) => [node.from, node.to, node.time, node.rejected];

test("the tree shares beginnings, is as wide as its time, and has rejected texts in it", () => {
  const { root, leaves, states } = prefixTree([four]);
  assert.equal(states, 4);
  assert.deepEqual(through(root), [0, 1, 4, 1]); // [1, 2, 3], [1, 9] and [1, 2, 4, 5]
  assert.deepEqual(root.children.map(through), [[1, 2, 4, 0], [1, 2, 0, 1]]);
  assert.deepEqual(root.children[0].children.map(through), [[2, 3, 2, 0], [2, 4, 2, 0]]);
  assert.deepEqual(leaves.map(isRejected), [false, false, true]);
  assert.deepEqual(stepsOf(root).map(([, t]) => t), [0, 1, 2, 3]);
  assert.deepEqual(leaves.map(textOf), ["c", "de", "x"]);
});

test("every state and every rejected proposal of a run goes through the root and ends in one leaf",
  () => {
    for (const [chains, burnIn] of [[[recorded], 0], [[recorded], 9], [stuck, 0]]) {
      const { root, leaves, states, ends } = prefixTree(chains, burnIn);
      const sum = (key) => leaves.reduce((n, leaf) => n + leaf[key], 0);
      const steps = chains.flatMap((chain) => chain.steps);
      assert.equal(states, steps.length - burnIn * chains.length);
      assert.equal(sum("time"), states);
      assert.equal(root.time, states);
      assert.equal(sum("rejected"), steps.filter(({ accepted }) => !accepted).length);
      assert.equal(leaves.length, new Set(steps.map(({ ids }) => ids.join())).size);
      for (const chain of chains) {
        for (const step of chain.steps) {
          const { ids } = ends.get(chain)[step.t].step;
          assert.deepEqual(ids, step.ids);
        }
      }
    }
  });

test("what has passed grows from nothing to all", () => {
  const tree = prefixTree([recorded]);
  for (const seen of [0, 7, LAST]) {
    fill(tree, seen);
    assert.equal(tree.root.now, seen + 1);
    const sum = tree.leaves.reduce((n, { now }) => n + now, 0);
    assert.equal(sum, seen + 1);
  }
  assert.ok(tree.nodes.every(({ now, time }) => now === time));
});

test("branches beside each other do not cover each other, and a whole tree fits its window", () => {
  const tree = prefixTree(stuck);
  const unit = unitOf(tree, 1200);
  const row = rowThatFits(tree, unit, 520);
  assert.ok(arrange(tree, unit, row).height <= 521);
  for (const { children, place } of tree.nodes) {
    children.slice(1).forEach((child, k) => {
      assert.ok(children[k].place.bottom <= child.place.top + 1e-9);
    });
    if (!children.length) continue;
    assert.ok(place.top <= place.y && place.y <= place.bottom);
    assert.ok(children.every((child) => child.place.left > place.right));
  }
});

test("a text that others go on from has a leaf of its own, however deep the tree", () => {
  const deep = 12000;
  const chain = { id: 0, steps: [], stateAt: [], since: [] };
  const ids = Array.from({ length: deep }, (_, k) => k);
  for (let t = 0; t < 3; t++) {
    chain.steps.push({ t, ids: ids.slice(0, deep - t), pieces: ids, accepted: true });
    chain.stateAt.push(t);
  }
  const { root, leaves } = prefixTree([chain]);
  assert.deepEqual(leaves.map(({ to }) => to), [deep - 2, deep - 1, deep]);
  assert.equal(root.time, 3);
  const ladder = { ...chain, steps: ids.map((t) => ({ ...chain.steps[0], t, ids: [t, 1] })) };
  ladder.stateAt = ids;
  assert.equal(prefixTree([ladder]).leaves.length, deep);
});

test("steps are told as ranges", () => {
  assert.equal(ranges([1, 2, 3, 7, 9, 10]), "1–3, 7 and 9–10");
  assert.equal(ranges([4]), "4");
});

test("beads are the last stays, and each is counted as long as it lasted", () => {
  assert.deepEqual(lastStays(four, 3), [{ at: 0, visits: 2 }, { at: 2, visits: 2 }]);
  const last = lastStays(recorded, LAST);
  assert.ok(last.length <= 9);
  assert.equal(last[0].at + last.reduce((n, { visits }) => n + visits, 0), LAST + 1);
});

test("two fingers enlarge about their middle by how much further apart they are", () => {
  const before = [{ x: 10, y: 20 }, { x: 40, y: 60 }]; // 50 apart
  const apart = [{ x: -20, y: -20 }, { x: 40, y: 60 }]; // 100 apart
  assert.deepEqual(pinch(before, apart), { by: 2, x: 10, y: 20, dx: -15, dy: -20 });
  assert.equal(pinch(apart, before).by, 0.5);
  const moved = before.map(({ x, y }) => ({ x: x + 7, y: y - 3 }));
  assert.deepEqual(pinch(before, moved), { by: 1, x: 32, y: 37, dx: 7, dy: -3 });
  const one = [before[0], before[0]];
  assert.equal(pinch(one, before).by, 50); // two fingers at one place
});
