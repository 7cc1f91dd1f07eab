/* The chain player: a trace (JSON lines, qalign_core/runs/trace.py) in, a playable page out.
   Model text enters the page through textContent only, never as markup. */
(function (root) {
"use strict";

const { abs, exp, floor, max, min, round } = Math;

// 1. parse: text -> trace

const LIMITS = { characters: 16e6, steps: 50000, chains: 64, tokens: 32768 };

class TraceError extends Error {}

const isText = (x) => typeof x === "string";
const isCount = (x) => Number.isSafeInteger(x) && x >= 0;
const isNumber = (x) => x === +x && abs(x) <= 1e300;
const isLog = (x) => x === null || (isNumber(x) && x <= 0);
const isList = (x, test, most) => Array.isArray(x) && x.length <= most && x.every(test);

function newTrace() {
	return { header: null, base: [], chains: [], answers: [], end: null, lines: 0, read: 0, version: 0, lo: Infinity, hi: -Infinity };
}

// Read the lines that arrived since the last call; `text` is everything so far
function feed(trace, text, whole) {
	if (text.length > LIMITS.characters) throw new TraceError("This trace is larger than 16 MB.");
	for (;;) {
		let stop = text.indexOf("\n", trace.read);
		if (stop < 0) { if (!whole || trace.read >= text.length) break; stop = text.length; }
		const line = text.slice(trace.read, stop);
		trace.read = stop + 1;
		trace.lines += 1;
		if (line.trim()) readLine(trace, line);
	}
	trace.version += 1;
	return trace;
}

function readLine(trace, line) {
	const need = (ok, what) => { if (!ok) throw new TraceError(`Line ${trace.lines}: ${/ /.test(what) ? what : `“${what}” is missing or wrong`}.`); };
	let x;
	try { x = JSON.parse(line); } catch { need(false, "this is not JSON; a trace is JSON lines"); }
	need(x && typeof x === "object" && !Array.isArray(x), "expected an object");
	if (!trace.header) {
		need(x.type === "header", "expected a trace, whose first line is its header");
		need(x.version === 1, `trace version ${String(x.version)} is not known, expected 1`);
		need([x.lm, x.rm, x.prompt].every(isText), "the header needs lm, rm and prompt");
		need(isNumber(x.beta) && x.beta > 0, "beta");
		need(isCount(x.steps) && x.steps <= LIMITS.steps, "steps");
		trace.header = x;
		return;
	}
	need(!trace.end, "a line after the end of the trace");
	if (x.type === "base") {
		need(isList(x.rewards, isNumber, LIMITS.steps), "rewards");
		trace.base = x.rewards;
		for (const r of x.rewards) span(trace, r);
	} else if (x.type === "end") {
		need(isText(x.reason), "reason");
		trace.end = { reason: x.reason, message: isText(x.message) ? x.message : "" };
	} else if (x.type === "step") {
		readStep(trace, x, need);
	} else need(false, `unknown type ${JSON.stringify(x.type)}`);
}

const span = (trace, r) => { trace.lo = min(trace.lo, r); trace.hi = max(trace.hi, r); };

function readStep(trace, x, need) {
	need(isCount(x.chain) && x.chain < LIMITS.chains, "chain");
	let chain = trace.chains.find((c) => c.id === x.chain);
	const t = chain ? chain.steps.length : 0;
	need(x.t === t && t <= LIMITS.steps, `step ${String(x.t)} of chain ${x.chain} came where ${t} was due`);
	const old = t ? chain.steps[chain.stateAt[t - 1]] : null;
	need(isCount(x.index) && (old ? x.index < old.ids.length : x.index === 0), "index");
	need(isList(x.tokens, isCount, LIMITS.tokens) && x.tokens.length > 0, "tokens");
	need(isList(x.pieces, isText, LIMITS.tokens) && [0, x.tokens.length].includes(x.pieces.length), "pieces");
	const words = x.pieces.length ? x.pieces : x.tokens.map((id) => ` ${id}`);
	need(isNumber(x.reward), "reward");
	need(isLog(x.log_alpha) && isLog(x.log_u), "log_alpha");
	need([x.accepted, x.finished].every((b) => b === !!b), "accepted");
	const logAlpha = x.log_alpha ?? -Infinity, logU = x.log_u ?? -Infinity;
	need(t === 0 ? x.accepted : x.accepted === (logAlpha === 0 || logU < logAlpha),
		"the verdict contradicts alpha and u");
	need(x.answer == null || isText(x.answer), "answer");
	need(x.cost == null || isList(x.cost, isCount, 8), "cost");

	const ids = old ? old.ids.slice(0, x.index).concat(x.tokens) : x.tokens;
	const pieces = old ? old.pieces.slice(0, x.index).concat(words) : words;
	let first = -1; // first token that differs from the state
	if (old) {
		const shared = min(ids.length, old.ids.length);
		for (let j = x.index; j < shared && first < 0; j++) if (ids[j] !== old.ids[j]) first = j;
		if (first < 0 && ids.length !== old.ids.length) first = shared;
	}
	if (!chain) {
		chain = { id: x.chain, steps: [], stateAt: [], since: [], accepted: [], changed: [], moves: [], generated: [] };
		trace.chains.push(chain);
		trace.chains.sort((a, b) => a.id - b.id);
	}
	const answer = x.answer ?? null;
	if (answer !== null && !trace.answers.includes(answer)) trace.answers.push(answer);
	const step = { t, index: x.index, ids, pieces, finished: x.finished, reward: x.reward, answer,
		logAlpha, logU, accepted: x.accepted, first, changed: first >= 0, old: old ? chain.stateAt[t - 1] : 0,
		oldLength: old ? old.ids.length : ids.length, oldReward: old ? old.reward : x.reward };
	const { accepted, changed } = step, before = (list) => (t ? list[t - 1] : 0);
	const count = (list, n) => list.push(before(list) + Number(n));
	count(chain.accepted, t && accepted); // the first draft is no proposal
	count(chain.changed, changed);
	count(chain.moves, changed && accepted);
	count(chain.generated, x.cost ? x.cost[0] : x.tokens.length);
	chain.stateAt.push(accepted ? t : before(chain.stateAt));
	chain.since.push(accepted && changed ? t : before(chain.since));
	chain.steps.push(step);
	span(trace, step.reward);
}

// Parse a whole trace, or throw a TraceError of one sentence
function parse(text) {
	const trace = feed(newTrace(), text, true);
	if (!trace.chains.length) throw new TraceError(trace.header ? "This trace has no steps." : "This file is empty, not a trace.");
	return trace;
}

// 2. numbers and words

const MINUS = "−";
const fixed = (x, d = 2) => x.toFixed(d).replace("-", MINUS);
const signed = (x, d = 2) => (x >= 0 ? "+" : "") + fixed(x, d);
const px = (x) => x.toFixed(1);
const percent = (x) => `${round(100 * x)} %`;

// A non-negative number in few digits: 0.69, 12.4, 2.1 × 10⁻⁵
function brief(x) {
	if (x === 0) return "0";
	if (!Number.isFinite(x)) return "∞";
	if (x < 0.001 || x >= 1e5) {
		const [m, e] = x.toExponential(1).split("e");
		return `${m} × 10${[...String(Number(e))].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("")}`;
	}
	return x < 0.1 ? x.toPrecision(2) : x.toFixed(x < 10 ? 2 : 1);
}
const factor = (x) => (x >= 0.001 && x < 1e4 ? x.toFixed(3) : brief(x));

// u and alpha in as few digits as show which one is larger
function pair(u, alpha) {
	for (let d = 2; d < 8; d++) {
		const [a, b] = [u, alpha].map((x) => (x >= 0.1 ** d || x === 0 ? x.toFixed(d) : brief(x)));
		if (a !== b || u === alpha) return [a, alpha === 1 ? "1" : b];
	}
	return [u, alpha];
}

function quantities(step, beta) {
	const difference = step.reward - step.oldReward;
	const lengths = step.oldLength / step.ids.length;
	const logRatio = difference / beta + Math.log(lengths);
	const alpha = exp(step.logAlpha), u = exp(step.logU);
	return { difference, lengths, logRatio, ratio: exp(logRatio), reward: exp(difference / beta), alpha, u,
		agrees: abs(min(0, logRatio) - step.logAlpha) <= 1e-6 * (1 + abs(step.logAlpha)) };
}

// Wilson's 95 % interval of k out of n
function wilson(k, n) {
	if (!n) return [0, 1];
	const z = 1.959964, p = k / n, d = 1 + z * z / n, c = p + z * z / (2 * n);
	const w = z * Math.sqrt(p * (1 - p) / n + z * z / (4 * n * n));
	return [(c - w) / d, (c + w) / d];
}

// Self-normalised importance weights of base samples for the target at beta
function weights(rewards, beta) {
	const top = max(...rewards);
	const w = rewards.map((r) => exp((r - top) / beta)), sum = w.reduce((a, b) => a + b, 0);
	return w.map((x) => x / sum);
}

const stateOf = (chain, t) => chain.steps[chain.stateAt[t]];
// how often the state at t has been counted by then
const visitsAt = (chain, t) => t - chain.since[t] + 1;

const PHASES = ["Place", "Rewrite", "Score", "Chance", "Draw", "Verdict"];
const SECONDS = [0.34, 0.34, 0.24, 0.24, 0.24, 0.20]; // together 1.6, at 1x
const LAST = PHASES.length - 1;

const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function narrate(step, phase, beta) {
	const n = step.oldLength, i = step.index;
	if (step.t === 0) return `The chain starts from one ordinary draft of the model: ${many(step.ids.length, "token")}, reward ${fixed(step.reward)}.`;
	const q = quantities(step, beta), [u, alpha] = pair(q.u, q.alpha);
	switch (phase) {
		case 0: return "Where to cut? Every token of the current text is equally likely.";
		case 1: {
			const kept = i === 0 ? "The model keeps nothing and writes a new text."
				: `The model keeps the first ${many(i, "token")} and rewrites the rest.`;
			if (!step.changed) return `${kept} It wrote the same again.`;
			return step.first > i ? `${kept.slice(0, -1)}; the first ${step.first - i === 1 ? "one comes" : `${step.first - i} come`} out the same.` : kept;
		}
		case 2: return q.difference === 0 ? "The reward model scores both texts the same."
			: `The reward model likes the proposal ${q.difference > 0 ? "better" : "less"}: ${fixed(step.reward)} against ${fixed(step.oldReward)}.`;
		case 3: return q.logRatio >= 0 ? "At least as good a trade as the current text: it is taken for certain."
			: `So the proposal is taken with probability ${alpha}.`;
		case 4: return `A random number between 0 and 1 is drawn: u = ${u}.`;
		default: return step.accepted
			? (q.alpha === 1 ? `Accepted: with probability 1, any u will do. ` : `Accepted: ${u} is below ${alpha}. `) + "The proposal becomes the current text."
			: `Rejected: ${u} is not below ${alpha}. The old text stays and is counted again.`;
	}
}

// Model text made safe to look at: controls and direction marks become visible signs
const visible = (piece) => piece
	.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0)))
	.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

