/* Homework: the learner's own run, drawn in this page with a seed that follows from the name, and
   questions about it; the answers are saved as one file (qalign_study/lessons/homework.py). */
import { builder, put } from "../dom.js";
import { saveFile } from "../files.js";
import { fields } from "../learn/ask.js";
import { light } from "../learn/place.js";
import { QAlign } from "../player/player.js";
import { BrowserEngine } from "./browser.js";
import { blake2b } from "./randomness.js";

/** @typedef {import("./record.js").Run} Run */
/**
 * What the page carries.
 * @typedef {object} Payload
 * @property {string} lesson its name
 * @property {string} title
 * @property {{ title: string, text: string, at: import("../learn/place.js").Place,
 *   ask: import("../learn/ask.js").Question | null }[]} stops
 * @property {number} most characters of a name
 * @property {Run} run the settings of everybody's run
 * @property {Record<string, string>} files in base64, by their places below assets/
 * @property {string} worker the worker's script
 */

const { h, button } = builder("hw-");
const LAST = 5; // the phase in which a step is over

/** The seed of a learner's run. @param {string} name */
const seedOf = (name) => Number(blake2b(`name/${name}`) % (2n ** 31n));

/** @param {string} text as it was typed */
const clean = (text) => text.normalize("NFC").replace(/[\s\p{C}]+/gu, " ").trim();

/**
 * @param {HTMLElement} element
 * @param {Payload} payload
 */
function mount(element, { lesson, title, stops, most, run, files, worker }) {
  const engine = new BrowserEngine({
    script: () => URL.createObjectURL(new Blob([worker], { type: "text/javascript" })),
    file: async (name) => Uint8Array.from(atob(files[name]), (c) => c.charCodeAt(0)).buffer,
  });
  let name = "";
  const status = h("p.status", { role: "status" });
  const who = h("input", { id: "hw-name", required: true, maxlength: most, autocomplete: "name" });
  const draw = h("button.go", { type: "submit" }, "Draw my run");
  const stage = h("div");
  const forms = stops.map(({ ask }, k) => ask && fields(ask, `-${k + 1}`));
  const save = button("go", { onclick: hand, disabled: true }, "Save my answers");
  const left = h("p.left", { role: "status" });
  const say = (/** @type {string} */ state, /** @type {string} */ text) => {
    start.dataset.state = state;
    put(status, text);
    save.disabled = state !== "finished";
  };
  const start = h("form.start", { onsubmit() {
    name = clean(who.value);
    if (!name) {
      who.value = "";
      who.reportValidity();
      return;
    }
    who.value = name;
    who.disabled = draw.disabled = true; // the run and the name belong together
    player.expect(null);
    say("loading", "Loading the models…");
    engine.show({ ...run, seed: seedOf(name) }, {
      stream: (text) => player.stream(text),
      say,
      failed(sentence) {
        say("failed", `This browser cannot draw here: ${sentence}. Use a different one.`);
        who.disabled = draw.disabled = false;
      },
    });
  } }, h("label", { for: who.id }, "Your name, as agreed with your instructor"), who, draw, status);

  /** The numbers of the questions without an answer. */
  const empty = () => forms.flatMap((form, k) => (form && !form.read() ? [k + 1] : []));
  const count = () => {
    const open = empty();
    put(left, open.length ? `Without an answer: ${open.join(", ")}.` : "");
  };

  function hand() {
    const answers = Object.fromEntries(forms.flatMap((form, k) =>
      (form?.read() ? [[String(k + 1), form.read()]] : [])));
    const file = { lesson, name, answers, trace: player.text };
    const safe = name.replace(/[^\p{L}\p{N}]+/gu, "-");
    saveFile(`${lesson}-${safe}.json`, "application/json", JSON.stringify(file));
    const open = empty();
    put(left, `Saved${open.length ? `, without an answer to ${open.join(", ")}` : ""}. Hand in the `
      + "file; you can change an answer and save again.");
  }

  /** Open a stop's step as a lesson does; its outcome is hidden until there is an answer. */
  const visit = (/** @type {number} */ k) => {
    const { at, ask } = stops[k];
    player.seek(at.step, at.chain);
    if (at.phase < LAST) player.goPhase(at.phase);
    player.openTab(at.tab);
    light("", forms[k]?.read() ? "" : ask?.veil);
  };

  element.replaceChildren(h("h1", title), start, stage,
    ...stops.map(({ title: heading, text, at, ask }, k) => h("section",
      h("h2", `${k + 1}. ${heading}`), h("p", text),
      ask && h("form", {
        onsubmit() {},
        oninput() {
          count();
          light("");
        },
      }, button("", { onclick: () => visit(k) }, `Show step ${at.step}`), forms[k]?.node))),
    left, save);
  count();
  const player = QAlign.mount(stage);
  player.await(run.prompt);
}

/** What the page calls it by. */
export const QAlignHomework = { mount };
