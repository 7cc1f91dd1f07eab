r"""Mathematical answers in LaTeX, through math-verify and SymPy, which are imported when needed."""

import cmath
import logging
import re
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

from qalign_core.decide.answers.numerals import written


def formula(text: str) -> str | None:
    r"""Bring LaTeX mathematics to SymPy's spelling of it ("5 \sqrt{2}"); None if it is words.

    It is LaTeX again, so that what has been brought to this form can be read once more.
    """
    value = _parse(text)
    if value is None or getattr(value, "is_Symbol", False):
        return None
    if getattr(value, "is_Rational", False):
        return written(Fraction(int(value.p), int(value.q)))
    from sympy import latex

    return str(latex(value))


def same_values(one: str, other: str) -> bool:
    """Whether two formulas have the same symbols and agree at three points, to nine digits."""
    a, b = _parse(one), _parse(other)
    if not (_is_expression(a) and _is_expression(b)) or a.free_symbols != b.free_symbols:
        return False
    names = sorted(a.free_symbols, key=str)
    for start in (0.37, 1.43, 2.91):
        point = {name: start + 0.211 * i for i, name in enumerate(names)}
        left, right = a.evalf(15, subs=point), b.evalf(15, subs=point)
        if not (left.is_number and right.is_number):
            return False
        x, y = complex(left), complex(right)
        if not (abs(x - y) <= 1e-9 * max(1.0, abs(x)) if cmath.isfinite(x) else x == y):
            return False
    return True


_MATHEMATICS = re.compile(r"\\[a-z]|[\d^_=+*/()\[\]]|^[A-Za-z](?:\s*-\s*[A-Za-z])*$")
_PROSE = re.compile(r"[A-Za-z]{4,} [A-Za-z]{3,}")
# No time limit can be set, since math-verify's needs signals and so the main thread: what SymPy
# would multiply out for ever is refused instead.
_EXPLOSIVE = re.compile(r"\^\s*\{?\s*-?\s*\d{3}|\^[^^]*\^[^^]*\^|\^\{[^}]*\^|\d{30}|!|\\sum|\\prod")
_MAX_LENGTH = 200
_MAX_DEPTH = 12  # brackets in brackets: 60 of them take the parser 12 s


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """Parse LaTeX to a SymPy value; None for words and for what is too large to evaluate."""
    if (
        len(text) > _MAX_LENGTH
        or not _MATHEMATICS.search(text)
        or _EXPLOSIVE.search(text)
        or _depth(text) > _MAX_DEPTH
        or _PROSE.search(re.sub(r"\\[a-z]+", "", text))
    ):
        return None
    parse, config = _math_verify()
    values = parse(
        f"${text.strip('$')}$",
        extraction_config=[config],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    if not values or isinstance(values[0], str):
        return None
    value = values[0].doit() if hasattr(values[0], "doit") else values[0]
    # "x is in ..." would be False, and so the same as any other such claim
    return None if getattr(value, "is_Boolean", False) and not value.free_symbols else value


def _depth(text: str) -> int:
    """How deep brackets are nested."""
    return max(accumulate(("([{".find(c) >= 0) - (")]}".find(c) >= 0) for c in text), default=0)


@lru_cache(maxsize=1)
def _math_verify() -> tuple[Any, Any]:
    from math_verify import LatexExtractionConfig, parse

    logging.getLogger("math_verify.parser").addFilter(
        lambda record: "Timeout is disabled" not in record.getMessage()  # said at every call
    )
    return parse, LatexExtractionConfig()


def _is_expression(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("evalf", "free_symbols", "is_number"))
