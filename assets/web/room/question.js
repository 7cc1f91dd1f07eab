/* The scene of a stop's question: its words, the predictions of the class and its exhibit. */
import { put, show } from "../dom.js";
import { drawExhibit } from "../exhibit/exhibit.js";
import { drawPredictions, h } from "./drawing.js";
import { fit, letters } from "./fit.js";

/** @typedef {import("./member.js").RoomState} RoomState */
/** @typedef {import("./lead.js").ClassState} ClassState */

const COLUMNS = 190; // the height of the columns of predicted numbers

export function questionScene() {
  const title = h("h2");
  const text = h("p.text");
  const question = h("p.ask");
  const explanation = h("p.explanation", { role: "status" });
  const picture = h("div.picture");
  const count = h("p.count");
  const exhibit = h("div.exhibit");
  const words = h("div.words", title, text, question, picture, explanation, count);
  const node = h("section.scene.question", words, exhibit);
  let lastKey = "";
  return {
    node,
    /** @type {(room: RoomState, all: ClassState) => void} */
    draw({ stop, opened, value, explanation: sentence }, { predictions, expected, right }) {
      if (!stop) return;
      const key = JSON.stringify([stop.lesson, stop.k, value, opened, node.clientWidth,
        node.clientHeight]);
      const n = predictions.reduce((sum, [, each]) => sum + each, 0);
      const rest = n < expected ? `, ${expected - n} without an answer` : "";
      put(count, !stop.ask ? "" : right === null ? `${n} of ${expected} have answered`
        : n ? `${right} of ${n} right${rest}` : "Nobody answered");
      const { ask, exhibit: data } = stop;
      const drawPicture = () => picture.replaceChildren(...(ask ? [drawPredictions(ask, predictions,
        value, { width: words.clientWidth, height: COLUMNS, size: letters() })] : []));
      if (key === lastKey) {
        drawPicture();
        return;
      }
      lastKey = key;
      const isOpen = opened && Boolean(stop.ask);
      put(title, stop.title);
      put(text, stop.text);
      show(text, !isOpen); // The explanation takes its place.
      put(question, stop.ask?.question ?? "");
      put(explanation, isOpen ? sentence ?? "" : "");
      picture.style.minHeight = `${ask && ask.kind !== "choice" ? COLUMNS : 0}px`;
      fit(node, (height) => {
        drawPicture();
        exhibit.replaceChildren(...(data ? drawExhibit(data, { width: exhibit.clientWidth,
          height, size: letters() }) : []));
      });
    },
  };
}
