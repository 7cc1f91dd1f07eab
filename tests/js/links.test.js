import assert from "node:assert/strict";
import test from "node:test";
import {
  isApart,
  named,
  namesRun,
  pageOf,
  replacing,
  stepOf,
  withQuery,
} from "../../assets/shell/links.js";

const query = (text) => new URLSearchParams(text);

test("a link names a run unless all it says is the page, the step, the theme or the lab's", () => {
  assert.ok(!namesRun(query("")));
  assert.ok(!namesRun(query("tab=lab&step=3&__theme=dark&lab-t=4")));
  assert.ok(namesRun(query("tab=lab&beta=2")));
  assert.ok(isApart("lab-beta"));
  assert.ok(!isApart("beta"));
});

test("a step is a count, or none", () => {
  assert.deepEqual(["step=12", "step=0"].map((text) => stepOf(query(text))), [12, 0]);
  for (const text of ["", "step=-1", "step=1.5", "step=x", "step=1e999"]) {
    assert.equal(stepOf(query(text)), null);
  }
});

test("a page is a word, so that it is no selector", () => {
  assert.equal(pageOf(query("tab=lab")), "lab");
  for (const text of ["", "tab=", "tab=Lab", "tab=a,b", "tab=a%5Bb%5D"]) {
    assert.equal(pageOf(query(text)), null);
  }
});

test("another run takes the place of the run, another lab that of the lab", () => {
  const keys = ["tab", "beta", "seed", "lab-t"];
  assert.deepEqual(replacing(keys, "beta=2&prompt=a%20b", "run"),
    { beta: "2", seed: null, prompt: "a b" });
  assert.deepEqual(replacing(keys, "lab-beta=3", "lab"), { "lab-t": null, "lab-beta": "3" });
});

test("an address keeps what does not change, a null takes away, texts are encoded", () => {
  assert.equal(withQuery("https://host.test/sub/?a=1&b=2#c", { a: null, d: "x&y" }),
    "https://host.test/sub/?b=2&d=x%26y#c");
});

test("values go by the names of their settings, and one too few is an error", () => {
  assert.deepEqual(named(["beta", "burn_in"], [1, 8]), { beta: 1, burn_in: 8 });
  assert.throws(() => named(["beta", "burn_in"], [1]), /2 settings are named, and 1 values came/);
});
