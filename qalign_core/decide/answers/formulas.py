r"""Mathematical answers: numbers, sets, intervals, tuples, matrices and relations in LaTeX.

    formula(r"\{1\pm\sqrt{5},-2\}")   ->  "-2, 1 + \sqrt{5}, 1 - \sqrt{5}"
    formula("2x - 4y = 6")            ->  "x - 2y - 3 = 0"
    formula("x > 2")                  ->  "(2, \infty)"

A formula is read to a `Value`, whose text is its canonical form: expressions are multiplied out
and reduced exactly, equations are divided by their leading coefficient, and what has no order is
sorted. The canonical form is LaTeX again, and is read to itself. SymPy is imported when needed.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from qalign_core.decide.answers.latex import (
    MAX_TERMS,
    UnreadableError,
    count_terms,
    read_expression,
)
from qalign_core.decide.answers.numerals import format_number, whole_number
from qalign_core.decide.answers.units import strip_unit

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Value:
    r"""What a formula means.

    Attributes:
        kind: "scalar", "set", "union", "matrix", "base", "name", a relation ("=", ">", "\ge",
            "\ne", of the scalar and zero), or the two brackets of a tuple or interval ("(]").
        parts: what it consists of, in an order of its own; none of a scalar or a base.
        text: the canonical form.
        scalar: the SymPy value of a scalar.
    """

    kind: str
    parts: tuple["Value", ...]
    text: str
    scalar: Any = None


def formula(text: str) -> str | None:
    r"""Bring mathematics to its canonical form ("5 \sqrt{2}"); None if it is words."""
    value = read_formula(text)
    return None if value is None else value.text


def same_values(one: str, other: str) -> bool:
    """Whether two formulas mean the same: exactly, or where no exact test decides, to 50 digits.

    A pair that cannot be compared is different, and the reason is logged.
    """
    pairs = [(read_formula(one, units), read_formula(other, units)) for units in (True, False)]
    try:
        return any(a is not None and b is not None and _is_same(a, b) for a, b in pairs)
    except Exception:
        logger.warning("graded as different, since they cannot be compared: %r and %r", one, other)
        return False


@lru_cache(maxsize=4096)
def read_formula(text: str, units: bool = True) -> Value | None:
    """Read a formula; None for words and for what is too large to evaluate.

    Args:
        text: LaTeX, or the plain text of a formula.
        units: whether a unit at the end is dropped; else its letters are variables.
    """
    if len(text) > _MAX_LENGTH or not _MATHEMATICS.search(text):
        return None
    try:
        value = _read(_clean(text), units)
        again = _read(_clean(value.text), units)
    except UnreadableError:
        return None
    except Exception as error:
        logger.warning("read as words, since %s: %r", type(error).__name__, text)
        return None
    is_stable = again.text == value.text and len(value.text) <= _MAX_LENGTH
    return value if is_stable else None  # at the bounds, a form may not be readable


_MAX_LENGTH = 200
_MATHEMATICS = re.compile(
    r"\\[a-zA-Z{]|[\d^_=<>+*/()\[\]√²³π∞≤≥≠±|]|(?:\b[A-Za-z]|[\d)}])!|[A-Za-z]\s*-\s*[A-Za-z]|^[A-Za-z]$"
)

_PLAIN = str.maketrans(
    {
        "−": "-", "–": "-", "‑": "-", "＋": "+", "＝": "=", "⁄": "/", "’": "'", "×": "\\times ",
        "·": "\\cdot ", "÷": "/", "π": "\\pi ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ",
        "≠": "\\ne ", "∈": "\\in ", "∪": "\\cup ", "±": "\\pm ", "°": "^\\circ ", "⁰": "^0",
        "¹": "^1", "²": "^2", "³": "^3", "⁴": "^4", "⁵": "^5", "⁶": "^6", "⁷": "^7", "⁸": "^8",
        "⁹": "^9", "θ": "\\theta ", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}",
        "¾": "\\frac{3}{4}", "⅓": "\\frac{1}{3}", "⅔": "\\frac{2}{3}", "∅": "\\emptyset ",
        "\u00a0": " ", "\u2009": "\\,", "\u202f": "\\,",
    }
)  # fmt: skip
_SPELLINGS = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\!\s*|\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z])\.?", ""),
        (r"(?<=\d)\\,\s*(?=\d{3}(?!\d))", ""),
        (r"\{,\}(?=\d{3}(?!\d))", ""),
        (r"(?<=\d)\{,\}(?=\d)", "."),
        (r"\\[,;:]|(?<!\\)\\ |~|\\q?quad(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:mbox|textrm|textbf|textit|mathrm|mathbf|mathit|rm)\s*\{", r"\\text{"),
        (r"\\text\s*\{\s*([A-Za-z0-9])\s*\}", r" \1 "),
        (r"\\text\s*\{\s*(?:,\s*)?(?:and|or)\s*\}|(?<=[\d)}\]])\s*,?\s+(?:and|or)\s+", ", "),
        (r"\\(?:lbrace|lbrack)(?![A-Za-z])", r"\\{"),
        (r"\\(?:rbrace|rbrack)(?![A-Za-z])", r"\\}"),
        (r"\\[lr]?vert(?![A-Za-z])", "|"),
        (r"√\s*(\d+(?:\.\d+)?|[A-Za-z])", r"\\sqrt{\1}"),
        (r"√\s*\(", r"\\sqrt("),
        (r"\\(?:leqslant|leq)(?![A-Za-z])|<=", r"\\le "),
        (r"\\(?:geqslant|geq)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\[$]|(?<!\\)[$€£¥]", ""),
        (r"\\%|%", ""),
    )
]


def _clean(text: str) -> str:
    """Replace the many spellings of one thing by one of them."""
    text = text.translate(_PLAIN)
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    return text.strip(" \t\n*`.,;")


# -- structure ------------------------------------------------------------------------------------

_OPENING = ("(", "[", "{", "\\{", "\\langle", "\\begin")
_CLOSING = (")", "]", "}", "\\}", "\\rangle", "\\end")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_RELATION = re.compile(r"\\(?:le|ge|ne)(?![A-Za-z])|[<>=]")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_MEMBER = re.compile(r"^\s*\\?[A-Za-z]+\s*\\in(?![A-Za-z])\s*")
_NAME = re.compile(
    r"\s*(?:\\?[A-Za-z]|[A-Z]{2,3}|\\?[A-Za-z]{4,}|\\text\s*\{[^{}]*\})"
    r"(?:_\s*(?:\{[^{}]*\}|\w))?'*\s*(?:\([A-Za-z0-9,\s]{1,8}\))?\s*"
)
_COORDINATES = re.compile(r"\s*\([A-Za-z](?:\s*,\s*[A-Za-z])+\)\s*")
_BASE = re.compile(r"\s*\(?\s*([0-9A-Z]+)\s*\)?\s*_\s*(?:\{\s*(\d{1,2})\s*\}|(\d{1,2}))\s*")
_MATRIX = re.compile(r"\s*\\begin\{(.?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}\s*", re.S)
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_COMMA = re.compile(",")
_EMPTY_SET = Value("set", (), "\\emptyset")


def _read(text: str, units: bool) -> Value:
    """Read clean text by its outermost structure."""
    text = _MEMBER.sub("", text).strip()
    if len(pieces := _split(text, _CUP)) > 1:
        return _gather("union", [_read(piece, units) for piece in pieces])
    name = "".join(text.split())
    if name == "\\mathbb{R}":
        return _interval(None, None)
    if name in ("\\emptyset", "\\varnothing", "\\{\\}"):
        return _EMPTY_SET
    items = _split(_THOUSANDS.sub(lambda m: m[0].replace(",", ""), text), _COMMA)
    if len(items) > 1:
        return _set_of([value for item in items for value in _alternatives(item, units, True)])
    return _set_of(_alternatives(text, units, False))


def _alternatives(text: str, units: bool, named: bool) -> list[Value]:
    r"""Read one item of a list, which "\pm" makes two."""
    if len(_split(text, _PLUS_MINUS)) == 2 and not _RELATION.search(_named(text)[1]):
        return [_read_item(_PLUS_MINUS.sub(sign, text), units, named) for sign in "+-"]
    return [_read_item(text, units, named)]


def _read_item(text: str, units: bool, named: bool) -> Value:
    name, body = _named(text)
    if name and _RELATION.search(body) is None:
        value = _read(body, units)
        if value.scalar is None or name not in {str(s) for s in value.scalar.free_symbols}:
            return Value("name", (value,), f"{name} = {value.text}") if named else value
    operators = _split(text, _RELATION)
    if len(operators) > 1:
        return _read_relation(operators, [m[0] for m in _top_level(text, _RELATION)])
    text = text.strip()
    if matrix := _MATRIX.fullmatch(text):
        return _read_matrix(matrix[1], matrix[2])
    if base := _BASE.fullmatch(text):
        digits = base[1].lstrip("0") or "0"
        if digits[0].isdigit() or len(digits) > 1:
            return Value("base", (), f"{digits}_{{{base[2] or base[3]}}}")
    opening = next(filter(text.startswith, ("(", "[", "\\{", "\\langle")), "")
    closing = next(filter(text.endswith, (")", "]", "\\}", "\\rangle")), "")
    if opening and closing and _closes(text):
        pieces = _split(text[len(opening) : -len(closing)], _COMMA)
        if opening == "\\{":
            return _set_of([v for piece in pieces for v in _alternatives(piece, units, True)])
        if len(pieces) > 1:
            return _tuple(opening, [_read_item(piece, units, False) for piece in pieces], closing)
    if units and (number := whole_number(text)):
        import sympy

        return _scalar(sympy.Rational(number))
    return _scalar(read_expression(strip_unit(text) if units else text))


def _named(text: str) -> tuple[str, str]:
    """Split "x = 5" or "f(x) = 5" into its name and the rest."""
    left, equals, right = text.partition("=")
    is_name = equals and (_NAME.fullmatch(left) or _COORDINATES.fullmatch(left))
    return ("".join(left.split()), right) if is_name else ("", text)


def _read_matrix(kind: str, body: str) -> Value:
    rows = [
        [_read_item(cell, True, False) for cell in _split(row, re.compile("&"))]
        for row in _split(body, re.compile(r"\\\\"))
        if row.strip()
    ]
    if not rows or len({len(row) for row in rows}) > 1:
        raise UnreadableError("the rows of a matrix have one length")
    kind = kind if kind in ("vmatrix", "Vmatrix") else "pmatrix"
    cells = " \\\\ ".join(" & ".join(value.text for value in row) for row in rows)
    parts = tuple(value for row in rows for value in row)
    return Value(f"{kind} {len(rows)}", parts, f"\\begin{{{kind}}} {cells} \\end{{{kind}}}")


def _tuple(opening: str, items: Sequence[Value], closing: str) -> Value:
    space = " " if opening == "\\langle" else ""
    text = f"{opening}{space}{', '.join(v.text for v in items)}{space}{closing}"
    return Value(opening + closing, tuple(items), text)


def _set_of(items: Sequence[Value]) -> Value:
    """A set without an order; one of one item is that item."""
    if len({value.text.partition(" = ")[0] for value in items if value.kind == "name"}) == 1:
        items = [value.parts[0] if value.kind == "name" else value for value in items]
    unique = {value.text: value for value in items}
    if len(unique) == 1:
        return next(iter(unique.values()))
    return _gather("set", list(unique.values())) if unique else _EMPTY_SET


def _gather(kind: str, items: Sequence[Value]) -> Value:
    def rank(value: Value) -> tuple[int, Fraction, str]:
        if value.scalar is not None and value.scalar.is_Rational:
            return 0, Fraction(int(value.scalar.p), int(value.scalar.q)), ""
        return 1, Fraction(0), value.text

    parts = tuple(sorted(items, key=rank))
    joint = {"set": ", ", "union": " \\cup "}[kind]
    return Value(kind, parts, joint.join(value.text for value in parts))


def _top_level(text: str, separator: re.Pattern[str]) -> list[re.Match[str]]:
    """Find a separator outside all brackets."""
    matches, depth, at = [], 0, 0
    while at < len(text):
        if depth == 0 and (match := separator.match(text, at)):
            matches.append(match)
            at = match.end()
            continue
        token = _TOKEN.match(text, at)
        assert token is not None
        depth += _depth(token[0])
        at = token.end()
    return matches


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    pieces, at = [], 0
    for match in _top_level(text, separator):
        pieces.append(text[at : match.start()])
        at = match.end()
    return [*pieces, text[at:]]


def _closes(text: str) -> bool:
    """Whether the first bracket of a text is closed by its last."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += _depth(token[0])
        if depth == 0:
            return token.end() == len(text)
    return False


