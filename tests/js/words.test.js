import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { parse } from "../../assets/web/player/parse.js";
import {
  LAST,
  agreement,
  answerText,
  brief,
  ending,
  fixed,
  graderName,
  isRight,
  keepVerdict,
  many,
  narrate,
  pair,
  percent,
  percents,
  plain,
  signed,
  promptText,
  visible,
} from "../../assets/web/player/words.js";
import { FOUR } from "./traces.js";

const { steps } = parse(FOUR).chains[0];
const words = (t, phase) => narrate(steps[t], phase, 1);

test("numbers have a typographic minus and few digits", () => {
  assert.equal(fixed(-1.005), "−1.00");
  assert.deepEqual([signed(0.5), signed(-0.5), signed(0)], ["+0.50", "−0.50", "+0.00"]);
  assert.deepEqual([many(1, "token"), many(2, "token")], ["1 token", "2 tokens"]);
});

test("numbers are written as Python writes them", () => {
  const table = readFileSync(new URL("../number_cases.tsv", import.meta.url), "utf8");
  const forms = { "": plain, padded: brief, fixed, signed };
  const rows = table.split("\n").filter((row) => row && !row.startsWith("#"));
  assert.ok(rows.length > 300);
  for (const [value, digits, form, text] of rows.map((row) => row.split("\t"))) {
    const x = Number(value.replace("inf", "Infinity"));
    assert.equal(forms[form](x, Number(digits)), text, `${value}, ${digits} ${form}`);
  }
});

test("only nothing is 0%, only everything 100%, and equal counts have equal shares", () => {
  assert.deepEqual(percents([59, 1, 1]), ["97%", "2%", "2%"]);
  assert.deepEqual(percents([1, 1, 1]), ["33%", "33%", "33%"]);
  assert.deepEqual(percents([999, 1, 0]), [">99%", "<1%", "0%"]);
  const shares = [0.004, 0.005, 0.994, 0.996, 1];
  assert.deepEqual(shares.map(percent), ["<1%", "1%", "99%", ">99%", "100%"]);
  assert.deepEqual([percents([5]), percents([0, 0])], [["100%"], ["0%", "0%"]]);
});

test("a text is told by its ending, without the end's sign", () => {
  assert.equal(ending({ pieces: ["A lamp.", "<eos>"], finished: true }), "“A lamp.”");
  assert.match(ending({ pieces: Array(80).fill(" ab"), finished: false }), /^“…[ ab]{24}”$/);
});

