/* Final answers in texts, as qalign_core/decide/answers reads them: `number` and `amounts`. The
   embedded models write ASCII; letters and digits of other scripts are left to the server, and so
   are boxes with a root or π. */

/** A fraction in exact arithmetic. @typedef {[bigint, bigint]} Fraction */

/** @type {Record<string, string>} */
const TYPOGRAPHY = {
  "−": "-", "–": "-", "‑": "-", "＋": "+", "＝": "=", "⁄": "/", "’": "'",
  "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅛": " 1/8",
};
const TYPOGRAPHIC = new RegExp(`[${Object.keys(TYPOGRAPHY).join("")}]`, "g");
const LATEX = [
  ["\\!", ""], ["\\,", ""], ["{,}", ","], ["\\;", " "], ["~", " "], ["\\left", ""],
  ["\\right", ""], ["\\$", "$"], ["\\%", "%"],
];
const SPACE = /(?<!\\)\\ /g;
const FRACTION = /\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))/g;

const DIGITS = String.raw`(?:\d{1,3}(?:[,'\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?`
  + String.raw`|(?<![\w.])\.\d+`;
const CURRENCY = String.raw`(?:[$€£¥₹]|\b(?:US\$|USD|EUR|GBP|INR|Rs\.?)\s?)`;
const NUMBER = [
  // a minus after a word, a digit or a bracket is a hyphen or a subtraction
  String.raw`(?<sign>(?<![\w)}\].])[-+]\s?|\b(?:minus|negative)\s+)?`,
  String.raw`(?<money>${CURRENCY}\s?)?(?<inner>(?<=[$€£¥₹])-)?(?<digits>${DIGITS})`,
  String.raw`(?:(?:\s+(?<part>\d+))?\/(?<below>0*[1-9]\d*)(?![\/\d])`,
  String.raw`|e(?<exp>[+-]?\d{1,3})(?!\w)`,
  String.raw`|\s*(?:\\times|\\cdot|[x×*·])\s*10\s*\^\s*\{?(?<ten>-?\d{1,3})\b\}?`,
  String.raw`|\s*\^\s*\{?(?<power>\d{1,2})\b\}?`,
  String.raw`|(?:\s+|-)(?<scale>thousand|million|billion|trillion)\b`,
  String.raw`|(?<kilo>k)\b)?`,
].join("");
// digits that belong to a word, an index or an exponent are no numbers: H2O, x_1, cm^2
const NO_NUMBER = String.raw`(?<![a-z])[a-z]+(?![a-z])(?:[_^]\s*\{?-?\d+\}?|\d\w*)`
  + String.raw`|\^\s*\{?\s*-?\d+\}?`;
const TOKEN = new RegExp(`${NUMBER}|${NO_NUMBER}`, "gi");
const GOES_ON = /^\s*(?:[-+*/×·÷^]|x\s+\d|\\times|\\cdot|\\div)/i;
const NOT = /\bnot\s+$/i;
/** @type {Record<string, bigint>} */
const POWERS_OF_TEN = { thousand: 3n, million: 6n, billion: 9n, trillion: 12n };
const MAX_DIGITS = 300; // more are spelt out: no text can make exact arithmetic take for ever

const PLAIN = /[Tt]he (?:final )?answer is \$?([0-9]{1,15})(?:\.00?)?\.?\s*$/;
const MARKER = new RegExp(
  String.raw`(?<boxed>\\(?:boxed|fbox)\s*\{)|####`
  + String.raw`|\banswer\b(?:[^.\n:=]|\.(?=\d)){0,80}?`
  + String.raw`(?:\bis\b|\bwould be\b|\bequals\b|[:=])[\s*:]*`, "gi");
// "To find the answer: first ..." announces work, not an answer
const SEEKING = new RegExp(
  String.raw`\b(?:find|get|calculate|determine|compute|obtain|reach)\w*\s+`
  + String.raw`(?:(?:the|an?|our|your)\s+)?(?:final\s+|correct\s+)?$`, "i");
