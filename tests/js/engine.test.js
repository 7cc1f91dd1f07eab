// The engine draws what Python draws: tokens, cuts, verdicts, answers; rewards within 1e-3.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { EXTRACTORS } from "../../assets/web/engine/answers.js";
import { logRatio } from "../../assets/web/engine/kernel.js";
import { cumulative, invert } from "../../assets/web/engine/models.js";
import { blake2b } from "../../assets/web/engine/randomness.js";
import { Tokenizer } from "../../assets/web/engine/tokenizer.js";
import { feed, newTrace } from "../../assets/web/player/parse.js";
import { ASSETS, TOKENIZER, engineOf, isEmbedded } from "./engine.js";
import { linesOf, replay } from "./replay.js";

const textOf = (path) => readFileSync(new URL(path, ASSETS), "utf8");
const RUNS = readdirSync(new URL("runs/", ASSETS)).filter((name) => name.endsWith(".jsonl"))
  .map((name) => ({ name, ...linesOf(textOf(`runs/${name}`)) }))
  .filter(({ header }) => !header.move) // the browser draws suffix moves
  .filter(({ header }) => isEmbedded(header));
const runOf = (wanted) => RUNS.find(({ name }) => name === `${wanted}.jsonl`);
/** The first steps of a run. */
const beginning = (run, n) => ({ ...run, lines: run.lines.slice(0, n) });

const engines = new Map();
/** An engine, made once. */
function engine(rm, kind, weights) {
  const key = `${rm} ${kind} ${weights}`;
  if (!engines.has(key)) engines.set(key, engineOf(rm, kind, weights));
  return engines.get(key);
}

function check(context, tally) {
  for (const sentence of tally.excused) context.diagnostic(`at a border: ${sentence}`);
  context.diagnostic(`${tally.steps} steps, ${tally.samples} samples, ${tally.tokens} tokens; `
    + `rewards differ by ${tally.reward.toExponential(1)} at most`);
  assert.deepEqual(tally.failures, []);
}

test("there are recorded runs of both embedded reward models", () => {
  assert.deepEqual(new Set(RUNS.map(({ header }) => header.rm)),
    new Set(["embedded", "embedded-weak"]));
});

const LINES = 120; // of a run that are drawn again: each is a function of the state before it
for (const run of RUNS) {
  test(`WebAssembly draws ${run.name} as Python did`, (context) => {
    check(context, replay(engine(run.header.rm, "wasm"), beginning(run, LINES)));
  });
}

test("plain JavaScript draws the beginning of a run as Python did", (context) => {
  check(context, replay(engine("embedded", "js"), beginning(runOf("watch"), 16)));
});

test("another seed is noticed", () => {
  const { failures } = replay(engine("embedded", "wasm"), beginning(runOf("watch"), 12), 364);
  assert.ok(failures.length > 0);
});

test("weights that are rounded to 7 bits are noticed", () => {
  const tally = replay(engine("embedded", "wasm", "rounded"), beginning(runOf("watch"), 60));
  assert.ok(tally.failures.length > 0);
});

for (const kind of ["wasm", "js"]) {
  test(`${kind}: a number does not depend on how many positions are read at once`, () => {
    const { net } = engine("embedded", kind).lm;
    const tokens = Array.from({ length: 150 }, (_, k) => (7 * k + 1) % 977);
    const [whole, single] = [net.keep(), net.keep()];
    net.read(whole, tokens, 0);
    const logits = [...net.logits()];
    for (let n = 1; n <= tokens.length; n++) net.read(single, tokens.slice(0, n), n - 1);
    assert.deepEqual([...net.logits()], logits);
    const n = tokens.length * net.width;
    assert.deepEqual(single.numbers.subarray(0, n), whole.numbers.subarray(0, n));
  });
}

test("a net whose memory cannot grow says so", () => {
  const bytes = readFileSync(new URL("web/engine/net.wasm", ASSETS));
  const at = bytes.indexOf(Buffer.from([5, 3, 1, 0])); // the memory: one, of so many pages or more
  const pages = bytes[at + 4];
  const scarce = Buffer.concat([bytes.subarray(0, at), Buffer.from([5, 4, 1, 1, pages, pages]),
    bytes.subarray(at + 5)]);
  assert.throws(() => engineOf("embedded", scarce), /there is too little memory for the model/);
  assert.ok(engineOf("embedded", bytes).lm.net.keep());
});

