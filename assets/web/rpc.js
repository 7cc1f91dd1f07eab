/* Calls of the server's functions (components/common/rpc.py). */

export const SILENT = "The server did not answer; try again.";

/**
 * The same functions, which reply `{ error: one sentence }` where the server did not answer. Those
 * of Gradio resolve to nothing then; they do not reject.
 * @template {Record<string, any>} Calls
 * @param {Calls} calls
 * @returns {Calls}
 */
export const answering = (calls) => /** @type {Calls} */ (Object.fromEntries(
  Object.entries(calls).map(([name, call]) => [name, async (/** @type {unknown} */ request) =>
    await call(request).catch(() => null) ?? { error: SILENT }])));

/**
 * A reply as a value: an error, which is one sentence, is thrown.
 * @template T
 * @param {Promise<T | { error: string }>} call
 * @returns {Promise<T>}
 */
export async function replyOf(call) {
  const reply = /** @type {any} */ (await call);
  if (reply.error) throw new Error(reply.error);
  return reply;
}
