/* The lines above the stage: the problem, and what is known of its run. */
import { modelName, term } from "../dictionary.js";
import { differs, put } from "../dom.js";
import { h, signMore } from "./drawing.js";
import { graderName, plain, promptText, rewarded, visible } from "./words.js";

/** @typedef {import("./run.js").ShownRun} ShownRun */

export function headLines() {
  const origin = h("b.origin");
  const facts = h("span");
  const state = h("span");
  const models = h("span.models");
  const prompt = h("span");
  const problem = signMore(h("div.prompt",
    { dir: "auto", tabindex: 0, role: "group", aria: "Problem" }, prompt));
  const isNew = differs();
  return {
    node: h("div.problem", { "data-stage": "problem" }, problem,
      h("p.top", origin, " ", state, facts, models)),
    /**
     * Show what the run is called, and a problem that waits for one.
     * @param {ShownRun} run
     */
    name({ name, isOld, posed }) {
      put(origin, isOld ? `${name}, of the old settings` : name);
      origin.classList.toggle("qp-old-run", isOld);
      if (posed) put(prompt, visible(posed));
    },
    /**
     * @param {import("./drawing.js").View} view
     * @param {ShownRun} run
     * @returns {boolean} whether anything of the trace is new
     */
    draw(view, { trace, isStopped, isFinished }) {
      if (!isNew(view.data)) return false;
      const { header, end } = trace;
      const steps = `${view.chain.steps.length - 1} of ${header.steps} steps`;
      const { beta, sharpness, seed = 0 } = header;
      facts.replaceChildren(
        ...(rewarded(trace) ? [term("beta", "β"), ` = ${plain(beta)} · `] : []),
        ...(sharpness > 1 ? [term("sharpness"), ` ${plain(sharpness)} · `] : []),
        `seed ${seed}`, graderName(header));
      put(models, ` · ${modelName("lm", header.lm)} · ${modelName("rm", header.rm)}`);
      put(prompt, visible(promptText(header.prompt)));
      // first, as the line is cut where it has no room
      if (end?.reason === "failed") put(state, `failed: ${visible(end.message)} · `);
      else if (isStopped || end?.reason === "stopped") put(state, `stopped after ${steps} · `);
      else put(state, isFinished ? "" : `${steps} drawn · `);
      return true;
    },
  };
}