def _depth(token: str) -> int:
    """Return 1 if the token opens a bracket, -1 if it closes one, else 0."""
    return (token in _OPENING) - (token in _CLOSING)


# -- relations ------------------------------------------------------------------------------------

_REVERSED = {"<": ">", "\\le": "\\ge"}


def _read_relation(sides: Sequence[str], operators: Sequence[str]) -> Value:
    """Read a chain of relations: a value, an interval, or relations of an expression and zero."""
    values = [read_expression(side) for side in sides]
    relations = []
    for (left, right), operator in zip(pairwise(values), operators, strict=True):
        difference = right - left if operator in _REVERSED else left - right
        relations.append((_reduce(difference), _REVERSED.get(operator, operator)))
    symbols = set().union(*(value.free_symbols for value, _ in relations))
    if not symbols:
        if all(value == 0 and operator == "=" for value, operator in relations):
            return _scalar(values[-1])
        raise UnreadableError("a relation of constants is no answer")
    if len(symbols) == 1:
        solution = _solve(relations, symbols.pop())
        if solution is not None:
            return solution
    return _set_of([_relation(value, operator) for value, operator in relations])


def _solve(relations: Sequence[tuple[Any, str]], symbol: Any) -> Value | None:
    """Solve linear relations of one variable; None if one of them is not linear."""
    import sympy

    lower: Any = None
    upper: Any = None
    for value, operator in relations:
        if not value.is_polynomial(symbol) or sympy.degree(value, symbol) != 1:
            return None
        slope = value.coeff(symbol, 1)
        bound = _reduce(-value.coeff(symbol, 0) / slope)
        if operator == "=" and len(relations) == 1:
            return _scalar(bound)
        if operator == "\\ne" and len(relations) == 1:
            below, above = _interval(None, (bound, ")")), _interval((bound, "("), None)
            return _gather("union", [below, above])
        if operator in ("=", "\\ne") or not slope.is_real or not bound.is_real:
            return None
        is_open = operator == ">"
        if slope > 0 and lower is None:
            lower = (bound, "(" if is_open else "[")
        elif slope < 0 and upper is None:
            upper = (bound, ")" if is_open else "]")
        else:
            return None
    return _interval(lower, upper)


