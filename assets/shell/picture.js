/* A step as a picture: the player's own nodes and style, drawn by the browser into a PNG. */
import { builder } from "../dom.js";
import { saveFile } from "../files.js";

/** @typedef {import("../player/player.js").Player} Player */

const { h, s } = builder("");
const LEFT_OUT = ".qp-transport, .qp-tabs, .qp-view, .qp-note, .qp > .qp-panel, .qp-whatif";
const OURS = /\bqp\b|--c-/; // the player's rules, and the colours of the dictionary
const SHARP = 2; // pixels of the picture for one of the page
const MARGIN = 16;

/** The rules that the player's look comes from; sheets of other hosts cannot be read. */
function rules() {
  return [...document.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].map((rule) => rule.cssText).filter((text) => OURS.test(text));
    } catch {
      return [];
    }
  }).join("\n");
}

/**
 * The step that is shown as a drawing of its own: it needs no other file.
 * @param {HTMLElement} shown the player's element
 */
function drawing(shown) {
  const copy = /** @type {HTMLElement} */ (shown.cloneNode(true));
  for (const part of copy.querySelectorAll(LEFT_OUT)) part.remove();
  const inner = shown.clientWidth;
  copy.style.cssText = `position:absolute;width:${inner}px;visibility:hidden`;
  shown.after(copy); // without what is left out it has a height of its own
  const width = inner + 2 * MARGIN;
  const height = copy.offsetHeight + 2 * MARGIN;
  copy.remove();
  copy.removeAttribute("style");
  const { fontFamily } = getComputedStyle(shown);
  const ground = getComputedStyle(document.body).backgroundColor;
  const page = h("div", {
    style: `width:${width}px;height:${height}px;box-sizing:border-box;padding:${MARGIN}px;`
      + `background:${ground};font-family:${fontFamily}`,
    class: shown.closest(".dark") ? "dark" : "",
  }, h("style", rules()), copy);
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
    s("foreignObject", { width, height }, page));
  return { svg, width, height };
}

/** @param {Player} player */
export async function savePicture(player) {
  const shown = /** @type {HTMLElement} */ (document.querySelector("#watch-player .qp"));
  const { svg, width, height } = drawing(shown);
  const image = new Image(width, height);
  const text = new XMLSerializer().serializeToString(svg);
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  const canvas = h("canvas", { width: SHARP * width, height: SHARP * height });
  try {
    await image.decode();
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(SHARP, SHARP);
    pen.drawImage(image, 0, 0);
    const file = await new Promise((done) => canvas.toBlob(done));
    if (!file) throw new Error("no picture");
    saveFile(`qalign-step-${player.position.t}.png`, "image/png", file);
  } catch {
    player.tell("This browser does not draw the page as a picture; take a screenshot instead.");
  }
}
