r"""Bring an answer to its canonical form, so that equal answers are one vote; compare two answers.

    >>> canonical("$1,000.00")
    '1000'
    >>> same_answer("x=1,y=2", "y = 2, x = 1")
    True
    >>> same_answer("2024-05-08", "2024-06-07")
    False

An answer is parsed as one of these, in this order; any other answer is compared as words, without
case:

    dates, times, ratios, phone numbers  compared as written: no minus, no division
    numbers     units, currencies and "%" are dropped; 1.234,56 and 1.000.000 and 1 234 567 are
                numbers, and so is 3,5 next to a unit, or if the other answer is one number;
                alone, 3,5 is a list; 1,234 is a thousand and 1.234 is not
    formulas    compared exactly: `formulas`
"""

import logging
import re
from functools import lru_cache

from qalign_core.decide.answers.formulas import formula, same_values
from qalign_core.decide.answers.numerals import tidy, whole_number
from qalign_core.decide.answers.units import SCALES

logger = logging.getLogger(__name__)


def canonical(answer: str) -> str:
    """Bring a bare answer ("$18.00", "(B)", "x = 1/2 cm") to its canonical form; "" if empty."""
    return _read(answer)[1]


def is_empty(answer: str) -> bool:
    """True if there is no canonical form; most answers need not be parsed to decide this."""
    return not (words(_bare(answer)) or canonical(answer))


def same_answer(a: str | None, b: str | None) -> bool:
    """True if two answers are equal; None, no answer, is equal to nothing.

    Equal canonical forms are equal answers. Beyond that, formulas are compared by their values,
    with letters that could be units as variables, and a number with a decimal comma with a number.
    It never raises: a pair that cannot be compared is logged and counts as different.
    """
    if a is None or b is None:
        return False
    return a == b or _compare(a, b)


@lru_cache(maxsize=1024)
def _compare(a: str, b: str) -> bool:
    try:
        (kind_a, text_a), (kind_b, text_b) = _read(a), _read(b)
        if text_a == text_b or _with_decimal_comma(a) == text_b or text_a == _with_decimal_comma(b):
            return True
        kinds = {kind_a, kind_b}
        return "formula" in kinds and kinds <= _VALUES and same_values(a, b)
    except Exception as error:
        logger.warning("graded as different, since %r: %r and %r", error, a, b)
        return False


def _read(answer: str) -> tuple[str, str]:
    """Return the kind (record, number, formula, symbol or words) and the canonical form."""
    answer = _WRAPPING.sub(r"\1", answer)
    bare = _bare(answer)
    if _AMOUNTS.fullmatch(bare):
        return "record", bare
    if record := _read_record(bare):
        return "record", record
    if number := whole_number(bare):
        return "number", number
    is_letter = LONE_LETTER.fullmatch(bare) or _SYMBOL.fullmatch(bare)
    mathematics = bare if is_letter else formula(answer)
    if mathematics is None:
        return "words", words(bare)
    if is_letter or _SYMBOL.fullmatch(mathematics):
        return "symbol", mathematics if mathematics[0] == "\\" else words(mathematics)
    return "formula", mathematics


def words(text: str) -> str:
    """Bring words to one form, without case and outer punctuation; a lone letter is a capital."""
    text = re.sub(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}", r"\1", text)
    previous, text = None, " ".join(text.split())
    while text != previous:
        previous, text = text, _EXCLAIMED.sub("", text.strip(" .,:;?$*\"'`"))
    lone = LONE_LETTER.fullmatch(text)
    return lone[1].upper() if lone else text.casefold()


LONE_LETTER = re.compile(r"[\s*(\[$]*([A-Ja-j])[\s*)\]$.:,]*")
_VALUES = {"number", "formula", "symbol"}
_SYMBOL = re.compile(r"\\?[A-Za-z]|\\[A-Za-z]+")
_AMOUNTS = re.compile(r"(?:\d+|\?) [^\W\d_]+(?:, (?:\d+|\?) [^\W\d_]+)+")
_EXCLAIMED = re.compile(r"(?<![\d)}!])!+$")  # but 5! is a number
_SCALE = re.compile(rf"\\text\s*\{{\s*((?:{SCALES})\b[^{{}}]*)\}}")
# Braces that only group a list, and a sentence of LaTeX that announces the answer.
_WRAPPING = re.compile(r"^\s*\$?\{([^{}\\]*,[^{}]*)\}\$?\s*$|^\s*\\text\s*\{[^{}]*\bis:?\s*\}")
_NAME = re.compile(r"^\s*\\?[A-Za-z]\w*\s*=\s*")


def _bare(answer: str) -> str:
    bare = _SCALE.sub(r" \1", tidy(answer)).strip(" \t\n*`").rstrip(".")
    if len(bare) > 1 and bare[0] == bare[-1] == "$":
        bare = bare[1:-1]
    return _NAME.sub("", bare)


# -- records: they look like arithmetic but are not -----------------------------------------------

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_DAY}(?:\s+of)?\s+{_MONTH},?\s+(?P<year>\d{{4}})",
        rf"{_MONTH}\s+{_DAY},?\s+(?P<year>\d{{4}})",
    )
]
_HYPHENED = re.compile(r"\+?[\d\s().-]*\d-\d[\d\s().-]*|\d+(?:/\d+){2,}")
_WITH_COLON = re.compile(r"(\d+(?:\s*:\s*\d+)+)\s*([ap])?\.?\s?(m)?\.?", re.IGNORECASE)
_HOUR = re.compile(r"(\d{1,2})\s*([ap])\.?\s?m\.?", re.IGNORECASE)


def _read_record(bare: str) -> str | None:
    """Read a date, a time, a ratio, a score or a phone number, which are compared as written."""
    bare = re.sub(r"\\(?:text|mathrm)\s*\{\s*([^{}]*?)\s*\}", r" \1", bare).strip()
    for pattern in _DATES:
        if date := pattern.fullmatch(bare):
            month = _MONTHS.index(date["month"].lower()) + 1
            return f"{date['year']}-{month:02}-{int(date['day']):02}"
    if _HYPHENED.fullmatch(bare):
        return " ".join(bare.split())
    if time := _WITH_COLON.fullmatch(bare):
        half = f" {time[2].lower()}m" if time[2] else ""
        return re.sub(r"^0(?=\d)|\s", "", time[1]) + half
    if hour := _HOUR.fullmatch(bare):
        return f"{int(hour[1])}:00 {hour[2].lower()}m"
    return None


_ONE_DECIMAL = re.compile(r"\s*[-+]?\d+,(?:\d{1,2}|\d{4,})\s*")


def _with_decimal_comma(answer: str) -> str | None:
    """Read "3,5" as one number, as it is where the other answer is a number."""
    return whole_number(answer.replace(",", ".")) if _ONE_DECIMAL.fullmatch(answer) else None
