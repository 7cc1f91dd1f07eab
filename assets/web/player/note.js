/* A sentence above the stage: until the next key or press, or until another run is shown. */
import { put, show } from "../dom.js";
import { h } from "./drawing.js";

export function noteLine() {
  const node = h("p.note", { role: "alert", hidden: true });
  let passing = false; // it leaves with the next key or press

  /** @param {string} sentence */
  function tell(sentence, stays = false) {
    passing = !stays;
    put(node, sentence);
    show(node, sentence);
  }
  /** @param {Event} event */
  function pass(event) {
    if (!node.isConnected) return document.removeEventListener(event.type, pass, true);
    const { ctrlKey, metaKey, target } = /** @type {KeyboardEvent} */ (event); // it is copied
    if (passing && !ctrlKey && !metaKey && !node.contains(/** @type {Node} */ (target))) tell("");
  }
  for (const kind of ["click", "keydown"]) document.addEventListener(kind, pass, true);
  return { node, tell };
}
