import assert from "node:assert/strict";
import { test } from "node:test";
import {
  linkTo,
  named,
  namesRun,
  pageOf,
  parametersOf,
  partsOf,
  placeOf,
} from "../../assets/web/shell/links.js";

const query = (text) => new URLSearchParams(text);

test("each page has its own part of a link, and a run is Compare's only where it is named", () => {
  const parts = partsOf(query("beta=2&step=3&__theme=dark&lab-t=4&set=long"));
  assert.deepEqual(parts.watch, { beta: "2", step: "3" });
  assert.deepEqual([parts.lab, parts.results, parts.all],
    [{ "lab-t": "4" }, { set: "long" }, { __theme: "dark" }]);
  assert.deepEqual(partsOf(query("tab=compare&beta=2")).compare, { beta: "2" });
  assert.deepEqual(partsOf(query("tab=lab&beta=2")).watch, { beta: "2" });
});

test("a link has the state of its own page and of no other", () => {
  const address = "https://host.test/sub/?beta=2&step=3&__theme=dark&lab-t=4#c";
  const parts = { ...partsOf(query(address.split("?")[1])), results: { set: "x&y" } };
  assert.equal(linkTo(address, "results", parts),
    "https://host.test/sub/?__theme=dark&tab=results&set=x%26y#c");
  assert.match(linkTo(address, "watch", parts), /\?__theme=dark&beta=2&step=3/);
});

test("a link names a run unless all it says is a step, or a recorded run", () => {
  assert.ok(!namesRun({}));
  assert.ok(!namesRun({ step: "3", run: "watch" }));
  assert.ok(namesRun({ step: "3", beta: "2" }));
});

test("a step is a count, or none", () => {
  assert.deepEqual(["12", "0"].map((step) => placeOf({ step })), [[12, 0], [0, 0]]);
  for (const step of ["-1", "1.5", "x", "1e999"]) assert.equal(placeOf({ step }), null);
  for (const chain of ["0", "-1", "1.5", "x"]) assert.equal(placeOf({ step: "3", chain }), null);
  assert.equal(placeOf({ chain: "2" }), null);
  for (const place of [[3, 0], [0, 2]]) assert.deepEqual(placeOf(parametersOf(...place)), place);
  assert.deepEqual(parametersOf(3, 0), { step: "3" });
});

test("a page is a word, so that it is no selector", () => {
  assert.equal(pageOf(query("tab=lab")), "lab");
  for (const text of ["", "tab=", "tab=Lab", "tab=a,b", "tab=a%5Bb%5D"]) {
    assert.equal(pageOf(query(text)), null);
  }
});

test("values go by the names of their settings, and one too few is an error", () => {
  assert.deepEqual(named(["beta", "burn_in"], [1, 8]), { beta: 1, burn_in: 8 });
  assert.throws(() => named(["beta", "burn_in"], [1]), /Expected 2 values of settings, got 1/);
});

test("a lesson, its stop and the presenter's view belong to no page, and are no run", () => {
  const parts = partsOf(query("lesson=beta&stop=3&present=1"));
  assert.deepEqual(parts.all, { lesson: "beta", stop: "3", present: "1" });
  assert.ok(!namesRun(parts.watch));
});
