/* Save a lesson as one page: its texts, the visitor's answers and the explanations. */
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
    const answer = answers[k];
    const question = ask && h("dl", h("dt", ask.question),
      h("dd", answer ? `You: ${answer.words || "no answer"} (${word(answer.right)})`
        : "Not answered."),
      answer && h("dd", answer.explanation));
    return [h("h2", `${k + 1}. ${title}`), h("p", text), question];
  });
  const page = h("html", { lang: "en" },
    h("head", h("meta", { charset: "utf-8" }), h("title", lesson.title), h("style", LOOK)),
    h("body", h("h1", lesson.title), h("p", lesson.summary), ...stops, h("p", lesson.end),
      h("dl", ...lesson.learnt.flatMap(([term, answer]) => [h("dt", term), h("dd", answer)])),
      h("p", `QAlign Explorer, ${new Date().toISOString().slice(0, 10)}`)));
  const text = new XMLSerializer().serializeToString(page);
  saveFile(`qalign-${lesson.name}.html`, "text/html", `<!doctype html>\n${text}\n`);
}
