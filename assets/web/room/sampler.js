/* The scene of all chains: the class as one sampler, beside the model alone and the target. */
import { put, show } from "../dom.js";
import { fixed, many, plain } from "../player/words.js";
import { button, drawClass, drawKey, drawVotes, h, stillOf } from "./drawing.js";
import { letters } from "./fit.js";
import { loadingText } from "./member.js";

/** @typedef {import("./member.js").RoomState} RoomState */
/** @typedef {import("./lead.js").ClassState} ClassState */
/** @typedef {import("./lead.js").Figures} Figures */
/** @typedef {import("./lead.js").Lead} Lead */

const MOST_VOTES = 3; // answers of a vote
const STUCK = 10; // steps without a change from which a chain is named

/** @param {Lead} lead */
export function classScene(lead) {
  const picture = h("div.picture");
  const wait = h("p.quiet");
  const numbers = h("dl.numbers");
  const verdict = h("p.verdict");
  const problem = h("p.problem");
  const text = h("p.text", { role: "status" });
  const pooled = h("div");
  const alone = h("div");
  const single = h("div");
  const who = h("h3", "One chain alone");
  const leading = h("p.quiet");
  const stuck = h("p.quiet");
  const samples = h("h3");
  const less = button("ctl.small", { aria: "Previous chain" }, "◀");
  const more = button("ctl.small", { aria: "Next chain" }, "▶");
  const node = h("section.scene.class",
    h("div.main", h("div.row", h("h2", "All chains"), drawKey()), problem, picture, wait,
      text, numbers, verdict),
    h("div.votes", h("h3", "The class, pooled"), pooled,
      h("div.row", who, h("span.pair", less, more)), single, leading, stuck,
      samples, alone));
  /** @type {number[]} */
  let order = [];
  let at = 1;
  const choose = (/** @type {number} */ number) => lead({ do: "single", number });
  const turn = (/** @type {number} */ by) => {
    const k = (order.indexOf(at) + by + order.length) % order.length;
    if (order.length) choose(order[k]);
  };
  less.addEventListener("click", () => turn(-1));
  more.addEventListener("click", () => turn(1));

  /**
   * @param {RoomState} room
   * @param {ClassState} all
   * @param {Figures} figures
   * @param {Map<number, number[]>} chains
   */
  function draw(room, all, figures, chains) {
    order = [...chains.keys()].sort((a, b) => a - b);
    at = all.single;
    const { base = [], weights = [], worth = 0, votes = {} } = figures;
    const votesOf = (/** @type {string} */ name) => (room.run.extractor
      ? drawVotes((votes[name] ?? []).slice(0, MOST_VOTES), room.right)
      : h("p.quiet", "This problem has no answers to count."));
    put(problem, room.prompt);
    put(wait, chains.size ? "" : room.goal >= 0 ? room.loading ? loadingText(room)
      : "The first drafts are being written…"
      : "Press Run, or the space bar: each member's chain starts from its own draft.");
    show(wait, !chains.size);
    pooled.replaceChildren(votesOf("class"));
    single.replaceChildren(votesOf("single"));
    alone.replaceChildren(votesOf("base"));
    put(who, `Chain ${at} alone`);
    put(samples, base.length < all.pool ? `Model alone, ${base.length} of ${all.pool}`
      : "The model alone");
    put(text, all.text ? `Chain ${all.text.number}, step ${all.text.t}: ${all.text.text}` : "");
    show(text, all.text);
    show(verdict, !all.text);
    show(problem, !all.text);
    const [[answer, n] = ["", 0]] = figures.leaders ?? [];
    put(leading, n && chains.size > 1 ? `Most states say ${answer === "none" ? "nothing"
      : answer} in ${n} of ${many(chains.size, "chain")}` : "");
    const [longest, still] = [...chains].map(([number, r]) => [number, stillOf(r)])
      .reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
    put(stuck, still >= STUCK ? `Longest unchanged: chain ${longest}, ${still} steps` : "");
    show(less, order.length > 1);
    show(more, order.length > 1);
    numbers.replaceChildren(...cells(room, figures));
    put(verdict, figures.trust?.sentence ?? "");
    const data = { chains, base, weights, worth, steps: room.steps, single: at };
    picture.replaceChildren(); // Its height is what all other parts leave.
    picture.append(drawClass(data, picture.clientWidth, picture.clientHeight, letters(), choose));
  }

  return { node, draw };
}

/**
 * @param {RoomState} room
 * @param {Figures} figures
 */
function cells(room, { agreement = "…", states = 0, mean }) {
  const one = (/** @type {string} */ name, /** @type {string} */ value, kind = "") =>
    h(`div.${kind}`, h("dt", name), h("dd", value));
  return [
    one("mean reward: model alone", mean ? fixed(mean.base) : "…", "of-base"),
    one("class, later half", mean?.class === undefined ? "…" : fixed(mean.class), "of-class"),
    one("target", mean ? fixed(mean.target) : "…", "of-target"),
    one("R-hat", agreement),
    one("states", states.toLocaleString("en")),
    one("β", plain(room.beta)),
  ];
}
