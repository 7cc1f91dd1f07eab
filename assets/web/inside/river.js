/* The tree of a run's texts as a river: a branch is as wide as the time spent there. It is drawn on
   one canvas, of which only what is in view costs anything; whoever cannot see it has a table. */
import { term } from "../dictionary.js";
import { differs, put, show, swap } from "../dom.js";
import { answerStyle, button, h, swatch } from "../player/drawing.js";
import { answerText, fixed, many, percent, visible } from "../player/words.js";
import {
  GAP,
  ROW,
  VOTES,
  arrange,
  fill,
  isRejected,
  pinch,
  prefixTree,
  ranges,
  rowThatFits,
  stepsOf,
  textOf,
  unitOf,
} from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./tree.js").Branch} Branch */
/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {import("./inside.js").Tools} Tools */
/** @typedef {{ left: number, right: number, y: number, half: number, branch: Branch }} Strip */
/** @typedef {{ x: number, to: number, y: number }} Box */

const HIGH = 520; // pixels of the window on the tree, at the most
const LARGEST = 54; // pixels of a row
const ZOOM = 1.5;
const LETTER = 6.1; // pixels of a letter, about
const READABLE = 12.5; // pixels of a row whose words are drawn
const DETAIL = 2.5; // pixels below which a branch is drawn without what it parts into
const REACH = 5; // pixels beside a thin branch that are still a press on it
const NARROWEST = 0.4; // of the usual length of a branch, to show the tree as a whole
const ROWS = 30; // of the table
const FEWEST = 6; // letters of a text that are worth drawing
const LEAD = 90; // letters of what stands before a branch
const COLOURS = ["yes", "no", "ink", "soft", "card", "a0", "a1", "a2", "a3", "a4", "a5", "a6"];

/**
 * @param {string} text
 * @param {number} room in pixels
 */
function foldText(text, room) {
  const letters = Math.floor(room / LETTER);
  if (text.length > letters && letters < FEWEST) return "";
  return text.length > letters ? `${text.slice(0, letters - 1).trimEnd()}…` : text;
}

/**
 * The tab: `draw` brings it to a view and returns its nodes, which stay the same.
 * @param {Tools} tools
 */
