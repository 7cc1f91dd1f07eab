/* The chain player: a trace (JSON lines, qalign_core/record/format.py) in, a playable page out.
   Model text enters the page through text nodes only, never as markup. */
import { put, show } from "../dom.js";
import { beadList } from "./beads.js";
import { phaseStrip } from "./cells.js";
import { button, h } from "./drawing.js";
import { figureRow } from "./figures.js";
import { frameLoop } from "./frames.js";
import { headLines } from "./head.js";
import { JUMPS } from "./jumps.js";
import { motion } from "./motion.js";
import { noteLine } from "./note.js";
import { answersPanel, summary, tracePanel } from "./panels.js";
import { Position } from "./position.js";
import { ShownRun } from "./run.js";
import { tabRow } from "./tabrow.js";
import { markerAt, textPane } from "./text.js";
import { transportBar } from "./transport.js";
import { LAST, narrate } from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./parse.js").Trace} Trace */
/**
 * What can be done with a player.
 * @typedef {object} Player
 * @property {(text: string) => void} stream show all that a live run has sent so far
 * @property {(text: string, called?: string) => void} open show a whole trace; a bad one throws one
 *   clear sentence and changes nothing
 * @property {() => void} stop nothing more is drawn, and nothing plays on
 * @property {(place: [t: number, chain: number] | null) => void} expect a new run begins; show its
 *   step once it is there
 * @property {(problem: string) => void} await a new problem takes the place of the run
 * @property {(t: number, chain?: number) => void} seek
 * @property {(phase: number) => void} goPhase
 * @property {(on?: boolean) => void} toggle play or pause
 * @property {(speed: number) => void} setSpeed
 * @property {(n: number) => void} setBurnIn
 * @property {(on: boolean) => void} age mark the run that is shown as one of other settings
 * @property {(sentence: string, stays?: boolean) => void} tell until the next key or press, or
 *   until another run is shown
 * @property {(tab: string) => void} openTab
 * @property {() => Promise<void>} complete draw the figures below the stage, in view or not
 * @property {(now: number) => void} render
 * @property {{ t: number, phase: number, playing: boolean, source: string, chain: number,
 *   last: number, burnIn: number }} position
 * @property {Trace} trace
 * @property {string} text
 */
/**
 * What a server answers about single texts (assets/web/inside/ask.js).
 * @typedef {Record<"score" | "rewrite", (request: object) => Promise<any>>} Ask
 */
/**
 * Rules that need no chain.
 * @typedef {object} Rivals
 * @property {(trace: Trace, n: number) => [rule: string, answer: string | null][]} decide from the
 *   first n samples
 * @property {(trace: Trace, n: number) => string} caution why best-of-n can fall
 * @property {() => void} open a comparison of all rules on this run
 */
/**
 * @typedef {object} Options
 * @property {string} [text] a whole trace
 * @property {string} [name] what it is called
 * @property {[t: number, chain: number] | null} [place] to open at
 * @property {boolean} [autoplay]
 * @property {(t: number, chain: number) => void} [onseek]
 * @property {Record<string, (player: Player) => unknown>} [actions] buttons, by their titles
 * @property {import("./tabrow.js").Extra} [extra] tabs
 * @property {Ask} [ask] the server about single texts
 * @property {(view: View) => Promise<string>} [enough] whether a run was long enough
 * @property {(view: View) => Promise<string>} [again] draw a step again, and report on it
 * @property {() => void} [run] draw a run of the problem that waits for one
 * @property {Rivals} [compare] what other rules decide
 */

const INVITATION = "This problem has not been run yet. The model will write a first draft, and "
  + "then rewrite it step by step.";
const CALM = 4; // times the speed from which only end states are shown

/**
 * Make a player inside `element` and return what can be done with it.
 * @param {HTMLElement} element
 * @param {Options} [options]
 * @returns {Player}
 */
