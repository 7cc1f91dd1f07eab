"""Compare two bare answers, and bring an answer to one form, so that equal answers are one vote."""

import re

from qalign_core.decide.answers.formulas import formula, same_values
from qalign_core.decide.answers.numerals import tidy, whole_number


def canonical(answer: str) -> str:
    """Bring a bare answer ("$18.00", "(B)", "x = 1/2 cm") to its canonical form; "" if empty."""
    bare = _bare(answer)
    if _AMOUNTS.fullmatch(bare):
        return bare
    return whole_number(bare) or formula(bare) or words(bare)


def is_empty(answer: str) -> bool:
    """Whether there is no canonical form; most answers need not be parsed to tell."""
    return not (words(_bare(answer)) or canonical(answer))


def same_answer(a: str | None, b: str | None) -> bool:
    """Whether two answers mean the same; no answer is never the same as anything.

    Canonical forms are compared first; formulas that are spelt differently ("(x+1)^2" and
    "x^2+2x+1") are then compared by their values, unless both are whole numbers or amounts.
    """
    if a is None or b is None:
        return False
    if a == b:
        return True
    forms = canonical(a), canonical(b)
    return forms[0] == forms[1] or (not all(map(_EXACT.fullmatch, forms)) and same_values(a, b))


def words(text: str) -> str:
    """Bring words to one form, without case and outer punctuation; a lone letter is a capital."""
    text = re.sub(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}", r"\1", text)
    text = _EXCLAIMED.sub("", " ".join(text.split())).strip(" .,:;?$*\"'`")
    lone = LONE_LETTER.fullmatch(text)
    return lone[1].upper() if lone else text.casefold()


LONE_LETTER = re.compile(r"[\s*(\[$]*([A-Ja-j])[\s*)\]$.:,]*")
_AMOUNTS = re.compile(r"(?:\d+|\?) [^\W\d_]+(?:, (?:\d+|\?) [^\W\d_]+)+")
_EXACT = re.compile(rf"-?\d+|{_AMOUNTS.pattern}")
_EXCLAIMED = re.compile(r"(?<!\d)!+$")  # but 5! is a number
_NAME = re.compile(r"^\s*\\?[A-Za-z]\w*\s*=\s*")


def _bare(answer: str) -> str:
    bare = tidy(answer).strip(" \t\n*`").rstrip(".")
    if len(bare) > 1 and bare[0] == bare[-1] == "$":
        bare = bare[1:-1]
    return _NAME.sub("", bare)
