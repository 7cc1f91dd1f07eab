/* Lists of problems (qalign_study/sheet/page.py): a column's head sorts one, words filter it. */

/**
 * The number that a cell begins with, NaN if it begins with none.
 * @param {string} text
 */
export const numberOf = (text) => Number.parseFloat(text.replaceAll(",", "").replace("−", "-"));

/**
 * The order of two cells: numbers by size, then what is none by the alphabet.
 * @param {string} a
 * @param {string} b
 * @param {number} sign 1 for ascending, -1 for descending
 */
export function compare(a, b, sign = 1) {
  const [x, y] = [numberOf(a), numberOf(b)];
  const none = Number(Number.isNaN(x)) - Number(Number.isNaN(y));
  if (none) return none;
  return sign * (x - y || a.localeCompare(b, undefined, { numeric: true }));
}

/**
 * Whether a row has every word that is looked for.
 * @param {string} row
 * @param {string} wanted
 */
export const matches = (row, wanted) =>
  wanted.toLowerCase().split(/\s+/).every((word) => row.toLowerCase().includes(word));

/** @param {HTMLTableCellElement} head of the column */
function sort(head) {
  const table = /** @type {HTMLTableElement} */ (head.closest("table"));
  const down = head.ariaSort === "ascending";
  for (const each of table.querySelectorAll("thead th")) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const cellText = (/** @type {HTMLTableRowElement} */ row) =>
    row.cells[head.cellIndex].textContent?.trim() ?? "";
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: cellText(row) }));
  rows.sort((a, b) => compare(a.text, b.text, down ? -1 : 1));
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

/** @param {HTMLInputElement} field */
function filter(field) {
  const line = /** @type {HTMLElement} */ (field.closest(".filter"));
  const rows = line.nextElementSibling?.querySelectorAll("tbody tr") ?? [];
  let visible = 0;
  for (const row of rows) {
    /** @type {HTMLElement} */ (row).hidden = !matches(row.textContent ?? "", field.value.trim());
    visible += /** @type {HTMLElement} */ (row).hidden ? 0 : 1;
  }
  /** @type {HTMLElement} */ (line.querySelector("output")).textContent =
    field.value.trim() ? `${visible} of ${rows.length}` : "";
}

/** Lists come and go with the page's events, so the page itself listens. */
function listen() {
  document.addEventListener("click", ({ target }) => {
    const head = /** @type {Element} */ (target).closest(".list thead th:has(button)");
    if (head) sort(/** @type {HTMLTableCellElement} */ (head));
  });
  document.addEventListener("input", ({ target }) => {
    const field = /** @type {Element} */ (target).closest(".filter input");
    if (field) filter(/** @type {HTMLInputElement} */ (field));
  });
}

export const QAlignList = { listen };
