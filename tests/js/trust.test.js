import assert from "node:assert/strict";
import test from "node:test";
import { parse } from "../../assets/web/player/parse.js";
import { enough, question } from "../../assets/web/shell/diagnostics.js";
import { FOUR } from "./traces.js";

const trace = parse(FOUR);
const view = { trace, chain: trace.chains[0], seen: 1, burnIn: 0 };

test("the verdict on a whole run speaks of all its steps, whatever step is shown", async () => {
  const asks = [];
  const ask = async (request) => {
    asks.push(request);
    return { verdict: { sentence: "Too early to say.", next: "Run longer." } };
  };
  assert.equal(await enough(ask, view), "Too early to say. Run longer.");
  assert.deepEqual(asks, [question({ ...view, seen: 3 })]);
  assert.equal(asks[0].whole, true);
  assert.equal(asks[0].rewards[0].length, 4);
  assert.equal(question(view).whole, false); // the control
  assert.equal(question(view).rewards[0].length, 2);
  assert.equal(await enough(async () => ({ error: "Busy." }), view), "Busy.");
});
