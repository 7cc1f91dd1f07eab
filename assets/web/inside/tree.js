/* All texts of a run, states and proposals, as one tree of their common beginnings. */
import { listed, visible } from "../player/words.js";

/** @typedef {import("../player/parse.js").Chain} Chain */
/** @typedef {import("../player/parse.js").Step} Step */

/**
 * A stretch of tokens that all texts share which go through it; where it ends they part, or end.
 * @typedef {object} Branch
 * @property {number} from
 * @property {number} to
 * @property {Step} step that came here first
 * @property {Chain} chain its chain
 * @property {Map<number, Branch>} next by their first tokens
 * @property {Branch[]} children in the order in which they came; `next`, and what ends here
 * @property {Branch | null} parent
 * @property {boolean} leaf a text ends here
 * @property {boolean} isAccepted a text that was accepted goes through it
 * @property {[Chain, number][]} proposals that end here
 * @property {number} time states whose texts go through it
 * @property {number} now those of them up to the position
 * @property {number} rejected proposals that go through it and were rejected
 * @property {string} [words] its text, once it has been asked for
 * @property {Place} place
 */
/**
 * Where a branch is drawn: its line from left to right at y, its subtree from top to bottom.
 * @typedef {{ left: number, right: number, y: number, top: number, bottom: number }} Place
 */
/**
 * @typedef {object} Tree
 * @property {Branch} root
 * @property {Branch[]} nodes from top to bottom, each before its children
 * @property {Branch[]} leaves
 * @property {Map<Chain, Branch[]>} ends the leaf of each chain's steps
 * @property {number} states that are counted
 */

export const ROW = 18; // pixels of a text that was a state, at the least, at the usual size
const THIN = 0.28; // of such a row, for a text that was only proposed
const THICK = 11; // pixels of a state, at the most
const TRUNK = 0.17; // of the width, for all states, at the most
const EDGE = 8;
const LETTER = 6.6;
const FOLD = 26; // letters of a branch that are drawn at the usual size
export const GAP = 30; // pixels between a branch and what it parts into
export const VOTES = 150; // beside the leaves

/**
 * For each token of the state at t, the step that wrote it: a walk back over accepted steps.
 * @param {Chain} chain
 * @param {number} t
 */
export function writers(chain, t) {
  let k = chain.stateAt[t];
  /** @type {number[]} */
  const out = new Array(chain.steps[k].ids.length);
  let open = [...out.keys()].map((j) => ({ j, at: j })); // at: the token's place in this state
  for (;;) {
    const { index, again, ids, oldLength } = chain.steps[k];
    /** @type {typeof open} */
    const older = [];
    for (const { j, at } of open) {
      if (at < index) older.push({ j, at });
      else if (at < ids.length - again) out[j] = k;
      else older.push({ j, at: at - ids.length + oldLength });
    }
    if (!older.length) return out;
    open = older;
    k = chain.stateAt[k - 1];
  }
}

/**
 * @param {Chain} chain
 * @param {Step} step
 * @param {number} from
 * @param {number} to
 * @param {Branch | null} parent
 * @returns {Branch}
 */
const branch = (chain, step, from, to, parent) => ({
  from, to, step, chain, parent, next: new Map(), children: [], leaf: false, isAccepted: false,
  proposals: [], time: 0, now: 0, rejected: 0,
  place: { left: 0, right: 0, y: 0, top: 0, bottom: 0 },
});

/**
 * The branch at whose end a text ends; what is not yet there is added.
 * @param {Branch} root
 * @param {Chain} chain
 * @param {Step} step
 */
function insert(root, chain, step) {
  const { ids } = step;
  let node = root;
  let at = 0;
  for (;;) {
    const known = node.step.ids;
    while (at < node.to && ids[at] === known[at]) at += 1;
    if (at < node.to) part(node, at);
    if (at === ids.length) return node;
    const child = node.next.get(ids[at]);
    if (!child) {
      const child = branch(chain, step, at, ids.length, node);
      node.next.set(ids[at], child);
      return child;
    }
    node = child;
  }
}

