/* The drawer of settings beside the Watch page. */

const INSIDE = "#watch-drawer, #watch-settings, #watch-pick, .options, [role=listbox]";

const drawer = () => /** @type {HTMLElement | null} */ (document.querySelector("#watch-drawer"));
const isOpen = () => drawer()?.classList.contains("q-open") ?? false;

/**
 * Open or close it; the other of both, if nothing is said.
 * @param {boolean} [open]
 */
export function showDrawer(open = !isOpen()) {
  const node = drawer();
  const button = /** @type {HTMLElement | null} */ (document.querySelector("#watch-settings"));
  if (!node) return;
  const was = isOpen();
  node.classList.toggle("q-open", open);
  button?.setAttribute("aria-expanded", String(open));
  if (open) {
    Object.assign(node, { tabIndex: -1, role: "dialog", ariaLabel: "Settings of the next run" });
    node.focus(); // not its first widget: a drop-down list opens when it gets the focus
  } else if (was) {
    button?.focus({ preventScroll: true });
  }
}

/** Close it by Escape and by a press beside it. */
export function closeFromOutside() {
  // before a list takes the key and is gone
  document.addEventListener("keydown", (event) => {
    const list = document.querySelector("#watch [role=listbox], #watch-drawer [role=listbox]")
      ?? document.querySelector("body > .options");
    if (event.key === "Escape" && isOpen() && !list) showDrawer(false);
  }, true);
  // a list is gone before the click on its entry, which then belongs to what is around the list
  document.addEventListener("pointerdown", ({ target }) => {
    if (isOpen() && !/** @type {Element} */ (target).closest(INSIDE)) showDrawer(false);
  });
}
