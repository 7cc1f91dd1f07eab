/* What a class works on: models, a problem, its answer and β. */
import { put, show } from "../dom.js";
import { many } from "../player/words.js";
import { button, h } from "./drawing.js";
import { ask, reasonOf } from "./net.js";

/** @typedef {{ prompt: string, reference: string, extractor: string, beta: number }} Problem */
/**
 * A model on offer: `pace` is the seconds that a step of one chain takes.
 * @typedef {{ title: string, pace: number | null, beta: number | null }} Model
 */
/**
 * The lessons, problems and limits that the server offers.
 * @typedef {object} Offered
 * @property {import("../learn/learn.js").Entry[]} lessons
 * @property {Problem[]} problems
 * @property {Record<"lm" | "rm", Record<string, Model>>} models by kind and id
 * @property {number} left_out problems that a room does not offer
 * @property {number} members
 */

const CLASS = 30; // members, for the pace that is stated before a room opens
const LONGEST = 60; // characters of a problem in the list

/** @param {string} text */
const excerpt = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);

/**
 * A form for models, problem and β. A problem that the language model was not made for is sent only
 * after a warning, which offers another model.
 * @param {Offered} offered
 * @param {string} label of its button
 * @param {(settings: { prompt?: string, reference?: string, extractor?: string, beta: string,
 *   lm: string, rm: string }) => Promise<void>} done
 * @param {...HTMLElement} first the fields above the problem
 */
export function settings({ problems, left_out: leftOut, models }, label, done, ...first) {
  const select = h("select", { id: "room-problems", onchange: () => take(Number(select.value)) },
    ...problems.map(({ prompt }, k) => h("option", { value: k }, excerpt(prompt))),
    h("option", { value: -1 }, "a problem of your own"));
  const prompt = h("textarea", { id: "room-prompt", rows: 3, oninput: own });
  const answer = h("input", { id: "room-answer", oninput: own });
  const beta = h("input", { id: "room-beta", type: "number", step: "any", min: 0.001 });
  const lm = menu("lm", models.lm, describe);
  const rm = menu("rm", models.rm, () => {
    beta.value = String(models.rm[rm.value]?.beta ?? beta.value);
    describe();
  });
  const pace = h("p.quiet", { role: "status" });
  const warning = h("p.warn", { role: "alert", hidden: true });
  const status = h("p.status", { role: "alert" });
  const current = { prompt: "", reference: "" };
  const send = h("button.send", { type: "submit" }, label);
  let confirmed = ""; // the model and problem that are used in spite of a warning
  const node = h("form", {
    novalidate: true,
    onsubmit: async () => {
      if (send.disabled) return;
      send.disabled = true; // A second press would send the same request again.
      await submit();
      send.disabled = false;
    },
  }, ...first,
  h("label", { for: select.id }, "Problem"), select,
  leftOut ? h("p.quiet", `${many(leftOut, "problem")} of this server ${leftOut > 1 ? "are" : "is"} `
    + "not offered: a Python file reads the answers, and a room runs none.") : null, prompt,
  h("div.row",
    h("div", h("label", { for: lm.id }, "Model"), lm),
    h("div", h("label", { for: rm.id }, "Reward"), rm)), pace,
  h("div.row",
    h("div", h("label", { for: answer.id }, "Right answer, if any"), answer),
    h("div", h("label", { for: beta.id }, "β: small follows the reward"), beta),
    send), warning, status);

  async function submit() {
    const same = prompt.value === current.prompt && answer.value === current.reference;
    const { extractor } = problems[Number(select.value)] ?? {}; // else the answer decides
    const problem = same ? {} : { prompt: prompt.value, reference: answer.value, extractor };
    const chosen = { beta: beta.value, lm: lm.value, rm: rm.value, ...problem };
    const key = lm.value + prompt.value;
    put(status, "");
    if (key !== confirmed) {
      try {
        const reply = await ask("check", { ...chosen, prompt: prompt.value });
        if (reply.warning) {
          warn(reply, key);
          return;
        }
      } catch (error) {
        put(status, reasonOf(error));
        return;
      }
    }
    show(warning, false);
    await done(chosen);
  }

  /**
   * @param {{ warning: string, lm: string | null, rm: string, title: string }} reply
   * @param {string} key of the model and problem
   */
  function warn(reply, key) {
    const use = button("ctl", {
      onclick: () => {
        lm.value = reply.lm ?? lm.value;
        if (rm.value !== reply.rm) {
          rm.value = reply.rm;
          rm.dispatchEvent(new Event("change"));
        }
        describe();
        show(warning, false);
      },
    }, `Use ${reply.title}`);
    const anyway = button("ctl", {
      onclick: () => {
        confirmed = key;
        node.requestSubmit();
      },
    }, "Use it anyway");
    warning.replaceChildren(reply.warning, h("span.row", ...(reply.lm ? [use] : []), anyway));
    show(warning, true);
  }

  /** Say which machine draws, and how fast. */
  function describe() {
    const seconds = models.lm[lm.value]?.pace ?? null;
    put(pace, lm.value === "embedded" && rm.value.startsWith("embedded")
      ? "Each phone draws its own chain, about two steps per second."
      : `This server draws all chains. ${seconds === null ? "The model's speed is not known yet."
        : `With ${CLASS} members, a step of the class takes up to ${
          Math.max(1, Math.round(CLASS * seconds))} s.`}`);
  }

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
  describe();
  return {
    node,
    /**
     * Show the settings of a room, once per round.
     * @param {{ prompt: string, beta: number, round: number, reference: string | null,
     *   run: { lm: string, rm: string } }} room
     */
    fill(room) {
      const { lm: model, rm: reward } = room.run;
      const round = [room.prompt, room.beta, model, reward].join();
      if (node.dataset.round === round) return;
      node.dataset.round = round;
      lm.value = model;
      rm.value = reward;
      confirmed = model + room.prompt;
      describe();
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

/**
 * @param {string} kind
 * @param {Record<string, Model>} models
 * @param {() => void} onchange
 */
const menu = (kind, models, onchange) => h("select", { id: `room-${kind}`, onchange },
  ...Object.entries(models).map(([id, { title }]) => h("option", { value: id }, title)));
