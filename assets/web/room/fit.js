/* A scene in the window of the instructor's view: all of it is to be in sight. */

const LETTERS = 26; // pixels, of figures on the projector
const HEIGHTS = [250, 190, 160]; // of a figure
const SHARES = [1.1, 1.3, 1.55, 2.2, 0.9, 0.75]; // of the width of a figure to that of the words

/**
 * Make all of a scene fit into the window: its columns and figures change their sizes, then it
 * leaves out the problem, which phones and the scene of the chains show, and only then everything
 * shrinks.
 * @param {HTMLElement} node
 * @param {(height: number) => void} redraw with figures of this height
 */
export function fit(node, redraw) {
  const isFull = () => node.scrollHeight > node.clientHeight;
  node.style.setProperty("--fit", "1");
  for (const lean of ["", "problem"]) {
    node.dataset.lean = lean;
    for (const height of HEIGHTS) {
      for (const share of SHARES) {
        node.style.setProperty("--share", `${share}fr`);
        redraw(height);
        if (!isFull()) return;
      }
    }
  }
  for (let size = 0.96; size > 0.4 && isFull(); size -= 0.04) {
    node.style.setProperty("--fit", size.toFixed(2));
  }
}

/** The size of a figure's letters: on the projector, or on an instructor's phone. */
export const letters = () => (window.innerWidth > 900 ? LETTERS : 16);
