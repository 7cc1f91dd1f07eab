/* The scene from which members join: a QR code, a link and a code. */
import { put } from "../dom.js";
import { many } from "../player/words.js";
import { button, drawQr, h } from "./drawing.js";
import { ask, formatCode, linkOf } from "./net.js";

/** @typedef {import("./member.js").RoomState} RoomState */
/** @typedef {import("./lead.js").ClassState} ClassState */
/** @typedef {import("./lead.js").Lead} Lead */
/** @typedef {import("./net.js").Seat} Seat */

const HERE_ONLY = /^(localhost|127\.|\[::1\])/;

/**
 * @param {Seat} seat
 * @param {Lead} lead
 */
export function joinScene({ code, token }, lead) {
  const link = linkOf(code);
  const picture = h("div.picture");
  const count = h("p.count");
  const door = button("ctl", {});
  const only = HERE_ONLY.test(window.location.host) ? h("p.warn",
    "This address works only on this computer. To let others join, start the app with "
    + "GRADIO_SERVER_NAME=0.0.0.0, and open this page by the computer's address.") : null;
  let open = true;
  door.addEventListener("click", () => lead({ do: "door", open: !open }));
  const words = h("div.words",
    h("p.large", "Point your phone's camera here, or open"),
    h("p.link", link.replace(/^https?:\/\//, "").replace(/#.*/, "")),
    h("p.large", "and type"), h("p.code", formatCode(code)), count,
    h("p.quiet", "No account. The server writes nothing to disk."), only, door);
  const node = h("section.scene.join", picture, words);
  ask("qr", { code, link }, token)
    .then(({ rows }) => picture.replaceChildren(drawQr(rows, link)))
    .catch(() => put(picture, "The QR code could not be drawn; the link works."));
  return {
    node,
    /** @type {(room: RoomState, all: ClassState) => void} */
    draw(_, all) {
      open = all.door;
      put(count, `${many(all.members, "place")} taken of ${all.most}`
        + `${open ? "" : "; the door is closed"}`);
      put(door, open ? "Close the door" : "Open the door");
    },
  };
}
