// A recorded trace drawn again by the engine: each line beside the one that Python wrote.
import { EXTRACTORS } from "../../assets/web/engine/answers.js";
import { Sampler } from "../../assets/web/engine/chain.js";
import { deriveSeed, uniforms } from "../../assets/web/engine/randomness.js";
import { sampleLine, stepLine } from "../../assets/web/engine/record.js";

/** Rounding may turn a draw, or a coin, that lies this near to its border. */
export const BORDER = 2e-4;
/** Rewards may differ by this much. */
export const REWARD = 1e-3;

/** A recorded trace as its header and its other lines. */
export function linesOf(text) {
  const [header, ...lines] = text.trim().split("\n").map((line) => JSON.parse(line));
  return { header, lines: lines.filter(({ type }) => type === "step" || type === "sample") };
}

/**
 * Draw a trace again.
 *
 * Where a draw or a coin differs near its border, the trace's own is taken and the replay goes on.
 * Returns what was compared, `excused` (differences at a border) and `failures` (all others), each
 * as a sentence.
 */
export function replay(engine, { header, lines }, seed = header.seed) {
  const { lm, rm } = engine.models(header);
  const sampler = new Sampler(lm, rm, { ...header, seed });
  const extract = header.extractor ? EXTRACTORS[header.extractor] : () => null;
  const tally = { steps: 0, samples: 0, tokens: 0, reward: 0, excused: [], failures: [] };
  const states = [];

  /** How far u lies outside the place of a recorded token that we did not draw. */
  function miss(own, theirs, suffixSeed) {
    let at = 0;
    while (own[at] === theirs[at]) at++;
    const cdf = lm.law(sampler.promptIds, theirs.slice(0, at));
    const total = cdf[cdf.length - 1];
    const u = uniforms(suffixSeed)(at);
    const token = theirs[at];
    return Math.max((token ? cdf[token - 1] : 0) / total - u, u - cdf[token] / total);
  }
  function differs(gap, sentence) {
    const where = gap < BORDER ? tally.excused : tally.failures;
    where.push(`${sentence}, ${gap.toExponential(1)} off`);
  }

  /** What both have in common, once both have the same tokens. */
  function compare(where, own, theirs) {
    tally.reward = Math.max(tally.reward, Math.abs(own.reward - theirs.reward));
    if (Math.abs(own.reward - theirs.reward) > REWARD) {
      tally.failures.push(`${where}: reward ${own.reward} for ${theirs.reward}`);
    }
    for (const name of ["tokens", "pieces", "text", "finished", "answer", "cost", "index"]) {
      if (JSON.stringify(own[name]) !== JSON.stringify(theirs[name])) {
        const pair = JSON.stringify([own[name], theirs[name]]).slice(0, 80);
        tally.failures.push(`${where}: ${name} differ: ${pair}`);
      }
    }
  }

  /** A response of the trace, where ours is another. */
  function recorded(tokens, index, line) {
    const { finished } = line;
    const { text, pieces } = engine.tokenizer.decode(tokens);
    return sampler.scored({ tokens, finished, logProbs: [], text, pieces }, index);
  }

  if (sampler.promptIds.length !== header.prompt_tokens) tally.failures.push("the prompt differs");
  for (const line of lines) {
    tally.tokens += line.tokens.length;
    if (line.type === "sample") {
      tally.samples++;
      const where = `sample ${line.n}`;
      let sample = sampler.sample(line.n);
      if (String(sample.tokens) !== String(line.tokens)) {
        const gap = miss(sample.tokens, line.tokens, deriveSeed(seed, line.n, 0, "sample"));
        differs(gap, `${where}: tokens differ`);
        sample = recorded(line.tokens, 0, line);
      }
      compare(where, JSON.parse(sampleLine(line.n, sample, extract)), line);
      continue;
    }
    tally.steps++;
    const { chain, t } = line;
    const where = `chain ${chain}, step ${t}`;
    const state = states[chain];
    const step = t ? sampler.step(chain, t, state) : sampler.begin(chain);
    const whole = [...(state?.tokens ?? []).slice(0, line.index), ...line.tokens];
    if (step.index !== line.index) {
      tally.failures.push(`${where}: index ${step.index} for ${line.index}`);
    } else if (String(step.proposal.tokens) !== String(whole)) {
      const gap = miss(step.proposal.tokens, whole, deriveSeed(seed, chain, t, "suffix"));
      differs(gap, `${where}: tokens differ`);
      step.proposal = recorded(whole, line.index, line);
    } else {
      const logU = Number.isFinite(step.logU) ? step.logU : null;
      if (logU !== line.log_u && Math.abs(logU - line.log_u) > 1e-12) {
        tally.failures.push(`${where}: ln u ${logU} for ${line.log_u}`);
      }
      const slack = 2 * REWARD / header.beta;
      if (Math.abs(step.logAlpha - line.log_alpha) > slack) {
        tally.failures.push(`${where}: ln alpha ${step.logAlpha} for ${line.log_alpha}`);
      }
      if (step.accepted !== line.accepted) {
        const gap = Math.abs(Math.exp(step.logU) - Math.exp(step.logAlpha));
        differs(gap, `${where}: the verdict differs`);
      }
    }
    compare(where, JSON.parse(stepLine(step, extract)), line);
    states[chain] = line.accepted ? step.proposal : state;
    if (tally.failures.length > 20) break; // another run altogether
  }
  return tally;
}
