import assert from "node:assert/strict";
import { test } from "node:test";
import { phaseAfter } from "../../assets/web/presenter/phases.js";

test("a presenter goes through the draft and six phases a step, and back the same way", () => {
  const last = 2;
  const places = [{ t: 0, phase: 5 }];
  for (let k = 0; k < 12; k++) places.push(phaseAfter(places[k], 1, last));
  assert.deepEqual(places.map(({ t, phase }) => `${t}.${phase}`), ["0.5",
    "1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5"]);
  for (let k = 12; k > 0; k--) assert.deepEqual(phaseAfter(places[k], -1, last), places[k - 1]);
});

test("there is no way beyond the last verdict or before the draft", () => {
  assert.deepEqual(phaseAfter({ t: 2, phase: 5 }, 1, 2), { t: 2, phase: 5 });
  assert.deepEqual(phaseAfter({ t: 0, phase: 5 }, -1, 2), { t: 0, phase: 5 });
  assert.deepEqual(phaseAfter({ t: 0, phase: 5 }, 1, 0), { t: 0, phase: 5 });
});