def _interval(lower: tuple[Any, str] | None, upper: tuple[Any, str] | None) -> Value:
    import sympy

    (start, opening), (end, closing) = lower or (-sympy.oo, "("), upper or (sympy.oo, ")")
    return _tuple(opening, [_scalar(start), _scalar(end)], closing)


def _relation(value: Any, operator: str) -> Value:
    """An expression compared with zero, divided by what does not change the relation."""
    import sympy

    value = value.primitive()[1]
    symbols = sorted(value.free_symbols, key=str)
    if value.is_polynomial(*symbols) and (leading := sympy.LC(value, *symbols)).is_irrational:
        value = _reduce(value / (leading if operator in ("=", "\\ne") else abs(leading)))
    if operator in ("=", "\\ne") and value.could_extract_minus_sign():
        value = -value
    scalar = _scalar(value)
    return Value(operator, (scalar,), f"{scalar.text} {operator} 0")


# -- scalars --------------------------------------------------------------------------------------


def _scalar(value: Any) -> Value:
    value = _reduce(value)
    return Value("scalar", (), _write(value), value)


_MAX_DEGREE, _MAX_SYMBOLIC = 100, 10_000  # of a fraction that is reduced; degree ** n symbols
_MAX_IRRATIONALS = 3  # in its denominators; with more, a rational one may have 34,000 terms