test("both nets compute the same logits, up to float32 rounding", () => {
  const tokens = Array.from({ length: 90 }, (_, k) => (11 * k + 5) % 977);
  const [a, b] = ["wasm", "js"].map((kind) => {
    const { net } = engine("embedded", kind).lm;
    net.read(net.keep(), tokens, 0);
    return net.logits();
  });
  const apart = Math.max(...a.map((logit, k) => Math.abs(logit - b[k])));
  assert.ok(apart > 0 && apart < 1e-4, `${apart}`);
});

test("the lines make a trace that the player reads, in the order of a run", () => {
  const { header } = runOf("stuck");
  const run = { ...header, chains: 2, steps: 3, pool: 6, prompt: `${header.prompt} <3` };
  const lines = [...engine("embedded", "wasm").record(run)];
  assert.deepEqual(Object.keys(JSON.parse(lines[0])), Object.keys(runOf("stuck").header));
  assert.ok(lines[0].includes("\\u003c3") && lines.every((line) => line.endsWith("\n")));
  const signs = { header: "h", step: "s", sample: "a", end: "e" };
  const order = lines.map((line) => signs[JSON.parse(line).type]).join("");
  assert.equal(order, "h ssa ssa ssa ssa aa e".replaceAll(" ", ""));
  const trace = feed(newTrace(), lines.join(""), true);
  assert.deepEqual(trace.chains.map(({ steps }) => steps.length), [4, 4]);
  assert.equal(trace.base.length, 6);
  assert.equal(trace.end.reason, "finished");
});

test("answers are read as in the tables of tests", () => {
  const cases = ["answer_cases", "response_cases"].flatMap((name) =>
    readFileSync(new URL(`../${name}.tsv`, import.meta.url), "utf8").trim()
      .split("\n").slice(1).map((line) => line.split("\t"))
      .filter(([extractor]) => extractor in EXTRACTORS));
  assert.ok(cases.length > 400);
  const wrong = cases.map(([extractor, text, expected]) =>
    ({ text, expected, read: EXTRACTORS[extractor](text.replaceAll("⏎", "\n")) ?? "" }))
    .filter(({ read, expected }) => read !== expected)
    .filter(({ text, expected }) => !/\\(?:sqrt|pi)/.test(expected) && !/[０-９]/.test(text));
  assert.deepEqual(wrong, []); // roots, and the digits of other scripts, are the server's
});

test("a token that ends inside a character has the piece of those that it completes", () => {
  const tokenizer = new Tokenizer(TOKENIZER);
  const tokens = tokenizer.encode("a😀<eos>");
  const { text, pieces } = tokenizer.decode(tokens);
  assert.equal(text, "a😀");
  assert.deepEqual(pieces, ["a", "", "", "", "😀", "<eos>"]);
  assert.deepEqual(tokenizer.decode(tokens.slice(0, 3)).pieces, ["a", "", "\ufffd"]);
});

test("BLAKE2b and the inversion at u are what they are defined to be", () => {
  const digest = createHash("blake2b512").update("x").digest("hex");
  assert.notEqual(digest.slice(0, 16), blake2b("x").toString(16)); // another length, another digest
  assert.equal(blake2b("7/0/1/index"), 0x1fcad18dc417c16dn);
  const cdf = cumulative(Float32Array.of(0, 0, -Infinity, 0), 1);
  assert.deepEqual([0, 0.3, 0.34, 0.66, 0.67, 1 - 2 ** -51].map((u) => invert(cdf, u)),
    [0, 0, 1, 1, 3, 3]);
  assert.throws(() => cumulative(Float32Array.of(NaN, 0), 1), /not finite/);
  assert.equal(logRatio(2, 1, 0.5), 2);
});

test("net.wasm was built from net.c as it is now", () => {
  const recorded = Object.fromEntries(textOf("web/engine/net.sha256").trim().split("\n")
    .map((line) => line.split("  ").reverse()));
  const digest = (name) =>
    createHash("sha256").update(readFileSync(new URL(`web/engine/${name}`, ASSETS))).digest("hex");
  const now = Object.fromEntries(["net.c", "net.wasm"].map((name) => [name, digest(name)]));
  assert.deepEqual(recorded, now, "net.c was changed: run `make engine`");
});
