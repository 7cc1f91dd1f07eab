// A block keeps what is behind it, and a refused move leaves the text as it is.
import assert from "node:assert/strict";
import test from "node:test";
import { writers } from "../../assets/web/inside/tree.js";
import { quantities } from "../../assets/web/player/numbers.js";
import { parse } from "../../assets/web/player/parse.js";
import { narrate } from "../../assets/web/player/words.js";
import { BLOCKS, FOUR } from "./traces.js";

const [chain] = parse(BLOCKS).chains;
const [, block, refused] = chain.steps;

test("a block keeps the beginning and the end of the state", () => {
  assert.deepEqual(block.ids, [4, 5, 7, 2, 7, 3]);
  assert.deepEqual(block.pieces, ["c", "d", ":", "b", ":", "."]);
  assert.deepEqual(block.logProbs, [-1, -1, -1, -2, -1.5, -1]);
  assert.equal(block.again, 3);
});

test("its chance has the factor of the rest, not of the lengths", () => {
  const q = quantities(block, 1);
  assert.equal(block.move, "block");
  assert.ok(q.agrees);
  assert.equal(q.correction, Math.exp(-1.5));
  assert.equal(parse(FOUR).chains[0].steps[1].move, "suffix");
});

test("a step's own name comes first, then that of a run of one move, whatever the numbers", () => {
  const named = (/** @type {string} */ setting, /** @type {string} */ name) => {
    const text = BLOCKS.replace("suffix+block(:)", setting)
      .replaceAll('"kept_again":3', `"kept_again":3,"move":"${name}"`);
    return parse(text).chains[0].steps;
  };
  const [, mixed] = named("suffix+swap", "swap");
  assert.equal(mixed.move, "swap");
  assert.match(narrate(mixed, 0, 1), /The move swap decides/);
  const alone = parse(BLOCKS.replace("suffix+block(:)", "mine.py:Mine")).chains[0].steps;
  assert.equal(alone[1].move, "mine.py:Mine");
  assert.equal(alone[2].move, "mine.py:Mine");
});

test("a refused move has no proposal, and the state is counted again", () => {
  assert.equal(refused.refused, "the new block did not end");
  assert.deepEqual([refused.ids, refused.vain, refused.changed], [block.ids, ["e"], false]);
  assert.equal(chain.stateAt[2], 1);
  assert.match(narrate(refused, 5, 1), /^Refused: the new block did not end/);
});

test("each token is written by the step that drew it, behind a block too", () => {
  assert.deepEqual(writers(chain, 2), [1, 1, 1, 0, 0, 0]);
});

test("steps of blocks that cannot be are refused in one sentence", () => {
  for (const [was, now, message] of [
    ['"kept_again":3', '"kept_again":9', /kept_again/],
    ['"log_correction":-1.5', '"log_correction":"x"', /log_correction/],
    ['"refused":"the new block did not end"', '"refused":7', /refused/],
    ['"kept_again":3', '"kept_again":3,"move":7', /move/],
  ]) {
    assert.throws(() => parse(BLOCKS.replace(was, now)), message);
  }
});
