/* Play, scrub, speed and keys. */
import { put, set, show } from "../dom.js";
import { AUTO, SPEEDS } from "./clock.js";
import { button, h, icon } from "./drawing.js";
import { JUMPS } from "./jumps.js";
import { many } from "./words.js";

export const KEYS = [
  ["Space", "play or pause"],
  ["→ ←", "one step forward or back"],
  ["Shift + → ←", "ten steps"],
  ["Home, End", "first, last step"],
  ["[ ]", "slower, faster"],
  ["1 … 6", "a phase of this step"],
  ...JUMPS.map(({ key, title }) => [key, title]),
  ["?", "this list"],
  ["Esc", "close what is open"],
];

/**
 * What a visitor can do with the position.
 * @typedef {object} Acts
 * @property {() => void} toggle play or pause
 * @property {(by: number) => void} move
 * @property {(kind: number) => void} jump to the next step of a kind
 * @property {(t: number) => void} seek
 * @property {(t: number) => void} scrub
 * @property {(phase: number) => void} goPhase
 * @property {(speed: number) => void} setSpeed
 * @property {(id: number) => void} setChain
 * @property {() => number} last
 * @property {() => boolean} close what is open below, and say whether something was
 */

/**
 * @param {string} title
 * @param {() => void} onchange
 * @param {string[]} names
 */
function choice(title, onchange, names) {
  return h("select.select", { aria: title, onchange }, ...names.map((name) => h("option", name)));
}

/**
 * @param {import("../dom.js").Icon} image
 * @param {string} title
 * @param {() => void} onclick
 */
function iconButton(image, title, onclick, kind = "") {
  return button(`button.${kind}`, { aria: title, title, onclick }, icon(image));
}

/** @param {Acts} acts */
export function transportBar(acts) {
  const play = iconButton("play", "Play", () => acts.toggle(), "play");
  const scrub = h("input.scrub", {
    type: "range",
    min: 0,
    max: 1,
    value: 0,
    aria: "Step",
    oninput: () => acts.scrub(Number(scrub.value)),
  });
  const count = h("span.count");
  const chains = choice("Chain", () => acts.setChain(Number(chains.value)), []);
  const speeds = SPEEDS.map((v) =>
    (v === Infinity ? "instant" : v === AUTO ? "auto speed" : `${v}×`));
  const speed = choice("Speed", () => acts.setSpeed(SPEEDS[speed.selectedIndex]), speeds);
  const help = h("div.help", { hidden: true }, h("b", "Keys, while the player has the focus"),
    h("dl", ...KEYS.flatMap(([keys, what]) => [h("dt", keys), h("dd", what)])));
  const helpButton = button("button",
    { aria: "Keyboard help", "aria-expanded": "false", onclick: () => toggleHelp() }, "?");
  const jumps = JUMPS.map(({ key, title }, kind) => {
    const note = h("span.small");
    return { note, node: button("jump", { onclick: () => jump(kind) }, h("b", title), h("kbd", key),
      note) };
  });
  const menu = h("div.menu", { hidden: true }, ...jumps.map((one) => one.node));
  const menuButton = button("jumps", { "aria-expanded": "false", onclick: () => toggleMenu() },
    "Jump to");
  const menuPlace = h("div.menu-place", menuButton, menu);
  menuPlace.addEventListener("focusout", ({ relatedTarget }) => {
    if (!menuPlace.contains(/** @type {Node | null} */ (relatedTarget))) toggleMenu(false);
  });

  function toggleHelp() {
    show(help, help.hidden);
    if (!help.hidden) help.scrollIntoView({ block: "nearest" });
    set(helpButton, { "aria-expanded": String(!help.hidden) });
  }

  function toggleMenu(on = menu.hidden) {
    show(menu, on);
    if (on) menu.scrollIntoView({ block: "nearest" });
    set(menuButton, { "aria-expanded": String(on) });
  }

  /** @param {number} kind */
  function jump(kind) {
    if (!menu.hidden) menuButton.focus();
    toggleMenu(false);
    acts.jump(kind);
  }

  /** @param {number} by */
  function faster(by) {
    const now = SPEEDS.indexOf(SPEEDS[speed.selectedIndex] || 1); // of auto: as from 1×
    const next = SPEEDS[now + by];
    if (next) acts.setSpeed(next);
  }

  /** @type {Record<string, (many: number) => void>} */
  const keys = {
    " ": () => acts.toggle(),
    ArrowRight: (many) => acts.move(many),
    ArrowLeft: (many) => acts.move(-many),
    Home: () => acts.seek(0),
    End: () => acts.seek(acts.last()),
    "?": toggleHelp,
    "[": () => faster(-1),
    "]": () => faster(1),
  };
  JUMPS.forEach(({ key }, kind) => {
    keys[key] = keys[key.toLowerCase()] = () => acts.jump(kind);
  });
  for (const phase of [0, 1, 2, 3, 4, 5]) keys[String(phase + 1)] = () => acts.goPhase(phase);

  return {
    node: h("div.transport", { "data-stage": "transport" },
      h("div.buttons", iconButton("back", "Step back", () => acts.move(-1)), play,
        iconButton("next", "Step forward", () => acts.move(1)), menuPlace),
      h("div.scrub-row", scrub, count, chains),
      h("div.extra", speed, helpButton), help),

    /** @param {KeyboardEvent} event */
    key(event) {
      const on = /** @type {Element} */ (event.target);
      const held = event.ctrlKey || event.metaKey || event.altKey;
      const own = event.key === " " && on.matches("button, [type=checkbox]");
      if (held || own || on.tagName === "SELECT") return;
      if (event.key === "Escape") {
        if (!menu.hidden) toggleMenu(false);
        else if (!help.hidden) toggleHelp();
        else if (!acts.close()) return;
      } else if (Object.hasOwn(keys, event.key)) keys[event.key](event.shiftKey ? 10 : 1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    },

    /** @param {number} v */
    showSpeed(v) {
      speed.selectedIndex = SPEEDS.indexOf(v);
    },

    /**
     * @param {{ id: number }[]} all
     * @param {number} id the one that is looked at
     */
    showChains(all, id) {
      if (chains.options.length !== all.length) {
        chains.replaceChildren(...all.map((c) =>
          h("option", { value: c.id, selected: c.id === id }, `chain ${c.id + 1}`)));
      }
      show(chains, all.length > 1);
    },

    /** @param {number[][]} places of each kind of jump */
    showJumps(places) {
      jumps.forEach(({ node, note }, kind) => {
        const n = places[kind].length;
        node.disabled = !n;
        put(note, n ? many(n, "place") : JUMPS[kind].none);
      });
    },

    /**
     * @param {number} t
     * @param {number} last
     * @param {boolean} playing
     * @param {boolean} over nothing is left to play
     */
    showPosition(t, last, playing, over) {
      const title = playing ? "Pause" : over ? "Play again" : "Play";
      if (play.title !== title) {
        set(play, { title, "aria-label": title });
        play.replaceChildren(icon(playing ? "pause" : "play"));
      }
      scrub.max = String(Math.max(1, last));
      scrub.value = String(t);
      set(scrub, { "aria-valuetext": `step ${t} of ${last}` });
      put(count, `${t} / ${last}`);
    },
  };
}
