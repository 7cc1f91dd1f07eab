/* Final answers in texts, as qalign_core/decide/answers reads them: `number` and `amounts`. The
   embedded models write ASCII; roots, π and the digits of other scripts are left to the server. The
   patterns are those of numerals.py and extraction.py, whose comments explain them. */

/** A fraction in exact arithmetic. @typedef {[bigint, bigint]} Fraction */

/** @type {Record<string, string>} */
const TYPOGRAPHY = {
  "−": "-", "–": "-", "‑": "-", "＋": "+", "＝": "=", "⁄": "/", "’": "'",
  "：": ": ", "，": ", ", "。": ". ", "；": "; ", "！": "! ", "（": " (", "）": ") ", "％": "%",
  "π": "\\pi ", "∞": "\\infty ", "√": "\\sqrt ", "∛": "\\sqrt[3] ",
  "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅛": " 1/8",
};
const TYPOGRAPHIC = new RegExp(`[${Object.keys(TYPOGRAPHY).join("")}]`, "g");
const SUPERSCRIPT = /[⁺⁻]?[⁰¹²³⁴-⁹]+/g;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const POWER = /(?<=\d)(?:\*\*| \*\* )(?=[-\d({])/g;
const ITALIC = /(?<![\w*)\]])\*(?=[^\s*])([^*\n]*[^*\s])\*(?![\w*])/g;
const LATEX = [
  ["\\!", ""], ["\\,", ""], ["{,}", ","], ["\\;", " "], ["~", " "], ["\\left", ""],
  ["\\right", ""], ["\\$", "$"], ["\\%", "%"],
];
const SPACE = /(?<!\\)\\ /g;
const FRACTION = /\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))/g;
const TEXT = /\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}/g;
const WHICH_IS = /,?[ ]which\s+(?:is|equals|gives|makes)\b/g;
const CENTS = /\b(\d+) (dollars?|euros?) and (\d\d?) cents?\b/g;
const THOUGHT = /<(\/?)think(?:ing)?>/g;
const MACRO = /\\[a-zA-Z]+/g;
/** @type {Record<string, bigint>} */
const SCALES = {
  dozen: 12n, hundred: 100n, thousand: 1000n, million: 10n ** 6n, billion: 10n ** 9n,
  trillion: 10n ** 12n, lakh: 10n ** 5n, crore: 10n ** 7n, tausend: 1000n, millionen: 10n ** 6n,
  mio: 10n ** 6n, milliarde: 10n ** 9n, milliarden: 10n ** 9n, mrd: 10n ** 9n, mille: 1000n,
  millions: 10n ** 6n, milliard: 10n ** 9n, milliards: 10n ** 9n, millón: 10n ** 6n,
  millones: 10n ** 6n,
};
/** @type {Record<string, bigint>} */
const SHORT_SCALES = { k: 1000n, m: 10n ** 6n, mn: 10n ** 6n, b: 10n ** 9n, bn: 10n ** 9n };
/** @type {Record<string, bigint>} */
const CHINESE_SCALES = {
  百: 100n, 千: 1000n, 万: 10n ** 4n, 萬: 10n ** 4n, 亿: 10n ** 8n, 億: 10n ** 8n,
};

// Parts of several patterns
const NUMBER = String.raw`\$?(?:[a-z]\s*=\s*)?[-+]?[$€£¥₹]?\.?\d`;
const MONTHS = "January|February|March|April|May|June|July|August|September|October|November"
  + "|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec";
const SCALE_WORDS = Object.keys(SCALES).join("|");
const FUNCTIONS = "sqrt|log|ln|sin|cos|tan|cot|sec|csc|exp|pi";
const NO_WORD = String.raw`[^\w\u00c0-\u024f\u4e00-\u9fff]`;
const LINKS = String.raw`(?:\b(?:is|would be|should be|must be|will be|equals|lautet|ist|beträgt`
  + String.raw`|wäre|est|serait|es|sería)\b(?!n't)|[:=：]|是|为|為)`;

