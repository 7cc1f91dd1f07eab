/* One step as a picture of 1280 by 720, the size of a slide: what is saved as SVG, what a PNG and
   the frames of an animation are made from. It says the same as the player, in larger letters. */
import { ICONS } from "../dom.js";
import { modelName } from "../dictionary.js";
import { answerStyle, scaleOf } from "../player/drawing.js";
import { wordsOf } from "../player/moves.js";
import {
  answersTo, quantities, stateOf, stays, tally, ticks, visitsAt,
} from "../player/numbers.js";
import {
  LAST,
  PHASES,
  answerText,
  ending,
  brief,
  fixed,
  hasAnswers,
  many,
  narrate,
  pair,
  percent,
  plain,
  px,
  signed,
  promptText,
  visible,
} from "../player/words.js";
import { BOLD, END, MIDDLE, clipText, drawing, text, wrap } from "./svg.js";

/** @typedef {import("../player/parse.js").Trace} Trace */
/** @typedef {import("../player/parse.js").Chain} Chain */
/** @typedef {import("../player/parse.js").Step} Step */
/** @typedef {import("./svg.js").Shape} Shape */
/** @typedef {import("./svg.js").Wide} Wide */
/** @typedef {Record<string, string>} Colours by the names of the player's style: ink, yes, a0 */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/**
 * A moment of a chain.
 * @typedef {object} Moment
 * @property {Trace} trace
 * @property {Chain} chain
 * @property {Step} step
 * @property {number} t
 * @property {number} phase
 * @property {number} seen the last step whose verdict is out
 * @property {number} burnIn
 */
/**
 * A part of the texts: where it is cut off, what it says and how it looks.
 * @typedef {object} Lane
 * @property {string} name
 * @property {string[]} pieces
 * @property {string} fill of its text
 * @property {string} bar colour at its left
 * @property {boolean} [ends] its end is what matters
 * @property {number} [tint] how much of the bar's colour is behind it
 * @property {boolean} [struck]
 */

export const SIZE = { width: 1280, height: 720 };
/** The names of the colours that a picture has. */
export const COLOURS = ["ink", "soft", "line", "card", "ground", "yes", "no", "new", "base",
  "length", "mark", "a0", "a1", "a2", "a3", "a4", "a5", "a6"];

const LEFT = { x: 32, y: 124, width: 808, height: 316 };
const RIGHT = { x: 872, y: 124, width: 376, height: 540 };
const NAME = 104; // pixels for the name of a lane
const PAD = 7;
const GAP = 8;
const SIZES = [22, 18]; // of the texts: the first at which all of a step's fit
const LEADING = 1.42;
const MOST = 2000; // characters of a lane, more than it has room for
const [REWRITE, SCORE, CHANCE, COIN] = [1, 2, 3, 4]; // phases
const FEW = 300; // steps up to which each has its dot

/**
 * A chain at the end of a phase of a step.
 * @param {Trace} trace
 * @param {number} id of the chain
 * @param {number} t
 * @param {number} phase
 * @param {number} burnIn
 * @returns {Moment}
 */
export function momentOf(trace, id, t, phase, burnIn) {
  const chain = trace.chains.find((one) => one.id === id) ?? trace.chains[0];
  const seen = phase === LAST || t === 0 ? t : t - 1;
  return { trace, chain, step: chain.steps[t], t, phase: t ? phase : LAST, seen, burnIn };
}

/**
 * Models and settings.
 * @param {Trace} trace
 */
export const about = ({ header: { lm, rm, beta, sharpness, seed } }) =>
  `${modelName("lm", visible(lm))} · reward: ${modelName("rm", visible(rm))} · β = ${plain(beta)}`
  + (sharpness > 1 ? ` · sharpness ${plain(sharpness)}` : "")
  + ` · seed ${seed ?? 0}`;

/**
 * The picture of a moment.
 * @param {Moment} moment
 * @param {Colours} c
 * @param {Wide} wide
 * @returns {Shape}
 */