const CLAUSE_END = /\n|[.;!](?:\s|$)|,\s+(?:because|since|as|so)\b/i;
const SYMBOLIC = /\\(?:sqrt|pi|log|ln|sin|cos|tan|infty)\b|[π∞]/;
const MAX_ANNOUNCED = 20; // the last ones; a text of nothing else is noise
const HEADING = /\b([A-Za-z]+):(?=\s)/;
const RESULT = /= ?(\d+)/g;

/** Extractors by the name that trace headers use. */
export const EXTRACTORS = { number: extractNumber, amounts: extractAmounts };

/**
 * The final number of a solution, in canonical form; null if it states none.
 * @param {string} text
 * @returns {string | null}
 */
function extractNumber(text) {
  const plain = PLAIN.exec(text); // the common case
  if (plain) return withoutZeros(plain[1]);
  const tidied = tidy(text);
  const said = announced(tidied);
  for (const { boxed, rest } of said) {
    if (boxed && SYMBOLIC.test(rest)) return null;
    const clause = boxed ? rest : firstClause(rest);
    const answer = statedNumber(clause)
      ?? (boxed ? null : lastNumber(rest.slice(clause.length)));
    if (answer !== null) return answer;
  }
  return said.length ? null : lastNumber(tidied);
}

/**
 * The amount of each of several things, by name; null if nothing has a heading. Below a heading the
 * last result ("= 9") is the amount, else the last number; a heading without any is "?".
 * @param {string} text
 * @returns {string | null}
 */
function extractAmounts(text) {
  const pieces = tidy(text).split(HEADING);
  /** @type {Map<string, string>} */
  const amounts = new Map();
  for (let k = 1; k < pieces.length; k += 2) {
    const said = pieces[k + 1];
    const results = [...said.matchAll(RESULT)].map(([, digits]) => digits);
    const last = (results.length ? results : said.match(/\d+/g) ?? ["?"]).at(-1) ?? "?";
    amounts.set(pieces[k].toLowerCase(), withoutZeros(last));
  }
  const things = [...amounts.keys()].sort((a, b) => (a < b ? -1 : 1));
  return things.map((thing) => `${amounts.get(thing)} ${thing}`).join(", ") || null;
}

/** @param {string} digits */
const withoutZeros = (digits) => digits.replace(/^0+/, "") || "0";

/**
 * Typographic and LaTeX ways of writing a number, and bold face, by plain ones.
 * @param {string} text
 */
