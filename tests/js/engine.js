// The engine with the embedded models, for the tests and the benchmark.
import { readFileSync } from "node:fs";
import { Engine } from "../../assets/web/engine/engine.js";

export const ASSETS = new URL("../../assets/", import.meta.url);
/** Folders of the reward models, by the names that headers have. */
const FOLDERS = { embedded: "rm", "embedded-weak": "rm-weak" };

/** A file's bytes in a buffer of their own. */
export const bytes = (path) => new Uint8Array(readFileSync(new URL(path, ASSETS))).buffer;
const json = (path) => JSON.parse(readFileSync(new URL(path, ASSETS), "utf8"));

const files = (folder) => ({
  weights: bytes(`models/${folder}/model.safetensors`),
  config: json(`models/${folder}/config.json`),
});

/** The same files with 7 bits in place of 10 in each weight: another rounding. */
function rounded({ weights, config }) {
  const size = Number(new DataView(weights).getBigUint64(0, true));
  const numbers = new DataView(weights, 8 + size);
  for (let at = 0; at < numbers.byteLength; at += 2) {
    numbers.setUint16(at, numbers.getUint16(at, true) & 0xfff8, true);
  }
  return { weights, config };
}

/** Whether the engine draws what a header names. */
export const isEmbedded = ({ lm, rm }) => lm === "embedded" && rm in FOLDERS;

/** The tokenizer's file. */
export const TOKENIZER = json("models/lm/tokenizer.json");

/** An engine of a reward model; `kind` is "wasm" or "js", or the bytes of another kernel. */
export function engineOf(rm, kind, weights = "") {
  const kernel = kind === "wasm" ? bytes("web/engine/net.wasm") : kind;
  const module = kind === "js" ? null : new WebAssembly.Module(kernel);
  const lm = weights === "rounded" ? rounded(files("lm")) : files("lm");
  return new Engine(lm, files(FOLDERS[rm]), TOKENIZER, module);
}
