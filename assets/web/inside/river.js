/* The tree of a run's texts as a river: a branch is as wide as the time spent there. It is drawn on
   one canvas, of which only what is in view costs anything; whoever cannot see it has a table. */
import { term } from "../dictionary.js";
import { differs, put, show, swap } from "../dom.js";
import { button, h } from "../player/drawing.js";
import { describeBranch, tableOf } from "./branch.js";
import { follow } from "./gestures.js";
import { paint } from "./paint.js";
import {
  GAP, ROW, VOTES, arrange, fill, prefixTree, rowThatFits, stepsOf, textOf, unitOf,
} from "./tree.js";

/** @typedef {import("../player/drawing.js").View} View */
/** @typedef {import("./tree.js").Branch} Branch */
/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {import("./inside.js").Tools} Tools */
/** @typedef {import("./paint.js").Strip} Strip */
/** @typedef {import("./gestures.js").Spot} Spot */

const LARGEST = 54; // pixels of a row
const ZOOM = 1.5;
const REACH = 5; // pixels beside a thin branch that are still a press on it
const NARROWEST = 0.4; // of the usual length of a branch, to show the tree as a whole

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
      + "spent on texts that begin this way: strong up to this step, faint after it. Dashed "
      + "lines are proposals that were ", term("rejected"), ". Press a branch to go to its steps; "
      + "pinch to see it larger.");
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
  let most = 0; // pixels of the window on the tree, at the most
  let high = 0;
  let letters = 0; // their size in pixels
  const isNew = differs();
  const isElsewhere = differs();

  const wide = () => Math.max(200, window_.clientWidth);
  /** The style decides the sizes: they differ in front of a class. */
  function readSizes() {
    most = Number(window.getComputedStyle(window_).getPropertyValue("--high")) || 520;
    letters = Number.parseFloat(window.getComputedStyle(canvas).fontSize) || 12;
  }

  // sizes
  function lay() {
    size = arrange(tree, unit, row);
    high = Math.min(most, Math.max(120, size.height));
    window_.style.height = `${high + 2}px`;
    const width = (size.width - VOTES) * scale + VOTES;
    Object.assign(room.style, { width: `${Math.floor(width)}px`, height: `${size.height}px` });
    soon();
  }
  function whole() {
    fits = true;
    readSizes();
    unit = unitOf(tree, wide());
    row = rowThatFits(tree, unit, most);
    const { width } = arrange(tree, unit, row);
    scale = Math.min(1, Math.max(NARROWEST, (wide() - VOTES) / (width - VOTES)));
    lay();
  }
  /** @param {number} by */
  function zoom(by, x = wide() / 2, y = high / 2) {
    const least = rowThatFits(tree, unit, most);
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
      if (canvas.isConnected) drawTree();
    });
  }
  const left = (/** @type {Branch} */ { place }) => place.left * scale - window_.scrollLeft + 4;
  const right = (/** @type {Branch} */ { place }) =>
    (place.right - (place.right > place.left ? GAP * (1 - scale) : 0)) * scale
      - window_.scrollLeft + 4;

  function drawTree() {
    const top = size.above - window_.scrollTop;
    strips = paint(canvas, { tree, view, unit, row, width: wide(), high, letters, top, left, right,
      selected, under });
  }

  // what is under a press
  /** @param {Spot} at */
  function branchAt({ x, y }) {
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
    const { sentence, nodes: lines } = describeBranch(selected, tree, view, tools.go);
    put(spoken, sentence);
    swap(branchNote, ...lines);
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
    if (table.open && tree) swap(table, ...tableOf(tree, view, tools.go));
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
  /** @param {string} key */
  function type(key) {
    if (Object.hasOwn(along, key)) {
      const next = selected || key === "Enter" ? along[key](selected ?? tree.root) : tree.root;
      choose(next, key === "Enter");
      reveal(next);
    } else if (Object.hasOwn(sizing, key)) sizing[key]();
    else return false;
    return true;
  }
  /** @param {Spot} at */
  function point(at) {
    const now = branchAt(at);
    if (now === under) return;
    under = now;
    canvas.style.cursor = under ? "pointer" : "";
    canvas.title = under ? textOf(under).trim().slice(0, 300) : "";
    soon();
  }
  /** @param {Spot} at */
  function press(at) {
    const node = branchAt(at);
    if (node) choose(node, true);
  }
  window_.addEventListener("scroll", soon);
  follow(window_, canvas, { type, zoom, point, press });

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
