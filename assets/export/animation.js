/* Steps as an animation for slides: each as its cut, its proposal and its verdict. The encoders are
   others' (assets/vendor), fetched when one is made. */
import { LAST } from "../player/words.js";
import { canvas, paint } from "./canvas.js";
import { SIZE } from "./step.js";

/** @typedef {import("./svg.js").Shape} Shape */
/** @typedef {{ t: number, phase: number, seconds: number }} Frame */
/**
 * What is made: its name, its type and its bytes.
 * @typedef {{ ending: string, type: string, bytes: BlobPart }} Made
 */
/**
 * @typedef {object} Making
 * @property {Frame[]} frames
 * @property {(frame: Frame) => Shape} draw
 * @property {(done: number) => void} tell the share of it that is done
 * @property {AbortSignal} signal ends it, with an error
 */

/** The phases that a step is shown in, each for a share of its time. */
const SHOWN = [[0, 0.2], [3, 0.4], [LAST, 0.4]];
export const MOST = 200; // steps of one animation
const SMALL = 0.75; // pixels of a GIF for one of the drawing
const RATE = 5; // pictures a second of a video: programs that edit them want an even rate
const BITS = 1e6; // a second of video: enough for sharp letters, since most of it stands still

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
    : SHOWN.map(([phase, share]) => ({ t, phase, seconds: share * seconds }))));
}

/** @param {string} name */
const vendored = (name) => import(new URL(`vendor/${name}`, document.baseURI).href);

/**
 * Draw the frames one after another, each onto the same canvas.
 * @param {Making} making
 * @param {number} scale
 * @param {(onto: ReturnType<typeof canvas>, frame: Frame, k: number) => unknown} shown
 */
async function eachFrame({ frames, draw, tell, signal }, scale, shown) {
  const onto = canvas(scale * SIZE.width, scale * SIZE.height);
  for (const [k, frame] of frames.entries()) {
    signal.throwIfAborted();
    await paint(draw(frame), onto);
    await shown(onto, frame, k);
    tell((k + 1) / frames.length);
    await new Promise((done) => window.setTimeout(done)); // the page shows it, and hears Cancel
  }
}

/**
 * A GIF. All frames share the colours of the first, the middle and the last one; what is as
 * before is left out of a frame, so that a step costs what moves in it.
 * @param {Making} making
 * @returns {Promise<Made>}
 */
export async function makeGif(making) {
  const { GIFEncoder, quantize, applyPalette } = await vendored("gifenc.mjs");
  const { frames } = making;
  const gif = GIFEncoder();
  const samples = [0, 1, 2].map((k) => frames[Math.floor((k * (frames.length - 1)) / 2)]);
  const seen = new Uint8Array(samples.length * 4 * (SMALL * SIZE.width) * (SMALL * SIZE.height));
  await eachFrame({ ...making, frames: samples, tell: () => {} }, SMALL, ({ node, pen }, _, k) => {
    const { data } = pen.getImageData(0, 0, node.width, node.height);
    seen.set(data, k * data.length);
  });
  const palette = quantize(seen, 255);
  const same = palette.length; // the index of "as before"
  /** @type {Uint8Array | null} */
  let before = null;
  await eachFrame(making, SMALL, ({ node, pen }, { seconds }) => {
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
  return { ending: "gif", type: "image/gif", bytes: gif.bytes() };
}

/** Whether this browser encodes videos at all. */
export const hasVideo = () => "VideoEncoder" in window;

/**
 * A video: MP4 where the browser encodes H.264, which every program plays, otherwise WebM.
 * @param {Making} making
 * @returns {Promise<Made>}
 */
export async function makeVideo(making) {
  const { Output, BufferTarget, CanvasSource, Mp4OutputFormat, WebMOutputFormat,
    getFirstEncodableVideoCodec } = await vendored("mediabunny.mjs");
  const wanted = { ...SIZE, bitrate: BITS };
  const first = (/** @type {string[]} */ codecs) => getFirstEncodableVideoCodec(codecs, wanted);
  const avc = await first(["avc"]);
  const codec = avc ?? await first(["vp9", "vp8", "av1"]);
  if (!codec) throw new Error("This browser encodes no video; take the GIF.");
  const output = new Output({
    format: avc ? new Mp4OutputFormat() : new WebMOutputFormat(),
    target: new BufferTarget(),
  });
  /** @type {any} */
  let source = null;
  let at = 0; // pictures so far
  try {
    await eachFrame(making, 1, async ({ node }, { seconds }) => {
      if (!source) {
        source = new CanvasSource(node, { codec, bitrate: BITS });
        output.addVideoTrack(source, { frameRate: RATE });
        await output.start();
      }
      for (const end = at + Math.max(1, Math.round(RATE * seconds)); at < end; at++) {
        await source.add(at / RATE, 1 / RATE);
      }
    });
    await output.finalize();
  } catch (error) {
    await output.cancel();
    throw error;
  }
  const [ending, type] = avc ? ["mp4", "video/mp4"] : ["webm", "video/webm"];
  return { ending, type, bytes: output.target.buffer };
}
