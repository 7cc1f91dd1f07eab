/* Files to and from the visitor. */
import { builder } from "./dom.js";

const { h } = builder("");

/**
 * Hand texts, or a picture, to the visitor as a file.
 * @param {string} name
 * @param {string} type
 * @param {...BlobPart} parts
 */
export function saveFile(name, type, ...parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/**
 * Let the visitor choose a file.
 * @param {string} accept
 * @param {(file: File) => void} onChoice
 */
export function chooseFile(accept, onChoice) {
  const input = h("input", { type: "file", accept });
  input.addEventListener("change", () => {
    if (input.files?.[0]) onChoice(input.files[0]);
  });
  input.click();
}
