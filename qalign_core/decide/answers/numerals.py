r"""Numbers as people and models write them, brought to one exact form.

    >>> whole_number(tidy("$1,000.00")), whole_number(tidy("1.234,56")), last_number("So 2 * 3 = 6")
    ('1000', '1234.56', '6')

The canonical form is an integer, else the decimal without trailing zeros if it ends, else the
reduced fraction. Currencies, percent signs and units are dropped. Arithmetic is exact.

A number whose reading is not certain has none: `UNKNOWN`. Such are "5 or 7", "5 ± 1", "2x", "3:30",
"9 + 9" without its result, "3,5" where neither a unit nor the language says that it is a decimal.
"""

import re
from collections import deque
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import takewhile

from qalign_core.decide.answers.units import UNIT

UNKNOWN = ""
"""The value of a number in a form that is not known, or that has two readings."""


def tidy(text: str) -> str:
    """Replace typographic and LaTeX ways of writing a number, and bold face, by plain ones."""
    if not text.isascii():
        text = _SUPERSCRIPT.sub(lambda m: f"^{{{m[0].translate(_PLAIN_DIGITS)}}}", text)
        text = _ROOT.sub(lambda m: f"\\sqrt{{{m[1] or m[2]}}}", text).translate(_TYPOGRAPHY)
    if "\\" in text or "{" in text:
        for latex, plain in _LATEX:
            text = text.replace(latex, plain)
        text = _SPACE.sub(" ", text)
        text = _FRACTION.sub(lambda m: f" {m[1] or m[2]}/{m[3] or m[4]}", text)
    if "*" in text:
        text = _POWER.sub("^", text).replace("**", "")
        text = _ITALIC.sub(r"\1", text)
    return text


def stated_number(clause: str, text: str = "") -> str | None:
    """Read the number that a tidy clause states, or the result of the calculation that it states.

    Args:
        clause: what follows "The answer is", or is in a box.
        text: the whole text, whose language decides what "1.234" is.

    Returns:
        The number in canonical form; `UNKNOWN` if what is stated has no certain reading; None if
        no number is stated.
    """
    clause = _WHICH_IS.sub(" =", _TEXT.sub(r"\1", clause))
    clause = _CENTS.sub(lambda m: f"{m[1]}.{m[3]:0>2} {m[2]}", clause)
    numbers = _numbers(clause)
    for number in numbers:
        before, after = _before(clause, number), clause[number.end() :]
        if _NOT.search(before):
            continue
        value = _in_context(number, before, after, text)
        if not value or after == "!":  # a clause keeps no mark of exclamation: 5! is a factorial
            return _result(number[0] + after, text)
        if _LEADS.fullmatch(before):
            return value
        if "=" in after:
            return _result(number[0] + after, text)
        # "Tom has 3 boxes of 6": which of the numbers is the answer?
        others = (_in_context(other, _before(clause, other), "", text) for other in numbers)
        return value if all(other == value for other in others) else UNKNOWN
    return _in_words(clause)


def last_number(text: str) -> str | None:
    """Read the last number of a tidy text; `UNKNOWN` if it has no certain reading.

    A text without digits may conclude with a number in words. A parenthesis behind a number ("2.5
    liters (2500 mL)") restates it, so that the number before the parenthesis is the last one.
    """
    numbers = deque(_numbers(text), maxlen=_MAX_RESTATED)
    if not numbers:
        conclusion = _CONCLUSION.search(text)
        return _in_words(conclusion[1], alone=True) if conclusion else None
    last = numbers[-1]
    if restated := _RESTATES.search(text, max(0, last.start() - 80), last.start()):
        last = next((m for m in numbers if m.end() == restated.start()), last)
    before = _before(text, last)
    if _JOINS.search(before):
        return UNKNOWN
    return _in_context(last, before, text[last.end() : last.end() + 80], text)


def whole_number(text: str) -> str | None:
    """Read a tidy text that is one number with its units, or in words, and nothing else."""
    if len(text) > _MAX_WHOLE:
        return None
    if _ALL_WORDS.fullmatch(text):
        return _in_words(text, whole=True) or None
    number = _WHOLE.fullmatch(text)
    if number is None or (number["kilo"] and not number["money"]):  # 2k is a product
        return None
    return _value(number, text[number.end("digits") :], "") or None


