/* Addressed randomness, as qalign_core/chain/randomness.py and `uniforms` of the decode engine: a
   number depends on its address (seed, chain, t, role) alone. */

const MASK = (1n << 64n) - 1n;

// BLAKE2b (RFC 7693)
const START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const ORDERS = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const ROUNDS = [...ORDERS, ORDERS[0], ORDERS[1]];
const QUARTERS = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];

/** @typedef {"index" | "suffix" | "accept" | "sample"} Role */

/** @param {bigint} x @param {bigint} n */
const rotated = (x, n) => ((x >> n) | (x << (64n - n))) & MASK;

/**
 * BLAKE2b with a digest of 8 bytes, read big-endian, of a text of one block.
 * @param {string} text
 */
export function blake2b(text) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > 128) throw new Error("an address has at most 128 bytes");
  const block = new DataView(new ArrayBuffer(128));
  bytes.forEach((byte, k) => block.setUint8(k, byte));
  const words = Array.from({ length: 16 }, (_, k) => block.getBigUint64(8 * k, true));
  const first = START[0] ^ 0x01010008n; // depth 1, fanout 1, no key, 8 bytes
  const mix = [first, ...START.slice(1), ...START];
  mix[12] ^= BigInt(bytes.length);
  mix[14] ^= MASK; // the last block
  for (const order of ROUNDS) {
    QUARTERS.forEach(([a, b, c, d], k) => {
      mix[a] = (mix[a] + mix[b] + words[order[2 * k]]) & MASK;
      mix[d] = rotated(mix[d] ^ mix[a], 32n);
      mix[c] = (mix[c] + mix[d]) & MASK;
      mix[b] = rotated(mix[b] ^ mix[c], 24n);
      mix[a] = (mix[a] + mix[b] + words[order[2 * k + 1]]) & MASK;
      mix[d] = rotated(mix[d] ^ mix[a], 16n);
      mix[c] = (mix[c] + mix[d]) & MASK;
      mix[b] = rotated(mix[b] ^ mix[c], 63n);
    });
  }
  block.setBigUint64(0, first ^ mix[0] ^ mix[8], true);
  return block.getBigUint64(0, false);
}

/**
 * 64 random bits for one address.
 * @param {number} seed
 * @param {number} chain
 * @param {number} t
 * @param {Role} role
 */
export const deriveSeed = (seed, chain, t, role) => blake2b(`${seed}/${chain}/${t}/${role}`);

/**
 * The uniform number in [0, 1) at one address, a multiple of 2^-53.
 * @param {number} seed
 * @param {number} chain
 * @param {number} t
 * @param {Role} role
 */
export const uniform = (seed, chain, t, role) =>
  Number(deriveSeed(seed, chain, t, role) >> 11n) * 2 ** -53;

/**
 * One number in [0, 1) for each position of a response: raw words of numpy's Philox, 51 bits each.
 * @param {bigint} seed
 * @returns {(position: number) => number}
 */
export function uniforms(seed) {
  let block = -1;
  /** @type {bigint[]} */
  let words = [];
  return (position) => {
    if (position >> 2 !== block) {
      block = position >> 2;
      words = philox(BigInt(block + 1), seed); // numpy counts before it draws
    }
    return Number(words[position & 3] >> 13n) * 2 ** -51;
  };
}

/**
 * Philox4x64-10: four words of 64 bits.
 * @param {bigint} counter
 * @param {bigint} key
 */
function philox(counter, key) {
  let [a, b, c, d] = [counter, 0n, 0n, 0n];
  let [k, l] = [key, 0n];
  for (let round = 0; round < 10; round++) {
    const p = 0xd2e7470ee14c6c93n * a;
    const q = 0xca5a826395121157n * c;
    [a, b, c, d] = [(q >> 64n) ^ b ^ k, q & MASK, (p >> 64n) ^ d ^ l, p & MASK];
    k = (k + 0x9e3779b97f4a7c15n) & MASK;
    l = (l + 0xbb67ae8584caa73bn) & MASK;
  }
  return [a, b, c, d];
}
