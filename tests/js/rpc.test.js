/* A call of the server that comes to nothing has a sentence (assets/web/rpc.js). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENT, answering } from "../../assets/web/rpc.js";

test("a call that resolves to nothing or rejects replies with one sentence", async () => {
  const { lost, broken, found, refused } = answering({
    lost: async () => undefined, // as Gradio's do
    broken: async () => Promise.reject(new TypeError("Failed to fetch")),
    found: async (/** @type {string} */ name) => name,
    refused: async () => ({ error: "No." }),
  });
  assert.deepEqual(await lost(), { error: SILENT });
  assert.deepEqual(await broken(), { error: SILENT });
  assert.equal(await found("a run"), "a run");
  assert.deepEqual(await refused(), { error: "No." });
});
