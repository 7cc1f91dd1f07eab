/* Draws at the next frame of the browser what has changed, and goes on while something moves. */

/**
 * @param {object} what
 * @param {(seconds: number) => void} what.advance let time pass
 * @param {(now: number) => void} what.draw
 * @param {() => boolean} what.moves whether time passes
 * @param {() => boolean} what.waits whether a frame is needed all the same
 * @returns {() => void} asks for a drawing
 */
export function frameLoop({ advance, draw, moves, waits }) {
  let dirty = true;
  let frame = 0;
  let before = 0; // the time of the frame before

  /** @param {number} now */
  function tick(now) {
    frame = 0;
    const seconds = before ? Math.min(0.25, (now - before) / 1000) : 0;
    before = now;
    if (moves()) {
      dirty = true;
      advance(seconds);
    }
    if (dirty) {
      dirty = false;
      draw(now);
    }
    if (moves() || waits()) frame = window.requestAnimationFrame(tick);
    else before = 0;
  }
  return () => {
    dirty = true;
    if (!frame) frame = window.requestAnimationFrame(tick);
  };
}