const TOKEN = new RegExp(
  String.raw`(?<![a-z])[a-z]+(?![a-z])(?:[_^]\s*\{?-?\d+\}?|\d\w*(?:\.\d+)*)`
  + String.raw`|\^\s*\{?\s*-?\d+\}?|\b(?:step|schritt|étape|paso)\s+\d+`
  + String.raw`|^[ \t]*\d{1,2}[.)][ \t]+(?=[A-Za-z_]|[*$\\(])|(?<=\n)[ \t]*[-+*][ \t]+`
  + String.raw`(?=\d)|(?<sign>(?<![\w)}\].%])[-+]\s?|\b(?:minus|negative)\s+)?(?<money>`
  + String.raw`(?:[$€£¥₹]|\b(?:US\$|USD|EUR|GBP|INR|CNY|RMB|Rs\.?)\s?)\s?)?(?<inner_sign>`
  + String.raw`(?<=[$€£¥₹])-)?(?<digits>(?:(?<!\d)\d{1,3}(?: \d{3}(?!\d))+|\d+)`
  + String.raw`(?:[.,'\u00a0\u2009\u202f]\d+)*|(?<![\w.])\.\d+)(?:(?:\s+(?<part>\d+))?\/`
  + String.raw`(?<below>0*[1-9]\d*)(?![\/\d])(?!\.\d)|e(?<exp>[+-]?\d{1,3})(?!\w)|\s*`
  + String.raw`(?:\\times|\\cdot|[x×*·])\s*10\s*\^\s*\{?\s*(?<ten>-?\d{1,3})\s*\}?`
  + String.raw`(?![\w.^\/])|\s*\^\s*\{?\s*(?<power>-?\d{1,3})\s*\}?(?![\w.^\/])|`
  + String.raw`(?<half>\s+and\s+(?:a|one)[\s-]half\b)?(?:(?:\s+|-|(?<=half))`
  + String.raw`(?<scale>${SCALE_WORDS})\b|(?<kilo>bn|mn|[kmb])\b|\s?`
  + String.raw`(?<chinese>[${Object.keys(CHINESE_SCALES).join("")}]))?)`, "gim");
const NOT = /\b(?:not|nicht|pas|不是)\s*$/i;
const GOES_ON = new RegExp(
  String.raw`^(?:(?!\s*\^\s*\{?\s*\\circ)(?:\s*(?:[-+*\/×·÷^~]\s?(?:${NUMBER}|[a-z]\b`
  + String.raw`|[(\\{])|[-+*\/×÷]${NUMBER}|\\(?:times|cdot|div|pm|mp|pmod|mod)|±|\+\/-`
  + String.raw`|x\s*\d|[+×÷±^]\s*\w)|\s*,\s*(?:and\s+|or\s+|und\s+|et\s+|y\s+)?${NUMBER}`
  + String.raw`|[)$]*\s*(?:%|\\%)?(?:\s+(?!not\b)[A-Za-z]+)?\s+\(?(?:or|and|to|oder|bis|und`
  + String.raw`|ou|et|à|o|y|a|u)\s+${NUMBER}|\s+(?!(?:not|because|since|as|so|for|in|at|by`
  + String.raw`|on|after|per|of|from|with|when|if)\b)[A-Za-z]+\s+\d|\s*(?:至|到|或|和|或者|、)\s*\d`
  + String.raw`|分之|\s*(?:%|percent)\s+of\s+(?:the\s+)?${NUMBER}|\s+out\s+of\b|\)?\s+(?:times`
  + String.raw`|plus|minus|divided\s+by|multiplied\s+by)\s+(?:as\b|more\b|${NUMBER})|\s+`
  + String.raw`(?:more|less|fewer|greater|smaller|larger)\s+than\b|\s+(?:squared|cubed`
  + String.raw`|factorial|mil|quarters|thirds|halves)\b|\s+and\s+(?:a|one|two|three)\b|\d`
  + String.raw`|![.=]|!\s=|_\s*\{?\s*\d|:\d|\s:\s\d|\(\s*[\d\\a-z]|[\[{]|\s*\)\s*[\^(]|\s*\\`
  + String.raw`(?:pi|sqrt|frac|log|ln|sin|cos|tan|infty|i\b)|\s?(?:${FUNCTIONS})\b`
  + String.raw`|\s?\\?[∛√]|(?!(?:st|nd|rd|th|am|pm)\b|[kcm]?m\b|[kmµ]?g\b|[mckd]?l\b`
  + String.raw`|[mµn]?s\b|h\b|hrs?\b|lbs?\b|oz\b|ft\b|in\b|yd\b|mi\b|t\b|k?w\b|k?v\b|m[lL]\b`
  + String.raw`|[kmgt]b\b|k?hz\b|kj\b|j\b|kn\b|pa\b|ha\b|mm\b)(?:[a-z]{1,2}\b(?!')|[a-z]\d`
  + String.raw`|[a-z]_|[a-z]\^)|\s(?![aghlmnostuy]\b)[b-z]\b(?!['.\u00c0-\u024f])|\s(?:n|y`
  + String.raw`|t)\b\s*(?:[-+*\/^=]|$|\$|\))|\s+[<≤≥≠]|\s+>|\s*\\(?:leq?|geq?|neq?|lt|gt)\b|`
  + String.raw`(?:\s+(?:${MONTHS})\b\.?,?(?:\s+\d|\s*$))))`, "i");
