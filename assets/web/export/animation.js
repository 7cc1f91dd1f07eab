/* Steps as an animation for slides: each as its cut, its proposal and its verdict. The encoder is
   another project's (assets/web/vendor), loaded when a GIF is made. */
import { LAST } from "../player/words.js";
import { canvas, paint } from "./canvas.js";
import { SIZE } from "./step.js";

/** @typedef {import("./svg.js").Shape} Shape */
/** @typedef {{ t: number, phase: number, seconds: number }} Frame */
/**
 * @typedef {object} Making
 * @property {Frame[]} frames
 * @property {(frame: Frame) => Shape} draw
 * @property {(done: number) => void} tell the share of it that is done
 * @property {AbortSignal} signal ends it, with an error
 */

/** The phases that a step is shown in, each for a share of its time. */
const PHASE_SHARES = [[0, 0.2], [3, 0.4], [LAST, 0.4]];
export const MOST = 200; // steps of one animation
const SMALL = 0.75; // pixels of a GIF for one of the drawing

/**
 * What an animation of the steps from `from` to `to` shows.
 * @param {number} from
 * @param {number} to
 * @param {number} seconds a step
 * @returns {Frame[]}
 */
export function framesOf(from, to, seconds) {
  const steps = Array.from({ length: to - from + 1 }, (_, k) => from + k);
  return steps.flatMap((t) => (t === 0 ? [{ t, phase: LAST, seconds }]
    : PHASE_SHARES.map(([phase, share]) => ({ t, phase, seconds: share * seconds }))));
}

/**
 * Draw the frames one after another, each onto the same canvas.
 * @param {Making} making
 * @param {(onto: ReturnType<typeof canvas>, frame: Frame, k: number) => unknown} visit
 */
async function eachFrame({ frames, draw, tell, signal }, visit) {
  const onto = canvas(SMALL * SIZE.width, SMALL * SIZE.height);
  for (const [k, frame] of frames.entries()) {
    signal.throwIfAborted();
    await paint(draw(frame), onto);
    await visit(onto, frame, k);
    tell((k + 1) / frames.length);
    await new Promise((done) => window.setTimeout(done)); // the page shows it, and hears Cancel
  }
}

/**
 * A GIF. All frames share the colours of the first, the middle and the last one; what is as
 * before is left out of a frame, so that a step costs what moves in it.
 * @param {Making} making
 * @returns {Promise<BlobPart>}
 */
export async function makeGif(making) {
  const { GIFEncoder, quantize, applyPalette } = await import(
    new URL("vendor/gifenc.mjs", document.baseURI).href
  );
  const { frames } = making;
  const gif = GIFEncoder();
  const samples = [0, 1, 2].map((k) => frames[Math.floor((k * (frames.length - 1)) / 2)]);
  const seen = new Uint8Array(samples.length * 4 * (SMALL * SIZE.width) * (SMALL * SIZE.height));
  await eachFrame({ ...making, frames: samples, tell: () => {} }, ({ node, pen }, _, k) => {
    const { data } = pen.getImageData(0, 0, node.width, node.height);
    seen.set(data, k * data.length);
  });
  const palette = quantize(seen, 255);
  const same = palette.length; // the index of "as before"
  /** @type {Uint8Array | null} */
  let before = null;
  await eachFrame(making, ({ node, pen }, { seconds }) => {
    const { width, height } = node;
    const now = applyPalette(pen.getImageData(0, 0, width, height).data, palette);
    const moved = now.slice();
    for (let k = 0; before && k < now.length; k++) {
      if (before[k] === now[k]) moved[k] = same;
    }
    gif.writeFrame(moved, width, height, {
      palette: before ? undefined : [...palette, [0, 0, 0]],
      delay: 1000 * seconds,
      transparent: before !== null,
      transparentIndex: same,
      dispose: 1,
    });
    before = now;
  });
  gif.finish();
  return gif.bytes();
}
