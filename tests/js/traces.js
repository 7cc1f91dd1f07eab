// Small traces for the tests, line by line.
import { readFileSync } from "node:fs";

export const HEADER = {
  type: "header", version: 2, lm: "lm", rm: "rm", prompt: "2 + 2?", beta: 1, steps: 4, seed: 7,
  reference: "4",
};

const runOf = (name) =>
  readFileSync(new URL(`../../assets/runs/${name}.jsonl`, import.meta.url), "utf8");

/** The run that the page opens with. */
export const RECORDED = runOf("watch");
/** Four chains that disagree. */
export const STUCK = runOf("stuck");

/** A step of chain 0: two tokens, reward 0, accepted, unless `changes` say otherwise. */
export function step(t, changes = {}) {
  return {
    type: "step", chain: 0, t, index: 0, tokens: [1, 2], pieces: ["a", "b"], finished: false,
    reward: 0, log_alpha: 0, log_u: null, accepted: true, answer: null, cost: [2, 2],
    ...changes,
  };
}

export const lines = (...records) => records.map((x) => `${JSON.stringify(x)}\n`).join("");

/** A target of sharpness 4 without a reward: a draft, and a likelier rewrite of its ending. */
export const SHARP = lines(
  { ...HEADER, version: 3, sharpness: 4, rm: "none" },
  step(0, { tokens: [1, 2, 3], pieces: ["a", "b", "c"], log_probs: [-1, -1.5, -0.5] }),
  step(1, { index: 1, tokens: [9], pieces: ["x"], log_probs: [-0.5], log_u: -1 }),
  { type: "sample", n: 0, tokens: [1], text: "a", finished: true, reward: 0, answer: null,
    log_probs: [-1] },
  { type: "sample", n: 1, tokens: [2], text: "b", finished: true, reward: 0, answer: null,
    log_probs: [-2] },
);

/** Four steps: a draft, a rejected rewrite, an accepted one, and the same text again. */
export const FOUR = lines(
  HEADER,
  ...[-1, 0, 1].map((reward, n) => ({ type: "sample", n, reward })),
  step(0, { tokens: [1, 2, 3], pieces: ["a", "b", "c"], answer: "5", cost: [3, 3] }),
  step(1, {
    index: 1, tokens: [9], pieces: ["x"], reward: -2, log_alpha: -1.5, log_u: -0.5,
    accepted: false, answer: "6", cost: [1, 1],
  }),
  step(2, { index: 2, tokens: [4, 5], pieces: ["d", "e"], reward: 1, answer: "4" }),
  step(3, { index: 2, tokens: [4, 5], pieces: ["d", "e"], reward: 1, answer: "4", log_u: -1 }),
  { type: "end", reason: "finished", message: "" },
);

/** A draft of two blocks; the first is rewritten and the rest kept; then a move that is refused. */
export const BLOCKS = lines(
  { ...HEADER, version: 3, move: "suffix+block(:)" },
  step(0, { tokens: [1, 7, 2, 7, 3], pieces: ["a", ":", "b", ":", "."], finished: true,
    answer: "5", log_probs: [-1, -1, -1, -1, -1] }),
  step(1, { index: 0, tokens: [4, 5, 7], pieces: ["c", "d", ":"], kept_again: 3, finished: true,
    reward: 1, log_alpha: -0.5, log_correction: -1.5, log_u: -1, answer: "4",
    log_probs: [-1, -1, -1, -2, -1.5, -1], cost: [3, 6, 3] }),
  step(2, { index: 3, tokens: [6], pieces: ["e"], refused: "the new block did not end",
    reward: undefined, finished: undefined, log_alpha: null, log_u: -1, accepted: false,
    answer: "4", cost: [1, 0] }),
);
