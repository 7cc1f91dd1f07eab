/* The address bar's query: what of it is a run, what is the page, what is the lab. */

export const PAGE = "tab";
export const STEP = "step";
const LAB = "lab-";

/** @typedef {Record<string, string | number | null>} Changes null takes a parameter away */

/**
 * What in a link does not belong to a run.
 * @param {string} key
 */
export const isApart = (key) => [PAGE, STEP, "__theme"].includes(key) || key.startsWith(LAB);

/**
 * Whether a link names a run of its own.
 * @param {URLSearchParams} query
 */
export const namesRun = (query) => [...query.keys()].some((key) => !isApart(key));

/**
 * The step that a link names, if it is one.
 * @param {URLSearchParams} query
 */
export function stepOf(query) {
  const n = Number(query.get(STEP));
  return query.has(STEP) && Number.isInteger(n) && n >= 0 ? n : null;
}

/**
 * The page that a link names, if that can be one.
 * @param {URLSearchParams} query
 */
export function pageOf(query) {
  const name = query.get(PAGE) ?? "";
  return /^[a-z]+$/.test(name) ? name : null;
}

/**
 * What changes when another run's settings, or the lab's, take the place of those in the bar.
 * @param {Iterable<string>} keys of the query as it is
 * @param {string} text the new settings, as a query
 * @param {"run" | "lab"} whose
 * @returns {Changes}
 */
export function replacing(keys, text, whose) {
  const belongs = (/** @type {string} */ key) =>
    (whose === "lab" ? key.startsWith(LAB) : !isApart(key));
  const gone = [...keys].filter(belongs).map((key) => [key, null]);
  return { ...Object.fromEntries(gone), ...Object.fromEntries(new URLSearchParams(text)) };
}

/**
 * Values by the names of their settings.
 * @param {string[]} names
 * @param {unknown[]} values as many, in the same order
 * @returns {Record<string, unknown>}
 */
export function named(names, values) {
  if (names.length !== values.length) {
    throw new Error(`${names.length} settings are named, and ${values.length} values came.`);
  }
  return Object.fromEntries(names.map((name, k) => [name, values[k]]));
}

/**
 * An address with its query changed.
 * @param {string} address
 * @param {Changes} changes
 */
export function withQuery(address, changes) {
  const url = new URL(address);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(key);
    else url.searchParams.set(key, String(value));
  }
  return url.href;
}