/**
 * Cut a branch in two at a token; the first part stays where it was.
 * @param {Branch} node
 * @param {number} at
 */
function part(node, at) {
  const { chain, step, to, next, leaf, proposals } = node;
  const rest = { ...branch(chain, step, at, to, node), next, leaf, proposals };
  for (const child of next.values()) child.parent = rest;
  const parted = new Map([[step.ids[at], rest]]);
  Object.assign(node, { to: at, next: parted, leaf: false, proposals: [] });
}

/**
 * The tree of all texts of a run so far, each branch with the states and rejected proposals that
 * went through it.
 * @param {Chain[]} chains
 * @param {number} burnIn states of each chain that are not counted
 * @returns {Tree}
 */
export function prefixTree(chains, burnIn = 0) {
  const [first] = chains;
  const [draft] = first.steps;
  const root = branch(first, draft, 0, draft.ids.length, null);
  for (const chain of chains) {
    for (const step of chain.steps) {
      const end = insert(root, chain, step);
      end.leaf = true;
      end.proposals.push([chain, step.t]);
    }
  }
  const nodes = listBranches(root);
  const leaves = nodes.filter(({ leaf }) => leaf);
  const ends = new Map(chains.map((chain) => [chain, /** @type {Branch[]} */ ([])]));
  for (const leaf of leaves) {
    for (const [chain, t] of leaf.proposals) /** @type {Branch[]} */ (ends.get(chain))[t] = leaf;
  }
  let states = 0;
  for (const chain of chains) {
    const at = /** @type {Branch[]} */ (ends.get(chain));
    chain.stateAt.forEach((k, t) => {
      if (t < burnIn) return;
      states += 1;
      at[k].time += 1;
    });
    for (const { t, accepted } of chain.steps) {
      if (accepted) at[t].isAccepted = true;
      else at[t].rejected += 1;
    }
  }
  for (const { parent, time, rejected, isAccepted } of nodes.slice().reverse()) {
    if (!parent) break;
    parent.time += time;
    parent.rejected += rejected;
    parent.isAccepted ||= isAccepted;
  }
  return { root, nodes, leaves, ends, states };
}

/**
 * All branches from top to bottom, each before its children; a text that others go on from gets a
 * branch of its own. Without calls of itself: a tree from a file may be of any depth.
 * @param {Branch} root
 */
function listBranches(root) {
  /** @type {Branch[]} */
  const nodes = [];
  const waiting = [root];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    nodes.push(node);
    node.children = [...node.next.values()];
    if (node.leaf && node.children.length) {
      const end = { ...branch(node.chain, node.step, node.to, node.to, node), leaf: true,
        proposals: node.proposals };
      Object.assign(node, { leaf: false, proposals: [] });
      node.children.unshift(end);
    }
    waiting.push(...node.children.slice().reverse());
  }
  return nodes;
}

/**
 * Count the states up to step `seen` of each chain.
 * @param {Tree} tree
 * @param {number} seen
 * @param {number} burnIn
 */
export function fill({ nodes, ends }, seen, burnIn = 0) {
  for (const node of nodes) node.now = 0;
  for (const [chain, at] of ends) {
    for (let t = burnIn; t <= Math.min(seen, chain.steps.length - 1); t++) {
      at[chain.stateAt[t]].now += 1;
    }
  }
  for (const { parent, now } of nodes.slice().reverse()) if (parent) parent.now += now;
}

/**
 * The text of a branch's own tokens, in one line; the end-of-text token is not one of its words.
 * @param {Branch} node
 */
export function textOf(node) {
  const { from, to, step } = node;
  const end = step.finished ? Math.min(to, step.pieces.length - 1) : to;
  node.words ??= visible(step.pieces.slice(from, end).join("")).replace(/\s+/g, " ");
  return node.words;
}

/** @param {Branch} node */
export const isRejected = (node) => !node.isAccepted;

/**
 * How wide a state is drawn.
 * @param {Tree} tree
 * @param {number} width of the drawing
 */
export const unitOf = ({ states }, width) =>
  Math.min(THICK, (TRUNK * width) / Math.max(1, states));

