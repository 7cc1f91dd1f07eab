/* What a class works on: a problem, its answer and β. */
import { show } from "../dom.js";
import { h } from "./drawing.js";

/** @typedef {{ prompt: string, reference: string, beta: number }} Problem */
/**
 * The lessons, problems and limits that the server offers.
 * @typedef {object} Offered
 * @property {import("../learn/learn.js").Entry[]} lessons
 * @property {Problem[]} problems
 * @property {number} members
 * @property {number} text characters of a problem
 */

/**
 * A form for problem and β.
 * @param {Offered} offered
 * @param {string} label of its button
 * @param {(settings: { prompt?: string, reference?: string, beta: string }) => Promise<void>} done
 * @param {...HTMLElement} first the fields above the problem
 */
export function settings({ problems, text }, label, done, ...first) {
  const select = h("select", { id: "room-problems", onchange: () => take(Number(select.value)) },
    ...problems.map(({ prompt }, k) => h("option", { value: k }, `${prompt.slice(0, 60)}…`)),
    h("option", { value: -1 }, "a problem of your own"));
  const prompt = h("textarea", { id: "room-prompt", rows: 3, maxlength: text, oninput: own });
  const answer = h("input", { id: "room-answer", maxlength: 40, oninput: own });
  const beta = h("input", { id: "room-beta", type: "number", step: "any", min: 0.001 });
  const current = { prompt: "", reference: "" };
  const send = h("button.send", { type: "submit" }, label);
  const node = h("form", {
    novalidate: true,
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (send.disabled) return;
      const same = prompt.value === current.prompt && answer.value === current.reference;
      const problem = same ? {} : { prompt: prompt.value, reference: answer.value };
      send.disabled = true; // A second press would send the same request again.
      await done({ beta: beta.value, ...problem });
      send.disabled = false;
    },
  }, ...first,
  h("label", { for: select.id }, "Problem"), select, prompt,
  h("div.row",
    h("div", h("label", { for: answer.id }, "Right answer, if any"), answer),
    h("div", h("label", { for: beta.id }, "β: small follows the reward"), beta),
    send));
  prompt.setAttribute("aria-label", "The problem's text");

  function own() {
    select.value = "-1";
  }

  /** @param {number} k */
  function take(k) {
    const chosen = problems[k] ?? { prompt: "", reference: "", beta: Number(beta.value) || 1 };
    prompt.value = chosen.prompt;
    answer.value = chosen.reference;
    beta.value = String(chosen.beta);
    if (!problems[k]) prompt.focus();
  }

  take(0);
  return {
    node,
    /**
     * Show the settings of a room, once per round.
     * @param {{ prompt: string, beta: number, round: number, reference: string | null }} room
     */
    fill(room) {
      if (node.dataset.round === room.prompt + room.beta) return;
      node.dataset.round = room.prompt + room.beta;
      const k = problems.findIndex((each) => each.prompt === room.prompt);
      current.prompt = room.prompt;
      current.reference = problems[k]?.reference ?? room.reference ?? "";
      select.value = String(k);
      prompt.value = current.prompt;
      answer.value = current.reference;
      beta.value = String(room.beta);
      show(node, true);
    },
  };
}