def format_number(value: Fraction) -> str:
    """Write an exact value in the canonical form: integer, ending decimal, reduced fraction."""
    above, below = value.as_integer_ratio()
    # a decimal ends if no prime but 2 and 5 divides the denominator
    if below == 1 or pow(10, below.bit_length(), below):
        return str(value)
    with localcontext(prec=above.bit_length() + below.bit_length()):  # more than its digits
        return f"{Decimal(above) / below:f}"


_TYPOGRAPHY = str.maketrans(
    {
        "−": "-", "–": "-", "‑": "-", "＋": "+", "＝": "=", "⁄": "/", "’": "'",
        "：": ": ", "，": ", ", "。": ". ", "；": "; ", "！": "! ",
        "（": " (", "）": ") ", "％": "%",
        "π": "\\pi ", "∅": "\\emptyset ", "∞": "\\infty ", "√": "\\sqrt ", "∛": "\\sqrt[3] ",
        "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅛": " 1/8",
    }
)  # fmt: skip
_SUPERSCRIPT = re.compile(r"[⁺⁻]?[⁰¹²³⁴-⁹]+")
_PLAIN_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", "⁺")
_ROOT = re.compile(r"√\s?(?:(\d+|[a-z]\b)|\(([^()]*)\))")
_POWER = re.compile(r"(?<=\d)(?:\*\*| \*\* )(?=[-\d({])")  # 2**3: two asterisks are also bold face
_ITALIC = re.compile(r"(?<![\w*)\]])\*(?=[^\s*])([^*\n]*[^*\s])\*(?![\w*])")
_LATEX = (
    ("\\! ", ""), ("\\!", ""), ("\\,", ""), ("{,}", ","), ("\\;", " "), ("~", " "),
    ("\\left", ""), ("\\right", ""), ("\\varnothing", "\\emptyset"), ("\\$", "$"), ("\\%", "%"),
)  # fmt: skip
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_WHICH_IS = re.compile(r",?[ ]which\s+(?:is|equals|gives|makes)\b")
_CENTS = re.compile(r"\b(\d+) (dollars?|euros?) and (\d\d?) cents?\b")
_SPACE = re.compile(r"(?<!\\)\\ ")  # two backslashes end a row of a matrix
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))")

