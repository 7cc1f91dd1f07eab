/* The address bar's query: whose state each of its parameters is. */

export const PAGE = "tab";
export const STEP = "step";
export const CHAIN = "chain";
export const RUN = "run";
export const SET = "set";
export const LESSON = "lesson";
export const STOP = "stop";
export const PRESENT = "present";

/** What belongs to no page. */
const SHARED = ["__theme", LESSON, STOP, PRESENT];

export const PAGES = /** @type {const} */ (["watch", "compare", "lab", "results", "learn"]);

/** @typedef {(typeof PAGES)[number]} Page */
/** @typedef {Record<string, string>} Parameters */

/**
 * The page that a link names, if it is one.
 * @param {URLSearchParams} query
 */
export const pageOf = (query) => PAGES.find((name) => name === query.get(PAGE)) ?? null;

/**
 * What a link says of each page; a run belongs to Compare where the link names that page, and
 * otherwise to Watch. What it says of the look, a lesson or the presenter belongs to none.
 * @param {URLSearchParams} query
 * @returns {Record<Page | "all", Parameters>}
 */
export function partsOf(query) {
  /** @type {Record<Page | "all", Parameters>} */
  const parts = { watch: {}, compare: {}, lab: {}, results: {}, learn: {}, all: {} };
  const run = pageOf(query) === "compare" ? "compare" : "watch";
  for (const [key, value] of query) {
    if (SHARED.includes(key)) parts.all[key] = value;
    else if (key.startsWith("lab-")) parts.lab[key] = value;
    else if (key === SET) parts.results[key] = value;
    else if (key !== PAGE) parts[run][key] = value;
  }
  return parts;
}

/**
 * An address that shows one page in its state.
 * @param {string} address
 * @param {Page} page
 * @param {Record<Page | "all", Parameters>} parts
 */
export function linkTo(address, page, parts) {
  const url = new URL(address);
  /** @type {Parameters} */
  const tab = page === "watch" ? {} : { [PAGE]: page };
  url.search = String(new URLSearchParams({ ...parts.all, ...tab, ...parts[page] }));
  return url.href;
}

/**
 * Whether a part of a link has settings of a run; a step, its chain and a run of the gallery are
 * none.
 * @param {Parameters} part
 */
export const namesRun = (part) =>
  Object.keys(part).some((key) => ![STEP, CHAIN, RUN].includes(key));

/** @typedef {[t: number, chain: number]} Place a step, and its chain's place in the trace */

/**
 * The step and the chain that a part of a link names, if it names a step; there, chains count
 * from 1.
 * @param {Parameters} part
 * @returns {Place | null}
 */
export function placeOf({ [STEP]: step = "-", [CHAIN]: chain = "1" }) {
  const place = /** @type {Place} */ ([Number(step), Number(chain) - 1]);
  return place.every((n) => Number.isInteger(n) && n >= 0) ? place : null;
}

/**
 * A step and its chain as parameters of a link; the first chain is left out.
 * @param {number} t
 * @param {number} chain
 * @returns {Parameters}
 */
export const parametersOf = (t, chain) =>
  ({ [STEP]: String(t), ...(chain && { [CHAIN]: String(chain + 1) }) });

/**
 * Values by the names of their settings.
 * @param {string[]} names
 * @param {unknown[]} values as many, in the same order
 * @returns {Record<string, unknown>}
 */
export function named(names, values) {
  if (names.length !== values.length) {
    throw new Error(`Expected ${names.length} values of settings, got ${values.length}.`);
  }
  return Object.fromEntries(names.map((name, k) => [name, values[k]]));
}