def _reduce(value: Any) -> Any:
    """Bring an expression to an exact normal form: expanded, or a reduced fraction of such."""
    import sympy

    if value.is_Rational or value in (sympy.oo, -sympy.oo):
        return value
    if count_terms(value) > MAX_TERMS or len(value.free_symbols) > 8:
        raise UnreadableError("an expression has too many terms")
    value = _expand(value)
    powers = value.atoms(sympy.Pow)
    if any(p.exp.is_negative and p.base.is_Add for p in powers):
        degree = max((abs(p.exp) for p in powers if p.exp.is_Integer), default=0)
        size = max(degree, 2) ** len(value.free_symbols)
        if count_terms(value) > 30 or degree > _MAX_DEGREE or size > _MAX_SYMBOLIC:
            raise UnreadableError("a fraction has too many terms")
        if len(_irrationals(powers)) <= _MAX_IRRATIONALS:
            value = sympy.radsimp(value, symbolic=False)
        value = sympy.cancel(value) if value.free_symbols else _expand(value)
    if not value.free_symbols and value.atoms(sympy.Pow):
        value = _expand(sympy.sqrtdenest(value))
    if value.has(sympy.nan, sympy.zoo):
        raise UnreadableError("the value is not defined")
    return value


def _irrationals(powers: set[Any]) -> set[Any]:
    """The roots, constants and i in the denominators among some powers."""
    import sympy

    irrationals = set[Any]()
    for base in (p.base for p in powers if p.exp.is_negative and p.base.is_Add):
        irrationals |= base.atoms(sympy.NumberSymbol, type(sympy.I))
        irrationals |= {p for p in base.atoms(sympy.Pow) if not p.exp.is_Integer}
    return irrationals