export function drawStep(moment, c, wide) {
  const { trace, t, phase, step } = moment;
  const sentence = narrate(step, phase, trace.header.beta);
  return drawing(SIZE.width, SIZE.height, c.card, `Step ${t}: ${sentence}`, about(trace),
    ...heading(moment, c, wide),
    ...texts(moment, c, wide),
    ...decision(moment, sentence, c, wide),
    ...drawTrace(moment, c, { ...RIGHT, height: 232 }),
    ...drawVotes(moment, c, { ...RIGHT, y: RIGHT.y + 268, height: 220 }, wide),
    ...footing(moment, c, wide));
}

/** @type {(moment: Moment, c: Colours, wide: Wide) => Shape[]} */
function heading({ trace, chain, t }, c, wide) {
  const size = 21;
  const prompt = visible(promptText(trace.header.prompt).slice(0, MOST));
  const lines = wrap(prompt, 1000, size, wide, true);
  const firstLines = lines.slice(0, 3);
  if (lines.length > 3) firstLines[2] = `${firstLines[2].trimEnd()}…`;
  const right = SIZE.width - LEFT.x;
  const several = trace.chains.length > 1;
  return [
    ...firstLines.map((line, k) => text(LEFT.x, 44 + 28 * k, size, c.ink, line, BOLD)),
    text(right, 44, 24, c.ink, t ? `Step ${t}` : "First draft", { ...BOLD, ...END }),
    text(right, 70, 16, c.soft, `of ${chain.steps.length - 1}`
      + (several ? `, chain ${chain.id + 1} of ${trace.chains.length}` : ""), END),
  ];
}

/** @type {(moment: Moment, c: Colours, wide: Wide) => Shape[]} */
function footing({ trace, chain, seen }, c, wide) {
  const tokens = chain.generated[seen].toLocaleString("en");
  const room = SIZE.width - 2 * LEFT.x - 330;
  return [
    text(LEFT.x, 704, 15, c.soft, clipText(about(trace), room, 15, wide)),
    text(SIZE.width - LEFT.x, 704, 15, c.soft, `${tokens} tokens written · QAlign Explorer`, END),
  ];
}

/**
 * A step's pieces; the end-of-text token stands apart.
 * @param {Step} step
 */
const apart = ({ pieces, finished }) => pieces.map((piece, k) =>
  (finished && k === pieces.length - 1 ? ` ${piece}` : piece));

/**
 * What is kept, what is there now and what is new; null where nothing is new yet.
 * @param {Moment} moment
 * @param {Colours} c
 * @returns {(Lane | null)[]}
 */
function lanes({ chain, step, t, phase }, c) {
  const proposed = apart(step);
  if (!t) return [{ name: "first draft", pieces: proposed, fill: c.ink, bar: c.yes, tint: 0.1 }];
  const before = apart(chain.steps[step.old]);
  const out = phase === LAST;
  const kept = { name: step.index ? `kept ${step.index}` : "kept none", ends: true, bar: c.card,
    pieces: before.slice(0, step.index), fill: c.soft };
  const part = (/** @type {string[]} */ all) => all.slice(step.index, all.length - step.again);
  const old = { name: "now", pieces: part(before), fill: c.ink, bar: c.line };
  const newPieces = step.refused === null ? part(proposed) : step.vain;
  const fresh = { name: "proposed", pieces: newPieces, fill: c.ink, bar: c.new, tint: 0.11 };
  const tail = step.again ? [{ name: "kept again", pieces: before.slice(-step.again), bar: c.card,
    fill: c.soft }] : [];
  if (phase < REWRITE) return [kept, { ...old, bar: c.mark, tint: 0.45 }, null, ...tail];
  if (!out) return [kept, old, fresh, ...tail];
  return step.accepted
    ? [kept, { ...old, name: "before", fill: c.soft, struck: true },
      { ...fresh, name: "now", bar: c.yes, tint: 0.13 }, ...tail]
    : [kept, { ...old, name: "stays", bar: c.ink },
      { ...fresh, name: step.refused === null ? "rejected" : "refused", fill: c.soft, bar: c.no,
        struck: true }, ...tail];
}

/**
 * The lines that each lane shows where there are `room` of them: short lanes have all of theirs.
 * @param {number[]} needs
 * @param {number} room
 */
