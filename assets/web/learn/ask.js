/* The form of a prediction, which is made before the outcome is shown. */
import { builder } from "../dom.js";
import { fixed, plain } from "../player/words.js";

/** @typedef {import("./memory.js").Answer} Answer */
/**
 * The question of a stop.
 * @typedef {object} Question
 * @property {string} question
 * @property {"choice" | "number" | "spot"} kind
 * @property {[value: string, name: string][]} options of a choice
 * @property {string} unit of a number
 * @property {string} veil a selector of what is hidden until it is answered
 * @property {number[]} marks rewards of the model alone, where a spot is asked for
 */

const { h, s } = builder("learn-");
const WIDTH = 300;
const EDGE = 8; // half of a slider's thumb, where the first and the last place are
const PLACES = 100;

/**
 * Return the fields of a question. `read` returns the prediction ("" while there is none), `label`
 * the words for it, and `show` closes the form with the prediction and the right value.
 * @param {Question} question
 * @param {string} [end] of its ids, where a page has several
 * @returns {{ node: HTMLElement, read: () => string, label: (prediction: string) => string,
 *   show: (prediction: string, value: string) => void }}
 */
export function fields(question, end = "") {
  if (question.kind === "choice") return choice(question);
  return question.kind === "spot" ? spot(question) : number(question, end);
}

/** @param {Question} question */
function choice({ question, options }) {
  const inputs = options.map(([value]) => h("input", { type: "radio", name: "learn", value }));
  const rows = options.map(([, name], k) => h("label.option", inputs[k], h("span", name)));
  return {
    node: h("fieldset", h("legend", question), ...rows),
    read: () => inputs.find((input) => input.checked)?.value ?? "",
    label: (/** @type {string} */ prediction) =>
      options.find(([value]) => value === prediction)?.[1] ?? "",
    show(/** @type {string} */ prediction, /** @type {string} */ value) {
      inputs.forEach((input, k) => {
        input.checked = input.value === prediction;
        input.disabled = true;
        rows[k].classList.toggle("learn-is", input.value === value);
      });
    },
  };
}

/**
 * @param {Question} question
 * @param {string} end
 */
function number({ question, unit }, end) {
  const range = unit === "%" ? { min: 0, max: 100 } : {};
  const input = h("input", { type: "number", step: "any", ...range, id: `learn-number${end}` });
  return {
    node: h("div.number", h("label", { for: input.id }, question), h("span", input, ` ${unit}`)),
    read: () => (input.reportValidity() ? input.value : ""),
    label: (/** @type {string} */ prediction) => `${prediction} ${unit}`.trim(),
    show(/** @type {string} */ prediction) {
      input.value = prediction;
      input.disabled = true;
    },
  };
}

/**
 * A place among rewards: pressed on the figure, or moved by the keys of a slider under it.
 * @param {Question} question
 */
function spot({ question, marks }) {
  const low = Math.floor(Math.min(...marks));
  const high = Math.ceil(Math.max(...marks));
  const x = (/** @type {number} */ reward) =>
    EDGE + ((WIDTH - 2 * EDGE) * (reward - low)) / (high - low);
  const at = (/** @type {number} */ reward) => `M${x(reward).toFixed(1)} 6v30`;
  const mine = s("path.mine", { d: "" });
  const theirs = s("path.theirs", { d: "" });
  const caption = s("text.middle", { x: WIDTH / 2, y: 52 }, "reward; gray: the model alone");
  let set = false;
  const slider = h("input", {
    type: "range",
    id: "learn-spot",
    min: low,
    max: high,
    step: (high - low) / PLACES,
    value: (low + high) / 2, // after its ends, because a slider without them clips its value at 100
    oninput: () => put(Number(slider.value)),
  });
  const figure = s("svg.line", {
    viewBox: `0 0 ${WIDTH} 56`,
    "aria-hidden": "true",
    onpointerdown: (/** @type {PointerEvent} */ event) => {
      const box = figure.getBoundingClientRect();
      const part = ((event.clientX - box.left) / box.width) * WIDTH - EDGE;
      if (!slider.disabled) put(low + ((high - low) * part) / (WIDTH - 2 * EDGE));
    },
  },
  s("path.axis", { d: `M${EDGE} 30H${WIDTH - EDGE}` }),
  s("path.marks", { d: marks.map((r) => `M${x(r).toFixed(1)} 25v10`).join("") }),
  s("text", { x: EDGE, y: 52 }, plain(low)),
  s("text.end", { x: WIDTH - EDGE, y: 52 }, plain(high)),
  caption, mine, theirs);

  function put(/** @type {number} */ reward) {
    slider.value = String(reward);
    mine.setAttribute("d", at(Number(slider.value)));
    const guess = fixed(Number(slider.value), 1);
    slider.setAttribute("aria-valuetext", `reward ${guess}`);
    caption.textContent = `your guess: ${guess}`;
    set = true;
  }
  return {
    node: h("div.spot", h("label", { for: slider.id }, question), figure, slider),
    read: () => (set ? Number(slider.value).toFixed(2) : ""),
    label: (/** @type {string} */ prediction) => `reward ${prediction}`,
    show(/** @type {string} */ prediction, /** @type {string} */ value) {
      if (prediction) put(Number(prediction));
      theirs.setAttribute("d", at(Number(value.replace("−", "-"))));
      slider.disabled = true;
    },
  };
}
