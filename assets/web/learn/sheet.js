/* What a visitor takes home of a lesson: one page of its texts, their answers, the explanations. */
import { builder } from "../dom.js";
import { saveFile } from "../files.js";

/** @typedef {import("./learn.js").Lesson} Lesson */
/** @typedef {import("./memory.js").Answer} Answer */

const { h } = builder("");
const LOOK = "body{font:17px/1.5 sans-serif;max-width:42em;margin:2em auto;padding:0 1em}"
  + "h2{font-size:1.1em;margin-bottom:0}dt{font-weight:600}dl{border-left:4px solid;padding:0 1em}";

/** @param {boolean | null} right */
const word = (right) => (right === null ? "shown unasked" : right ? "right" : "not right");

/**
 * @param {Lesson} lesson
 * @param {Record<number, Answer>} answers by stop
 */
export function saveSheet(lesson, answers) {
  const stops = lesson.stops.flatMap(({ title, text, ask }, k) => {
    const said = answers[k];
    const asked = ask && h("dl", h("dt", ask.question),
      h("dd", said ? `You: ${said.words || "no answer"} (${word(said.right)})` : "Not answered."),
      said && h("dd", said.says));
    return [h("h2", `${k + 1}. ${title}`), h("p", text), asked];
  });
  const page = h("html", { lang: "en" },
    h("head", h("meta", { charset: "utf-8" }), h("title", lesson.title), h("style", LOOK)),
    h("body", h("h1", lesson.title), h("p", lesson.says), ...stops, h("p", lesson.end),
      h("dl", ...lesson.learnt.flatMap(([asked, said]) => [h("dt", asked), h("dd", said)])),
      h("p", `QAlign Explorer, ${new Date().toISOString().slice(0, 10)}`)));
  const text = new XMLSerializer().serializeToString(page);
  saveFile(`qalign-${lesson.name}.html`, "text/html", `<!doctype html>\n${text}\n`);
}
