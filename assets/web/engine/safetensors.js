/* Weights: a safetensors file of float16 tensors, read as float32. */

/** @typedef {Record<string, Float32Array>} Weights by name, row by row */

/**
 * Read all tensors of a file.
 * @param {ArrayBuffer} file
 * @returns {Weights}
 */
export function readSafetensors(file) {
  const size = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, size)));
  delete header.__metadata__;
  const table = halves();
  /** @type {Weights} */
  const weights = {};
  for (const [name, { dtype, data_offsets: [start, stop] }] of Object.entries(header)) {
    if (dtype !== "F16") throw new Error(`${name} is ${dtype}; float16 weights were expected`);
    const bits = new Uint16Array(file.slice(8 + size + start, 8 + size + stop));
    weights[name] = Float32Array.from(bits, (half) => table[half]);
  }
  return weights;
}

/** The value of each of the 65,536 float16 numbers. */
function halves() {
  const table = new Float32Array(2 ** 16);
  for (let bits = 0; bits < table.length; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else if (exponent === 0) table[bits] = sign * fraction * 2 ** -14;
    else table[bits] = sign * (1 + fraction) * 2 ** (exponent - 15);
  }
  return table;
}