const PART_OF = new RegExp(
  String.raw`[\w)}\]%][ \t]*(?:[-+*\/×·÷^~]|\\(?:times|cdot|div))[ \t]*[({]?$|`
  + String.raw`(?<![a-z'])[a-z]\s*[({]\s*$|\^\s*[({]?$|±\s*$|\\(?:pm|mp)\s*$|`
  + String.raw`(?:${FUNCTIONS})\s*[({]?\s*$|\\(?:sqrt|[dtc]?frac|binom|log|ln|sin|cos|tan|pi`
  + String.raw`|infty|lfloor|lceil|lvert|sum|prod|leq?|geq?|neq?|lt|gt)\b(?:\s*\[[^\]]*\])?`
  + String.raw`(?:\s*\{[^{}]*\})?\s*\{?\s*$|\}\s*\{\s*$|√\s*\(?$|\d:$|\d\s*,\s*$(?<=,)|\b`
  + String.raw`(?:between|either|half\s+of|twice|double|triple|times|plus|minus|by|zwischen`
  + String.raw`|entre|third\s+of|quarter\s+of|than)\s+(?:the\s+|all\s+)?[$€£¥₹]?$`
  + String.raw`|[^\s>][ \t]*[<≤≥≠]=?[ \t]*\$?$|\w[ \t]*(?<![-=\/\"])>=?[ \t]+\$?$|[<>]=$|`
  + String.raw`(?:\b(?:${MONTHS})\.?\s+(?:\d{1,2},?\s+)?$)`, "i");
const JOINS = new RegExp(
  String.raw`\d\S*(?:\s+[A-Za-z]+)?\s+(?:or|and|to|oder|bis|und|ou|et|à|o|y|a)\s+[$€£¥₹]?$`
  + String.raw`|\d\s*,\s+(?:and\s+|or\s+)?$`, "i");
const TAG = /<[a-z\/][^<>]*>[ \t]*$/i;
const SIGNED = new RegExp(
  String.raw`(?:^|[=:({\[$,~≈>*\x60\"'_]|\b(?:is|be|equals|about|approximately|ist|est|es))\s*$`);
const LEADS = new RegExp(
  String.raw`^(?:${NO_WORD}*(?:(?:about|approx\w*|exactly|precisely|only|just|roughly`
  + String.raw`|nearly|almost|around|therefore|thus|hence|so|simply|equal|equals|to|a|an|the`
  + String.raw`|total|of|in|all|is|be|number|value|amount|sum|final|answer|also|still|now`
  + String.raw`|actually|at|least|most|not|but|it|its|that|which|rather|it's|text|textbf`
  + String.raw`|mathrm|mathbf|boxed|approx|quad|displaystyle|ist|est|es|etwa|ungefähr|rund`
  + String.raw`|genau|nur|environ|exactement|aproximadamente|unos|unas|bei|de|usd|eur|rs`
  + String.raw`|minus|negative|[a-z]\s*=)\b${NO_WORD}*|\d+(?!\d)${NO_WORD}*|[a-z]`
  + String.raw`(?:\([a-z]\))?\s*=\s*)*)$`, "i");
const MEASURED = new RegExp(
  String.raw`^\s?(?:[€£%°]|(?:euros?|eur|cents?|prozent|dollars?|pesos?|litres?|liters?`
  + String.raw`|litros?|meters?|metern|mètres?|metros?|stunden?|heures?|horas?|minuten?`
  + String.raw`|minutos?|grad|kilos?|tonnen?|[kcm]?m|[km]?g|km\/h|ml|cl|l|h|min`
  + String.raw`|${SCALE_WORDS})\b)`, "i");
const OTHER_LANGUAGE = new RegExp(
  String.raw`\b(?:antwort|réponse|respuesta|und|ist|hat|sind|nicht|ein|eine|einen|mit`
  + String.raw`|beträgt|insgesamt|les|une|des|dans|donc|pour|avec|los|las|una|por|tiene`
  + String.raw`|entonces)\b`, "gi");