_DIGITS = r"(?:(?<!\d)\d{1,3}(?: \d{3}(?!\d))+|\d+)(?:[.,'\u00a0\u2009\u202f]\d+)*|(?<![\w.])\.\d+"
_CURRENCY = r"(?:[$€£¥₹]|\b(?:US\$|USD|EUR|GBP|INR|CNY|RMB|Rs\.?)\s?)"
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "lakh": 10**5, "crore": 10**7,
    "tausend": 10**3, "millionen": 10**6, "mio": 10**6, "milliarde": 10**9, "milliarden": 10**9,
    "mrd": 10**9, "mille": 10**3, "millions": 10**6, "milliard": 10**9, "milliards": 10**9,
    "millón": 10**6, "millones": 10**6,
}  # fmt: skip
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_CHINESE_SCALES = {"百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_NUMBER = (
    # A minus after a word, a digit or a bracket is a hyphen or a subtraction.
    r"(?P<sign>(?<![\w)}\].%])[-+]\s?|\b(?:minus|negative)\s+)?"
    rf"(?P<money>{_CURRENCY}\s?)?(?P<inner_sign>(?<=[$€£¥₹])-)?"
    rf"(?P<digits>{_DIGITS})"
    r"(?:(?:\s+(?P<part>\d+))?/(?P<below>0*[1-9]\d*)(?![/\d])(?!\.\d)"
    r"|e(?P<exp>[+-]?\d{1,3})(?!\w)"
    r"|\s*(?:\\times|\\cdot|[x×*·])\s*10\s*\^\s*\{?\s*(?P<ten>-?\d{1,3})\s*\}?(?![\w.^/])"
    r"|\s*\^\s*\{?\s*(?P<power>-?\d{1,3})\s*\}?(?![\w.^/])"
    r"|(?P<half>\s+and\s+(?:a|one)[\s-]half\b)?"
    rf"(?:(?:\s+|-|(?<=half))(?P<scale>{'|'.join(_SCALES)})\b|(?P<kilo>bn|mn|[kmb])\b"
    rf"|\s?(?P<chinese>[{''.join(_CHINESE_SCALES)}]))?)"
)
# Digits that belong to a word, an index or an exponent are no numbers: H2O, x_1, cm^2, step 3; nor
# are the numbers of a list.
_NO_NUMBER = (
    r"(?<![a-z])[a-z]++(?:[_^]\s*\{?-?\d+\}?|\d\w*(?:\.\d+)*)|\^\s*\{?\s*-?\d+\}?"
    r"|\b(?:step|schritt|étape|paso)\s+\d+|^[ \t]*\d{1,2}[.)][ \t]+(?=[^\W\d]|[*$\\(])"
    r"|(?<=\n)[ \t]*[-+*][ \t]+(?=\d)"
)
_TOKEN = re.compile(rf"{_NO_NUMBER}|{_NUMBER}", re.IGNORECASE | re.MULTILINE)
_UNIT = rf"(?:\s*(?:%|°|¢|[$€£¥₹]|\^\{{?\\circ\}}?)|(?-i:{UNIT}))"
_WHOLE = re.compile(rf"\s*{_NUMBER}{_UNIT}{{0,5}}\s*", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|nicht|pas|不是)\s*$", re.IGNORECASE)
_MAX_DIGITS = 300
_MAX_WHOLE = 400
_MAX_RESTATED = 6
_ALL_WORDS = re.compile(r"[A-Za-z]{2,}(?:[\s-]+[A-Za-z]+)*")
_RESTATES = re.compile(r"(?:\s*(?:%|°|[^\W\d_]+\.?)){0,2}\s*\((?:[^()\n]*[^()\n\d.])?$")
_CONCLUSION = re.compile(
    r"(?:^|[.!?]\s+|\n\s*)(?:so|therefore|thus|hence|altogether|in total)\b([^.!?\n]*)[.!?\s]*$",
    re.IGNORECASE,
)

# How a decimal or a large number can be written; see `_plain`.
_ENGLISH = re.compile(r"\d+(?:\.\d+)?|\.\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SPACED = re.compile(
    r"\d{1,3}(?:['\u00a0\u2009\u202f]\d{3})+(?:[.,]\d+)?|\d{1,3}(?: \d{3}){2,}(?:[.,]\d+)?"
    r"|\d{1,3} \d{3}[.,]\d+"
)
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}")  # 1.234,56  1.000.000
_INDIAN = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")  # 1,00,000
_COMMA = re.compile(r"(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+)")  # 3,5
_ONE_GROUP = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")  # 1.234: thousands here, a decimal there
_MEASURED = re.compile(
    r"\s?(?:[€£%°]|(?:euros?|eur|cents?|prozent|dollars?|pesos?|litres?|liters?|litros?|meters?"
    r"|metern|mètres?|metros?|stunden?|heures?|horas?|minuten?|minutos?|grad|kilos?|tonnen?"
    r"|[kcm]?m|[km]?g|km/h|ml|cl|l|h|min"
    rf"|{'|'.join(_SCALES)})\b)",
    re.IGNORECASE,
)
_OTHER_LANGUAGE = re.compile(
    r"\b(?:antwort|réponse|respuesta|und|ist|hat|sind|nicht|ein|eine|einen|mit|beträgt|insgesamt"
    r"|les|une|des|dans|donc|pour|avec|los|las|una|por|tiene|entonces)\b",
    re.IGNORECASE,
)

