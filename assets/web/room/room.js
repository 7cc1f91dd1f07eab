/* The page of a room. A link with a code joins it; without one, a visitor opens a room or types a
   code. */
import { put } from "../dom.js";
import { chooseFile } from "../files.js";
import { button, h } from "./drawing.js";
import { sessionIn } from "./keep.js";
import { leadView } from "./lead.js";
import { codeForm, farewell, memberView } from "./member.js";
import { Refusal, ask, keep, plainCode, reasonOf, seatIn } from "./net.js";
import { settings } from "./settings.js";

/** @param {string} selector */
const find = (selector) => /** @type {HTMLElement} */ (document.querySelector(selector));

/** Follow the visitor's choice of light or dark, or the link's. */
function look() {
  const theme = new URLSearchParams(window.location.search).get("__theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark",
    theme ? theme === "dark" : dark.matches);
  dark.addEventListener("change", follow);
  follow();
}

/**
 * @param {HTMLElement} host
 * @param {import("./settings.js").Offered} offered
 * @param {string} code
 */
async function enter(host, offered, code) {
  try {
    const before = seatIn(code);
    const seat = { ...before, ...await ask("join", { code }, before?.token) };
    keep(seat);
    await (seat.lead ? leadView(host, seat, offered) : memberView(host, seat));
  } catch (error) {
    farewell(host, reasonOf(error));
    if (!(error instanceof Refusal || error instanceof TypeError)) throw error;
  }
}

/**
 * @param {HTMLElement} host
 * @param {import("./settings.js").Offered} offered
 */
function start(host, offered) {
  const lessons = h("select", { id: "room-lesson" },
    h("option", { value: "" }, "none: the chains alone"),
    ...offered.lessons.map(({ name, title, minutes, stops }) =>
      h("option", { value: name }, `${title} (${stops} stops, ${minutes} min)`)));
  const named = h("input", { type: "checkbox", id: "room-named" });
  const failed = h("p.status", { role: "alert" });
  const begin = async (/** @type {object} */ request) => {
    try {
      const seat = await ask("open", request);
      keep({ ...seat, lead: true });
      window.location.hash = seat.code;
    } catch (error) {
      put(failed, reasonOf(error));
      failed.scrollIntoView({ block: "center" });
    }
  };
  const open = settings(offered, "Open the room",
    (chosen) => begin({ lesson: lessons.value, named: named.checked, ...chosen }),
    h("label", { for: lessons.id }, "Lesson"), lessons,
    h("label.names", { for: named.id }, named, " Members give their names, which only the saved "
      + "class shows"));
  const again = button("quiet", {
    onclick: () => chooseFile(".html", async (file) => begin({ session: await sessionIn(file) })),
  }, "Open a class that was saved");
  host.replaceChildren(h("div.start", h("h1", "A room for a class"),
    h("p", `Up to ${offered.members.toLocaleString("en")} people join by link, with no `
      + "account. They predict, each has a chain of their own, and all chains together are the "
      + "sampler."),
    codeForm("Join a class"), h("div.card", h("h2", "Teach a class"), open.node, again, failed,
      h("p.quiet", "A room exists only in this server's memory. It ends when it is closed, when "
        + "nobody is in it anymore, or when the server restarts. Save the class before then."))));
}

export const QAlignRoom = {
  /** Show what the address asks for, now and when it changes. */
  open() {
    look();
    const offered = JSON.parse(find("#offered").textContent ?? "");
    const host = find("#room");
    const code = plainCode(window.location.hash);
    if (code) enter(host, offered, code);
    else start(host, offered);
    window.addEventListener("hashchange", () => window.location.reload());
  },
};
