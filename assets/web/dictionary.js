/* What the pages' modules know of the dictionary (assets/dictionary.toml), which the page hands
   over as data; a saved player has the words alone, and they say nothing when pressed. */
import { builder } from "./dom.js";

/**
 * @typedef {object} Idea
 * @property {string} part of the glossary
 * @property {string} word
 * @property {string} symbol
 * @property {string} sentence
 * @property {string} formula
 * @property {string} lab the section of the Lab that shows it
 * @property {string} link to that
 * @property {string} colour
 * @property {string} marker
 * @property {string} line
 * @property {number} width
 */

/** @type {Record<string, Idea>} */
export const IDEAS = /** @type {any} */ (globalThis).QAlignDictionary ?? {};

/** @type {Record<string, string>} */
const WORDS = /** @type {any} */ (globalThis).QAlignWords ?? {};

const { h } = builder("");

/**
 * A word that says what it means when it is pointed at, reached or pressed: `term("beta")`, or
 * `term("beta", "β")` for what the page says there.
 * @param {string} id
 * @param {string} [text] the idea's word, if nothing is said
 */
export function term(id, text) {
  const word = text ?? WORDS[id] ?? id;
  return id in IDEAS ? h("button", { type: "button", "data-term": id }, word) : h("span", word);
}

/** @type {Record<string, Record<string, string>>} */
const MODELS = /** @type {any} */ (globalThis).QAlignModels ?? {};

/**
 * A model as people call it, in a few words: "0.9M model" for "embedded"; of a sum of
 * rewards each. A model that is not in the registry is called by its id.
 * @param {"lm" | "rm"} kind
 * @param {string} id
 */
export function modelName(kind, id) {
  const name = (/** @type {string} */ part) =>
    MODELS[kind]?.[part]?.replace(/[,(].*/, "").trim() ?? part;
  return id.split(/( \+ |\*)/).map((part) => (part === "*" ? " × " : name(part))).join("");
}