function tidy(text) {
  let plain = text.replace(TYPOGRAPHIC, (sign) => TYPOGRAPHY[sign]);
  if (/[\\{]/.test(plain)) {
    for (const [latex, instead] of LATEX) plain = plain.replaceAll(latex, () => instead);
    plain = plain.replace(SPACE, " ").replace(FRACTION,
      (_, above, digit, below, other) => ` ${above ?? digit}/${below ?? other}`);
  }
  return plain.replaceAll("**", "");
}

/**
 * What follows each announcement of an answer, the last first, and whether it is in a box.
 * @param {string} text
 */
function announced(text) {
  const found = [];
  for (const { 0: marker, index, groups } of [...text.matchAll(MARKER)].slice(-MAX_ANNOUNCED)) {
    const end = index + marker.length;
    if (groups?.boxed) found.unshift({ boxed: true, rest: inBraces(text, end) });
    else if (!SEEKING.test(text.slice(Math.max(0, index - 40), index))) {
      found.unshift({ boxed: false, rest: text.slice(end) });
    }
  }
  return found;
}

/**
 * @param {string} text
 * @param {number} start behind the brace that opens
 */
function inBraces(text, start) {
  let depth = 1;
  for (let k = start; k < text.length; k++) {
    if (text[k] === "{") depth += 1;
    else if (text[k] === "}") depth -= 1;
    if (depth === 0) return text.slice(start, k);
  }
  return text.slice(start); // the length limit cut the box
}

/** @param {string} said */
function firstClause(said) {
  const start = said.trimStart();
  const end = CLAUSE_END.exec(start);
  return end ? start.slice(0, end.index) : start;
}

/** @param {string} text */
const numbersIn = (text) => [...text.matchAll(TOKEN)].filter(({ groups }) => groups?.digits);

/**
 * The number that a clause begins with, or that its calculation ends with.
 * @param {string} clause
 */
function statedNumber(clause) {
  for (const number of numbersIn(clause)) {
    if (NOT.test(clause.slice(0, number.index))) continue;
    const rest = clause.slice(number.index + number[0].length);
    if (rest.includes("=") && GOES_ON.test(rest)) { // "3 * 6 = 18"
      const results = numbersIn(rest.slice(rest.lastIndexOf("=")));
      return results.length ? valueOf(results[0]) : null;
    }
    return valueOf(number);
  }
  return inWords(clause);
}

/** @param {string} text */
function lastNumber(text) {
  const last = numbersIn(text).at(-1);
  return last ? valueOf(last) : null;
}

/** @param {RegExpMatchArray} match */
function valueOf({ groups }) {
  const { sign, money, inner, digits, part, below, exp, ten, power, scale, kilo } = groups ?? {};
  const plain = digits.replace(/[^\d.]/g, "");
  const negative = Boolean(inner) || /-|minus|negative/i.test(sign ?? "");
  if (Math.max(plain.length, below?.length ?? 0, part?.length ?? 0) > MAX_DIGITS) {
    return `${negative ? "-" : ""}${plain}`;
  }
  const [whole, decimals = ""] = plain.split(".");
  let above = BigInt(whole + decimals);
  let under = 10n ** BigInt(decimals.length);
  const times = (/** @type {bigint} */ tens) => {
    if (tens < 0n) under *= 10n ** -tens;
    else above *= 10n ** tens;
  };
  if (part) [above, under] = [above * BigInt(below) + BigInt(part) * under, under * BigInt(below)];
  else if (below) under *= BigInt(below);
  else if (exp ?? ten) times(BigInt((exp ?? ten).replace("+", "")));
  else if (power) [above, under] = [above ** BigInt(power), under ** BigInt(power)];
  else if (scale) times(POWERS_OF_TEN[scale.toLowerCase()]);
  else if (kilo && money) times(3n);
  return written([negative ? -above : above, under]);
}

/**
 * An exact value as an integer, an ending decimal or a reduced fraction.
 * @param {Fraction} value
 */
function written([above, below]) {
  const divisor = greatestDivisor(above < 0n ? -above : above, below);
  const [n, d] = [above / divisor, below / divisor];
  if (d === 1n) return String(n);
  let rest = d;
  let places = 0;
  for (const prime of [2n, 5n]) {
    let count = 0;
    for (; rest % prime === 0n; rest /= prime) count += 1;
    places = Math.max(places, count);
  }
  if (rest !== 1n) return `${n}/${d}`;
  const digits = String((n < 0n ? -n : n) * 10n ** BigInt(places) / d).padStart(places + 1, "0");
  return `${n < 0n ? "-" : ""}${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

/**
 * @param {bigint} a
 * @param {bigint} b
 */
function greatestDivisor(a, b) {
  let [large, small] = [a, b];
  while (small) [large, small] = [small, large % small];
  return large;
}

const UP_TO_NINETEEN = ("zero one two three four five six seven eight nine ten eleven twelve "
  + "thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split(" ");
const TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
const WORDS = new Map([
  ...UP_TO_NINETEEN.map((word, k) => /** @type {[string, number]} */ ([word, k])),
  ...TENS.map((word, k) => /** @type {[string, number]} */ ([word, 10 * (k + 2)])),
]);

/**
 * The first run of number words below a million: "a hundred and twenty-five apples".
 * @param {string} clause
 */
function inWords(clause) {
  let total = 0;
  let current = 0;
  let found = false;
  for (const word of clause.toLowerCase().match(/[a-z]+/g) ?? []) {
    const value = WORDS.get(word);
    if (value === undefined && word !== "hundred" && word !== "thousand") {
      if (found && word !== "and") break;
      continue;
    }
    found = true;
    if (value !== undefined) current += value;
    else if (word === "hundred") current = Math.max(current, 1) * 100;
    else [total, current] = [total + Math.max(current, 1) * 1000, 0];
  }
  return found ? String(total + current) : null;
}