const VARIABLE = /(?<![a-zA-Z'])(?![aIxghlmsX]\b)[a-zA-Z](?![a-zA-Z'(])|\dx(?!\s*\d)/;
const SEVERAL = /\bor\b|\boder\b|(?:,|\band)\s*[a-z]\s*$/i;
const ENGLISH = /^(?:\d+(?:\.\d+)?|\.\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?)$/;
const SPACED = new RegExp(
  String.raw`^(?:\d{1,3}(?:['\u00a0\u2009\u202f]\d{3})+(?:[.,]\d+)?|\d{1,3}(?: \d{3}){2,}`
  + String.raw`(?:[.,]\d+)?|\d{1,3} \d{3}[.,]\d+)$`);
const POINTS = /^(?:\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,})$/;
const INDIAN = /^\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?$/;
const COMMA = /^(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+)$/;
const ONE_GROUP = /^[1-9]\d{0,2}[.,]\d{3}$/;
const PLAIN = new RegExp(
  String.raw`[Tt]he (?:final )?answer is \$?([0-9]{1,15})(?:\.00?)?(?: (?!(?:hundred|dozen`
  + String.raw`|thousand|lakh|crore|squared|cubed|factorial|halves|thirds|quarters|mille?`
  + String.raw`|milli[a-zó]*|billions?|trillions?|tausend)\b)[a-z]{3,20})?\.?\s*$`);
const MARKER = new RegExp(
  String.raw`(?<boxed>\\(?:boxed|fbox)\s*\{)|####|(?:\b(?:answer|antwort|r[ée]ponse`
  + String.raw`|respuesta)\b(?:[^.\n:=：]|\.(?=\d)){0,80}?${LINKS}|答案(?:应该|应当|应|就|选)?`
  + String.raw`(?:${LINKS}|选)?|(?<=答案)[:：])[\s*:：]*`, "gi");
const SEEKING = new RegExp(
  String.raw`(?:\b(?:find|get|calculat|determin|comput|obtain|reach|verif|check|confirm`
  + String.raw`|validat|prov|justif|test|explain|support|round|simplif|express|recheck`
  + String.raw`|review|prüf|überprüf|bestätig|berechn|find|vérif|contrôl|trouv|comprob`
  + String.raw`|verific|calcul|encontr)\w*\s+(?:(?:the|an?|our|your|my|this|that|of|if`
  + String.raw`|whether|der|die|das|la|notre|nuestra|deine|unsere)\s+){0,3}(?:final\s+`
  + String.raw`|correct\s+)?|(?:检查|验证|验算|检验|核对|求)(?:一下)?)$`, "i");
const HYPOTHETICAL = /\b(?:if|suppose|whether|assuming|wenn|falls|si)\s+(?:\w+\s+){0,2}$/i;
const CHECKS = new RegExp(
  String.raw`\?|\b(?:check\w*|verif\w*|mak\w+ sense|choices|options|format|key|prüfen`
  + String.raw`|überprüfen|vérifier|verificar|comprobar|correct|right)\b|检查|验证`, "i");
const JUDGES = new RegExp(
  String.raw`^(?:${NO_WORD}*(?:(?:indeed|also|in fact|therefore|thus)\s+)?(?:correct|right`
  + String.raw`|wrong|incorrect|reasonable|valid|verified|consistent|confirmed|true|false`
  + String.raw`|richtig|falsch|korrekt|correcte?a?|exacte?|juste|正确|对的|错)\b(?!\s*`
  + String.raw`(?:option\s+|choice\s+)?is\b))`, "i");
const POINTER = new RegExp(
  String.raw`^(?:${NO_WORD}*(?:(?:as follows|below|the following|follows|found|obtained`
  + String.raw`|given|here|this|simple|easy|clear|approx|circa|ca|rs|no|nr|env|aprox|we have`
  + String.raw`|therefore|thus|so)${NO_WORD}*)*)$`, "i");
const CORRECTION = /\b(?:wait|actually|correction|oops|scratch that|mistake|sorry|hold on)\b/i;
const CLAUSE_END = new RegExp(
  String.raw`\n|(?<!\bapprox)(?<!\bca)(?<!\bRs)(?<!\bNo)(?<!\\)(?:[.;](?:\s|$)|(?<!\))!`
  + String.raw`(?:\s|$)(?!\s*=))|[。；！]|[,，]\s*(?:(?:because|since|as|so|weil|denn|da|car`
  + String.raw`|parce|puisque|porque|ya que|pues)\b|因为|因此|所以)`, "i");