test("the factors of the formula multiply to the alpha that is shown", () => {
  const read = (x) => {
    const [m, e] = x.split(" × 10");
    const power = [...(e ?? "")].map((c) => (c === "⁻" ? "-" : "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c))).join("");
    return Number(m) * 10 ** Number(power || 0);
  };
  for (const difference of [-9.7, -5.947, -1.3, -0.2, 0.04]) {
    for (const lengths of [30 / 31, 1, 12 / 40, 7 / 300]) {
      const [reward, alpha] = [Math.exp(difference), Math.min(1, Math.exp(difference) * lengths)];
      const product = Math.min(1, read(brief(reward)) * read(brief(lengths)));
      const off = Math.abs(product / read(pair(0.5, alpha)[1]) - 1);
      assert.ok(off < 0.0151, `${difference}, ${lengths}: ${off}`); // three roundings of 0.5 %
    }
  }
  assert.equal(`${brief(Math.exp(-5.947))} × ${brief(1)}`, "0.00261 × 1.00"); // not 0.003 × 1.000
});

test("u and alpha have as many digits as tell them apart", () => {
  assert.deepEqual(pair(0.5, 0.25), ["0.500", "0.250"]);
  assert.deepEqual(pair(0.3333, 0.3334), ["0.3333", "0.3334"]);
  assert.deepEqual(pair(0.9999, 1), ["0.9999", "1"]);
  assert.deepEqual(pair(0.5, 0.5), ["0.500", "0.500"]);
});

test("controls and direction marks become visible, a line break stays", () => {
  assert.equal(visible("a\u0000b\x7f\u202ec\n\t"), "a␀b␡⟨U+202E⟩c\n\t");
  assert.equal(visible("\u2066\u200f"), "⟨U+2066⟩⟨U+200F⟩");
  assert.equal(visible("<img src=x>"), "<img src=x>"); // it will be a text node
});

test("an answer is marked only where the right one is known", () => {
  const trace = (reference) => ({ header: { reference }, verdicts: new Map(), answers: [] });
  assert.equal(answerText(trace("4"), "4"), "4 ✓");
  assert.equal(answerText(trace("4"), "5"), "5 ✗");
  assert.equal(answerText(trace(null), "5"), "5");
  assert.equal(answerText(trace("4"), null), "no answer");
  assert.equal(answerText(trace(null), "x".repeat(99)), `${"x".repeat(39)}…`);
});

test("a long answer begins where it differs from the right one, or from the first", () => {
  const right = "39 apples, 13 candles, 60 cards, 92 eggs, 63 plums";
  const wrong = "39 apples, 13 candles, 60 cards, 92 eggs, 43 plums";
  const known = { header: { reference: right }, verdicts: new Map(), answers: [wrong, right] };
  assert.equal(answerText(known, right), "39 apples, 13 candles, 60 cards, 92 egg… ✓");
  assert.equal(answerText(known, wrong), "…43 plums ✗");
  assert.equal(answerText(known, "38 apples"), "38 apples ✗");
  const open = { header: { reference: null }, verdicts: new Map(), answers: [wrong, right] };
  assert.equal(answerText(open, wrong), "39 apples, 13 candles, 60 cards, 92 egg…");
  assert.equal(answerText(open, right), "…63 plums");
});

test("whether several chains agree is said with the answers that lead in each", () => {
  const trace = { header: { reference: "58" }, verdicts: new Map(), answers: [],
    chains: [{ id: 0 }, { id: 1 }, { id: 2 }] };
  assert.equal(agreement(trace, ["58", "58", "58"]), "All 3 chains say 58 ✓.");
  assert.equal(agreement(trace, ["44", "58", "58"]), "Chain 1 says 44 ✗, chains 2 and 3 say 58 ✓: "
    + "they disagree; do not trust the pooled vote yet.");
});

test("each phase says what happened, from a place to a verdict", () => {
  assert.match(words(0, LAST),
    /^The chain starts from one ordinary draft .* 3 tokens, reward 0.00/);
  assert.match(words(1, 0), /Every token/);
  assert.equal(words(1, 1), "The model keeps the first 1 token and rewrites the rest.");
  assert.equal(narrate({ ...steps[1], index: 0 }, 1, 1),
    "The model keeps nothing and writes a new text.");
  assert.match(words(3, 1), /It wrote the same text again\.$/);
  assert.match(words(1, 2), /scores the proposal lower: −2\.00 against 0\.00\.$/);
  assert.match(words(2, 2), /scores the proposal higher/);
  assert.match(words(3, 2), /the same/);
  assert.match(words(1, 3), /accepted with probability 0\.223\.$/);
  assert.match(words(2, 3), /certain to be accepted/);
  const same = { ...steps[1], reward: 0, oldReward: 0, correction: 0 };
  assert.match(narrate(same, 3, 1), /together make α = 1, /);
  assert.match(words(1, 4), /u = 0\.607\.$/);
  assert.equal(words(1, 5),
    "Rejected: 0.607 is not below 0.223. The old text stays and is counted again.");
  assert.equal(words(2, 5),
    "Accepted: α is 1, so acceptance was certain. The proposal becomes the current text.");
});

test("a conversation is shown message by message, and any other prompt as it is", () => {
  const talk = [{ role: "system", content: "Be brief." }, { role: "user", content: "1 + 1?" }];
  assert.equal(promptText(JSON.stringify(talk)), "system: Be brief.\n\nuser: 1 + 1?");
  for (const prompt of ["1 + 1?", '[{"role"', '[{"role": 1}'])
    assert.equal(promptText(prompt), prompt);
});

test("any of a list of right answers is right, and what is no list is one answer", () => {
  const trace = (reference) => ({ header: { reference }, verdicts: new Map() });
  const cities = trace('["New York", "NYC"]');
  assert.deepEqual(["NYC", "New York", "York", null].map((x) => isRight(cities, x)),
    [true, true, false, false]);
  assert.ok(isRight(trace("[-2, 7]"), "[-2, 7]"));
  assert.ok(isRight(trace('["'), '["'));
  assert.equal(isRight(trace(null), "5"), false);
  assert.equal(answerText(cities, "NYC"), "NYC ✓");
});

test("a grader in the user's file is named without its folder, and no other is", () => {
  const names =
    ["/home/me/a b/roman.py:Roman", "C:\\me\\roman.py:Roman", "number", null, undefined];
  const own = " · answers read by roman.py:Roman";
  assert.deepEqual(names.map((extractor) => graderName({ extractor })), [own, own, "", "", ""]);
});

test("the verdict of the run's grader decides, and not the texts", () => {
  const trace = { header: { reference: "2x" }, verdicts: new Map() };
  keepVerdict(trace, { answer: "x+x", right: true });
  keepVerdict(trace, { answer: "2x", right: false });
  keepVerdict(trace, { answer: "3x" });
  keepVerdict(trace, { answer: null, right: true });
  assert.deepEqual(["x+x", "2x", "3x", null].map((x) => answerText(trace, x)),
    ["x+x ✓", "2x ✗", "3x ✗", "no answer"]);
});
