/* How a reader moves on the river: keys, the pointer, the wheel and two fingers. */
import { pinch } from "./tree.js";

/** @typedef {{ x: number, y: number }} Spot pixels of the canvas */
/**
 * @typedef {object} Acts
 * @property {(key: string) => boolean} type true if the key means something
 * @property {(by: number, x: number, y: number) => void} zoom
 * @property {(at: Spot) => void} point
 * @property {(at: Spot) => void} press
 */

/**
 * Follow the reader's hands.
 * @param {HTMLElement} room that scrolls
 * @param {HTMLCanvasElement} canvas
 * @param {Acts} acts
 */
export function follow(room, canvas, acts) {
  /** @param {{ clientX: number, clientY: number }} at a pointer, or a finger */
  function spot({ clientX, clientY }) {
    const box = canvas.getBoundingClientRect();
    const grown = box.width / canvas.clientWidth || 1; // an enlarged page
    return { x: (clientX - box.left) / grown, y: (clientY - box.top) / grown };
  }
  room.addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey || !acts.type(key)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  room.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the page's own scrolling
    event.preventDefault();
    const { x, y } = spot(event);
    acts.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, x, y);
  }, { passive: false });
  /** @type {import("./tree.js").Finger[]} */
  let fingers = [];
  for (const kind of /** @type {const} */ (["touchstart", "touchmove", "touchend"])) {
    room.addEventListener(kind, (event) => {
      const now = [...event.touches].map(spot);
      if (now.length === 2) {
        event.preventDefault(); // the page keeps its size
        if (fingers.length === 2) {
          const { by, x, y, dx, dy } = pinch(fingers, now);
          acts.zoom(by, x, y);
          room.scrollBy(-dx, -dy);
        }
      }
      fingers = now;
    }, { passive: false });
  }
  /** @type {{ x: number, y: number, moved: boolean } | null} */
  let held = null;
  room.addEventListener("pointerdown", ({ clientX, clientY, pointerType }) => {
    held = pointerType === "touch" ? null : { x: clientX, y: clientY, moved: false };
  });
  room.addEventListener("pointermove", (event) => {
    const { clientX, clientY, buttons, movementX, movementY } = event;
    if (held && buttons) {
      held.moved ||= Math.hypot(clientX - held.x, clientY - held.y) > 4;
      if (held.moved) room.scrollBy(-movementX, -movementY);
    } else acts.point(spot(event));
  });
  canvas.addEventListener("click", (event) => {
    if (!held?.moved) acts.press(spot(event));
    held = null;
  });
}