const NUMBERED = /^\d{1,2}[.)]\s+[A-Za-z_]/;
const SYMBOLIC = /\\(?:sqrt|pi|log|ln|sin|cos|tan|infty)\b/;
const MAX_ANNOUNCED = 20; // the last ones; a text of nothing else is noise
const OR = String.raw`(?:\\text\s*\{\s*)?\b(?:or|oder|ou)\b(?:\s*\})?`;
const AND = String.raw`(?:\\text\s*\{\s*)?(?:[,;]\s*)?\b(?:or|oder|ou|and|und|et)\b(?:\s*\})?|[,;]`;
const EDGE = String.raw`(?:[\s$]|\\[()\[\]])*`;
const BARE = String.raw`(-?\d[\d.,\/]*(?<![.,])|[A-J])(?![\w{^_])`;
const OR_AFTER = new RegExp(`^${EDGE}${OR}${EDGE}${BARE}`);
const OR_BEFORE = new RegExp(String.raw`(?<![\w.])${BARE}${EDGE}${OR}${EDGE}$`);
const BOX_BEFORE = new RegExp(
  String.raw`\\(?:boxed|fbox)\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}`
  + String.raw`${EDGE}(?:${AND})${EDGE}(?:[a-z]\s*=\s*)?$`);
const MAX_RESTATED = 6;
const RESTATES = /(?:\s*(?:%|°|\p{L}+\.?)){0,2}\s*\((?:[^()\n]*[^()\n\d.])?$/u;
const CONCLUSION = new RegExp(
  String.raw`(?:^|[.!?]\s+|\n\s*)(?:so|therefore|thus|hence|altogether|in total)\b`
  + String.raw`([^.!?\n]*)[.!?\s]*$`, "i");
const MAX_DIGITS = 300; // more are spelt out: no text can make exact arithmetic take for ever
const UNKNOWN = ""; // a number in a form that is not known, or that has two readings
const HEADING = /\b([A-Za-z]+):(?=\s)/;
const RESULT = /= ?(\d+)/g;
/** Extractors by the name that trace headers use. */
export const EXTRACTORS = {
  number: (/** @type {string} */ text) => afterThinking(text, extractNumber),
  amounts: (/** @type {string} */ text) => afterThinking(text, extractAmounts),
};

/**
 * What an extractor reads of a text without its thoughts; null if a thought does not end.
 * @param {string} text
 * @param {(text: string) => string | null} extract
 */
function afterThinking(text, extract) {
  if (!text.includes("think")) return extract(text);
  let kept = "";
  let thinks = false;
  let start = 0;
  for (const { 0: tag, 1: ends, index } of text.matchAll(THOUGHT)) {
    if (ends) kept = thinks ? kept : "";
    else if (!thinks) kept += text.slice(start, index);
    [thinks, start] = [!ends, index + tag.length];
  }
  return thinks ? null : extract(kept + text.slice(start));
}

/**
 * The final number of a solution, in canonical form; null if it states none.
 * @param {string} text
 * @returns {string | null}
 */
function extractNumber(text) {
  const plain = PLAIN.exec(text); // the common case
  if (plain) return withoutZeros(plain[1]);
  const tidied = tidy(text);
  const announcements = announced(tidied);
  for (const { boxed, rest } of announcements) {
    const clause = boxed ? rest : firstClause(rest);
    if (SYMBOLIC.test(clause)) return null;
    let answer = boxed && clause.includes("!") ? UNKNOWN : statedNumber(clause, tidied);
    if (boxed) {
      if (answer === null && clause.trim()) answer = UNKNOWN;
    } else {
      const behind = rest.trimStart().slice(clause.length);
      if (answer === null && POINTER.test(clause)) answer = lastNumber(behind);
      else if (answer && CORRECTION.test(behind)) {
        const last = lastNumber(behind);
        if (last !== null && last !== answer) answer = UNKNOWN;
      }
    }
    if (answer !== null) return answer || null;
  }
  return announcements.length ? null : lastNumber(tidied) || null;
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
    const section = pieces[k + 1];
    const results = [...section.matchAll(RESULT)].map(([, digits]) => digits);
    const last = (results.length ? results : section.match(/\d+/g) ?? ["?"]).at(-1) ?? "?";
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
  let plain = text
    .replace(SUPERSCRIPT, (signs) => `^{${[...signs].map(plainDigit).join("")}}`)
    .replace(TYPOGRAPHIC, (sign) => TYPOGRAPHY[sign]);
  if (/[\\{]/.test(plain)) {
    for (const [latex, instead] of LATEX) plain = plain.replaceAll(latex, () => instead);
    plain = plain.replace(SPACE, " ").replace(FRACTION,
      (_, above, digit, below, other) => ` ${above ?? digit}/${below ?? other}`);
  }
  return plain.replace(POWER, "^").replaceAll("**", "").replace(ITALIC, "$1");
}

/** @param {string} sign */
function plainDigit(sign) {
  const place = SUPERSCRIPTS.indexOf(sign);
  return place < 0 ? sign.replace("⁻", "-").replace("⁺", "") : String(place);
}

/**
 * What follows each announcement of an answer, the last first, and whether it is in a box.
 * @param {string} text
 */
function announced(text) {
  const announcements = [];
  for (const { 0: marker, index, groups } of [...text.matchAll(MARKER)].slice(-MAX_ANNOUNCED)) {
    const end = index + marker.length;
    if (groups?.boxed) {
      announcements.unshift({ boxed: true, rest: withAlternatives(text, index, end) });
      continue;
    }
    const before = text.slice(Math.max(0, index - 60), index);
    let rest = text.slice(end);
    const seeks = /[:：=][ *\n]*$/.test(marker) && SEEKING.test(before);
    if (seeks || HYPOTHETICAL.test(before) || CHECKS.test(marker) || JUDGES.test(rest)) continue;
    if (marker.includes("\n")) rest = NUMBERED.test(rest) ? "" : rest.replace(/^[-*•]\s+/, "");
    announcements.unshift({ boxed: false, rest });
  }
  return announcements;
}

/**
 * A box with what "or" joins to it, and with the boxes that are listed before it.
 * @param {string} text
 * @param {number} start
 * @param {number} inside behind the brace that opens
 */
function withAlternatives(text, start, inside) {
  const content = inBraces(text, inside);
  const after = OR_AFTER.exec(text.slice(inside + content.length + 1));
  const listed = [content];
  let first = start;
  for (let before; (before = BOX_BEFORE.exec(text.slice(Math.max(0, first - 80), first)));) {
    listed.unshift(before[1]);
    first -= before[0].length;
  }
  const other = OR_BEFORE.exec(text.slice(Math.max(0, first - 40), first));
  const boxes = [...new Set(listed)].join(", ");
  return `${other ? `${other[1]} or ` : ""}${boxes}${after ? ` or ${after[1]}` : ""}`;
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

/** @param {string} rest */
function firstClause(rest) {
  const start = rest.trimStart();
  const end = CLAUSE_END.exec(start);
  return end ? start.slice(0, end.index) : start;
}

/** @param {string} text */
const numbersIn = (text) => [...text.matchAll(TOKEN)].filter(({ groups }) => groups?.digits);

/**
 * The text before a number, as far as it can be a part of the same form, and the text behind it.
 * @param {string} text
 * @param {RegExpMatchArray} match
 * @returns {[string, string]}
 */
function around(text, match) {
  const start = match.index ?? 0;
  return [text.slice(Math.max(0, start - 80), start), text.slice(start + match[0].length)];
}

/**
 * The number that a clause states, or the result of the calculation that it states.
 * @param {string} rest
 * @param {string} text
 */
function statedNumber(rest, text) {
  const clause = rest.replace(TEXT, "$1").replace(WHICH_IS, " =")
    .replace(CENTS, (_, whole, unit, cents) => `${whole}.${cents.padStart(2, "0")} ${unit}`);
  const numbers = numbersIn(clause);
  for (const [k, number] of numbers.entries()) {
    const [before, after] = around(clause, number);
    if (NOT.test(before)) continue;
    const value = inContext(number, before, after, text);
    if (!value || after === "!") return resultOf(number[0] + after, text);
    if (LEADS.test(before)) return value;
    if (after.includes("=")) return resultOf(number[0] + after, text);
    const others = numbers.slice(k + 1);
    const same = others.every((n) => inContext(n, around(clause, n)[0], "", text) === value);
    return same ? value : UNKNOWN;
  }
  return inWords(clause);
}

/**
 * The last number; one before a parenthesis that restates it; in words if there are no digits.
 * @param {string} text
 */
function lastNumber(text) {
  const numbers = numbersIn(text).slice(-MAX_RESTATED);
  const end = numbers.at(-1);
  if (!end) {
    const conclusion = CONCLUSION.exec(text);
    return conclusion ? inWords(conclusion[1], true) : null;
  }
  const start = Math.max(0, end.index - 80);
  const restated = RESTATES.exec(text.slice(start, end.index));
  const place = restated && start + restated.index;
  const last = numbers.find(({ 0: number, index }) => index + number.length === place) ?? end;
  const [before, after] = around(text, last);
  return JOINS.test(before) ? UNKNOWN : inContext(last, before, after.slice(0, 80), text);
}

/**
 * A number; `UNKNOWN` if it is a part of a larger form.
 * @param {RegExpMatchArray} match
 * @param {string} before
 * @param {string} after
 * @param {string} text
 */
function inContext(match, before, after, text) {
  const { sign = "", digits = "" } = match.groups ?? {};
  if (GOES_ON.test(after) || (PART_OF.test(before) && !TAG.test(before))) return UNKNOWN;
  if (/^.\s+$/.test(sign) && !SIGNED.test(before)) return UNKNOWN;
  const behind = match[0].slice(match[0].indexOf(digits) + digits.length) + after;
  return valueOf(match, behind, text);
}

/**
 * The right side of the last equation of a clause ("3 * 6 = 18"); else `UNKNOWN`.
 * @param {string} rest
 * @param {string} text
 */
function resultOf(rest, text) {
  const place = rest.lastIndexOf("=");
  const [left, right] = [rest.slice(0, Math.max(0, place)), rest.slice(place + 1)];
  const number = place < 0 ? undefined : numbersIn(right)[0];
  if (!number || /[^ $\n~(]/.test(right.slice(0, number.index))) return UNKNOWN;
  if (VARIABLE.test(left.replace(MACRO, " ")) || SEVERAL.test(left)) return UNKNOWN;
  return inContext(number, "=", around(right, number)[1], text);
}

/**
 * @param {RegExpMatchArray} match
 * @param {string} after
 * @param {string} text
 */
function valueOf({ groups }, after, text) {
  const { sign, money, inner_sign: inner, digits, part, below, exp, ten, power } = groups ?? {};
  const { half, scale, chinese, kilo } = groups ?? {};
  const plain = plainOf(digits, after, money ?? "", text);
  if (plain === null) return UNKNOWN;
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
  else if (power) {
    const n = BigInt(power);
    const size = n < 0n ? -n : n;
    if (plain.length * Number(size) > 10 * MAX_DIGITS || (n < 0n && !above)) return UNKNOWN;
    [above, under] = n < 0n ? [under ** size, above ** size] : [above ** size, under ** size];
  }
  if (half) [above, under] = [2n * above + under, 2n * under];
  if (scale) above *= SCALES[scale.toLowerCase()];
  else if (chinese) above *= CHINESE_SCALES[chinese];
  else if (kilo) {
    if (money || /k/i.test(kilo)) above *= SHORT_SCALES[kilo.toLowerCase()];
    else if (kilo !== "m") return UNKNOWN;
  }
  return formatFraction([negative ? -above : above, under]);
}

/**
 * Digits without separators and with a decimal point; null if two readings remain.
 * @param {string} digits
 * @param {string} after
 * @param {string} money
 * @param {string} text
 */
function plainOf(digits, after, money, text) {
  if (/^\d+$/.test(digits)) return digits;
  if (ONE_GROUP.test(digits) && isOtherLanguage(text)) return null;
  if (ENGLISH.test(digits) || INDIAN.test(digits)) return digits.replaceAll(",", "");
  if (POINTS.test(digits)) return digits.replaceAll(".", "").replace(",", ".");
  if (SPACED.test(digits)) return digits.replace(",", ".").replace(/[^\d.]/g, "");
  const isDecimal = COMMA.test(digits)
    && (["€", "EUR"].includes(money.trim()) || MEASURED.test(after) || isOtherLanguage(text));
  return isDecimal ? digits.replace(",", ".") : null;
}

/** @param {string} text */
function isOtherLanguage(text) {
  const words = new Set((text.match(OTHER_LANGUAGE) ?? []).map((word) => word.toLowerCase()));
  return words.size > 1 || ["antwort", "réponse", "respuesta"].some((word) => words.has(word));
}

/**
 * An exact value as an integer, an ending decimal or a reduced fraction.
 * @param {Fraction} value
 */
function formatFraction([above, below]) {
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

/** @type {Map<string, bigint>} */
const PARTS = new Map([["half", 2n], ["halves", 2n]]);
const TENTHS = "third quarter fifth sixth seventh eighth ninth tenth".split(" ");
for (const [k, word] of TENTHS.entries()) {
  PARTS.set(word, BigInt(k + 3)).set(`${word}s`, BigInt(k + 3));
}
for (const [word, n] of /** @type {[string, bigint][]} */ ([["fourth", 4n], ["hundredth", 100n]])) {
  PARTS.set(word, n).set(`${word}s`, n);
}
const MULTIPLES = new Set(["thousand", "million", "billion", "trillion"]);
const AFTER_WORDS = new Set("or and to times plus minus divided percent squared".split(" "));
const POINTING = new Set("the this that no any each which every correct".split(" "));
const JOINING = ["between", "either", "times", "plus", "twice", "than", "by"];

/** @param {string | undefined} word */
const counts = (word) => word !== undefined
  && (WORDS.has(word) || MULTIPLES.has(word) || word === "hundred" || word === "dozen");

/**
 * The first run of number words: "two and a half million", "negative twenty-five".
 * @param {string} clause
 * @param {boolean} [alone] it must be the only run, and more than "one"
 */
function inWords(clause, alone = false) {
  const words = clause.toLowerCase().match(/[a-z]+|[^\sa-z-]/g) ?? [];
  const start = words.findIndex((_, place) => begins(words, place));
  if (start < 0 || (words[start] === "one" && POINTING.has(words[start - 1]))) return null;
  const [value, end] = readRun(words, start);
  const rest = words.slice(end);
  const isOne = end === start + 1 && words[start] === "one";
  if (alone && (isOne || words.some((_, k) => k >= end && begins(words, k)))) return UNKNOWN;
  if (AFTER_WORDS.has(rest[0]) || counts(rest[0])) return UNKNOWN;
  const isOf = rest[0] === "of"
    && rest.slice(1, 3).some((word) => counts(word) || /^\d+$/.test(word));
  const lead = words.slice(Math.max(0, start - 2), start);
  if (isOf || lead.some((word) => JOINING.includes(word))) return UNKNOWN;
  const negative = ["minus", "negative"].includes(lead.at(-1) ?? "");
  return formatFraction([negative ? -value[0] : value[0], value[1]]);
}

/**
 * Whether a number begins with a word; "a third" is one, "a third way" is not.
 * @param {string[]} words
 * @param {number} place
 */
function begins(words, place) {
  const [word, before, after] = [words[place], words[place - 1], words[place + 1]];
  if (counts(word) || word === "half") return true;
  if (word === "quarter") return before === "a" || before === "one";
  return PARTS.has(word) && (before === "a" || before === "an")
    && (after === undefined || after === "of");
}

/**
 * The number that a run of words is, and the place of the first word that does not continue it.
 * @param {string[]} words
 * @param {number} start
 * @returns {[Fraction, number]}
 */
function readRun(words, start) {
  let place = start;
  let total = 0n;
  /** @type {bigint | null} */
  let current = null;
  let last = 10n ** 15n;
  const word = (ahead = 0) => words[place + ahead] ?? "";
  /** @param {Fraction} value @returns {[Fraction, number]} */
  const scaled = ([above, below]) => {
    const scale = MULTIPLES.has(word()) ? SCALES[words[place++]] : 1n;
    return [[above * scale, below], place];
  };
  while (counts(word())) {
    if (MULTIPLES.has(word()) || word() === "dozen") {
      const scale = SCALES[word()];
      if (scale >= last) break;
      total += (current ?? 1n) * scale;
      [current, last] = [null, scale];
    } else if (word() === "hundred") {
      if (current !== null && !(current > 0n && current < 100n)) break;
      current = (current ?? 1n) * 100n;
    } else {
      const value = BigInt(WORDS.get(word()) ?? 0);
      if (!leavesRoom(current ?? 0n, value)) break;
      current = (current ?? 0n) + value;
    }
    place += 1;
    if (word() === "and" && WORDS.has(word(1)) && !PARTS.has(word(2))) {
      if (current === null ? last >= 10n ** 15n : current < 100n) break;
      place += 1;
    } else if (word() === "point" && WORDS.has(word(1))) {
      place += 1;
      let digits = "";
      while ((WORDS.get(word()) ?? 10) < 10) digits += WORDS.get(words[place++]);
      const below = 10n ** BigInt(digits.length);
      return scaled([(total + (current ?? 0n)) * below + BigInt(digits), below]);
    }
  }
  const value = total + (current ?? 0n);
  const isPart = current === null && !total; // "half"
  const part = PARTS.get(word());
  if (part && (isPart || current !== null)) {
    place += 1;
    return scaled([isPart ? 1n : value, part]);
  }
  const below = word() === "and" ? PARTS.get(word(2)) : undefined;
  const above = ["a", "an"].includes(word(1)) ? 1 : WORDS.get(word(1));
  if (!below || above === undefined) return [[value, 1n], place];
  place += 3;
  return scaled([value * below + BigInt(above), below]);
}

/**
 * Whether a number below 100 may follow what was read: "hundred five", "twenty five".
 * @param {bigint} current
 * @param {bigint} value
 */
const leavesRoom = (current, value) => current % 100n === 0n
  || (current % 100n >= 20n && current % 10n === 0n && value < 10n);
