import assert from "node:assert/strict";
import test from "node:test";
import { bestBefore, chainsBest, keepBest, logTarget } from "../../assets/web/inside/game.js";
import { bits, opinion, share } from "../../assets/web/inside/shaded.js";
import { describeCut } from "../../assets/web/inside/tokens.js";
import { parse } from "../../assets/web/player/parse.js";
import { FOUR } from "./traces.js";

const trace = parse(FOUR);
const [four] = trace.chains;

test("a token's surprise is in bits, and its share in words", () => {
  assert.equal(bits([Math.log(0.5), []]), 1);
  assert.equal(bits([null, []]), Infinity);
  assert.deepEqual([0.999, 0.42, 0.004, 1e-9].map((p) => share(Math.log(p))),
    ["over 99%", "42%", "0.4%", "under 0.1%"]);
  assert.equal(share(null), "never");
});

test("an opinion names the token, its chance and what else could have stood there", () => {
  const scores = [[Math.log(0.25), [["b", Math.log(0.5)], ["a\n", Math.log(0.25)]]]];
  assert.equal(opinion({ pieces: ["a\n"], scores }, 0),
    "“a↵”, token 1 of 1: 25%. Likeliest here: “b” 50%, “a↵” 25%.");
  assert.equal(opinion({ pieces: ["a"] }, 0), "“a”, token 1 of 1.");
});

test("where the cut fell is told beside where the text parted", () => {
  const half = (n) => Array.from({ length: n }, () => [Math.log(0.5), []]);
  const describe = (t) => describeCut(four.steps[t], half(four.steps[t].ids.length));
  assert.match(describe(0), /first draft.*1\.00 bits/);
  assert.match(describe(1), /after token 1; the new text differs right there.*probability 50%/);
  assert.match(describe(3), /wrote the same text again/);
});

test("the chain's best is the highest log pi of its first states, each asked once", async () => {
  const asks = [];
  const logs = { "1,2,3": -4, "1,2,4,5": -5 };
  const scorer = { async scoreTokens(_, texts, top) {
    asks.push(texts.length, top);
    return texts.map((ids) => [[logs[ids.join()], []]]);
  } };
  const result = await chainsBest(scorer, "", trace.header, four, 3);
  assert.deepEqual(result, { best: -4, t: 0, steps: 3 }); // 0 - 4 and 1 - 5: the first that had it
  assert.deepEqual(asks, [3, 0]);
  const sharper = await chainsBest(scorer, "", { ...trace.header, sharpness: 2 }, four, 30);
  assert.deepEqual(sharper, { best: -8, t: 0, steps: 3 }); // the run has no more
  assert.equal((await chainsBest(scorer, "", trace.header, four, 2)).steps, 2);
  assert.equal(logTarget({ beta: 0.5, sharpness: 3 }, -2, 1), -4);
});

test("a browser keeps the best of each problem, and one that keeps nothing does no harm", () => {
  assert.equal(bestBefore(trace.header), null);
  const store = new Map();
  globalThis.window = { localStorage: {
    getItem: (key) => store.get(key) ?? null,
    setItem: (key, value) => store.set(key, value),
  } };
  for (const best of [-9, -5, -7]) keepBest(trace.header, best);
  keepBest({ ...trace.header, prompt: "another" }, -1);
  assert.equal(bestBefore(trace.header), -5);
  store.set("qalign-hand", "no JSON");
  assert.equal(bestBefore(trace.header), null);
  delete globalThis.window;
});