export function shares(needs, room) {
  const order = needs.map((need, k) => ({ need, k })).sort((a, b) => a.need - b.need);
  const counts = needs.map(() => 0);
  let left = room;
  order.forEach(({ need, k }, done) => {
    counts[k] = Math.max(1, Math.min(need, Math.floor(left / (order.length - done))));
    left -= counts[k];
  });
  return counts;
}

/** @type {(moment: Moment, c: Colours, wide: Wide) => Shape[]} */
function texts(moment, c, wide) {
  const all = lanes({ ...moment, phase: LAST }, c).filter((lane) => lane !== null);
  const room = (/** @type {number} */ size) => Math.floor(
    (LEFT.height - all.length * (2 * PAD + GAP)) / (LEADING * size));
  const broken = (/** @type {number} */ size) => all.map(({ pieces, ends }) => {
    const content = visible(pieces.join(""));
    return wrap(ends ? content.slice(-MOST) : content.slice(0, MOST).trimStart(),
      LEFT.width - NAME - 2 * PAD, size, wide);
  });
  const size = SIZES.find((one) => broken(one).flat().length <= room(one)) ?? SIZES[1];
  const lines = broken(size);
  const counts = shares(lines.map(({ length }) => length), room(size));
  let y = LEFT.y;
  return lanes(moment, c).flatMap((lane, k) => {
    const height = counts[k] * LEADING * size + 2 * PAD;
    const shapes = lane
      ? drawLane(lane, lines[k], counts[k], { ...LEFT, y, height }, size, c) : [];
    y += height + GAP;
    return shapes;
  });
}

/**
 * @param {Lane} lane
 * @param {string[]} lines
 * @param {number} n how many of them are shown
 * @param {Box} box
 * @param {number} size
 * @param {Colours} c
 * @returns {Shape[]}
 */
function drawLane({ name, fill, bar, ends, tint = 0, struck }, lines, n, box, size, c) {
  const rows = ends ? lines.slice(-n) : lines.slice(0, n);
  if (n < lines.length && ends) rows[0] = `…${rows[0]}`;
  else if (n < lines.length) rows[n - 1] = `${rows[n - 1].trimEnd()}…`;
  const { x, y, width, height } = box;
  const high = LEADING * size;
  const line = struck ? { "text-decoration": "line-through" } : {};
  return [
    ["rect", { x, y, width, height, rx: 6, fill: bar, "fill-opacity": tint }],
    ["rect", { x, y, width: 5, height, fill: bar }],
    text(x + 16, y + PAD + 0.75 * high, 16, tint || bar === c.ink ? c.ink : c.soft, name, BOLD),
    ...rows.map((content, k) => text(x + NAME + PAD, y + PAD + (k + 0.75) * high, size, fill,
      content.replace(/ (?= )|^ /g, "\u00a0"), line)), // readers of SVG take many spaces for one
  ];
}

/**
 * What decides the step, as far as it is known.
 * @param {Moment} moment
 * @param {string} narration
 * @param {Colours} c
 * @param {Wide} wide
 * @returns {(Shape | null)[]}
 */
function decision(moment, narration, c, wide) {
  const { trace, chain, step, t, phase } = moment;
  const { x, width } = LEFT;
  const sentence = wrap(narration, width, 21, wide, true).slice(0, 2)
    .map((line, k) => text(x, 508 + 28 * k, 21, c.ink, line, BOLD));
  if (!t) return sentence;
  const q = quantities(step, trace.header.beta);
  /** @type {(Shape | null)[]} */
  const shapes = [...phases(phase, c, wide), ...sentence];
  if (phase === SCORE) shapes.push(scores(step, q.difference, c));
  if (phase < CHANCE) return shapes;
  shapes.push(formula(trace, step, q, c), ...chance(q, phase >= COIN, c, wide));
  if (phase < LAST) return shapes;
  const colour = step.accepted ? c.yes : c.no;
  const outcome = step.accepted && step.changed
    ? "the proposal joins the chain" : `counted again, ×${visitsAt(chain, t)}`;
  return [...shapes,
    ["circle", { cx: 628, cy: 622, r: 18, fill: colour }],
    icon(step.accepted ? "yes" : "no", 616, 610, 24, c.card),
    text(658, 631, 27, colour, step.accepted ? "Accepted" : "Rejected", BOLD),
    text(612, 664, 16, c.soft, outcome)];
}

