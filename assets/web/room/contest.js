/* The scene of the game: who has passed the own chain. */
import { put } from "../dom.js";
import { fixed, many } from "../player/words.js";
import { h } from "./drawing.js";

export function gameScene() {
  const state = h("p.large", { role: "status" });
  const list = h("ol.first");
  const node = h("section.scene.game", h("h2", "Can you beat your chain?"),
    h("p", "On your phone, below your chain, change its text as you like. Your score is ln π: how "
      + "likely the model finds the text, plus its reward divided by β. Reach a higher score than "
      + "your chain reached in its first 30 steps."), state, list);
  return {
    node,
    /** @param {import("./lead.js").ClassState} all */
    draw({ game }) {
      if (!game) return;
      put(state, `The best chain has reached ${fixed(game.chains)}. `
        + `${many(game.passed, "member")} passed their own chain.`);
      list.replaceChildren(...game.first.map(([number, best, reached]) => h("li",
        h("b", `Number ${number}: ${fixed(best)}`), h("span", `their chain: ${fixed(reached)}`),
        best > reached ? "✓ ahead" : "")));
    },
  };
}
