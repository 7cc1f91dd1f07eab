import assert from "node:assert/strict";
import test from "node:test";

globalThis.QAlignModels = {
  lm: { embedded: "0.9M word-problem model, trained here" },
  rm: { embedded: "0.9M reward model", weak: "0.9M weak reward model (weak)" },
};
const { modelName } = await import("../../assets/web/dictionary.js");

test("a model is called as people call it, a sum of rewards by its parts", () => {
  assert.equal(modelName("lm", "embedded"), "0.9M word-problem model");
  assert.equal(modelName("rm", "0.7*embedded + 0.3*weak"),
    "0.7 × 0.9M reward model + 0.3 × 0.9M weak reward model");
  for (const id of ["owner/name@main", "http://host:80/a", "judge:embedded"]) {
    assert.equal(modelName("lm", id), id);
  }
});