/**
 * A sign that no typeface has to have.
 * @param {"yes" | "no"} name
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {string} stroke
 * @returns {Shape}
 */
const icon = (name, x, y, size, stroke) => ["path", { d: ICONS[name], fill: "none", stroke,
  "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round",
  transform: `translate(${px(x)} ${px(y)}) scale(${px(size / 24)})` }];

/** @type {(phase: number, c: Colours, wide: Wide) => Shape[]} */
function phases(phase, c, wide) {
  let x = LEFT.x;
  return PHASES.flatMap((title, k) => {
    const on = k <= phase;
    const bold = k === phase;
    const at = x;
    x += 50 + wide(title, 16, true);
    return /** @type {Shape[]} */ ([
      ["circle", { cx: at + 12, cy: 464, r: 11, fill: on ? c.ink : c.card,
        stroke: on ? c.ink : c.base }],
      text(at + 12, 469, 14, on ? c.card : c.soft, String(k + 1), { ...BOLD, ...MIDDLE }),
      text(at + 30, 470, 16, on ? c.ink : c.soft, title, bold ? BOLD : {}),
    ]);
  });
}

/** @type {(step: Step, difference: number, c: Colours) => Shape} */
const scores = (step, difference, c) => text(LEFT.x, 566, 20, c.ink, [
  `reward now ${fixed(step.oldReward)}, proposed ${fixed(step.reward)}: difference `,
  ["tspan", { fill: c.new, ...BOLD }, signed(difference)],
]);

/** @type {(trace: Trace, step: Step, q: ReturnType<typeof quantities>, c: Colours) => Shape} */
function formula({ header }, step, q, c) {
  const reward = (/** @type {string} */ content) => ["tspan", { fill: c.new, ...BOLD }, content];
  const length = (/** @type {string} */ content) => ["tspan", { fill: c.length, ...BOLD }, content];
  const some = (/** @type {string} */ content) =>
    (header.rm === "none" ? [] : [reward(content), " × "]);
  const { sharpness } = header;
  const sharp = (/** @type {string} */ content) => (sharpness > 1 ? [`${content} × `] : []);
  return text(LEFT.x, 566, 19, c.ink, /** @type {(Shape | string)[]} */ ([
    "α = min(1, ", ...some(`exp(${brief(q.difference)}/${plain(header.beta)})`),
    ...sharp(`(p′/p)^${plain(sharpness - 1)}`),
    length(wordsOf(step).factor), ") = min(1, ", ...some(brief(q.reward)),
    ...sharp(brief(q.sharp)), length(brief(q.correction)), ") = ",
    ["tspan", BOLD, pair(q.u, q.alpha)[1]],
  ]));
}

/**
 * The bar of the chance, with the coin once it is thrown.
 * @param {ReturnType<typeof quantities>} q
 * @param {boolean} thrown
 * @param {Colours} c
 * @param {Wide} wide
 * @returns {(Shape | null)[]}
 */
function chance(q, thrown, c, wide) {
  const { x } = LEFT;
  const [y, width, height] = [596, 540, 38];
  const edge = x + width * q.alpha;
  const at = x + width * q.u;
  const label = `u = ${pair(q.u, q.alpha)[0]}`;
  const half = wide(label, 18, true) / 2;
  const under = Math.min(Math.max(at, x + half), x + width - half);
  /** A word in the middle of its part, or of the larger half where the coin parts that. */
  const word = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ fill,
    /** @type {string} */ name) => {
    const parts = thrown && from < at && at < to ? [[from, at], [at, to]] : [[from, to]];
    const [a, b] = parts.sort(([a, b], [c, d]) => (d - c) - (b - a))[0];
    return b - a < 90 ? null : text((a + b) / 2, y + 25, 18, fill, name, { ...BOLD, ...MIDDLE });
  };
  /** @type {(Shape | null)[]} */
  const bar = [
    ["rect", { x, y, width, height, fill: c.no, "fill-opacity": 0.14, stroke: c.no }],
    ["rect", { x, y, width: edge - x, height, fill: c.yes }],
    word(x, edge, c.card, "accept"),
    word(edge, x + width, c.ink, "reject"),
  ];
  return thrown ? [...bar,
    ["rect", { x: at - 4, y: y - 9, width: 8, height: height + 18, rx: 3, fill: c.ink,
      stroke: c.card, "stroke-width": 2 }],
    text(under, y + height + 30, 18, c.ink, label, { ...BOLD, ...MIDDLE })] : bar;
}