/**
 * Give each branch its place. A text has a row as high as the time spent there, at least `row` if
 * it was a state; a branch stands in the middle of what it parts into.
 * @param {Tree} tree
 * @param {number} unit pixels a state
 * @param {number} row
 */
export function arrange({ nodes, states }, unit, row) {
  const fold = FOLD * Math.max(1, row / ROW);
  let width = 0;
  let height = 0;
  for (const node of nodes) {
    const { leaf, parent, from, to } = node;
    const letters = Math.min(textOf(node).length, isRejected(node) ? fold / 2 : fold);
    const left = parent ? parent.place.right + GAP : 0;
    const right = left + (to > from ? 8 + LETTER * letters : 0);
    const room = roomOf(node, unit, row);
    node.place = { left, right, y: height + room / 2, top: height, bottom: height };
    width = Math.max(width, right);
    if (leaf) node.place.bottom = height += room;
  }
  for (const { children, place, time } of nodes.slice().reverse()) {
    if (!children.length) continue;
    const last = children[children.length - 1].place;
    place.bottom = last.bottom;
    // as its children lie, so that rivers run straight
    const heavy = time ? children : children.map((child) => ({ ...child, time: 1 }));
    place.y = heavy.reduce((sum, child) => sum + child.time * child.place.y, 0)
      / heavy.reduce((sum, child) => sum + child.time, 0);
  }
  // a branch may be thicker than the rows that it stands beside
  const above = Math.max(0, unit * states - height) / 2 + EDGE;
  return { width: width + VOTES, height: height + 2 * above, above };
}

/** @type {(leaf: Branch, unit: number, row: number) => number} */
const roomOf = (leaf, unit, row) =>
  (isRejected(leaf) ? THIN * row : Math.max(row, unit * leaf.time + row / 5));

/**
 * The rows, of at most `most` pixels, with which a tree is no higher than `height`.
 * @param {Tree} tree
 * @param {number} unit pixels a state
 * @param {number} height
 */
export function rowThatFits({ leaves, states }, unit, height, most = ROW) {
  const free = height - 2 * EDGE;
  /** @type {(row: number) => boolean} */
  const fits = (row) => Math.max(unit * states,
    leaves.reduce((sum, leaf) => sum + roomOf(leaf, unit, row), 0)) <= free;
  if (fits(most)) return most;
  let low = 0;
  let high = most;
  for (let k = 0; k < 20; k++) {
    const row = (low + high) / 2;
    if (fits(row)) low = row;
    else high = row;
  }
  return low;
}

/** @typedef {{ x: number, y: number }} Finger */

/**
 * What two fingers have done: how much further apart they are, where their middle is, and how far
 * it has moved.
 * @param {Finger[]} before
 * @param {Finger[]} now
 */
export function pinch(before, now) {
  /** @type {(fingers: Finger[]) => [number, number, number]} */
  const read = ([a, b]) => [Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)), (a.x + b.x) / 2,
    (a.y + b.y) / 2];
  const [apart, x0, y0] = read(before);
  const [further, x, y] = read(now);
  return { by: further / apart, x, y, dx: x - x0, dy: y - y0 };
}

/**
 * The steps that proposed a text that goes through a branch, one chain after the other.
 * @param {Branch} node
 */
export function stepsOf(node) {
  /** @type {[Chain, number][]} */
  const proposals = [];
  const waiting = [node];
  for (let one = waiting.pop(); one; one = waiting.pop()) {
    proposals.push(...one.proposals);
    waiting.push(...one.children);
  }
  return proposals.sort(([a, t], [b, u]) => a.id - b.id || t - u);
}

/**
 * Whole numbers as people write them: "1, 3–5 and 9".
 * @param {number[]} steps ascending
 */
export function ranges(steps) {
  /** @type {[number, number][]} */
  const spans = [];
  for (const t of steps) {
    const last = spans[spans.length - 1];
    if (last && t === last[1] + 1) last[1] = t;
    else spans.push([t, t]);
  }
  return listed(spans.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)));
}
