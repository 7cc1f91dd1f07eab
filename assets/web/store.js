/* What the visitor's browser keeps, and nobody else. */

/**
 * What is kept, or `other` where that is nothing or no JSON.
 * @type {<T>(key: string, other: T, revive?: (key: string, value: any) => any) => T}
 */
export const readKept = (key, other, revive) => {
  try {
    return JSON.parse(window.localStorage.getItem(key) ?? "null", revive) ?? other;
  } catch {
    return other;
  }
};

/** @type {(key: string, value: unknown) => void} */
export const keepValue = (key, value) => {
  try {
    window.localStorage.setItem(key, JSON.stringify(value));
  } catch {} // then it lasts as long as the page
};
