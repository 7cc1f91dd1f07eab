// The drawing of a step: its texts are texts, in their places, and an animation's frames.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { framesOf } from "../../assets/web/export/animation.js";
import {
  COLOURS,
  SIZE,
  drawStep,
  momentOf,
  shares,
  votesFigure,
} from "../../assets/web/export/step.js";
import { clipText, markup, wrap } from "../../assets/web/export/svg.js";
import { parse } from "../../assets/web/player/parse.js";
import { LAST } from "../../assets/web/player/words.js";
import { BLOCKS, FOUR, HEADER, RECORDED, lines, step } from "./traces.js";

const HOSTILE = ["</text><script>hit()</script>", "]]>", "\u0000\u202e\ud800\uffff",
  '" onload="hit()', "&amp;", "x".repeat(10000)];
const PLAIN = ["svg", "title", "desc", "rect", "text", "tspan", "path", "circle"];
const RUNS = new URL("../../assets/runs/", import.meta.url);

const colours = Object.fromEntries(COLOURS.map((name) => [name, `#${name.padEnd(6, "0")}`]));
const wide = (text, size, bold) => text.length * size * (bold ? 0.55 : 0.5);
const draw = (trace, t, phase = LAST) =>
  drawStep(momentOf(trace, 0, t, phase, 0), colours, wide);

/** What a drawing says, as one text. */
const textOf = (shape) =>
  (Array.isArray(shape) ? shape.slice(2).map(textOf).join(" ") : shape ?? "");

/** All elements of a drawing. */
const all = (shape) => [shape, ...shape.slice(2).filter(Array.isArray).flatMap(all)];

test("whatever texts say, a drawing has its own elements and attributes only", () => {
  const pieces = [...HOSTILE, ...HOSTILE];
  const tokens = pieces.map((_, k) => k);
  const trace = parse(lines(
    { ...HEADER, prompt: HOSTILE.join(" "), lm: HOSTILE[0], rm: HOSTILE[3], reference: HOSTILE[0] },
    step(0, { tokens, pieces, answer: HOSTILE[0] }),
    step(1, { index: 2, tokens: [97, 98], pieces: HOSTILE.slice(0, 2), answer: HOSTILE[3] }),
    step(2, { index: 1, tokens: [99], pieces: [HOSTILE[2]], accepted: false, log_alpha: -1,
      log_u: -0.1 }),
  ));
  for (const t of [0, 1, 2]) {
    for (const phase of [0, 3, LAST]) {
      const file = markup(draw(trace, t, phase));
      const tags = [...file.matchAll(/<([^\s>/]+)/g)].map(([, name]) => name);
      assert.deepEqual(tags.filter((name) => !PLAIN.includes(name)), []);
      assert.equal(file.match(/</g).length, 2 * tags.length); // each is closed, and none is left
      assert.ok(!/ (on\w+|href|style|class)=/.test(file.replace(/>[^<]*</g, "><")));
      assert.ok(!/[\u0000-\u0008\u202a-\u202e\ud800-\udfff\uffff]/.test(file));
    }
  }
  assert.ok(markup(votesFigure(momentOf(trace, 0, 2, LAST, 0), colours, wide).draw())
    .includes("&lt;/text&gt;&lt;script&gt;"));
});

test("every step of every recorded run has its texts in their places", () => {
  for (const file of readdirSync(RUNS).filter((name) => name.endsWith(".jsonl"))) {
    const trace = parse(readFileSync(new URL(file, RUNS), "utf8"));
    for (let t = 0; t < trace.chains[0].steps.length; t += 3) {
      for (const [name, at, ...parts] of all(draw(trace, t, (t / 3) % (LAST + 1)))) {
        if (name !== "text" || at["text-anchor"] === "middle") continue;
        const width = wide(parts.map(textOf).join(""), at["font-size"], at["font-weight"]);
        const from = at["text-anchor"] === "end" ? at.x - width : at.x;
        const to = from + width;
        const place = `${file}, step ${t}: ${parts.map(textOf).join("")}`;
        const end = at.y > 120 && at.y < 680 && from < 800 ? 864 : SIZE.width; // of its column
        assert.ok(from >= 0 && to <= end && at.y > 0 && at.y <= SIZE.height, place);
      }
    }
  }
});

test("a picture says what the player says of the phase, and nothing of what is to come", () => {
  const trace = parse(RECORDED);
  const rejected = trace.chains[0].steps.find((one) => !one.accepted).t;
  const u = /u = 0\.\d+/;
  const verdict = textOf(draw(trace, rejected));
  assert.match(verdict, /Rejected: .* The old text stays and is counted again\./);
  assert.match(verdict, u);
  assert.match(verdict, /counted again, ×2/);
  const chance = textOf(draw(trace, rejected, 3));
  assert.match(chance, /α = min\(1,/);
  assert.doesNotMatch(chance, u);
  assert.doesNotMatch(chance, /Rejected|stays|counted/);
  assert.doesNotMatch(textOf(draw(trace, rejected, 0)), /proposed|α/);
  assert.match(textOf(draw(trace, 0)), /First draft .* first draft/);
});

test("at its cut a block's picture keeps the rest of the text, and shows no new block yet", () => {
  const trace = parse(BLOCKS);
  assert.match(textOf(draw(trace, 1, 0)), /now +a: +kept again +b: \./);
  assert.doesNotMatch(textOf(draw(trace, 1, 0)), /cd/);
  assert.match(textOf(draw(trace, 1, 1)), /now +a: +proposed +cd: +kept again +b: \./);
});

test("votes are those of the step's last verdict", () => {
  const trace = parse(FOUR);
  const of = (t, phase) =>
    textOf(votesFigure(momentOf(trace, 0, t, phase, 0), colours, wide).draw());
  assert.match(of(2, LAST), /3 states +5 +2 67% +4 +1 33%$/);
  assert.match(of(2, 3), /2 states +5 +2 100%$/);
});

test("lines hold all of a text, none is wider than its place, and long words are broken", () => {
  const text = "one two  three four-five\nsix " + "é😀".repeat(60);
  const broken = wrap(text, 80, 10, wide);
  assert.equal(broken.join("").replaceAll(" ", ""), text.replaceAll(/\s/g, ""));
  assert.ok(broken.every((line) => wide(line.trimEnd(), 10) <= 80));
  assert.ok(broken.length > 12);
  assert.equal(clipText("short", 100, 10, wide), "short");
  assert.match(clipText("much longer than there is room", 60, 10, wide), /^much…$/);
});

test("short texts have all of their lines, long ones share what is left", () => {
  assert.deepEqual(shares([1, 3, 2], 11), [1, 3, 2]);
  assert.deepEqual(shares([40, 1, 40], 11), [5, 1, 5]);
  assert.deepEqual(shares([0, 40, 2], 11), [1, 8, 2]);
});

test("an animation gives each step its seconds, in order, the first draft in one picture", () => {
  const frames = framesOf(0, 3, 4);
  assert.deepEqual(frames.map(({ t }) => t), [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
  for (const t of [0, 1, 2, 3]) {
    const seconds = frames.filter((frame) => frame.t === t).map((frame) => frame.seconds);
    assert.ok(Math.abs(seconds.reduce((a, b) => a + b) - 4) < 1e-9);
  }
  assert.ok(frames.every(({ t, phase }, k) =>
    t !== frames[k + 1]?.t || phase < frames[k + 1].phase));
  assert.equal(frames.at(-1).phase, LAST);
});
