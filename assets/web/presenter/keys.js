/* The keys of a screen in front of a class: a table of what they do, and the list that ? opens. */

/** @typedef {[key: string, label: string, title: string, act: () => unknown]} Act */

/** The titles of a clicker's keys, on every screen. */
export const FORWARD = "forward: the answer, the next stop; without a lesson, the next ";
export const BACK = "back";

/**
 * @param {Pick<ReturnType<import("../dom.js").builder>, "h" | "button">} own builds its nodes
 * @param {Act[]} acts
 * @param {...Node} more nodes below them
 */
export function keyTable({ h, button }, acts, ...more) {
  const list = h("dialog.keys", { aria: "Keys" }, h("h2", "Keys"),
    h("div", ...acts.map(([, label, title, act]) => button("act", {
      onclick: () => {
        list.close();
        act();
      },
    }, h("kbd", label), title))), ...more);
  return {
    list,
    /** The button that opens the list. */
    help: button("help", { aria: "Keys", onclick: () => list.showModal() }, "?"),
    /** Run the action of a key; returns whether the table has one. @param {string} key */
    press(key) {
      const name = key.length === 1 ? key.toLowerCase() : key;
      const act = acts.find(([own]) => own === name)?.[3];
      if (list.open && ["Escape", "?"].includes(key)) list.close();
      else if (key === "?") list.showModal();
      else if (act) act();
      else return false;
      return true;
    },
  };
}