export function mount(element, options = {}) {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const run = new ShownRun();
  const position = new Position(run, changed);
  const { clock } = position;
  let burnIn = 0;
  let sizes = { all: 0, trace: 370, panel: 370, score: 520 };
  let above = 0; // pixels of the page before texts and phases

  // the page
  const seek = (/** @type {number} */ t) => position.seek(t);
  const visit = (/** @type {number} */ t, id = position.chainId) => position.visit(t, id);
  const goPhase = (/** @type {number} */ phase) => position.goPhase(phase);
  const toggle = (on = !clock.playing) => position.toggle(on);
  const head = headLines();
  const { node: note, tell } = noteLine();
  const spoken = h("p.hidden", { "aria-live": "polite" });
  const bar = transportBar({ toggle, seek, goPhase, jump, setSpeed,
    move: (by) => position.move(by),
    scrub: (t) => position.scrub(t),
    setChain: (id) => position.setChain(id),
    last: () => position.last,
    close: () => tabs.close() });
  const text = textPane();
  const phases = phaseStrip(goPhase);
  const walk = [tracePanel(seek), beadList(seek), answersPanel(options.compare)];
  const below = summary(options.enough, options.again);
  const figures = figureRow(seek, () => render(performance.now()));
  const parts = [text, phases, ...walk, below, figures];
  const invited = h("p");
  const begin = button("go", { onclick: () => options.run?.() }, "Run it live");
  const tabs = tabRow(options.extra ?? {}, { go: visit, width: () => sizes.all, view: look,
    header: () => run.head.trim(), ask: options.ask }, (pauses) => {
    if (pauses) clock.playing = false;
    changed(false);
  });
  const actions = Object.entries(options.actions ?? {}).map(([title, act]) =>
    button("link", { onclick: () => act(api) }, title));
  const main = h("div.main", note, h("div.invite", invited, begin), text.node, phases.node, spoken);
  const player = h("section", { tabindex: 0, aria: "Chain player", onkeydown: bar.key },
    head.node, main, bar.node, h("div.walk", ...walk.map(({ node }) => node)), below.node,
    ...figures.nodes, h("div.tabs", tabs.node, ...actions), tabs.view);
  player.className = "qp";
  const effects = motion(player);
  element.replaceChildren(player);
  const redraw = frameLoop({
    advance: (seconds) => position.advance(seconds),
    draw: render,
    moves: () => clock.playing,
    waits: () => Boolean(position.chain && tabs.waits(look())),
  });

  /** @param {number} kind */
  function jump(kind) {
    if (!position.jump(kind)) tell(`There is none: ${JUMPS[kind].none}.`);
  }
  /** @param {number} speed */
  function setSpeed(speed) {
    clock.speed = speed;
    bar.showSpeed(speed);
  }
  /** @param {boolean} speak */
  function changed(speak) {
    const { last } = position;
    if (speak && last >= 0) {
      const { t, phase } = clock;
      const sentences = (phase === LAST ? [1, 2, 3, 5] : [phase]).map((k) =>
        narrate(position.chain.steps[t], k, run.trace.header.beta));
      put(spoken, `Step ${t} of ${last}. ${[...new Set(sentences)].join(" ")}`);
    }
    redraw();
  }

  // drawing
  /** @returns {View} */
  function look() {
    const { t, phase, passed } = clock;
    const { chain } = position;
    const name = `${run.number}/${chain.id}`;
    return {
      trace: run.trace,
      chain,
      step: chain.steps[t],
      t,
      phase,
      passed,
      moving: clock.playing && clock.rate < CALM && !still.matches,
      seen: clock.revealed,
      burnIn,
      finished: run.isFinished,
      run: name,
      data: `${name}/${run.trace.version}/${burnIn}/${sizes.all}/${sizes.score}`,
      sizes,
    };
  }
  /** @param {number} now */
  function render(now) {
    head.name(run);
    player.toggleAttribute("data-waiting", !position.chain);
    if (!position.chain) {
      put(invited, run.waits ? INVITATION : "Waiting for the first step…");
      show(begin, run.waits);
      return;
    }
    const view = look();
    const { step, t, phase } = view;
    if (head.draw(view, run)) {
      bar.showChains(run.trace.chains, view.chain.id);
      bar.showJumps(JUMPS.map(({ places }) => places(run.trace, view.chain)));
    }
    const verdict = t > 0 && phase === LAST ? (step.accepted ? "yes" : "no") : "";
    const cut = String(phase > 0 || markerAt(view) === step.index);
    effects.before(view, clock.rate);
    Object.assign(player.dataset, { phase, t, verdict, cut });
    for (const part of parts) part.draw(view);
    effects.after(view);
    bar.showPosition(t, position.last, clock.playing, t >= position.last && run.isFinished);
    options.onseek?.(t, view.chain.id);
    tabs.follow(view, now, clock.playing);
  }
  /** Sizes are read where the layout is done: reading them while drawing would force one more. */
  function measure() {
    const all = player.clientWidth; // the presenter's view enlarges it
    if (!all) return; // in a hidden tab
    const top = Math.round(main.getBoundingClientRect().top + window.scrollY);
    if (top !== above) player.style.setProperty("--above", `${above = top}px`);
    const within = (/** @type {HTMLElement} */ node) => Math.max(220, node.clientWidth - 30);
    // a lesson in front of a class hides it at some stops
    const score = phases.chance.clientWidth ? within(phases.chance) + 26 : sizes.score;
    if (all === sizes.all && score === sizes.score) return;
    sizes = { all, trace: within(walk[0].node), panel: within(figures.nodes[1]), score };
    changed(false);
  }

  // runs
  /** Show another run from its beginning. */
  function restart() {
    tell("");
    position.restart(options.autoplay !== false && !still.matches);
  }
  /** @param {string} text */
  function open(text, title = "") {
    run.open(text, title);
    restart();
    if (still.matches) position.go(Math.min(1, position.last), LAST, false);
    changed(false);
  }
  /** @param {string} text */
  function stream(text) {
    try {
      const what = run.take(text);
      if (!what) return;
      if (what === "new") restart();
      position.arrive();
      const isUnseen = run.isFinished && !clock.t; // nothing has led there by itself
      if (still.matches && isUnseen) position.go(position.last);
    } catch (error) {
      tell(`The run sent something unreadable. ${/** @type {Error} */ (error).message}`, true);
      stop();
    }
    changed(false);
  }
  function stop() {
    clock.playing = false;
    run.stop();
    changed(true);
  }

  /** @type {Player} */
  const api = {
    stream,
    open,
    stop,
    seek: visit,
    goPhase,
    toggle,
    tell,
    setSpeed,
    render,
    openTab: tabs.open,
    complete: figures.complete,
    await(problem) {
      if (!run.pose(problem)) return;
      restart();
      tabs.open("");
    },
    expect(place) {
      run.expect();
      tell("");
      position.wanted = place;
      changed(false);
    },
    age(on) {
      run.isOld = on;
      changed(false);
    },
    setBurnIn(n) {
      burnIn = n;
      changed(false);
    },
    get position() {
      const { t, phase, playing } = clock;
      return { t, phase, playing, source: run.source, chain: position.chainId,
        last: position.last, burnIn };
    },
    get trace() {
      return run.trace;
    },
    get text() {
      return run.text;
    },
  };
  Object.assign(player, { qalign: api });
  // what stands above the player moves it without changing its size, but changes the page's
  const sized = new ResizeObserver(() => window.requestAnimationFrame(measure));
  for (const node of [element, document.body, phases.chance]) sized.observe(node);
  measure();
  try {
    if (options.text) open(options.text, options.name);
  } catch (error) {
    tell(`This trace cannot be shown. ${/** @type {Error} */ (error).message}`, true);
  }
  if (options.place) visit(...options.place);
  return api;
}

/** What a page with a player calls it by. */
export const QAlign = { mount };