export function river(tools) {
  const canvas = h("canvas");
  const room = h("div.river-room", canvas);
  const window_ = h("div.river", { tabindex: 0, role: "group", "data-key": "river",
    aria: "Tree of texts. Arrow keys move along its branches, Enter goes to the first step of one, "
      + "plus and minus change its size." }, room);
  const spoken = h("p.hidden", { "aria-live": "polite" });
  const branchNote = h("div.river-branch");
  const sizes = h("div.river-sizes",
    button("button", { title: "Smaller", onclick: () => zoom(1 / ZOOM) }, "−"),
    button("link", { onclick: () => whole() }, "Whole tree"),
    button("button", { title: "Larger", onclick: () => zoom(ZOOM) }, "+"));
  const table = h("details.river-table", { ontoggle: () => drawTable() },
    h("summary", "The same as a table"));
  const hint = h("p.hint", "All texts of the run, from their first word on: where two differ, the ",
    term("tree", "tree"), " branches. The width of a branch shows the time that the chain has "
      + "spent on texts that begin this way: dark up to this step, pale after it. Dashed lines are "
      + "proposals that were ", term("rejected"), ". Press a branch to go to its steps; pinch to "
      + "see it larger.");
  const nodes = [hint, sizes, window_, branchNote, spoken, table];

  /** @type {Tree} */
  let tree;
  /** @type {View} */
  let view;
  /** @type {Branch | null} */
  let selected = null;
  /** @type {Branch | null} */
  let under = null; // the pointer
  let unit = 1;
  let row = ROW;
  let scale = 1; // of lengths, not of letters
  let size = { width: 0, height: 0, above: 0 };
  /** @type {Strip[]} */
  let strips = [];
  let frame = 0;
  let fits = true; // it is shown as a whole, and stays so while it grows
  let high = HIGH;
  const isNew = differs();
  const isElsewhere = differs();

  const wide = () => Math.max(200, window_.clientWidth);

  // sizes
  function lay() {
    size = arrange(tree, unit, row);
    high = Math.min(HIGH, Math.max(120, size.height));
    window_.style.height = `${high + 2}px`;
    const width = (size.width - VOTES) * scale + VOTES;
    Object.assign(room.style, { width: `${Math.floor(width)}px`, height: `${size.height}px` });
    soon();
  }
  function whole() {
    fits = true;
    unit = unitOf(tree, wide());
    row = rowThatFits(tree, unit, HIGH);
    const { width } = arrange(tree, unit, row);
    scale = Math.min(1, Math.max(NARROWEST, (wide() - VOTES) / (width - VOTES)));
    lay();
  }
  /** @param {number} by */
  function zoom(by, x = wide() / 2, y = high / 2) {
    const least = rowThatFits(tree, unit, HIGH);
    const at = strips.reduce((/** @type {Strip | null} */ best, one) =>
      (!best || Math.abs(one.y - y) < Math.abs(best.y - y) ? one : best), null);
    const along = (window_.scrollLeft + x) / scale;
    const next = Math.min(LARGEST, Math.max(least, row * by));
    if (next <= least && by < 1) return whole();
    fits = false;
    row = next;
    scale = Math.min(1, scale * Math.max(1, by));
    lay();
    if (at) window_.scrollTop = at.branch.place.y + size.above - y;
    window_.scrollLeft = along * scale - x;
  }

  // drawing
  function soon() {
    frame ||= window.requestAnimationFrame(() => {
      frame = 0;
      if (canvas.isConnected) paint();
    });
  }
  const left = (/** @type {Branch} */ { place }) => place.left * scale - window_.scrollLeft + 4;
  const right = (/** @type {Branch} */ { place }) =>
    (place.right - (place.right > place.left ? GAP * (1 - scale) : 0)) * scale
      - window_.scrollLeft + 4;

  function paint() {
    const width = wide();
    const ratio = window.devicePixelRatio || 1;
    const [w, k] = [Math.round(width * ratio), Math.round(high * ratio)];
    if (canvas.width !== w || canvas.height !== k) {
      Object.assign(canvas, { width: w, height: k });
      Object.assign(canvas.style, { width: `${width}px`, height: `${high}px` });
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const styles = window.getComputedStyle(canvas);
    const colour = Object.fromEntries(
      COLOURS.map((name) => [name, styles.getPropertyValue(`--${name}`)]));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, high);
    pen.font = `12px ${styles.fontFamily}`;
    strips = [];
    const here = new Set();
    const at = tree.ends.get(view.chain)?.[view.chain.stateAt[view.seen]];
    for (let node = at ?? null; node; node = node.parent) here.add(node);
    const top = size.above - window_.scrollTop;
    /** @type {Strip[]} */
    const path = [];
    const waiting = [tree.root];
    for (let node = waiting.pop(); node; node = waiting.pop()) {
      const { place } = node;
      if (place.bottom + top < -30 || place.top + top > high + 30) continue;
      const thick = unit * node.time;
      const [x0, x1] = [left(node), right(node)];
      if (x0 > width + GAP) continue;
      const y = place.y + top;
      strips.push({ left: x0, right: x1, y, half: thick / 2, branch: node });
      stretch(pen, colour, node, here.has(node), x0, y, x1, y);
      if (node === selected || node === under) {
        pen.globalAlpha = node === selected ? 1 : 0.55;
        pen.strokeStyle = colour.ink;
        pen.lineWidth = 1.5;
        pen.strokeRect(x0 - 2, y - thick / 2 - 3, x1 - x0 + 4, thick + 6);
      }
      if (here.has(node)) path.push(strips[strips.length - 1]);
      if (place.bottom - place.top < DETAIL && node.children.length) continue;
      let from = y - thick / 2;
      for (const child of node.children) {
        const half = (unit * child.time) / 2;
        const start = isRejected(child) ? Math.min(y + thick / 2, from) : from + half;
        stretch(pen, colour, child, here.has(child), x1, start, left(child), child.place.y + top);
        from += 2 * half;
        waiting.push(child);
      }
    }
    pen.globalAlpha = 1;
    // where there is no room for all words, those of the wider branches stay
    const others = strips.filter(({ branch }) => !here.has(branch)).sort((a, b) => b.half - a.half);
    /** @type {Box[]} */
    const boxes = [];
    for (const one of [...path, ...others]) write(pen, colour, one, here.has(one.branch), boxes);
  }

  /**
   * A stretch of a branch: pale for all of its time, dark for what has passed of it.
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   * @param {Branch} node
   * @param {boolean} here it leads to the text of the step
   * @param {number} x0
   * @param {number} y0
   * @param {number} x1
   * @param {number} y1
   */
  function stretch(pen, colour, node, here, x0, y0, x1, y1) {
    if (x1 <= x0) return;
    const middle = (x0 + x1) / 2;
    if (isRejected(node)) {
      pen.strokeStyle = colour.no;
      pen.globalAlpha = 0.25 + 0.55 * Math.min(1, row / ROW);
      pen.setLineDash([4, 3]);
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(middle, y0, middle, y1, x1, y1);
      pen.stroke();
      pen.setLineDash([]);
      return;
    }
    pen.fillStyle = colour.yes;
    const dark = here ? 1 : 0.5;
    for (const [time, alpha] of [[node.time, 0.22], [node.now, dark]]) {
      if (!time && node.time) continue;
      const half = Math.max(1, unit * time) / 2;
      pen.globalAlpha = alpha;
      pen.beginPath();
      pen.moveTo(x0, y0 - half);
      pen.bezierCurveTo(middle, y0 - half, middle, y1 - half, x1, y1 - half);
      pen.lineTo(x1, y1 + half);
      pen.bezierCurveTo(middle, y1 + half, middle, y0 + half, x0, y0 + half);
      pen.fill();
    }
  }

  /**
   * The words of a branch, and the vote of a text that ends there.
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colour
   * @param {Strip} one
   * @param {boolean} here
   * @param {Box[]} boxes by other words
   */
  function write(pen, colour, { left: x0, right: x1, y, half, branch: node }, here, boxes) {
    const rows = node.place.bottom - node.place.top;
    const pale = isRejected(node);
    const inside = 2 * half >= READABLE;
    /** @type {(text: string, x: number, line: number, ink: string) => void} */
    const say = (text, x, line, ink) => {
      const box = { x, y: line, to: x + LETTER * text.length };
      if (!text || boxes.some((other) => Math.abs(other.y - line) < 11 && other.x < box.to
        && box.x < other.to)) return;
      boxes.push(box);
      pen.fillStyle = ink;
      pen.fillText(text, x, line);
    };
    if (inside || rows >= READABLE) {
      const from = Math.max(x0, 4) + 4; // what is in view of a long one
      const text = foldText(textOf(node).trim(), Math.min(x1, wide()) - from);
      const dark = here && unit * node.now >= READABLE;
      say(text, from, inside ? y + 4 : y - half - 3,
        pale ? colour.soft : dark ? colour.card : colour.ink);
    }
    if (!node.leaf || x1 > wide()) return;
    const { answer } = node.step;
    if (pale && rows >= 4) mark(pen, colour, x1, y);
    if (!pale) {
      pen.fillStyle = colour[answerStyle(view.trace, answer).replace(/.*--(a\d).*/, "$1")];
      pen.beginPath();
      pen.arc(x1 + 5, y, Math.min(4.5, Math.max(1, rows / 2)), 0, 7);
      pen.fill();
    }
    if (rows < READABLE) return;
    const votes = pale ? "rejected" : `×${node.time}`;
    say(`${answerText(view.trace, answer)} ${votes}`, x1 + 14, y + 4,
      pale ? colour.soft : colour.ink);
  }

  /** @type {(pen: CanvasRenderingContext2D, colour: Record<string, string>, x: number,
   *   y: number) => void} */
  function mark(pen, colour, x, y) {
    pen.beginPath();
    for (const [dx, dy] of [[1, 0], [5, -4], [9, 0], [5, 4], [1, 0]]) pen.lineTo(x + dx, y + dy);
    Object.assign(pen, { strokeStyle: colour.no, lineWidth: 1.2, globalAlpha: 1 });
    pen.stroke();
  }

  // what is under a press
  /** @param {{ clientX: number, clientY: number }} at a pointer, or a finger */
  function spot({ clientX, clientY }) {
    const box = canvas.getBoundingClientRect();
    const grown = box.width / canvas.clientWidth || 1; // an enlarged page
    return { x: (clientX - box.left) / grown, y: (clientY - box.top) / grown };
  }
  /** @param {MouseEvent} event */
  function branchAt(event) {
    const { x, y } = spot(event);
    let best = null;
    let near = Infinity;
    for (const one of strips) {
      const off = Math.max(0, Math.abs(y - one.y) - one.half);
      const beside = x < one.left - GAP / 2 || x > one.right + GAP / 2;
      if (beside || off > REACH || off >= near) continue;
      near = off;
      best = one.branch;
    }
    return best;
  }

  /**
   * Say what a branch is, and go to its first step.
   * @param {Branch} node
   * @param {boolean} go
   */
  function choose(node, go) {
    selected = node;
    const [first] = stepsOf(node);
    if (go) tools.go(first[1], first[0].id);
    tell();
    soon();
  }

  function tell() {
    show(branchNote, selected);
    if (!selected) return;
    const { from, to, step, time, rejected, leaf } = selected;
    const before = visible(step.pieces.slice(0, from).join(""));
    const lead = before.length > LEAD ? `…${before.slice(-LEAD)}` : before;
    const passed = `${many(time, "state")} of ${tree.states} (${percent(time / tree.states)})`;
    const lost = rejected ? `, ${many(rejected, "proposal")} rejected` : "";
    const where = to > from ? `Tokens ${from + 1} to ${to}` : `After token ${to}`;
    const vote = leaf ? `; it answers ${answerText(view.trace, step.answer)}, `
      + `reward ${fixed(step.reward)}` : "";
    put(spoken, `${where}: ${textOf(selected)}. ${passed}${lost}${vote}.`);
    const own = h("b", visible(step.pieces.slice(from, to).join("")));
    const text = { tabindex: 0, role: "group", aria: "Text of the branch", "data-key": "text" };
    swap(branchNote, h("p.river-text", text, lead, own),
      h("p", `${where}: ${passed}${lost}${vote}.`), ...stepsLine(selected));
  }

  /** @param {Branch} node */
  function stepsLine(node) {
    const all = stepsOf(node);
    return view.trace.chains.flatMap((chain) => {
      const steps = all.filter(([one]) => one === chain).map(([, t]) => t);
      if (!steps.length) return [];
      const next = steps.find((t) => t > view.t || chain !== view.chain) ?? steps[0];
      const of = view.trace.chains.length > 1 ? ` of chain ${chain.id + 1}` : "";
      const spans = ranges(steps);
      const some = spans.length > 160 ? `${spans.slice(0, 160).replace(/,[^,]*$/, "")} …` : spans;
      return [h("p", `Proposed at ${steps.length > 1 ? "steps" : "step"} ${some}${of}. `,
        button("link", { "data-key": `to-${chain.id}`, onclick: () => tools.go(next, chain.id) },
          `Go to step ${next}`))];
    });
  }

  /**
   * The branch of a larger tree in which one of before begins.
   * @param {Branch} node
   */
  function again(node) {
    const [[chain, t]] = stepsOf(node);
    let branch = tree.ends.get(chain)?.[t] ?? null;
    while (branch && branch.from > node.from) branch = branch.parent;
    return branch;
  }

  function drawTable() {
    if (!table.open || !tree) return;
    const states = tree.leaves.filter((leaf) => leaf.time).sort((a, b) => b.time - a.time);
    const listed = states.slice(0, ROWS);
    const rows = listed.map((leaf) => {
      const [[chain, t]] = leaf.proposals;
      const { from, step, time, rejected } = leaf;
      return h("tr", h("td.words", from ? "… " : "", textOf(leaf)), h("td", from),
        h("td", swatch(answerStyle(view.trace, step.answer)), answerText(view.trace, step.answer)),
        h("td", time), h("td", percent(time / tree.states)), h("td", rejected),
        h("td", button("link", { "data-key": `row-${chain.id}-${t}`,
          onclick: () => tools.go(t, chain.id) }, t)));
    });
    const heads = ["Its own ending", "Shared tokens before it", "Answer", "States",
      "Share", "Times rejected", "First at step"].map((name) => h("th", { scope: "col" }, name));
    const lost = tree.leaves.length - states.length;
    const more = states.length > ROWS ? `The ${ROWS} with most states; ` : "";
    const summary = `${more}${many(states.length, "text")} were states, ${many(lost, "other")} `
      + "only proposed.";
    swap(table, h("summary", "The same as a table"), h("p.hint", summary),
      h("div.scroll", { tabindex: 0, role: "region", aria: "Texts", "data-key": "texts" },
        h("table", h("thead", h("tr", ...heads)), h("tbody", ...rows))));
  }

  // the keyboard and the pointer
  /** @param {Branch} node */
  function reveal({ place }) {
    const [x0, y] = [place.left * scale, place.y + size.above];
    const { scrollLeft, scrollTop } = window_;
    if (x0 < scrollLeft || place.right * scale > scrollLeft + wide()) {
      window_.scrollLeft = x0 - wide() / 4;
    }
    if (y < scrollTop + 20 || y > scrollTop + high - 20) window_.scrollTop = y - high / 2;
  }
  const largest = (/** @type {Branch[]} */ all) => all.reduce((a, b) => (b.time > a.time ? b : a));
  /** @type {(node: Branch, by: number) => Branch} */
  const beside = (node, by) => {
    const all = node.parent?.children ?? [node];
    return all[all.indexOf(node) + by] ?? node;
  };
  /** @type {Record<string, (node: Branch) => Branch>} */
  const along = {
    ArrowRight: (node) => (node.children.length ? largest(node.children) : node),
    ArrowLeft: (node) => node.parent ?? node,
    ArrowDown: (node) => beside(node, 1),
    ArrowUp: (node) => beside(node, -1),
    Home: () => tree.root,
    Enter: (node) => node,
  };
  /** @type {Record<string, () => void>} */
  const sizing = { "+": () => zoom(ZOOM), "=": () => zoom(ZOOM), "-": () => zoom(1 / ZOOM),
    0: whole };
  window_.addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey) return;
    if (Object.hasOwn(along, key)) {
      const next = selected || key === "Enter" ? along[key](selected ?? tree.root) : tree.root;
      choose(next, key === "Enter");
      reveal(next);
    } else if (Object.hasOwn(sizing, key)) sizing[key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  window_.addEventListener("scroll", soon);
  window_.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the page's own scrolling
    event.preventDefault();
    const { x, y } = spot(event);
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, x, y);
  }, { passive: false });
  /** @type {import("./tree.js").Finger[]} */
  let fingers = [];
  for (const kind of /** @type {const} */ (["touchstart", "touchmove", "touchend"])) {
    window_.addEventListener(kind, (event) => {
      const now = [...event.touches].map(spot);
      if (now.length === 2) {
        event.preventDefault(); // the page keeps its size
        if (fingers.length === 2) {
          const { by, x, y, dx, dy } = pinch(fingers, now);
          zoom(by, x, y);
          window_.scrollBy(-dx, -dy);
        }
      }
      fingers = now;
    }, { passive: false });
  }
  /** @type {{ x: number, y: number, moved: boolean } | null} */
  let held = null;
  window_.addEventListener("pointerdown", ({ clientX, clientY, pointerType }) => {
    held = pointerType === "touch" ? null : { x: clientX, y: clientY, moved: false };
  });
  window_.addEventListener("pointermove", (event) => {
    const { clientX, clientY, buttons, movementX, movementY } = event;
    if (held && buttons) {
      held.moved ||= Math.hypot(clientX - held.x, clientY - held.y) > 4;
      if (held.moved) window_.scrollBy(-movementX, -movementY);
      return;
    }
    const now = branchAt(event);
    if (now === under) return;
    under = now;
    canvas.style.cursor = under ? "pointer" : "";
    canvas.title = under ? textOf(under).trim().slice(0, 300) : "";
    soon();
  });
  canvas.addEventListener("click", (event) => {
    const node = held?.moved ? null : branchAt(event);
    held = null;
    if (node) choose(node, true);
  });

  return {
    nodes,
    /** @param {View} now */
    draw(now) {
      view = now;
      const { trace, burnIn, run } = view;
      // all chains are in it, whichever is looked at
      if (isNew(`${run.split("/")[0]}/${trace.version}/${burnIn}/${tools.width()}`)) {
        tree = prefixTree(trace.chains, burnIn);
        selected = selected && again(selected);
        under = null;
        window.queueMicrotask(() => {
          if (fits) whole();
          else lay();
        });
        drawTable();
        tell();
      }
      if (isElsewhere(`${view.data}/${view.seen}`)) fill(tree, view.seen, view.burnIn);
      soon();
      return nodes;
    },
  };
}