// 3. drawing

// Make nodes: h("span.num", { attributes }, children); class names without their "qp-"
const build = (make) => (name, ...rest) => {
	const [tag, ...classes] = name.split("."), node = make(tag);
	if (classes.length) node.setAttribute("class", classes.filter(Boolean).map((c) => `qp-${c}`).join(" "));
	const plain = rest[0]?.constructor === Object ? rest.shift() : {};
	for (const [key, value] of Object.entries(plain)) {
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else if (value != null && value !== false) node.setAttribute(key === "aria" ? "aria-label" : key, value === true ? "" : value);
	}
	node.append(...rest.filter((child) => child != null));	// strings become text nodes
	return node;
};
const h = build((tag) => document.createElement(tag));
const s = build((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
const button = (name, attributes, ...children) => h(`button.${name}`, { type: "button", ...attributes }, ...children);
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const show = (node, on) => { node.hidden = !on; };
const set = (node, attributes) => { for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v); };

const ICONS = {
	play: "M7 4.5v15l13-7.5z", pause: "M6 4.5h4.5v15H6zM13.5 4.5H18v15h-4.5z",
	back: "M18 5v14l-9-7zM6 5h2.5v14H6z", next: "M6 5v14l9-7zM15.5 5H18v14h-2.5z",
	hop: "M3 12.5l4 4L14 8M13 15.5l1.5 1.5L22 8", yes: "M4 12.5l5.5 5.5L20 6.5", no: "M6 6l12 12M18 6L6 18",
	lock: "M7 11V8a5 5 0 0 1 10 0v3M5.5 11h13v9h-13z",
};
const icon = (name) => s(`svg.icon.${/^(play|pause|back|next)$/.test(name) ? "" : "line"}`, { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));

function ticks(lo, hi, n = 4) {
	const raw = (hi - lo) / n || 1, power = 10 ** floor(Math.log10(raw));
	const size = power * [1, 2, 5, 10].find((m) => m * power >= raw), out = [];
	for (let x = Math.ceil(lo / size) * size; x <= hi + 1e-9; x += size) out.push(abs(x) < size / 1e6 ? 0 : x);
	return out;
}
const plain = (x) => String(Number(x.toPrecision(6))).replace("-", MINUS);
const label = (x, y, text, anchor = "middle", cls = "tick") => s(`text.${cls}`, { x, y, "text-anchor": anchor }, text);
const box = (width, height) => `0 0 ${width} ${height}`;
const chart = (width, height, aria, ...children) => s("svg.chart", { width, height, viewBox: box(width, height), role: "img", aria }, ...children);
const rule = (cls, x1, x2, y) => s(`line.${cls}`, { x1, x2, y1: y, y2: y });

function rewardScale(trace, from, to) {
	let { lo, hi } = trace;
	if (!(hi > lo)) { lo -= 1; hi += 1; }
	const pad = 0.06 * (hi - lo);
	lo -= pad; hi += pad;
	return Object.assign((r) => from + (to - from) * (r - lo) / (hi - lo), { lo, hi });
}

// Spans for tokens; the end-of-text id is drawn as a sign of its own
const tokenSpans = (x, from) => x.pieces.slice(from).map((piece, j, all) =>
	(x.finished && j === all.length - 1 ? h("span.tok.eos", { title: "the end-of-text token, counted in the length" }, visible(piece)) : h("span.tok", visible(piece))));

// Colour of an answer, as a style: --a0 for the right one, --a1, ... in order of appearance
function answerStyle({ header, answers }, answer) {
	const k = answer === header.reference ? 0 : answers.filter((a) => a !== header.reference).indexOf(answer) + 1;
	return `--c:var(--a${answer === null ? 6 : min(k, 6)})`;
}
const swatch = (style) => h("i.swatch.own", { style });
const answerText = (trace, answer) => (answer === null ? "no answer" : visible(answer).slice(0, 40)
	+ (trace.header.reference == null ? "" : answer === trace.header.reference ? " ✓" : " ✗"));

// 4. panels
// draw() is for new data or a new size, move() and say() for the position: what lies after it is
// clipped away, so scrubbing costs a few attributes, not a redraw.

let ids = 0;
const LEFT = 36, RIGHT = 10, TOP = 8, LOW = 18;

function panel(title, height, ...key) {
	const value = h("span.value"), svg = height ? s("svg.chart", { height, role: "img" }) : null;
	return { value, svg, height, bottom: height - LOW,
		node: h("figure.panel", h("figcaption", title, value), svg, key.length ? h("p.key", ...key.flatMap(([cls, sign, text]) => [h(`b.k-${cls}`, sign), text])) : null),
		size(width) { set(svg, { width, viewBox: box(width, height) }); },
		tell(text, t) { put(value, text); if (svg) set(svg, { "aria-label": `${title}, up to step ${t}: ${text}.` }); } };
}

function timePanel(title, height, seek, ...key) {
	const p = panel(title, height, ...key), id = `qp-clip-${++ids}`;
	const rect = s("rect", { x: 0, y: -20, height: height + 40 }), head = rule("head", 0, 0, 0);
	p.marks = s("g", { "clip-path": `url(#${id})` });
	p.frame = s("g");
	p.svg.append(s("clipPath", { id }, rect), p.frame, p.marks, head);
	p.svg.classList.add("qp-seek");
	p.scale = (trace, chain, width) => {
		p.size(width);
		p.steps = max(trace.header.steps, chain.steps.length - 1, 1);
		p.x = (t) => LEFT + (width - LEFT - RIGHT) * t / p.steps;
		set(head, { y1: 0, y2: p.bottom + 3 });
		p.frame.replaceChildren(...ticks(0, p.steps).filter(Number.isInteger).map((t) => label(p.x(t), height - 3, plain(t))));
	};
	p.level = (y, text, cls = "level") => p.frame.append(rule(cls, LEFT, p.x(p.steps), y), label(LEFT - 6, y + 4, text, "end"));
	p.move = (t) => { rect.setAttribute("width", p.x(t) + 1); set(head, { x1: p.x(t), x2: p.x(t) }); };
	const go = (e) => seek(round(p.steps * (e.clientX - p.svg.getBoundingClientRect().left - LEFT) / (p.x(p.steps) - LEFT)));
	p.svg.addEventListener("pointerdown", (e) => { go(e); p.svg.setPointerCapture(e.pointerId); });
	p.svg.addEventListener("pointermove", (e) => { if (e.buttons) go(e); });
	return p;
}

const ring = (x, y, r) => `M${x} ${y}m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;

function tracePanel(seek, settings) {
	const p = timePanel("Reward, step by step", 144, seek, ["yes", "━", "current text"], ["no", "○", "rejected proposal"]);
	p.draw = (trace, { steps, stateAt }, width) => {
		p.scale(trace, { steps }, width);
		const floor = p.bottom - 10, y = rewardScale(trace, floor, TOP), few = steps.length <= 300, bands = [];
		for (const r of ticks(y.lo, y.hi, 3)) p.level(y(r), plain(r));
		let line = "", rings = "", dots = "";
		steps.forEach((step, t) => {
			const x = px(p.x(t)), state = steps[stateAt[t]], v = px(y(state.reward)), band = bands[bands.length - 1];
			line += t ? `H${x}V${v}` : `M${x} ${v}`;
			if (!step.accepted) rings += ring(x, px(y(step.reward)), few ? 2.6 : 1.6); else if (few) dots += ring(x, v, 2);
			if (band?.answer === state.answer) band.to = t; else bands.push({ answer: state.answer, from: t, to: t });
		});
		p.marks.replaceChildren(...(trace.answers.length ? bands : []).map((b) => {
			const x = p.x(max(0, b.from - 0.5));
			return s("rect.own", { style: answerStyle(trace, b.answer), x, width: p.x(min(b.to + 0.5, p.steps)) - x, y: floor + 4, height: 7 }, s("title", answerText(trace, b.answer)));
		}), s("path.state-line", { d: line }), s("path.dots", { d: dots }), s("path.rings", { d: rings }));
		const burn = min(settings.burnIn, p.steps);
		if (burn) p.frame.append(s("rect.burn", { x: LEFT, width: p.x(burn) - LEFT, y: TOP, height: floor - TOP }, s("title", `burn-in: the first ${burn} states are not counted`)));
	};
	p.say = (trace, chain, t) => p.tell(`now ${fixed(stateOf(chain, t).reward)}`, t);
	return p;
}

function ratePanel(seek) {
	const p = timePanel("How often proposals are accepted", 108, seek, ["yes", "━", "of those that differ, 95 % band"], ["ink", "╍", "of all"]);
	p.draw = (trace, chain, width) => {
		p.scale(trace, chain, width);
		const y = (v) => p.bottom - (p.bottom - TOP) * v;
		p.level(y(0), "0 %"); p.level(y(1), "100 %"); p.level(y(0.5), "50 %", "half");
		let all = "", line = "", up = "", down = "";
		for (let t = 1; t < chain.steps.length; t++) {
			const at = (v) => `${px(p.x(t))} ${px(y(v))}`, n = chain.changed[t], k = chain.moves[t];
			all += `${all ? "L" : "M"}${at(chain.accepted[t] / t)}`;
			if (!n) continue;
			const [lo, hi] = wilson(k, n), to = line ? "L" : "M";
			line += to + at(k / n); up += to + at(hi); down = `L${at(lo)}${down}`;
		}
		p.marks.replaceChildren(s("path.band", { d: up && `${up}${down}Z` }), s("path.all-line", { d: all }), s("path.state-line", { d: line }));
	};
	p.say = (trace, chain, t) => {
		const n = chain.changed[t];
		p.tell(t === 0 ? "no proposal yet" : `${percent(chain.accepted[t] / t)} of all${n ? `, ${percent(chain.moves[t] / n)} of those that differ` : ""}`, t);
	};
	return p;
}

function histogram(values, weight, lo, hi, bins) {
	const out = new Array(bins).fill(0);
	values.forEach((v, j) => { out[min(bins - 1, max(0, floor((v - lo) / (hi - lo) * bins)))] += weight ? weight[j] : 1 / values.length; });
	return out;
}

function histogramPanel(settings) {
	const BINS = 24, p = panel("Where the chain spends its time", 122, ["yes", "■", "chain"], ["no", "━", "model alone"], ["ink", "╍", "target, estimated"]);
	const bars = s("path.bars"), base = s("path.base-line"), target = s("path.all-line"), frame = s("g");
	p.svg.append(bars, base, target, frame);
	let x, y, scale, last;
	const states = (chain, to) => chain.stateAt.slice(min(settings.burnIn, to), to + 1).map((k) => chain.steps[k].reward);
	const mean = (v) => v.reduce((a, b) => a + b, 0) / v.length;
	const outline = (shares) => shares && `M${LEFT} ${p.bottom}${shares.map((v, b) => `V${px(y(v))}H${px(x(b + 1))}`).join("")}V${p.bottom}`;
	p.draw = (trace, chain, width) => {
		p.size(width);
		scale = rewardScale(trace, LEFT, width - RIGHT);
		x = (b) => LEFT + (width - RIGHT - LEFT) * b / BINS;
		const share = (values, weight) => values.length ? histogram(values, weight, scale.lo, scale.hi, BINS) : [];
		const alone = share(trace.base), tilted = trace.base.length ? share(trace.base, weights(trace.base, trace.header.beta)) : [];
		const most = max(...share(states(chain, chain.steps.length - 1)), ...alone, ...tilted);
		y = (v) => p.bottom - (p.bottom - TOP) * min(1, v / most);
		base.setAttribute("d", alone.length ? outline(alone) : "");
		target.setAttribute("d", alone.length ? outline(tilted) : "");
		frame.replaceChildren(rule("axis", LEFT, width - RIGHT, p.bottom), ...ticks(scale.lo, scale.hi, 5).map((r) => label(scale(r), p.height - 3, plain(r))),
			label(LEFT - 6, TOP + 6, percent(most), "end"), label(LEFT - 6, p.bottom, "0 %", "end"));
		last = -1;
	};
	p.say = (trace, chain, t) => {
		if (t === last) return;
		last = t;
		const r = states(chain, t);
		bars.setAttribute("d", histogram(r, null, scale.lo, scale.hi, BINS).map((v, b) => (v ? `M${x(b) + 0.5} ${p.bottom}V${y(v)}H${x(b + 1) - 0.5}V${p.bottom}Z` : "")).join(""));
		p.tell(`mean reward ${fixed(mean(r))}${trace.base.length ? `, model alone ${fixed(mean(trace.base))}` : ""}`, t);
	};
	return p;
}

function answersPanel(settings) {
	const p = panel("Votes for each final answer", 0), list = h("ol.answers");
	p.node.append(list);
	p.draw = (trace) => show(p.node, trace.answers.length);
	p.say = (trace, chain, t) => {
		const from = min(settings.burnIn, t), votes = new Map(), n = t - from + 1;
		for (let k = from; k <= t; k++) { const a = stateOf(chain, k).answer; votes.set(a, (votes.get(a) || 0) + 1); }
		const sorted = [...votes].sort((a, b) => b[1] - a[1]), rest = sorted.slice(4).reduce((sum, [, k]) => sum + k, 0);
		const row = (style, text, k) => h("li", h("span.who", swatch(style), text),
			h("span.share", h("i.own", { style: `${style};width:${px(100 * k / n)}%` })), h("span.much", percent(k / n)));
		list.replaceChildren(...sorted.slice(0, 4).map(([a, k]) => row(answerStyle(trace, a), answerText(trace, a), k)), rest ? row("--c:var(--a6)", "others", rest) : "");
		p.tell(many(n, "state"), t);
	};
	return p;
}

// 5. genealogy and table

// For each token of the state at t, the step that wrote it: a walk back over accepted steps
function writers(chain, t) {
	let k = chain.stateAt[t], limit = chain.steps[k].ids.length;
	const out = new Array(limit);
	for (;;) {
		const { index } = chain.steps[k];
		if (index < limit) out.fill(k, index, limit);
		limit = min(limit, index);
		if (limit === 0) return out;
		k = chain.stateAt[k - 1];
	}
}

// Prefix tree of the most visited states up to t: edges carry visits, nodes the rejected stubs
function prefixTree(chain, t, most) {
	const seen = new Map();
	for (let k = 0; k <= t; k++) {
		const at = chain.since[k], { ids } = chain.steps[at], key = ids.join();
		if (!seen.has(key)) seen.set(key, { ids, at, visits: 0, key });
		seen.get(key).visits += 1;
	}
	const now = stateOf(chain, t).ids.join();
	const kept = [...seen.values()].sort((a, b) => (b.key === now) - (a.key === now) || b.visits - a.visits).slice(0, most);
	const grow = (states, from) => {
		const { ids, at } = states[0], groups = new Map();
		let to = from, state = null;
		while (states.every((x) => to < x.ids.length && x.ids[to] === ids[to])) to += 1;
		for (const x of states) {
			if (to === x.ids.length) state = x; else groups.set(x.ids[to], [...(groups.get(x.ids[to]) || []), x]);
		}
		return { from, to, at, ids, state, stubs: 0, visits: states.reduce((n, x) => n + x.visits, 0),
			children: [...groups.values()].map((g) => grow(g, to)).sort((a, b) => a.at - b.at) };
	};
	const tree = grow(kept, 0);
	for (const { ids, accepted, changed } of chain.steps.slice(1, t + 1)) { // where rejected proposals left it
		if (accepted || !changed) continue;
		let node = tree, next = tree;
		while (next) {
			node = next;
			let d = node.from;
			while (d < node.to && ids[d] === node.ids[d]) d += 1;
			next = d === node.to && node.children.find((c) => ids[d] === c.ids[d]);
		}
		node.stubs += 1;
	}
	return { tree, distinct: seen.size, shown: kept.length, now };
}

function drawTree(trace, chain, t, width) {
	const { tree, distinct, shown, now } = prefixTree(chain, t, 14), row = 30, room = 150;
	let longest = 1, leaves = 0;
	const place = (n) => {
		longest = max(longest, n.to);
		const own = n.state || !n.children.length ? 22 + row * leaves++ : 0, ys = n.children.map(place);
		return (n.y = own || (ys[0] + ys[ys.length - 1]) / 2);
	};
	place(tree);
	const height = 22 + row * leaves, x = (d) => 8 + (width - room - 8) * d / longest;
	const svg = chart(width, height, `Tree of ${many(distinct, "different text")} in ${many(t + 1, "state")}.`);
	const draw = (n, y0) => {
		const w = 1.5 + 7 * Math.sqrt(n.visits / (t + 1)), here = n.state?.key === now, { answer, pieces, finished } = chain.steps[n.at];
		const end = x(n.to), fits = floor((end - x(n.from) - 8) / 6.6), words = pieces.slice(n.from, finished ? min(n.to, pieces.length - 1) : n.to).map(visible).join("").replace(/\s+/g, " ").trim();
		svg.append(s(`path.branch.${here ? "here" : ""}`, { "stroke-width": px(w), d: `M${x(n.from)} ${y0}V${n.y}H${end}` }));
		if (fits > 5) svg.append(label(x(n.from) + 5, n.y - w / 2 - 4, words.length > fits ? `${words.slice(0, fits - 1)}…` : words, "start"));
		if (n.stubs) svg.append(s("path.stub", { d: `M${end - 12} ${n.y}l6 9` }), label(end - 4, n.y + 17, `${n.stubs}✕`, "end", "tick.stub-n"));
		if (n.state) svg.append(s("circle.leaf.own", { style: answerStyle(trace, answer), cx: end, cy: n.y, r: 4.5 }), label(end + 14, n.y + 4, `${answerText(trace, answer)} ×${n.state.visits}${here ? " now" : ""}`, "start", here ? "leaf-text.now" : "leaf-text"));
		for (const c of n.children) draw(c, n.y);
	};
	draw(tree, tree.y);
	return [h("p.hint", `Each path is one text; texts share their beginnings. Wider: visited more often. ✕: proposals that left there and were rejected.${distinct > shown ? ` Drawn: the ${shown} most visited of ${distinct} texts.` : ""}`), svg];
}

function drawLineage(trace, chain, t) {
	const by = writers(chain, t), step = stateOf(chain, t), distinct = [...new Set(by)].sort((a, b) => a - b), text = h("p.lineage");
	by.forEach((k, j) => {
		if (k !== by[j - 1]) text.append(h("sup", k));
		text.append(h("span.tok.age", { style: `--k:${round(4 + 36 * distinct.indexOf(k) / max(1, distinct.length - 1))}%`, title: `written at step ${k}` }, visible(step.pieces[j])));
	});
	const old = by.filter((k) => k === by[0]).length;
	return [h("p.hint", `The current text, with the step that wrote each part (small numbers; darker is more recent). ${many(old, "token")} of ${by.length} still come from step ${by[0]}. An early token is only rewritten when the cut falls before it, and few cuts do: that is why chains mix slowly.`), text];
}

function drawTable(trace, chain, t, width, seek) {
	const from = max(0, t - 24), cell = (v) => h("td", v);
	const rows = chain.steps.slice(from, t + 1).map((x) => {
		const q = quantities(x, trace.header.beta), [u, alpha] = pair(q.u, q.alpha), drawn = x.t > 0;
		return h("tr", { "aria-current": x.t === t && "true" }, h("th", { scope: "row" }, button("link", { onclick: () => seek(x.t) }, x.t)),
			...[drawn ? `${x.index} of ${x.oldLength}` : "–", x.ids.length, fixed(x.oldReward), fixed(x.reward), drawn ? alpha : "–", drawn ? u : "–",
				drawn ? (x.accepted ? "✓ accepted" : "✕ rejected") + (x.changed ? "" : ", same text") : "first draft", answerText(trace, x.answer)].map(cell));
	});
	const names = ["Step", "Tokens kept", "New length", "Reward now", "Reward proposed", "α", "u", "Verdict", "Proposed answer"];
	return [h("p.hint", `Steps ${from} to ${t}; the table follows the player.`),
		h("div.scroll", { tabindex: 0, role: "region", aria: "Steps" }, h("table", h("thead", h("tr", ...names.map((v) => h("th", { scope: "col" }, v)))), h("tbody", ...rows)))];
}

// 6. the player

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, Infinity];
const START = 0.9; // seconds for the first draft at 1x
const KEYS = [["Space", "play or pause"], ["→ ←", "one step on or back"], ["Shift + → ←", "ten steps"], ["Home, End", "first, last step"],
	["[ ]", "slower, faster"], ["1 … 6", "a phase of this step"], ["N", "next accepted"], ["?", "this list"]];
const TABS = { tree: ["Family tree", drawTree], lineage: ["Who wrote what", drawLineage], table: ["Table", drawTable] };

/* Make a player inside `element` and return its API. options: text (a whole trace), its name, step to open at,
   autoplay, onseek(t), actions: { title: act(api) } for buttons, extra: { name: [title, draw] } for tabs, where
   draw(trace, chain, t, burn-in) is a promise of nodes. */
function mount(element, options = {}) {
	let trace = newTrace(), raw = "", source = "", name = "", chainId = 0; // source: file, live or next
	let t = 0, phase = LAST, p = 1, playing = false, speed = 1, want = null, stopped = false, left = "";
	let dirty = true, built = "", carded = "", beaded = "", typed = -1, marked = -1, drawn = -1, width = 0, panelWidth = 342, scoreWidth = 340, scrolled = 0;
	let clock = 0, frame = 0, tab = "", tabbed = "", tabTime = 0, asked = 0;
	const settings = { burnIn: 0 }, still = root.matchMedia("(prefers-reduced-motion: reduce)");
	const chain = () => trace.chains.find((c) => c.id === chainId) || trace.chains[0];
	const last = () => (chain()?.steps.length ?? 0) - 1;
	const revealed = () => (phase === LAST || t === 0 ? t : t - 1); // the last step whose verdict is out
	const finished = () => trace.end || stopped || source === "file";

	// -- the page
	const iconButton = (image, title, onclick, cls = "") => button(`button.${cls}`, { aria: title, title, onclick }, icon(image));
	const choice = (title, onchange, ...names) => h("select.select", { aria: title, onchange }, ...names.map((v) => h("option", v)));
	const origin = h("b.origin"), facts = h("span"), state = h("span"), note = h("p.note", { role: "alert", hidden: true });
	const chains = choice("Chain", () => { chainId = Number(chains.value); go(t); });
	const prompt = h("p.prompt", { dir: "auto" }), say = h("p.say"), spoken = h("p.hidden", { "aria-live": "polite" });
	const kept = h("span.kept"), old = h("span.old"), neu = h("span.new"), lock = h("span"), oldName = h("b.lane"), newName = h("b.lane");
	const text = h("div.text", { dir: "ltr", tabindex: 0, role: "region", aria: "Current text and proposal", onscroll: () => { scrolled = text.scrollTop; } },
		h("span.lock", icon("lock"), lock), kept, h("span.old-row", oldName, old), h("span.new-row", newName, neu));
	const beads = h("ol.beads", { aria: "The chain so far" });
	const cells = PHASES.map((title, k) => {
		const body = h("div.cell-body"), head = button("cell-head", { onclick: () => goPhase(k) }, h("b", k + 1), title);
		return { body, head, node: h(`li.cell.cell-${k}`, head, body) };
	});
	const ifs = h("div.ifs"), whatif = h("div.whatif", h("p", h("b", "What if?"), " The same proposal and the same u at another β (the smaller, the more the reward decides). For this step only: afterwards the chains part ways."), ifs);
	const playButton = iconButton("play", "Play", () => toggle(), "play");
	const scrub = h("input.scrub", { type: "range", min: 0, max: 1, value: 0, aria: "Step", oninput: () => { playing = false; go(Number(scrub.value), LAST, false); } });
	const count = h("span.count"), speedBox = choice("Speed", () => setSpeed(SPEEDS[speedBox.selectedIndex]), ...SPEEDS.map((v) => (v === Infinity ? "instant" : `${v}×`)));
	speedBox.selectedIndex = 2;
	const help = h("div.help", { hidden: true }, h("b", "Keys, while the player has the focus"), h("dl", ...KEYS.flatMap(([k, v]) => [h("dt", k), h("dd", v)])));
	const helpButton = button("button", { aria: "Keyboard help", "aria-expanded": "false", onclick: () => toggleHelp() }, "?");
	const transport = h("div.transport",
		h("div.buttons", iconButton("back", "Step back", () => move(-1)), playButton, iconButton("next", "Step forward", () => move(1)), iconButton("hop", "Next accepted", () => hop())),
		h("div.scrub-row", scrub, count), h("div.extra", chains, speedBox, helpButton), help);
	const panels = [tracePanel(seek, settings), ratePanel(seek), histogramPanel(settings), answersPanel(settings)], side = h("div.side", ...panels.map((x) => x.node));
	const TABLE = { ...TABS, ...options.extra }, view = h("div.view", { role: "tabpanel", aria: "More", hidden: true });
	const tabs = Object.keys(TABLE).map((k) => button("tab", { role: "tab", "aria-selected": "false", "data-tab": k, onclick: () => openTab(tab === k ? "" : k) }, TABLE[k][0]));
	const player = h("section", { tabindex: 0, aria: "Chain player", onkeydown: key }, h("div.top", origin, facts, state), note, prompt,
		h("div.grid", h("div.main", say, spoken, text, beads, h("ol.cells", ...cells.map((c) => c.node)), whatif), side), transport,
		h("div.tabs", h("div", { role: "tablist", aria: "More views" }, ...tabs),
			...Object.entries(options.actions || {}).map(([title, act]) => button("link", { onclick: () => act(player.qalign) }, title))), view);
	player.className = "qp";
	element.replaceChildren(player);

	// -- the position
	function go(step, toPhase = LAST, speak = true) {
		if (last() < 0) return;
		t = max(0, min(last(), step));
		phase = t === 0 ? LAST : toPhase;
		p = 1;
		changed(speak);
	}
	function seek(step) { playing = false; go(step); }
	function move(by) { want = null; seek(t + by); }
	function goPhase(k) { playing = false; go(t || min(1, last()), k); }
	function hop() {
		const next = chain()?.steps.find((x) => x.t > t && x.accepted && x.changed);
		if (next) seek(next.t); else tell("No later step accepted another text.");
	}
	function toggle(on = !playing) {
		playing = on;
		if (on && t >= last() && phase === LAST && finished()) { t = 0; p = 0; }
		changed(!on);
	}
	function setSpeed(v) { speed = v; speedBox.selectedIndex = SPEEDS.indexOf(v); }
	const faster = (by) => setSpeed(SPEEDS[speedBox.selectedIndex + by] ?? speed);
	function toggleHelp() { show(help, help.hidden); set(helpButton, { "aria-expanded": !help.hidden }); }
	function tell(sentence) { put(note, sentence); show(note, sentence); }
	function key(event) {
		const { key: k, target } = event, many = event.shiftKey ? 10 : 1;
		if (event.ctrlKey || event.metaKey || event.altKey || target.tagName === "SELECT" || (k === " " && target.tagName === "BUTTON")) return;
		const act = { " ": () => toggle(), ArrowRight: () => move(many), ArrowLeft: () => move(-many), Home: () => seek(0), End: () => seek(last()), n: hop, N: hop, "?": toggleHelp,
			"[": () => faster(-1), "]": () => faster(1) }[k]
			|| (/^[1-6]$/.test(k) && (() => goPhase(k - 1)));
		if (!act) return;
		act();
		event.preventDefault();
		event.stopPropagation();
	}
	function changed(speak) {
		dirty = true;
		if (speak && last() >= 0) {
			const x = chain().steps[t], told = phase === LAST ? [1, 2, 3, 5] : [phase];
			put(spoken, `Step ${t} of ${last()}. ${[...new Set(told.map((k) => narrate(x, k, trace.header.beta)))].join(" ")}`);
		}
		if (!frame) frame = root.requestAnimationFrame(tick);
	}

	// -- time
	function tick(now) {
		frame = 0;
		const dt = clock ? min(0.25, (now - clock) / 1000) : 0;
		clock = now;
		if (playing) advance(dt);
		if (dirty) { dirty = false; render(now); }
		if (playing || (tab && tabbed !== tabState())) frame = root.requestAnimationFrame(tick); else clock = 0;
	}
	function advance(dt) {
		dirty = true;
		for (let left = dt * speed; left > 0;) {
			const whole = t === 0 ? START : SECONDS[phase], rest = speed === Infinity ? 0 : whole * (1 - p);
			if (left < rest) { p += left / whole; return; }
			p = 1;
			if (phase < LAST && speed !== Infinity) { phase += 1; p = 0; }
			else if (phase === LAST && t >= last()) { if (finished()) { playing = false; changed(true); } return; }
			else if (speed === Infinity) { if (phase === LAST) t += 1; phase = LAST; return; }    // one step a frame
			else { t += 1; phase = 0; p = 0; }
			left -= rest;
		}
	}

	// -- drawing
	function render(now) {
		const c = chain();
		put(origin, name);
		if (!c) { put(say, "Waiting for the first step…"); return; }
		const x = c.steps[t], { beta } = trace.header, moving = playing && speed !== Infinity && !still.matches, over = phase === LAST && t > 0;
		if (drawn !== trace.version) redraw(c);
		if (built !== `${c.id}/${t}`) buildText(c, x);
		Object.assign(player.dataset, { phase, t, verdict: over ? (x.accepted ? "yes" : "no") : "" });
		put(say, narrate(x, phase, beta));
		runMarker(x, moving);
		type(moving);
		put(oldName, over ? (x.accepted ? "before" : "stays") : "now");
		put(newName, t === 0 ? "draft" : over ? (x.accepted ? "now" : "rejected") : "proposed");
		card(c, x, beta);
		const seen = revealed();
		drawBeads(c, seen);
		for (const q of panels) { q.move?.(seen); q.say(trace, c, seen); }
		const title = playing ? "Pause" : t >= last() && finished() ? "Play again" : "Play";
		if (playButton.title !== title) { set(playButton, { title, "aria-label": title }); playButton.replaceChildren(icon(playing ? "pause" : "play")); }
		scrub.max = max(1, last());
		scrub.value = t;
		set(scrub, { "aria-valuetext": `step ${t} of ${last()}` });
		put(count, `${t} / ${last()}`);
		options.onseek?.(t);
		if (tab && tabbed !== tabState() && (!playing || now - tabTime > 150)) drawTab(now);
	}

	function redraw(c) {
		drawn = trace.version;
		const { header, end } = trace;
		for (const q of panels) q.draw(trace, c, panelWidth);
		put(facts, `${header.lm} · ${header.rm} · β = ${plain(header.beta)} · seed ${header.seed ?? 0}`);
		put(prompt, visible(header.prompt));
		put(state, end?.reason === "failed" ? `failed: ${visible(end.message)}` : stopped || end?.reason === "stopped" ? "stopped" : finished() ? "" : `${last()} of ${header.steps} steps sampled`);
		if (chains.options.length !== trace.chains.length) chains.replaceChildren(...trace.chains.map((k) => h("option", { value: k.id, selected: k === c }, `chain ${k.id}`)));
		show(chains, trace.chains.length > 1);
	}

	function buildText(c, x) {
		built = `${c.id}/${t}`;
		typed = marked = -1;
		const before = t ? tokenSpans(c.steps[x.old], 0) : [];
		kept.replaceChildren(...before.slice(0, x.index));
		old.replaceChildren(...before.slice(x.index));
		neu.replaceChildren(...tokenSpans(x, x.index));
		for (let j = x.index; x.changed && j < x.first; j++) neu.children[j - x.index]?.classList.add("qp-same");
		put(lock, x.index ? `kept ${x.index}` : "kept none");
		if (scrolled) text.scrollTop = scrolled = 0;
	}

	// Phase 1: a marker runs once over all tokens and then on to i.
	function runMarker(x, moving) {
		const i = x.index, n = x.oldLength, at = phase || !t ? -1 : round((n + i) * (moving ? min(1, p / 0.8) : 1)) % n;
		player.dataset.cut = phase > 0 || at === i;
		if (at === marked) return;
		for (const [k, on] of [[marked, false], [at, true]]) (k < i ? kept.children[k] : old.children[k - i])?.classList.toggle("qp-mark", on);
		marked = at;
	}

	// Phase 2: the new suffix is typed.
	function type(moving) {
		const n = neu.children.length, to = t && !phase ? 0 : phase === 1 && moving ? Math.ceil(n * min(1, p / 0.85)) : n;
		if (typed < 0) typed = n;
		for (let j = min(to, typed); j < max(to, typed); j++) neu.children[j].classList.toggle("qp-off", j >= to);
		typed = to;
	}

	function card(c, x, beta) {
		const now = `${c.id}/${t}/${phase}/${drawn}/${width}`;
		if (now === carded) return;
		carded = now;
		const q = quantities(x, beta), n = x.oldLength, fresh = x.ids.length - x.index, values = pair(q.u, q.alpha);
		const fill = [
			() => ["i = ", h("b", x.index), ` of ${n}, each with probability 1/${n}`],
			() => [h("b", fresh), fresh === 1 ? " new token" : " new tokens", `, length ${n} → ${x.ids.length}`, !x.changed ? "; the same text again" : x.first > x.index ? `; the first ${x.first - x.index} as before` : ""],
			() => scoreLine(x, q),
			() => formula(x, q, beta, values[1]),
			() => drawBar(q, values),
			() => [h("b.word", icon(x.accepted ? "yes" : "no"), x.accepted ? "Accepted" : "Rejected"), ...(x.accepted && x.changed ? ["The proposal joins the chain."]
				: [x.accepted ? "It is the same text, " : "The old text is ", h("b", `counted again, ×${visitsAt(c, t)}`), ".", h("p.small", "A text that is hard to beat stays long, and so gets more votes.")])],
		];
		cells.forEach(({ node, head, body }, k) => {
			const on = t > 0 && k <= phase, current = t > 0 && k === phase;
			node.classList.toggle("qp-on", on);
			node.classList.toggle("qp-current", current);
			set(head, { "aria-current": current ? "step" : "false" });
			body.replaceChildren(...(on ? fill[k]() : []));
		});
		const over = t > 0 && phase === LAST;
		whatif.classList.toggle("qp-on", over);
		ifs.replaceChildren(...(over ? [[0.5, "β/2"], [1, "β"], [2, "2β"]].map(([m, title]) => {
			const { logRatio } = quantities(x, beta * m), taken = logRatio >= 0 || x.logU < logRatio, verdict = taken ? "yes" : "no";
			return h(`span.if.${verdict}`, h("b", `${title} = ${plain(beta * m)}`), ` α = ${pair(q.u, exp(min(0, logRatio)))[1]} `, icon(verdict), taken ? "accepted" : "rejected");
		}) : []));
	}
	function scoreLine(x, q) {
		const w = scoreWidth, y = rewardScale(trace, 8, w - 8), at = 36, a = y(x.oldReward), b = y(x.reward);
		const name = (v, top, text, cls) => label(min(max(v, 48), w - 48), top, text, "middle", cls), shown = trace.base.slice(0, 400);
		return [chart(w, 68, `Reward now ${fixed(x.oldReward)}, proposed ${fixed(x.reward)}.`,
			s("path.base-ticks", { d: shown.map((r) => `M${px(y(r))} ${at - 5}v10`).join("") }), rule("axis", 4, w - 4, at), rule("jump", a, b, at),
			s("circle.dot-old", { cx: a, cy: at, r: 5.5 }), s("path.dot-new", { d: `M${b} ${at - 7}l7 7l-7 7l-7 -7z` }),
			name(a, 18, `r(y) = ${fixed(x.oldReward)}`, "name"), name(b, 61, `r(y′) = ${fixed(x.reward)}`, "name.c-new")),
		h("p.small", "difference ", h("b.c-reward", signed(q.difference)), shown.length ? `; grey: ${many(shown.length, "sample")} of the model alone` : "")];
	}
	function formula(x, q, beta, alpha) {
		const reward = (v) => h("b.c-reward", v), length = (v) => h("b.c-length", v);
		return [h("p.formula", "α = min(1, ", reward(`exp(${fixed(q.difference)}/${beta < 0.1 ? plain(beta) : fixed(beta)})`), " × ", length(`${x.oldLength}/${x.ids.length}`), ")"),
			h("p.formula", "\u2007= min(1, ", reward(factor(q.reward)), " × ", length(factor(q.lengths)), ") = ", h("b", alpha)),
			h("p.small", reward("reward difference over β"), ", ", length("old over new length"), q.logRatio >= 0 ? `; the ratio itself is ${factor(q.ratio)}` : "", q.agrees ? "" : "; this trace’s own α differs from the formula")];
	}
	function drawBar(q, [u, alpha]) {
		const at = (v) => ({ style: `left:${(100 * v).toFixed(2)}%` });
		return [h("div.bar", { role: "img", aria: `u = ${u}, accepted below α = ${alpha}` }, h("span.zone-yes", { style: `width:${(100 * q.alpha).toFixed(2)}%` }, q.alpha > 0.3 ? "accept" : ""),
			h("span.zone-no", q.alpha < 0.7 ? "reject" : ""), h("i.needle", at(q.u))),
		h("div.bar-scale", "0", h("b", at(min(0.86, max(0.14, q.u))), `u = ${u}`), h("span", "1"))];
	}

	// The chain as beads: one for each stay, with how often it has been counted.
	function drawBeads(c, seen) {
		const now = `${c.id}/${seen}/${trace.answers.length}`, stays = [];
		if (now === beaded) return;
		beaded = now;
		for (let k = seen; k >= 0 && stays.length < 9; k = c.since[k] - 1) stays.unshift([c.since[k], visitsAt(c, k)]);
		beads.replaceChildren(...stays.map(([at, n], k) => {
			const x = c.steps[at];
			return h("li", button(`bead.${k === stays.length - 1 ? "bead-now" : ""}`, { title: `from step ${at}, reward ${fixed(x.reward)}`, onclick: () => seek(at) },
				swatch(answerStyle(trace, x.answer)), trace.answers.length ? answerText(trace, x.answer) : fixed(x.reward), h("b", ` ×${n}`)));
		}));
	}

	// -- tabs
	const tabState = () => `${tab}/${chain()?.id}/${revealed()}/${trace.version}/${width}`;
	function openTab(next) {
		tab = next;
		tabbed = "";
		asked += 1;
		for (const b of tabs) set(b, { "aria-selected": b.dataset.tab === tab });
		show(view, tab);
		view.replaceChildren();
		changed(false);
	}
	function drawTab(now) {
		tabbed = tabState();
		tabTime = now;
		const seen = revealed();
		if (TABS[tab]) { view.replaceChildren(...TABS[tab][1](trace, chain(), seen, max(300, view.clientWidth - 40), seek)); return; }
		const ticket = ++asked;
		root.setTimeout(async () => {
			if (ticket !== asked) return;
			const nodes = await TABLE[tab][1](trace, chain(), seen, settings.burnIn);
			if (ticket === asked) view.replaceChildren(...nodes);
		}, 250);
	}

	// -- the API
	function adopt(next, text, from, called) {
		[trace, raw, source, name] = [next, text, from, called];
		chainId = trace.chains[0]?.id ?? 0;
		t = p = 0;
		phase = LAST;
		stopped = false;
		drawn = -1;
		built = carded = beaded = tabbed = "";
		tell("");
		playing = options.autoplay !== false && !still.matches;
	}
	// Show a whole trace; a bad one throws one clear sentence and changes nothing
	function open(text, called = "") {
		const next = parse(text);
		if (source === "live") left = headOf(raw);
		adopt(next, text, "file", called);
		if (still.matches) go(min(1, last()), LAST, false);
		changed(false);
	}
	const headOf = (text) => text.slice(0, text.indexOf("\n") + 1);
	// Everything that a live run has sent so far
	function stream(text) {
		const head = headOf(text);
		if (!head || head === left) return; // a file was opened while this run went on
		try {
			if (source === "live" && raw.startsWith(head) && text.length >= raw.length) { feed(trace, text); raw = text; }
			else adopt(feed(newTrace(), text), text, "live", "Live run");
			if (want !== null && last() >= want) { seek(want); want = null; }
		} catch (error) { tell(`The run sent something unreadable. ${error.message}`); stop(); }
		changed(false);
	}
	function stop() { if (source === "live" && !trace.end) { stopped = true; trace.version += 1; changed(true); } }

	// Sizes are read here, where the layout is done: reading them while drawing would force one more.
	function measure() {
		if (!element.clientWidth || element.clientWidth === width) return;	// in a hidden tab, or only the height changed
		width = element.clientWidth;
		panelWidth = max(220, floor(parseFloat(getComputedStyle(side).gridTemplateColumns)) - 30);
		scoreWidth = max(230, cells[2].node.clientWidth - 28);
		drawn = -1;
		changed(false);
	}
	new ResizeObserver(measure).observe(element);
	measure();
	player.qalign = { stream, open, stop, seek, goPhase, toggle, tell, setSpeed, openTab, render,
		expect(step) { source = "next"; want = step; left = ""; }, setBurnIn(k) { settings.burnIn = k; trace.version += 1; changed(false); },
		get position() { return { t, phase, playing, source, chain: chainId, last: last() }; }, get trace() { return trace; }, get text() { return raw; } };
	if (options.text) open(options.text, options.name);
	if (options.step != null) seek(options.step);
	return player.qalign;
}

root.QAlign = { LIMITS, TraceError, parse, prefixTree, writers, h, s, label, rule, plain, mount };
})(typeof window === "undefined" ? globalThis : window);
