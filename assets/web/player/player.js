/* The chain player: a trace (JSON lines, qalign_core/record/format.py) in, a playable page out.
   Model text enters the page through text nodes only, never as markup. */
import { modelName, term } from "../dictionary.js";
import { differs, put, set, show, swap } from "../dom.js";
import { later } from "../later.js";
import { beadList } from "./beads.js";
import { phaseStrip } from "./cells.js";
import { Clock } from "./clock.js";
import { button, h, signMore } from "./drawing.js";
import { JUMPS, following } from "./jumps.js";
import { motion } from "./motion.js";
import { answersPanel, summary, tracePanel } from "./panels.js";
import { feed, newTrace, parse } from "./parse.js";
import { markerAt, textPane } from "./text.js";
import { transportBar } from "./transport.js";
import { LAST, graderName, narrate, plain, promptText, rewarded, visible } from "./words.js";

/** @typedef {import("./drawing.js").View} View */
/** @typedef {import("./parse.js").Trace} Trace */
/** @typedef {import("./parse.js").Chain} Chain */
/** @typedef {Node[] | Promise<Node[]>} Nodes */
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
 * @property {Record<string, [string, (view: View) => Nodes]>} [extra] tabs: title, what is in them
 * @property {Ask} [ask] the server about single texts
 * @property {(view: View) => Promise<string>} [enough] whether a run was long enough
 * @property {(view: View) => Promise<string>} [again] draw a step again, and report on it
 * @property {() => void} [run] draw a run of the problem that waits for one
 * @property {Rivals} [compare] what other rules decide
 */

const TABS = {
  tree: "Tree of texts",
  tokens: "Token by token",
  hand: "Your hand",
  lineage: "Who wrote what",
  table: "Table",
};
const SERVER_TABS = ["tokens", "hand"]; // of a server
const INVITATION = "This problem has not been run yet. The model will write a first draft, and "
  + "then rewrite it step by step.";
/** Below the stage, by their classes (charts.js). */
const FIGURES = ["whatif", "histogram", "lengths", "rate"];
const CHARTS = /** @type {const} */ (["charts.js", "QAlignCharts"]);
const PATIENCE = 250; // ms that a position must stay before an extra tab is drawn
const CALM = 4; // times the speed from which only end states are shown
const TAB_PACE = 150; // ms between drawings of a tab while playing

/** @param {string} text */
const headOf = (text) => text.slice(0, text.indexOf("\n") + 1);

/**
 * Make a player inside `element` and return what can be done with it.
 * @param {HTMLElement} element
 * @param {Options} [options]
 * @returns {Player}
 */
