/* Where a chain's texts come from. */
import { stateOf } from "./numbers.js";

/** @typedef {import("./parse.js").Chain} Chain */

/**
 * A text that the chain has been at.
 * @typedef {object} State
 * @property {number[]} ids
 * @property {number} at the step that first proposed it
 * @property {number} visits
 * @property {string} key
 */
/**
 * A stretch of tokens that several texts share.
 * @typedef {object} Branch
 * @property {number} from
 * @property {number} to
 * @property {number} at
 * @property {number[]} ids
 * @property {State | null} state the text that ends here
 * @property {number} stubs rejected proposals that left here
 * @property {number} visits
 * @property {Branch[]} children
 * @property {number} y where it is drawn
 */

/**
 * For each token of the state at t, the step that wrote it: a walk back over accepted steps.
 * @param {Chain} chain
 * @param {number} t
 */
export function writers(chain, t) {
  let k = chain.stateAt[t];
  let limit = chain.steps[k].ids.length;
  /** @type {number[]} */
  const out = new Array(limit);
  for (;;) {
    const { index } = chain.steps[k];
    if (index < limit) out.fill(k, index, limit);
    limit = Math.min(limit, index);
    if (limit === 0) return out;
    k = chain.stateAt[k - 1];
  }
}

/**
 * Prefix tree of the `most` visited states up to t, with the rejected proposals where they left it.
 * @param {Chain} chain
 * @param {number} t
 * @param {number} most
 */
export function prefixTree(chain, t, most) {
  /** @type {Map<string, State>} */
  const seen = new Map();
  for (let k = 0; k <= t; k++) {
    const at = chain.since[k];
    const { ids } = chain.steps[at];
    const key = ids.join();
    const state = seen.get(key) ?? { ids, at, visits: 0, key };
    state.visits += 1;
    seen.set(key, state);
  }
  const now = stateOf(chain, t).ids.join();
  const kept = [...seen.values()]
    .sort((a, b) => Number(b.key === now) - Number(a.key === now) || b.visits - a.visits)
    .slice(0, most);
  const tree = grow(kept, 0);
  for (const { ids, accepted, changed } of chain.steps.slice(1, t + 1)) {
    if (!accepted && changed) branchOf(tree, ids).stubs += 1;
  }
  return { tree, distinct: seen.size, shown: kept.length, now };
}

/**
 * The branch of states that are the same up to `from`.
 * @param {State[]} states
 * @param {number} from
 * @returns {Branch}
 */
function grow(states, from) {
  const { ids, at } = states[0];
  let to = from;
  while (states.every((x) => to < x.ids.length && x.ids[to] === ids[to])) to += 1;
  /** @type {Map<number, State[]>} */
  const groups = new Map();
  for (const x of states) {
    if (to < x.ids.length) groups.set(x.ids[to], [...(groups.get(x.ids[to]) ?? []), x]);
  }
  return {
    from,
    to,
    at,
    ids,
    state: states.find((x) => x.ids.length === to) ?? null,
    stubs: 0,
    visits: states.reduce((n, x) => n + x.visits, 0),
    children: [...groups.values()].map((g) => grow(g, to)).sort((a, b) => a.at - b.at),
    y: 0,
  };
}

/**
 * The branch on which a text leaves the tree.
 * @param {Branch} tree
 * @param {number[]} ids
 */
function branchOf(tree, ids) {
  /** @type {Branch} */
  let node = tree;
  /** @type {Branch | undefined} */
  let next = tree;
  while (next) {
    node = next;
    const { from, to } = node;
    let d = from;
    while (d < to && ids[d] === node.ids[d]) d += 1;
    next = d === to ? node.children.find((c) => ids[d] === c.ids[d]) : undefined;
  }
  return node;
}
