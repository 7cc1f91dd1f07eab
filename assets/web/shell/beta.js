/* The logarithmic slider for beta, with what beta means in plain numbers. */
import { builder, put } from "../dom.js";
import { plain } from "../player/words.js";
import { answering } from "../rpc.js";

/** @typedef {{ spread?: number, matching?: { n: number, beta: number }[], note?: string }} Facts */

const { h } = builder("q-");
const LOW = -2; // powers of ten
const HIGH = 2;
const LEAST = 0.001;
const MOST = 1000;
const MOST_REWARDS = 2000; // rewards at most
const NEAR = 0.25; // as greedy: so close are the logarithms
const HINT = "a small β follows the reward, a large one stays close to the model";

/** @param {number} x */
const few = (x) => plain(x, 3);

/**
 * What a beta means, in three sentences; those that are not known are empty.
 * @param {number} beta
 * @param {Facts | null} facts of the problem
 */
export function meaning(beta, facts) {
  const odds = `A reward higher by 1 makes a text ${few(Math.exp(1 / beta))} times as likely.`;
  const spread = facts?.spread
    ? `β is ${few(beta / facts.spread)} times the spread of this problem’s rewards `
      + `(${few(facts.spread)}, one standard deviation).`
    : "";
  return [odds, spread, greed(beta, facts)];
}

/**
 * @param {number} beta
 * @param {Facts | null} facts
 */
function greed(beta, facts) {
  if (!facts?.matching?.length) return facts?.note ?? "";
  const off = (/** @type {number} */ other) => Math.abs(Math.log(other / beta));
  const closest = facts.matching.reduce((a, b) => (off(b.beta) < off(a.beta) ? b : a));
  const { n, beta: near } = closest;
  if (off(near) < NEAR) return `Follows the reward about as closely as best-of-${n}.`;
  return `Follows the reward ${beta < near ? "more" : "less"} closely than best-of-${n}.`;
}

/**
 * @param {HTMLElement} element Gradio's, with `.q-beta` in it
 * @param {{ value: number, page: string }} props
 * @param {(event: string) => void} trigger
 * @param {{ beta_facts: (rewards: number[]) => Promise<Facts> }} server
 * @param {(name: string, listener: () => void) => void} watch
 * @param {() => number[]} rewards of the model alone on the problem that the page shows
 */
export function betaSlider(element, props, trigger, server, watch, rewards) {
  const { beta_facts } = answering(server);
  const id = `${props.page}-beta-slider`;
  const slider = h("input", { type: "range", min: LOW, max: HIGH, step: 0.02, id });
  const aria = "Beta, as a number";
  const box = h("input", { type: "number", min: LEAST, max: MOST, step: "any", aria });
  const meaningLines = [h("p"), h("p"), h("p")];
  const hint = h("span", { role: "status" });
  const host = /** @type {HTMLElement} */ (element.querySelector(".q-beta"));
  host.replaceChildren(
    h("label", { for: id }, h("b", "β"), hint),
    h("div.beta-row", slider, box),
    h("div.beta-means", ...meaningLines));
  /** @type {Facts | null} */
  let facts = null;
  let fault = ""; // of what was typed

  function show(/** @type {number} */ beta) {
    slider.value = String(Math.log10(beta));
    slider.setAttribute("aria-valuetext", `beta ${few(beta)}`);
    if (document.activeElement !== box) box.value = String(Number(beta.toPrecision(3)));
    meaning(beta, facts).forEach((sentence, k) => put(meaningLines[k], sentence));
    put(hint, fault || HINT);
    host.classList.toggle("q-fault", Boolean(fault));
  }
  function change(/** @type {number} */ beta) {
    const isBeta = beta >= LEAST && beta <= MOST;
    fault = isBeta ? ""
      : `β must be a number from ${LEAST} to ${few(MOST)}; it stays ${few(Number(props.value))}.`;
    if (isBeta) props.value = beta;
    else box.value = String(props.value);
    show(Number(props.value));
    if (isBeta) trigger("change");
  }
  const slid = () => 10 ** Number(slider.value);
  const refresh = () => show(Number(props.value) || 1);
  slider.addEventListener("input", () => {
    fault = "";
    show(slid());
  });
  slider.addEventListener("change", () => change(Number(slid().toPrecision(3))));
  box.addEventListener("change", () => change(Number(box.value)));
  box.addEventListener("input", () => { // also of the number that it held before
    fault = "";
    show(Number(props.value));
  });
  watch("value", () => {
    fault = "";
    refresh();
  });
  host.addEventListener("focusin", async () => {
    const known = rewards().slice(0, MOST_REWARDS);
    facts = known.length ? await beta_facts(known) : null;
    refresh();
  });
  refresh();
}