def _expand(value: Any) -> Any:
    return value.expand(power_exp=False, log=False)


def _write(value: Any) -> str:
    if value.is_Rational:
        return format_number(Fraction(int(value.p), int(value.q)))
    from sympy import latex

    text = latex(value, ln_notation=True, inv_trig_style="full")
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])", "", text)
    if len(text) > _MAX_LENGTH:
        raise UnreadableError("the canonical form would be too long")
    return re.sub(r"(?<=\d) (?=[A-Za-z](?![A-Za-z]))| (?=\))", "", text)


# -- equality -------------------------------------------------------------------------------------


def _is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal, part by part."""
    if one.text == other.text:
        return True
    if one.scalar is not None and other.scalar is not None:
        return _agree(one.scalar, other.scalar)
    for equation, value in ((one, other), (other, one)):
        if equation.kind == "=" and value.scalar is not None:
            return _solves(equation.parts[0].scalar, value)
    if one.kind != other.kind or one.kind == "base" or len(one.parts) != len(other.parts):
        return False
    if one.kind in ("set", "union"):
        rest = list(other.parts)
        for part in one.parts:
            match = next((each for each in rest if _is_same(part, each)), None)
            if match is None:
                return False
            rest.remove(match)
        return True
    if one.kind == "name" and one.text.partition(" = ")[0] != other.text.partition(" = ")[0]:
        return False
    return all(map(_is_same, one.parts, other.parts))


def _solves(equation: Any, value: Value) -> bool:
    """Whether an equation of several variables says that one of them is a value of the others."""
    for symbol in equation.free_symbols - value.scalar.free_symbols:
        if equation.is_polynomial(symbol):
            slope = equation.coeff(symbol, 1)
            if slope.is_number and slope != 0 and (equation - slope * symbol).has(symbol) is False:
                return _scalar(-(equation - slope * symbol) / slope).text == value.text
    return False


_DIGITS, _SAME_TO = 60, 50
_POINTS = ((37, 21), (143, 58), (-271, 97))
"""The value of the first letter, and the step to the next one, in hundredths."""


def _agree(one: Any, other: Any) -> bool:
    """Whether two expressions that are not rational functions agree at three points."""
    import sympy

    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    if _is_exact(one, symbols) and _is_exact(other, symbols):
        return False
    difference = _expand(one - other)
    if difference.is_Rational:
        return bool(difference == 0)
    for first, step in _POINTS if symbols else _POINTS[:1]:
        places = {s: sympy.Rational(first + step * i, 100) for i, s in enumerate(symbols)}
        left, right = (
            side.rewrite(sympy.gamma).evalf(_DIGITS, subs=places, maxn=150) for side in (one, other)
        )
        if not (left.is_number and right.is_number and left.is_finite and right.is_finite):
            return False
        scale = max(abs(left), abs(right))
        if not abs(left - right) <= scale * sympy.Float(10) ** -_SAME_TO:
            return False
    return True


def _is_exact(value: Any, symbols: Sequence[Any]) -> bool:
    """Whether a normal form decides: rational functions with rational coefficients."""
    import sympy

    return (
        bool(value.is_rational_function(*symbols))
        and not value.atoms(sympy.Function, sympy.NumberSymbol)
        and all(p.exp.is_Integer for p in value.atoms(sympy.Pow))
    )