# What makes a number part of a larger form.
_N = r"\$?(?:[a-z]\s*=\s*)?[-+]?[$€£¥₹]?\.?\d"
_FUNCTIONS = r"sqrt|log|ln|sin|cos|tan|cot|sec|csc|exp|pi"
_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
)
_GOES_ON = re.compile(
    rf"(?!\s*\^\s*\{{?\s*\\circ)(?:\s*(?:[-+*/×·÷^~]\s?(?:{_N}|[a-z]\b|[(\\{{])|[-+*/×÷]{_N}|\\(?:times|cdot|div|pm|mp|pmod|mod)"
    rf"|±|\+/-|x\s*\d|[+×÷±^]\s*\w)"  # arithmetic
    rf"|\s*,\s*(?:and\s+|or\s+|und\s+|et\s+|y\s+)?{_N}"  # 3, 5
    rf"|[)$]*\s*(?:%|\\%)?(?:\s+(?!not\b)[^\W\d_]+)?\s+\(?(?:or|and|to|oder|bis|und|ou|et|à|o|y|a|u)\s+"
    rf"{_N}"  # 5 apples or 7
    r"|\s+(?!(?:not|because|since|as|so|for|in|at|by|on|after|per|of|from|with|when|if)\b)"
    r"[^\W\d_]+\s+\d"  # 5 feet 6
    rf"|\s*(?:至|到|或|和|或者|、)\s*\d|分之"
    rf"|\s*(?:%|percent)\s+of\s+(?:the\s+)?{_N}|\s+out\s+of\b"
    rf"|\)?\s+(?:times|plus|minus|divided\s+by|multiplied\s+by)\s+(?:as\b|more\b|{_N})"
    r"|\s+(?:more|less|fewer|greater|smaller|larger)\s+than\b"
    r"|\s+(?:squared|cubed|factorial|mil|quarters|thirds|halves)\b"
    r"|\s+and\s+(?:a|one|two|three)\b"  # and a quarter
    r"|\d|![.=]|!\s=|_\s*\{?\s*\d|:\d|\s:\s\d|\(\s*[\d\\a-z]|[\[{]"  # 5! = , 12_8, 3:30, 5(3)
    r"|\s*\)\s*[\^(]|\s*\\(?:pi|sqrt|frac|log|ln|sin|cos|tan|infty|i\b)"
    rf"|\s?(?:{_FUNCTIONS})\b|\s?\\?[∛√]"
    # A letter that is no unit: 2x, 5n + 1; behind a space a variable.
    r"|(?!(?:st|nd|rd|th|am|pm)\b|[kcm]?m\b|[kmµ]?g\b|[mckd]?l\b|[mµn]?s\b|h\b|hrs?\b|lbs?\b|oz\b"
    r"|ft\b|in\b|yd\b|mi\b|t\b|k?w\b|k?v\b|m[lL]\b|[kmgt]b\b|k?hz\b|kj\b|j\b|kn\b|pa\b|ha\b|mm\b)"
    r"(?:[a-z]{1,2}\b(?!')|[a-z]\d|[a-z]_|[a-z]\^)"
    r"|\s(?![aghlmnostuy]\b)[b-z]\b(?!['.\u00c0-\u024f])|\s(?:n|y|t)\b\s*(?:[-+*/^=]|$|\$|\))"
    r"|\s+[<≤≥≠]|\s+>|\s*\\(?:leq?|geq?|neq?|lt|gt)\b"
    rf"|(?-i:\s+(?:{_MONTHS})\b\.?,?(?:\s+\d|\s*$)))",
    re.IGNORECASE,
)
_PART_OF = re.compile(
    r"[\w)}\]%][ \t]*(?:[-+*/×·÷^~]|\\(?:times|cdot|div))[ \t]*[({]?$"  # arithmetic
    r"|(?<![a-z'])[a-z]\s*[({]\s*$|\^\s*[({]?$|±\s*$|\\(?:pm|mp)\s*$"  # f(5)
    rf"|(?:{_FUNCTIONS})\s*[({{]?\s*$"
    r"|\\(?:sqrt|[dtc]?frac|binom|log|ln|sin|cos|tan|pi|infty|lfloor|lceil|lvert|sum|prod|leq?|geq?"
    r"|neq?|lt|gt)\b(?:\s*\[[^]]*\])?(?:\s*\{[^{}]*\})?\s*\{?\s*$|\}\s*\{\s*$|√\s*\(?$"
    r"|\d:$|\d\s*,\s*$(?<=,)"
    r"|\b(?:between|either|half\s+of|twice|double|triple|times|plus|minus|by|zwischen|entre|third\s+of"
    r"|quarter\s+of|than)\s+(?:the\s+|all\s+)?[$€£¥₹]?$"
    r"|[^\s>][ \t]*[<≤≥≠]=?[ \t]*\$?$|\w[ \t]*(?<![-=/\"])>=?[ \t]+\$?$|[<>]=$"
    rf"|(?-i:\b(?:{_MONTHS})\.?\s+(?:\d{{1,2}},?\s+)?$)",
    re.IGNORECASE,
)
_JOINS = re.compile(
    r"\d\S*(?:\s+[^\W\d_]+)?\s+(?:or|and|to|oder|bis|und|ou|et|à|o|y|a)\s+[$€£¥₹]?$"
    r"|\d\s*,\s+(?:and\s+|or\s+)?$",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[a-z/][^<>]*>[ \t]*$", re.IGNORECASE)
_SIGNED = re.compile(
    r"(?:^|[=:({\[$,~≈>*`\"'_]|\b(?:is|be|equals|about|approximately|ist|est|es))\s*$"
)
# Words that a clause may have before the number that it states. What is matched once is not tried
# in another way: "a=" is a name or a word, and every repetition would double the time.
_LEADS = re.compile(
    r"(?>\W|[a-z](?:\([a-z]\))?\s*=|(?:about|approx\w*|exactly|precisely|only|just|roughly|nearly"
    r"|almost|around|therefore|thus|hence|so|simply|equal|equals|to|a|an|the|total|of|in|all|is|be"
    r"|number|value|amount|sum|final|answer|also|still|now|actually|at|least|most|not|but|it's|it|its"
    r"|that|which|rather|text|textbf|mathrm|mathbf|boxed|approx|quad|displaystyle|ist|est|es|etwa"
    r"|ungefähr|rund|genau|nur|environ|exactement|aproximadamente|unos|unas|bei|de|usd|eur|rs|minus"
    r"|negative)\b|\d+)*+",
    re.IGNORECASE,
)


def _numbers(text: str) -> Iterator[re.Match[str]]:
    return (m for m in _TOKEN.finditer(text) if m["digits"])


def _before(text: str, m: re.Match[str]) -> str:
    """The text before a number, as far as it can be a part of the same form."""
    return text[max(0, m.start() - 80) : m.start()]


def _in_context(m: re.Match[str], before: str, after: str, text: str) -> str:
    """Read a number; `UNKNOWN` if it is a part of a larger form."""
    if _GOES_ON.match(after) or (_PART_OF.search(before) and not _TAG.search(before)):
        return UNKNOWN
    if (m["sign"] or "")[1:].isspace() and not _SIGNED.search(before):
        return UNKNOWN  # "Total - 18" has a dash, "20 - 2" a subtraction
    return _value(m, m[0][m.end("digits") - m.start() :] + after, text)


def _result(rest: str, text: str) -> str:
    """Read the right side of the last equation of a clause ("3 * 6 = 18"); else `UNKNOWN`."""
    left, equals, right = rest.rpartition("=")
    number = next(_numbers(right), None)
    if not equals or number is None or right[: number.start()].strip(" $\n~("):
        return UNKNOWN
    if _VARIABLE.search(_MACRO.sub(" ", left)) or _SEVERAL.search(left):
        return UNKNOWN  # "2x + 3 = 7", "5 or x = 7"
    return _in_context(number, "=", right[number.end() :], text)


_SEVERAL = re.compile(r"\bor\b|\boder\b|(?:,|\band)\s*[a-z]\s*$", re.IGNORECASE)
_MACRO = re.compile(r"\\[a-zA-Z]+")
_VARIABLE = re.compile(r"(?<![a-zA-Z'])(?![aIxghlmsX]\b)[a-zA-Z](?![a-zA-Z'(])|\dx(?!\s*\d)")


def _value(m: re.Match[str], after: str, text: str) -> str:
    digits = _plain(m["digits"], after, m["money"] or "", text)
    if digits is None:
        return UNKNOWN
    sign = "-" if m["inner_sign"] or (m["sign"] or "").strip().lower() in _NEGATIVE else ""
    if max(len(digits), len(m["below"] or ""), len(m["part"] or "")) > _MAX_DIGITS:
        return sign + digits  # spelt out, so that no text can make exact arithmetic take for ever
    value = Fraction(digits)
    if m["part"]:  # "1 1/2"
        value += Fraction(int(m["part"]), int(m["below"]))
    elif m["below"]:
        value /= int(m["below"])
    elif m["exp"] or m["ten"]:
        value *= Fraction(10) ** int(m["exp"] or m["ten"])
    elif m["power"]:
        power = int(m["power"])
        if len(digits) * abs(power) > 10 * _MAX_DIGITS or (power < 0 and not value):
            return UNKNOWN
        value **= power
    if m["half"]:
        value += Fraction(1, 2)
    if m["scale"]:
        value *= _SCALES[m["scale"].lower()]
    elif m["chinese"]:
        value *= _CHINESE_SCALES[m["chinese"]]
    elif kilo := m["kilo"]:
        if m["money"] or kilo in "kK":
            value *= _SHORT_SCALES[kilo.lower()]
        elif kilo != "m":  # 5 m are meters; 5 B may be anything
            return UNKNOWN
    return format_number(-value if sign else value)


_NEGATIVE = {"-", "minus", "negative"}


def _plain(digits: str, after: str, money: str, text: str) -> str | None:
    """Write digits without separators and with a decimal point; None if two readings remain."""
    if digits.isdigit():
        return digits
    if _ONE_GROUP.fullmatch(digits) and _is_other_language(text):
        return None
    if _ENGLISH.fullmatch(digits) or _INDIAN.fullmatch(digits):
        return digits.replace(",", "")
    if _POINTS.fullmatch(digits):
        return digits.replace(".", "").replace(",", ".")
    if _SPACED.fullmatch(digits):
        return re.sub(r"[^\d.]", "", digits.replace(",", "."))
    is_decimal = _COMMA.fullmatch(digits) and (
        money.strip() in ("€", "EUR") or _MEASURED.match(after) or _is_other_language(text)
    )
    return digits.replace(",", ".") if is_decimal else None


def _is_other_language(text: str) -> bool:
    """Whether a text is German, French or Spanish, where 1.234 and 1,234 have other readings."""
    words = {m.lower() for m in _OTHER_LANGUAGE.findall(text)}
    return len(words) > 1 or not words.isdisjoint(("antwort", "réponse", "respuesta"))


_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: i for i, word in enumerate(_UP_TO_NINETEEN.split())}
_WORDS |= {word: 10 * i for i, word in enumerate(_TENS.split(), start=2)}
_NUMERATORS = {"a": 1, "an": 1, **_WORDS}
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6}
_PARTS |= {"seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100}
_PARTS |= {f"{word}s": n for word, n in _PARTS.items() if word not in ("half", "halves")}
_MULTIPLES = {word: _SCALES[word] for word in ("thousand", "million", "billion", "trillion")}
_COUNTS = _WORDS.keys() | _MULTIPLES.keys() | {"hundred", "dozen"}
_AFTER_WORDS = {"or", "and", "to", "times", "plus", "minus", "divided", "percent", "squared"}


def _in_words(clause: str, *, alone: bool = False, whole: bool = False) -> str | None:
    """Read the first run of number words: "two and a half million", "negative twenty-five".

    Args:
        clause: the words, perhaps with others.
        alone: the run must be the only one, and more than "one".
        whole: the run must be all of the clause.

    Returns:
        The number; `UNKNOWN` for a run in another order ("nineteen ninety"); None without a run.
    """
    words = re.findall(r"[a-z]+|[^\sa-z-]", clause.lower())
    start = next((i for i in range(len(words)) if _begins(words, i)), None)
    if start is None:
        return None
    if words[start] == "one" and start and words[start - 1] in _POINTING:
        return None  # "the one with the eggs"
    run = _Run(words, start)
    value = run.read()
    rest = words[run.place :]
    if alone and (
        words[start : run.place] == ["one"]
        or any(_begins(words, i) for i in range(run.place, len(words)))
    ):
        return UNKNOWN
    if whole and (rest or not {"a", "an", "minus", "negative"}.issuperset(words[:start])):
        return None
    if rest and rest[0] in _AFTER_WORDS | _COUNTS:
        return UNKNOWN
    if rest[:1] == ["of"] and any(word in _COUNTS or word.isdigit() for word in rest[1:3]):
        return UNKNOWN  # "half of eighteen"
    lead = words[max(0, start - 2) : start]
    if {"between", "either", "times", "plus", "twice", "than", "by"} & set(lead):
        return UNKNOWN
    return format_number(-value if {"minus", "negative"} & set(lead[-1:]) else value)


def _begins(words: list[str], place: int) -> bool:
    """Whether a number begins with a word; "a third" is one, "a third way" is not."""
    word, before, after = words[place], words[place - 1 : place], words[place + 1 : place + 2]
    if word in _COUNTS or word in ("half", "quarter"):
        return word != "quarter" or before in (["a"], ["one"])
    return word in _PARTS and before in (["a"], ["an"]) and (not after or after == ["of"])


_POINTING = {"the", "this", "that", "no", "any", "each", "which", "every", "correct"}


class _Run:
    """Reads number words from a place in a list of words on; the place is then behind them."""

    def __init__(self, words: list[str], place: int) -> None:
        self.words, self.place = words, place

    def read(self) -> Fraction:
        """Read the number, up to the first word that does not continue it."""
        total, current, last = Fraction(0), None, 10**15
        while (word := self._word()) in _COUNTS:
            if word in _MULTIPLES or word == "dozen":
                if _SCALES[word] >= last:
                    break
                last = _SCALES[word]
                total, current = total + (1 if current is None else current) * last, None
            elif word == "hundred":
                if current is not None and not 0 < current < 100:
                    break
                current = (1 if current is None else current) * 100
            elif _leaves_room(current or 0, _WORDS[word]):
                current = (current or 0) + _WORDS[word]
            else:
                break
            self.place += 1
            if self._word() == "and" and self._word(1) in _WORDS and self._word(2) not in _PARTS:
                if not (last < 10**15 if current is None else current >= 100):
                    break
                self.place += 1
            elif self._word() == "point" and self._word(1) in _WORDS:
                return self._decimals(total + (current or 0))
        return self._with_parts(total, current)

    def _decimals(self, whole: Fraction) -> Fraction:
        """Read what follows "point": "two point five million"."""
        self.place += 1
        behind = (_WORDS.get(word, 10) for word in self.words[self.place :])
        digits = "".join(map(str, takewhile(lambda value: value < 10, behind)))
        self.place += len(digits)
        return self._scaled(whole + Fraction(int(digits or 0), 10 ** len(digits)))

    def _with_parts(self, total: Fraction, current: int | None) -> Fraction:
        """Read what follows of "three quarters", "two and a half million"."""
        value = total + (current or 0)
        begins = current is None and not total  # "half"
        if self._word() in _PARTS and (begins or current is not None):
            part = Fraction(1, _PARTS[self._word()])
            self.place += 1
            return self._scaled(part if begins else value * part)
        if self._word() == "and" and self._word(1) in _NUMERATORS and self._word(2) in _PARTS:
            value += Fraction(_NUMERATORS[self._word(1)], _PARTS[self._word(2)])
            self.place += 3
            return self._scaled(value)
        return value

    def _scaled(self, value: Fraction) -> Fraction:
        if self._word() in _MULTIPLES:
            value *= _MULTIPLES[self._word()]
            self.place += 1
        return value

    def _word(self, ahead: int = 0) -> str:
        place = self.place + ahead
        return self.words[place] if place < len(self.words) else ""


def _leaves_room(current: int, value: int) -> bool:
    """True if a number below 100 may follow what was read: "hundred five", "twenty five"."""
    return current % 100 == 0 or (current % 100 >= 20 and current % 10 == 0 and value < 10)