/** @type {(x: number, y: number, r: number) => string} */
const diamond = (x, y, r) => `M${px(x)} ${px(y)}m0 ${-r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`;

/**
 * The colour of an answer.
 * @param {Trace} trace
 * @param {string | null} answer
 * @param {Colours} c
 */
const colourOf = (trace, answer, c) => c[answerStyle(trace, answer).slice(-3, -1)];

/**
 * Reward of the states up to the moment, with the rejected proposals and the answers below.
 * @param {Moment} moment
 * @param {Colours} c
 * @param {Box} box
 * @returns {Shape[]}
 */
export function drawTrace({ trace, chain, step, t, phase, seen }, c, box) {
  const [left, top] = [box.x + 40, box.y + 40];
  const [right, bottom] = [box.x + box.width - 12, box.y + box.height - 46];
  const steps = Math.max(trace.header.steps, chain.steps.length - 1, 1);
  const x = (/** @type {number} */ k) => left + ((right - left) * k) / steps;
  const y = scaleOf(trace, bottom, top);
  const few = chain.steps.length <= FEW;
  const line = (/** @type {Chain} */ one) => one.stateAt.slice(0, seen + 1).map((at, k) => {
    const v = px(y(one.steps[at].reward));
    return k ? `H${px(x(k))}V${v}` : `M${px(x(0))} ${v}`;
  }).join("");
  const past = chain.steps.slice(0, seen + 1);
  const rings = past.filter((one) => !one.accepted)
    .map((one) => diamond(x(one.t), y(one.reward), few ? 4 : 2));
  const dots = past.filter((one) => few && one.accepted)
    .map((one) => `M${px(x(one.t) - 2)} ${px(y(one.reward))}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0`);
  /** @type {{ answer: string | null, from: number, to: number }[]} */
  const bands = [];
  for (let k = 0; k <= seen; k++) {
    const { answer } = stateOf(chain, k);
    const band = bands[bands.length - 1];
    if (band?.answer === answer) band.to = k;
    else bands.push({ answer, from: k, to: k });
  }
  const waits = t > 0 && phase >= SCORE && phase < LAST;
  const state = { fill: "none", stroke: c.yes, "stroke-width": 2.5 };
  const key = box.y + box.height + 6;
  return /** @type {Shape[]} */ ([
    text(box.x, box.y + 16, 18, c.ink, "Reward, step by step", BOLD),
    text(box.x + box.width, box.y + 16, 17, c.ink,
      `now ${fixed(stateOf(chain, seen).reward)}`, END),
    ...ticks(y.lo, y.hi, 3).flatMap((r) => [
      ["path", { d: `M${left} ${px(y(r))}H${right}`, stroke: c.line }],
      text(left - 8, y(r) + 5, 14, c.soft, plain(r), END),
    ]),
    ...ticks(0, steps).filter(Number.isInteger).map((k) =>
      text(x(k), bottom + 32, 14, c.soft, plain(k), MIDDLE)),
    ...(hasAnswers(trace) ? bands : []).map(({ answer, from, to }) => {
      const start = x(Math.max(0, from - 0.5));
      return ["rect", { x: start, y: bottom + 6, width: x(Math.min(to + 0.5, steps)) - start,
        height: 9, fill: colourOf(trace, answer, c) }];
    }),
    ...trace.chains.filter((one) => one !== chain).map((one) =>
      ["path", { d: line(one), ...state, "stroke-width": 1, "stroke-opacity": 0.45 }]),
    ["path", { d: line(chain), ...state }],
    ["path", { d: dots.join(""), fill: c.yes }],
    ["path", { d: rings.join(""), fill: c.card, stroke: c.no, "stroke-width": 1.5 }],
    waits ? ["path", { d: diamond(x(t), y(step.reward), 7), fill: c.new, stroke: c.card }] : null,
    ["path", { d: `M${box.x} ${key - 5}h18`, ...state }],
    text(box.x + 24, key, 15, c.soft, "current text"),
    ["path", { d: diamond(box.x + 136, key - 5, 6), fill: c.new }],
    text(box.x + 148, key, 15, c.soft, "proposal"),
    ["path", { d: diamond(box.x + 236, key - 5, 5), fill: c.card, stroke: c.no,
      "stroke-width": 1.5 }],
    text(box.x + 248, key, 15, c.soft, "rejected"),
  ]);
}

