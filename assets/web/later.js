/* Scripts that a page fetches only when it is asked for what they do. A page without a server has
   them from the start (qalign_study/export/player.py). */

/**
 * What a script sets as a global: fetched when it is first asked for.
 * @param {string} file its address (components/common/static_routes.py)
 * @param {string} name of the global
 * @returns {Promise<any>}
 */
export async function later(file, name) {
  const page = /** @type {any} */ (globalThis);
  if (!(name in page)) await import(new URL(file, document.baseURI).href);
  return page[name];
}
