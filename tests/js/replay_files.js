// Draw traces again and print what differs: node tests/js/replay_files.js TRACE...
import { readFileSync } from "node:fs";
import { engineOf } from "./engine.js";
import { linesOf, replay } from "./replay.js";

const sum = { steps: 0, samples: 0, tokens: 0, reward: 0, excused: [], failures: [] };
const engines = new Map();
for (const path of process.argv.slice(2)) {
  const run = linesOf(readFileSync(path, "utf8"));
  const { rm } = run.header;
  if (!engines.has(rm)) engines.set(rm, engineOf(rm, "wasm"));
  const tally = replay(engines.get(rm), run);
  for (const name of ["steps", "samples", "tokens"]) sum[name] += tally[name];
  sum.reward = Math.max(sum.reward, tally.reward);
  for (const name of ["excused", "failures"]) {
    sum[name].push(...tally[name].map((sentence) => `${path}: ${sentence}`));
  }
}
console.log(JSON.stringify(sum));