/**
 * How often each answer has been counted, or each text where there is no answer to read.
 * @param {Moment} moment
 * @param {Colours} c
 */
function standing({ trace, chain, seen, burnIn }, c) {
  const open = !hasAnswers(trace);
  const upTo = (/** @type {Chain} */ one) => Math.min(seen, one.steps.length - 1);
  /** @type {[string | number | null, number][]} */
  const sorted = open ? stays(chain, seen, Math.min(burnIn, seen))
    : tally(trace.chains.flatMap((one) => answersTo(one, upTo(one), Math.min(burnIn, upTo(one)))));
  const n = sorted.reduce((sum, [, k]) => sum + k, 0);
  const rows = sorted.slice(0, 4).map(([what, k]) => (typeof what === "number"
    ? { name: ending(chain.steps[what]), colour: c.a6, k }
    : { name: answerText(trace, what), colour: colourOf(trace, what, c), k }));
  const rest = sorted.slice(4).reduce((sum, [, k]) => sum + k, 0);
  if (rest) rows.push({ name: "others", colour: c.a6, k: rest });
  const title = open ? "How long it stayed at each text"
    : trace.chains.length > 1 ? `Votes of ${trace.chains.length} chains, pooled`
      : "Votes: one for every state";
  return { rows, n, title, names: open ? 200 : 118 };
}

/**
 * The vote at the moment.
 * @param {Moment} moment
 * @param {Colours} c
 * @param {Box} box
 * @param {Wide} wide
 * @returns {(Shape | null)[]}
 */
export function drawVotes(moment, c, box, wide) {
  const { rows, n, title, names } = standing(moment, c);
  const { x, y, width } = box;
  const [from, to] = [x + names + 10, x + width - 104];
  return [
    text(x, y + 16, 18, c.ink, title, BOLD),
    text(x + width, y + 16, 17, c.ink, many(n, "state"), END),
    ...rows.flatMap(({ name, colour, k }, row) => {
      const level = y + 40 + 36 * row;
      const [answerName, sign] = name.split(/ (?=[✓✗]$)/);
      const label = clipText(answerName, names - 24, 17, wide);
      return /** @type {(Shape | null)[]} */ ([
        text(x, level + 17, 17, c.ink, label),
        sign ? icon(sign === "✓" ? "yes" : "no", x + wide(label, 17) + 6, level + 3, 16, c.ink)
          : null,
        ["rect", { x: from, y: level, width: to - from, height: 22, rx: 3, fill: c.ground }],
        ["rect", { x: from, y: level, width: ((to - from) * k) / n, height: 22, rx: 3,
          fill: colour }],
        text(x + width - 62, level + 17, 17, c.ink, String(k), { ...BOLD, ...END }),
        text(x + width, level + 17, 17, c.soft, percent(k / n), END),
      ]);
    }),
  ];
}

/**
 * The vote as a figure of its own.
 * @param {Moment} moment
 * @param {Colours} c
 * @param {Wide} wide
 */
export function votesFigure(moment, c, wide) {
  const { title, rows } = standing(moment, c);
  const [width, height] = [RIGHT.width + 48, 78 + 36 * rows.length];
  const box = { x: 24, y: 20, width: RIGHT.width, height };
  const label = `${title}, up to step ${moment.seen}`;
  return { title, draw: () => drawing(width, height, c.card, label, about(moment.trace),
    ...drawVotes(moment, c, box, wide)) };
}