export function mount(element, options = {}) {
  const clock = new Clock();
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let trace = newTrace();
  let raw = ""; // its text
  let source = ""; // file, live or next
  let left = ""; // the head of a run that a file has taken the place of
  let stopped = false;
  let name = "";
  let isOld = false; // the settings of the next run are others
  let passing = false; // the note leaves with the next key or press
  let chainId = 0;
  let opened = 0; // traces so far
  let burnIn = 0;
  /** @type {[t: number, chain: number] | null} */
  let wanted = null; // the step to go to once the run has got there
  let posed = ""; // a problem that waits for its run
  let isRequested = false; // whether that run has been asked for
  let sizes = { all: 0, trace: 370, panel: 370, score: 520 };
  let above = 0; // pixels of the page before texts and phases
  let dirty = true;
  let frame = 0;
  let before = 0; // the time of the frame before

  const chain = () => trace.chains.find((c) => c.id === chainId) ?? trace.chains[0];
  const last = () => (chain()?.steps.length ?? 0) - 1;
  const finished = () => Boolean(trace.end || stopped || source === "file");

  // the page
  const origin = h("b.origin");
  const facts = h("span");
  const state = h("span");
  const models = h("span.models");
  const note = h("p.note", { role: "alert", hidden: true });
  const prompt = h("span");
  const problem = signMore(h("div.prompt",
    { dir: "auto", tabindex: 0, role: "group", aria: "Problem" }, prompt));
  const spoken = h("p.hidden", { "aria-live": "polite" });
  const bar = transportBar({ toggle: () => toggle(), move, jump, seek, scrub, goPhase, setSpeed,
    setChain, last, close: () => tabs.close() });
  const text = textPane();
  const phases = phaseStrip(goPhase);
  const walk = [tracePanel(seek), beadList(seek), answersPanel(options.compare)];
  const below = summary(options.enough, options.again);
  const figures = FIGURES.map((name) => h(`figure.panel.${name}`));
  const parts = [text, phases, ...walk, below];
  /** @type {import("./drawing.js").Part[]} */
  let charts = []; // once their script is there
  const invited = h("p");
  const begin = button("go", { onclick: () => options.run?.() }, "Run it live");
  const tabs = tabRow();
  const isNew = differs();
  const actions = Object.entries(options.actions ?? {}).map(([title, act]) =>
    button("link", { onclick: () => act(api) }, title));
  const main = h("div.main", note, h("div.invite", invited, begin), text.node, phases.node, spoken);
  const nodes = (/** @type {import("./drawing.js").Part[]} */ some) => some.map((x) => x.node);
  const player = h("section", { tabindex: 0, aria: "Chain player", onkeydown: bar.key },
    h("div.problem", { "data-stage": "problem" }, problem,
      h("p.top", origin, " ", facts, " ", state, models)),
    main, bar.node, h("div.walk", ...nodes(walk)), below.node, ...figures,
    h("div.tabs", tabs.node, ...actions), tabs.view);
  player.className = "qp";
  const effects = motion(player);
  element.replaceChildren(player);
  for (const kind of ["click", "keydown"]) document.addEventListener(kind, pass, true);

  // the position
  function go(/** @type {number} */ t, phase = LAST, speak = true) {
    if (last() < 0) return;
    clock.go(t, last(), phase);
    changed(speak);
  }
  function seek(/** @type {number} */ t) {
    clock.playing = false;
    go(t);
  }
  function scrub(/** @type {number} */ t) {
    clock.playing = false;
    go(t, LAST, false);
  }
  function move(/** @type {number} */ by) {
    wanted = null;
    seek(clock.t + by);
  }
  function goPhase(/** @type {number} */ phase) {
    clock.playing = false;
    go(clock.t || Math.min(1, last()), phase);
  }
  function jump(/** @type {number} */ kind) {
    const places = chain() ? JUMPS[kind].places(trace, chain()) : [];
    if (places.length) seek(following(places, clock.t));
    else tell(`There is none: ${JUMPS[kind].none}.`);
  }
  function toggle(on = !clock.playing) {
    clock.playing = on;
    if (on && over()) clock.rewind();
    changed(!on);
  }
  /** Nothing is left to play, and nothing will come. */
  const over = () => clock.t >= last() && clock.phase === LAST && finished();
  function setSpeed(/** @type {number} */ speed) {
    clock.speed = speed;
    bar.showSpeed(speed);
  }
  /** Go to a step of a chain. */
  function visit(/** @type {number} */ t, id = chainId) {
    chainId = id;
    chainId = chain()?.id ?? 0;
    seek(t);
  }
  function setChain(/** @type {number} */ id) {
    chainId = id;
    go(clock.t);
  }
  function tell(/** @type {string} */ sentence, stays = false) {
    passing = !stays;
    put(note, sentence);
    show(note, sentence);
  }
  function pass(/** @type {Event} */ event) {
    if (!player.isConnected) return document.removeEventListener(event.type, pass, true);
    const { ctrlKey, metaKey, target } = /** @type {KeyboardEvent} */ (event); // it is copied
    if (passing && !ctrlKey && !metaKey && !note.contains(/** @type {Node} */ (target))) tell("");
  }
  function changed(/** @type {boolean} */ speak) {
    dirty = true;
    if (speak && last() >= 0) {
      const { t, phase } = clock;
      const sentences = (phase === LAST ? [1, 2, 3, 5] : [phase]).map((k) =>
        narrate(chain().steps[t], k, trace.header.beta));
      put(spoken, `Step ${t} of ${last()}. ${[...new Set(sentences)].join(" ")}`);
    }
    if (!frame) frame = window.requestAnimationFrame(tick);
  }

  // time
  function tick(/** @type {number} */ now) {
    frame = 0;
    const seconds = before ? Math.min(0.25, (now - before) / 1000) : 0;
    before = now;
    if (clock.playing) advance(seconds);
    if (dirty) {
      dirty = false;
      render(now);
    }
    if (clock.playing || tabs.waiting()) frame = window.requestAnimationFrame(tick);
    else before = 0;
  }
  function advance(/** @type {number} */ seconds) {
    dirty = true;
    if (clock.advance(seconds, last()) && finished()) {
      clock.playing = false;
      changed(true);
    }
  }

  // drawing
  /** @returns {View} */
  function look() {
    const { t, phase, passed } = clock;
    const run = `${opened}/${chain().id}`;
    return {
      trace,
      chain: chain(),
      step: chain().steps[t],
      t,
      phase,
      passed,
      moving: clock.playing && clock.rate < CALM && !still.matches,
      seen: clock.revealed,
      burnIn,
      finished: finished(),
      run,
      data: `${run}/${trace.version}/${burnIn}/${sizes.all}`,
      sizes,
    };
  }
  function render(/** @type {number} */ now) {
    put(origin, isOld ? `${name}, of the old settings` : name);
    origin.classList.toggle("qp-old-run", isOld);
    player.toggleAttribute("data-waiting", !chain());
    if (!chain()) {
      const fresh = posed && !isRequested;
      if (posed) put(prompt, visible(posed));
      put(invited, fresh ? INVITATION : "Waiting for the first step…");
      show(begin, fresh);
      return;
    }
    const view = look();
    const { step, t, phase } = view;
    head(view);
    const verdict = t > 0 && phase === LAST ? (step.accepted ? "yes" : "no") : "";
    const cut = String(phase > 0 || markerAt(view) === step.index);
    effects.before(view, clock.rate);
    Object.assign(player.dataset, { phase, t, verdict, cut });
    for (const part of [...parts, ...charts]) part.draw(view);
    effects.after(view);
    bar.showPosition(t, last(), clock.playing, t >= last() && finished());
    options.onseek?.(t, view.chain.id);
    tabs.follow(view, now);
  }
  function head(/** @type {View} */ view) {
    if (!isNew(view.data)) return;
    const { header, end } = trace;
    const steps = `${view.chain.steps.length - 1} of ${header.steps} steps`;
    const { beta, sharpness, seed = 0 } = header;
    facts.replaceChildren(
      ...(rewarded(trace) ? [term("beta", "β"), ` = ${plain(beta)} · `] : []),
      ...(sharpness > 1 ? [term("sharpness"), ` ${plain(sharpness)} · `] : []),
      `seed ${seed}`, graderName(header));
    put(models, ` · ${modelName("lm", header.lm)} · ${modelName("rm", header.rm)}`);
    put(prompt, visible(promptText(header.prompt)));
    if (end?.reason === "failed") put(state, `· failed: ${visible(end.message)}`);
    else if (stopped || end?.reason === "stopped") put(state, `· stopped after ${steps}`);
    else put(state, finished() ? "" : `· ${steps} drawn`);
    bar.showChains(trace.chains, view.chain.id);
    bar.showJumps(JUMPS.map(({ places }) => places(trace, view.chain)));
  }

  // figures
  async function complete() {
    const { fill } = await later(...CHARTS);
    if (!charts.length) charts = fill(figures, seek);
    render(performance.now());
  }
  const reached = new IntersectionObserver((all) => {
    if (!all.some((one) => one.isIntersecting)) return;
    reached.disconnect();
    complete().catch(() => put(figures[1], "The server did not answer: load the page again."));
  });
  if (CHARTS[1] in globalThis) complete();
  else for (const figure of figures) reached.observe(figure);

  // tabs
  function tabRow() {
    let tab = "";
    let drawnKey = ""; // what of which view is in it
    let at = 0; // when that was drawn
    let ticket = 0;
    const view = h("div.view", { role: "tabpanel", aria: "More", hidden: true });
    const extra = options.extra ?? {};
    const titles = { ...Object.fromEntries(
      Object.entries(extra).map(([key, [title]]) => [key, title])), ...TABS };
    const all = Object.entries(titles).filter(([key]) => options.ask || !SERVER_TABS.includes(key));
    const buttons = all.map(([key, title]) => button("tab", {
      role: "tab",
      "aria-selected": "false",
      "data-tab": key,
      onclick: () => open(tab === key ? "" : key),
    }, title));
    const key = (/** @type {View} */ now) => `${tab}/${now.data}/${now.seen}`;
    const tools = { go: visit, width: () => sizes.all, view: look, header: () => headOf(raw).trim(),
      ask: options.ask };
    /** @type {Record<string, (now: View) => Node[]> | null} */
    let own = null; // what is in the player's own, once it has been fetched
    async function fetchOwn() {
      own = (await later("inside.js", "QAlignInside")).tabsOf(tools);
      drawnKey = "";
      changed(false);
    }

    function open(/** @type {string} */ next) {
      tab = next;
      drawnKey = "";
      ticket += 1;
      if (SERVER_TABS.includes(tab)) clock.playing = false; // so that their text stays
      for (const one of buttons) set(one, { "aria-selected": String(one.dataset.tab === tab) });
      show(view, tab);
      view.replaceChildren();
      changed(false);
    }
    function draw(/** @type {View} */ now) {
      drawnKey = key(now);
      if (tab in TABS) {
        if (own) swap(view, ...own[tab](now));
        else fetchOwn().catch(() => put(view, "The server did not answer: open this tab again."));
        return;
      }
      ticket += 1;
      const mine = ticket;
      const [, make] = extra[tab];
      window.setTimeout(async () => {
        if (mine !== ticket) return;
        const nodes = await make(now);
        if (mine === ticket) swap(view, ...nodes);
      }, PATIENCE);
    }
    return {
      node: h("div", { role: "tablist", aria: "More views" }, ...buttons),
      view,
      open,
      /** Close the open tab, if one is. */
      close() {
        const was = tab !== "";
        if (view.contains(document.activeElement)) {
          buttons.find((one) => one.dataset.tab === tab)?.focus();
        }
        if (was) open("");
        return was;
      },
      /** Whether the open tab shows another view than there is. */
      waiting: () => Boolean(tab && chain() && drawnKey !== key(look())),
      follow(/** @type {View} */ now, /** @type {number} */ time) {
        if (!tab || drawnKey === key(now)) return;
        if (clock.playing && time - at <= TAB_PACE) return;
        at = time;
        draw(now);
      },
    };
  }

  // traces
  /** @type {(next: Trace, text: string, from: string, called: string) => void} */
  function adopt(next, text, from, title) {
    trace = next;
    raw = text;
    source = from;
    name = title;
    isOld = false;
    chainId = trace.chains[0]?.id ?? 0;
    posed = "";
    isRequested = false;
    opened += 1;
    stopped = false;
    tell("");
    clock.rewind();
    clock.phase = LAST;
    clock.playing = options.autoplay !== false && !still.matches;
  }
  function open(/** @type {string} */ text, title = "") {
    const next = parse(text);
    if (source === "live") left = headOf(raw);
    adopt(next, text, "file", title);
    if (still.matches) go(Math.min(1, last()), LAST, false);
    changed(false);
  }
  function stream(/** @type {string} */ text) {
    const first = headOf(text);
    if (!first || first === left) return; // a file was opened while this run went on
    if (posed && !isRequested) return; // the run that a new problem has ended
    try {
      if (source === "live" && raw.startsWith(first) && text.length >= raw.length) {
        feed(trace, text);
        raw = text;
      } else {
        const next = feed(newTrace(), text);
        if (!next.chains.length) return; // what was there stays until there is a step
        adopt(next, text, "live", "Live run");
      }
      const there = trace.chains.find(({ id }) => id === wanted?.[1]);
      if (wanted && there && there.steps.length > wanted[0]) {
        visit(...wanted);
        wanted = null;
      }
      if (still.matches && finished() && !clock.t) go(last()); // nothing has led there by itself
    } catch (error) {
      tell(`The run sent something unreadable. ${/** @type {Error} */ (error).message}`, true);
      stop();
    }
    changed(false);
  }
  function stop() {
    clock.playing = false;
    isRequested = false;
    if (source === "live" && !trace.end) {
      stopped = true;
      trace.version += 1;
    }
    changed(true);
  }

  /** Sizes are read where the layout is done: reading them while drawing would force one more. */
  function measure() {
    const all = player.clientWidth; // the presenter's view enlarges it
    if (!all) return; // in a hidden tab
    const top = Math.round(main.getBoundingClientRect().top + window.scrollY);
    if (top !== above) player.style.setProperty("--above", `${above = top}px`);
    if (all === sizes.all) return;
    const within = (/** @type {HTMLElement} */ node) => Math.max(220, node.clientWidth - 30);
    sizes = { all, trace: within(walk[0].node), panel: within(figures[1]),
      score: within(phases.chance) + 26 };
    changed(false);
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
    complete,
    await(/** @type {string} */ problem) {
      if (isRequested && posed === problem) return; // a late event of what its run was asked with
      if (source === "live") left = headOf(raw);
      adopt(newTrace(), "", "next", "New problem");
      posed = problem;
      tabs.open("");
    },
    expect(/** @type {[t: number, chain: number] | null} */ place) {
      isRequested = true;
      tell("");
      source = "next";
      wanted = place;
      left = "";
      changed(false);
    },
    age(/** @type {boolean} */ on) {
      isOld = on;
      changed(false);
    },
    setBurnIn(/** @type {number} */ n) {
      burnIn = n;
      changed(false);
    },
    get position() {
      const { t, phase, playing } = clock;
      return { t, phase, playing, source, chain: chainId, last: last(), burnIn };
    },
    get trace() {
      return trace;
    },
    get text() {
      return raw;
    },
  };
  Object.assign(player, { qalign: api });
  // what stands above the player moves it without changing its size, but changes the page's
  const sized = new ResizeObserver(() => window.requestAnimationFrame(measure));
  for (const node of [element, document.body]) sized.observe(node);
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
