r"""Numbers as people and models write them, brought to one exact form.

"$1,000.00", "1e3", "1 000" (with a no-break space), "\frac{2000}{2}" and "one thousand" are all
"1000". The canonical form is an integer, else the decimal without trailing zeros if it ends, else
the reduced fraction. A comma between groups of three digits separates thousands; currencies, units
and percent signs are units, and units are dropped ("18 %" is "18"). Arithmetic is exact.
"""

import re
from collections.abc import Iterator
from fractions import Fraction


def tidy(text: str) -> str:
    """Replace typographic and LaTeX ways of writing a number, and bold face, by plain ones."""
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    if "\\" in text or "{" in text:
        for latex, plain in _LATEX:
            text = text.replace(latex, plain)
        text = _SPACE.sub(" ", text)
        text = _FRACTION.sub(_with_a_slash, text)
    return text.replace("**", "")


def stated_number(clause: str) -> str | None:
    """Read the number that a tidy clause begins with, or that its calculation ends with."""
    for number in _numbers(clause):
        if _NOT.search(clause, 0, number.start()):
            continue
        rest = clause[number.end() :]
        if "=" in rest and _GOES_ON.match(rest):  # "3 * 6 = 18"
            return next((_value(n) for n in _numbers(rest[rest.rindex("=") :])), None)
        return _value(number)
    return _in_words(clause)


def last_number(text: str) -> str | None:
    """Read the last number of a tidy text."""
    numbers = list(_numbers(text))
    return _value(numbers[-1]) if numbers else None


def whole_number(text: str) -> str | None:
    """Read a tidy text that is one number with its units and nothing else."""
    number = _WHOLE.fullmatch(text) if len(text) <= _MAX_WHOLE else None
    return None if number is None else _value(number)


def written(value: Fraction) -> str:
    """Write an exact value in the canonical form: integer, ending decimal, reduced fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        n = 0
        while rest % prime == 0:
            rest, n = rest // prime, n + 1
        places = max(places, n)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


_TYPOGRAPHY = str.maketrans(
    {
        "−": "-", "–": "-", "‑": "-", "＋": "+", "＝": "=", "⁄": "/", "’": "'",
        "π": "\\pi ", "∞": "\\infty ",
        "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅛": " 1/8",
    }
)  # fmt: skip
_LATEX = (
    ("\\!", ""), ("\\,", ""), ("{,}", ","), ("\\;", " "), ("~", " "),
    ("\\left", ""), ("\\right", ""), ("\\$", "$"), ("\\%", "%"),
)  # fmt: skip
_SPACE = re.compile(r"(?<!\\)\\ ")  # two backslashes end a row of a matrix
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))")

_DIGITS = r"(?:\d{1,3}(?:[,'\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+"
_CURRENCY = r"(?:[$€£¥₹]|\b(?:US\$|USD|EUR|GBP|INR|Rs\.?)\s?)"
_NUMBER = (
    # A minus after a word, a digit or a bracket is a hyphen or a subtraction.
    r"(?P<sign>(?<![\w)}\].])[-+]\s?|\b(?:minus|negative)\s+)?"
    rf"(?P<money>{_CURRENCY}\s?)?(?P<inner_sign>(?<=[$€£¥₹])-)?"
    rf"(?P<digits>{_DIGITS})"
    r"(?:(?:\s+(?P<part>\d+))?/(?P<below>0*[1-9]\d*)(?![/\d])"
    r"|e(?P<exp>[+-]?\d{1,3})(?!\w)"
    r"|\s*(?:\\times|\\cdot|[x×*·])\s*10\s*\^\s*\{?(?P<ten>-?\d{1,3})\b\}?"
    r"|\s*\^\s*\{?(?P<power>\d{1,2})\b\}?"
    r"|(?:\s+|-)(?P<scale>thousand|million|billion|trillion)\b"
    r"|(?P<kilo>k)\b)?"
)
# Digits that belong to a word, an index or an exponent are no numbers: H2O, x_1, cm^2.
_NO_NUMBER = r"(?<![a-z])[a-z]++(?:[_^]\s*\{?-?\d+\}?|\d\w*)|\^\s*\{?\s*-?\d+\}?"
_TOKEN = re.compile(rf"{_NUMBER}|{_NO_NUMBER}", re.IGNORECASE)
_UNIT = (
    r"(?:\s*(?:%|°|¢|[$€£¥₹]|\^\{?\\circ\}?|\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\^\{?[23]\}?)?"
    r"|[-\s]*+[a-zµ]{2,}+\.?(?:\^\{?[23]\}?|[²³])?|\s*[cgkmstl](?![a-z])(?:\^\{?[23]\}?|[²³])?"
    r"|\s?/\s?[a-z]+))"
)
_WHOLE = re.compile(rf"\s*{_NUMBER}{_UNIT}{{0,5}}\s*", re.IGNORECASE)
_GOES_ON = re.compile(r"\s*(?:[-+*/×·÷^]|x\s+\d|\\times|\\cdot|\\div)", re.IGNORECASE)
_NOT = re.compile(r"\bnot\s+$", re.IGNORECASE)
_POWERS_OF_TEN = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAX_DIGITS = 300
_MAX_WHOLE = 400


def _with_a_slash(m: re.Match[str]) -> str:
    return f" {m[1] or m[2]}/{m[3] or m[4]}"


def _numbers(text: str) -> Iterator[re.Match[str]]:
    return (m for m in _TOKEN.finditer(text) if m["digits"])


def _value(m: re.Match[str]) -> str:
    digits = re.sub(r"[^\d.]", "", m["digits"])
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
        value **= int(m["power"])
    elif m["scale"]:
        value *= 10 ** _POWERS_OF_TEN[m["scale"].lower()]
    elif m["kilo"] and m["money"]:
        value *= 1000
    return written(-value if sign else value)


_NEGATIVE = {"-", "minus", "negative"}

_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: i for i, word in enumerate(_UP_TO_NINETEEN.split())}
_WORDS |= {word: 10 * i for i, word in enumerate(_TENS.split(), start=2)}


def _in_words(clause: str) -> str | None:
    """Read the first run of number words below a million: "a hundred and twenty-five apples"."""
    total, current, found = 0, 0, False
    for word in re.findall(r"[a-z]+", clause.lower()):
        if word in _WORDS:
            current, found = current + _WORDS[word], True
        elif word == "hundred":
            current, found = max(current, 1) * 100, True
        elif word == "thousand":
            total, current, found = total + max(current, 1) * 1000, 0, True
        elif found and word != "and":
            break
    return str(total + current) if found else None
