r"""Read a scalar expression in LaTeX or plain text into an exact SymPy value.

    read_expression(r"\frac12ab")    ->  a*b/2
    read_expression("1.5 \\pi")      ->  3*pi/2     (decimals are exact fractions)

A letter is a variable; `e`, `i`, `\pi` and `\infty` are the constants. No time limit can be set,
since comparisons run in threads: whatever could make SymPy compute for long (a power, a factorial,
a product of sums) is refused before it is evaluated. Everything unknown is refused too.
"""

import re
from math import comb, prod
from typing import Any


class UnreadableError(ValueError):
    """A text is no expression, or one that is too large to evaluate."""


def read_expression(text: str) -> Any:
    """Read an expression.

    Raises:
        UnreadableError: the text is no expression, or too large, or has no finite value.
    """
    import sympy

    parser = _Parser(text)
    value = parser.sum()
    if parser.rest():
        raise UnreadableError(f"{parser.rest()!r} is not understood")
    if value.has(sympy.nan, sympy.zoo):
        raise UnreadableError("the value is not defined")
    if value.has(sympy.oo, -sympy.oo) and value not in (sympy.oo, -sympy.oo):
        raise UnreadableError("infinity is only an answer by itself")
    return value


def count_terms(value: Any) -> int:
    """Bound the number of terms that multiplying out an expression gives."""
    if value.is_Add:
        return sum(map(count_terms, value.args))
    if value.is_Mul:
        return prod(map(count_terms, value.args))
    if value.is_Pow and value.exp.is_Integer:
        terms = count_terms(value.base)
        return comb(abs(int(value.exp)) + terms - 1, terms - 1)
    return max(1, *map(count_terms, value.args)) if value.args else 1


def _largest(value: Any) -> int:
    """The largest numerator or denominator in an expression."""
    import sympy

    numbers = value.atoms(sympy.Rational)
    return max((max(abs(int(n.p)), int(n.q)) for n in numbers), default=1)


MAX_TERMS = 200
_MAX_BITS = 2048  # of a power: some 600 digits
_MAX_DIGITS = 100  # of a literal
_MAX_FACTORIAL = 200
_MAX_EXPONENT = 100  # of anything but a number
_MAX_LETTERS = 3  # of a product without signs; a longer one is a word
_WORDS = frozenset(
    ("no", "yes", "not", "and", "or", "of", "the", "for", "one", "two", "six", "ten")
)
_MAX_DEPTH = 12  # brackets in brackets

_INVERTIBLE = ("sin", "cos", "tan", "cot", "sec", "csc")
_FUNCTIONS = {
    **{name: name for name in (*_INVERTIBLE, "sinh", "cosh", "tanh", "exp")},
    **{"arc" + name: "a" + name for name in _INVERTIBLE},
    "ln": "log", "log": "log", "sqrt": "sqrt",
}  # fmt: skip
_GREEK = re.compile(
    "alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|iota|kappa|lambda|mu|nu|xi|rho|"
    "sigma|tau|upsilon|(?:var)?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega"
)
_NUMBER = re.compile(
    r"(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.(?P<places>\d*))?"
    r"(?:\\overline\s*\{(?P<repeating>\d+)\})?"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_WORD = re.compile(r"[A-Za-z]+")
_MIXED = re.compile(r"\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|\s+(\d+)\s*/\s*(\d+)")
_SUBSCRIPT = re.compile(r"_\s*(?:\{\s*([\w\s+,-]{1,12})\}|(\w))")
_TIMES = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])|\*(?!\*)")
_OVER = re.compile(r"\\div(?![A-Za-z])|/")
_POWER = re.compile(r"\^|\*\*")
_DEGREE = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degree(?![A-Za-z])")


class _Parser:
    """A parser by recursive descent; each method reads the part of the grammar it is named for."""

    def __init__(self, text: str) -> None:
        import sympy

        self.sympy = sympy
        self.text = text
        self.at = 0
        self.depth = 0
        self.exponents = 0
        self.in_function = 0

    def rest(self) -> str:
        rest = self.text[self.at :].lstrip()
        self.at = len(self.text) - len(rest)
        return rest

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.rest()
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def take_text(self, *texts: str) -> str | None:
        rest = self.rest()
        for text in texts:
            if rest.startswith(text):
                self.at += len(text)
                return text
        return None

    def expect(self, text: str) -> None:
        if not self.take_text(text):
            raise UnreadableError(f"{text!r} is missing before {self.rest()!r}")

    def up_to(self, closing: str) -> Any:
        """Read the inside of a bracket that is open, and its end."""
        value = self.sum()
        self.expect(closing)
        return value

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnreadableError("brackets are nested too deeply")
        total = self.product()
        while sign := self.take_text("+", "-"):
            term = self.product(signed=False)
            total = total + term if sign == "+" else total - term
        self.depth -= 1
        return total

    def product(self, *, signed: bool = True) -> Any:
        sign = 1
        while signed and (mark := self.take_text("+", "-")):
            sign = -sign if mark == "-" else sign
        value, is_fraction = self.factor(), self.is_number
        while True:
            if self.take(_TIMES):
                value *= self.signed_factor()
            elif self.take(_OVER):
                is_number = is_fraction
                below = self.signed_factor()
                is_fraction = is_number and self.is_number
                if self.starts_factor() and not is_fraction:
                    raise UnreadableError("a/bc has two readings")
                value = self.over(value, below)
                continue
            elif self.starts_factor():
                before = self.at
                right = self.factor()
                if self.text[before].isdigit() or self.text[before] == ".":
                    raise UnreadableError("a number follows a factor without a sign between them")
                value *= right
            else:
                return sign * value
            is_fraction = False

    def signed_factor(self) -> Any:
        sign = -1 if self.take_text("-") else 1
        return sign * self.factor()

    def starts_factor(self) -> bool:
        rest = self.rest()
        if not rest or rest[0] in ")]}+-*/=^_,!&|":
            return False
        return not re.match(r"\\(?:right|rfloor|rceil|rvert|\}|cdot|times|div|ast)", rest)

    def factor(self) -> Any:
        self.is_number = False
        value = self.atom()
        while True:
            if self.take(_DEGREE):
                value = value * self.sympy.pi / 180 if self.in_function else value
            elif self.take_text("!"):
                value = self.factorial(value)
            elif self.take(_POWER):
                self.exponents += 1
                if self.exponents > 2:
                    raise UnreadableError("powers are stacked too high")
                value = self.power(value, self.exponent())
                self.exponents -= 1
                self.is_number = False
            else:
                return value

    def exponent(self) -> Any:
        if self.take_text("{"):
            return self.up_to("}")
        sign = -1 if self.take_text("-") else 1
        value = self.atom()
        return sign * (self.power(value, self.exponent()) if self.take(_POWER) else value)

    def atom(self) -> Any:
        rest = self.rest()
        if not rest:
            raise UnreadableError("a value is missing at the end")
        if rest[0].isdigit() or (rest[0] == "." and rest[1:2].isdigit()):
            return self.number()
        if opening := self.take_text("(", "[", "{"):
            return self.up_to({"(": ")", "[": "]", "{": "}"}[opening])
        if self.take_text("|"):
            return self.sympy.Abs(self.up_to("|"))
        if command := self.take(_COMMAND):
            return self.command(command[1])
        if _WORD.match(rest):
            return self.letters()
        raise UnreadableError(f"{rest[:20]!r} is no value")

    def number(self) -> Any:
        match = self.take(_NUMBER)
        assert match is not None
        if len(match[0]) > _MAX_DIGITS:
            raise UnreadableError("a number has too many digits")
        rational = self.sympy.Rational
        whole, places = (match["whole"] or "0").replace(",", ""), match["places"] or ""
        value = rational(int(whole + places), 10 ** len(places))
        if repeating := match["repeating"]:
            value += rational(int(repeating), (10 ** len(repeating) - 1) * 10 ** len(places))
        self.is_number = True
        if match["places"] is None and (mixed := self.take(_MIXED)):
            above, below = int(mixed[1] or mixed[3]), int(mixed[2] or mixed[4])
            if not 0 < above < below:
                raise UnreadableError("the fraction of a mixed number is below 1")
            value += rational(above, below)
        return value

    def letters(self) -> Any:
        """A function or a constant by name, else one letter: "xy" is a product."""
        inside = self.at > 0 and self.text[self.at - 1].isalpha()
        match = _WORD.match(self.text, self.at)
        word = match[0] if match and not inside else ""
        if word in _FUNCTIONS or word == "pi":
            self.at += len(word)
            return self.command(word)
        if len(word) > _MAX_LETTERS or word.lower() in _WORDS:
            raise UnreadableError(f"{word!r} is a word")
        self.at += 1
        return self.symbol(self.text[self.at - 1])

    def symbol(self, name: str) -> Any:
        constants = {"e": self.sympy.E, "i": self.sympy.I}
        if name in constants and not self.rest().startswith("_"):
            return constants[name]
        if index := self.take(_SUBSCRIPT):
            name = f"{name}_{{{''.join((index[1] or index[2]).split())}}}"
        return self.sympy.Symbol(name)

    def command(self, name: str) -> Any:
        sympy = self.sympy
        if name == "frac":
            above = self.argument()
            return self.over(above, self.argument())
        if name == "binom":
            above, below = self.argument(), self.argument()
            if not (above.is_Integer and below.is_Integer and 0 <= above <= _MAX_FACTORIAL):
                raise UnreadableError("only binomials of small numbers are evaluated")
            return sympy.binomial(above, below)
        if name in _FUNCTIONS:
            return self.function(name)
        if name == "pi":
            return sympy.pi
        if name == "infty":
            return sympy.oo
        if _GREEK.fullmatch(name):
            return self.symbol(name)
        in_bars = {"lfloor": sympy.floor, "lceil": sympy.ceiling, "lvert": sympy.Abs}
        if name in in_bars:
            return in_bars[name](self.up_to(f"\\r{name[1:]}"))
        if name == "operatorname":
            self.expect("{")
            word = self.take(_WORD)
            self.expect("}")
            if word and word[0] in _FUNCTIONS:
                return self.function(word[0])
        raise UnreadableError(f"\\{name} is not known")

    def argument(self) -> Any:
        """What a command takes: a group, or else one digit, letter or command."""
        if self.take_text("{"):
            return self.up_to("}")
        if digit := self.take(re.compile(r"\d")):
            return self.sympy.Integer(int(digit[0]))
        if command := self.take(_COMMAND):
            return self.command(command[1])
        if letter := self.take(re.compile(r"[A-Za-z]")):
            return self.symbol(letter[0])
        raise UnreadableError("an argument is missing")

    def function(self, name: str) -> Any:
        sympy = self.sympy
        if name == "sqrt":
            return self.root()
        power: Any = 1
        base = None
        if name == "log" and self.take_text("_"):
            base = self.argument() if self.rest().startswith(("{", "\\")) else self.number()
        if self.take(_POWER):
            power = self.exponent()
        self.in_function += 1
        if self.rest().startswith(("(", "[", "{", "|", "\\l")):
            value = self.atom()
        else:  # \sin 2x is the sine of 2x
            value = self.factor()
            while self.starts_factor() and not self.rest().startswith(("\\", "(")):
                value *= self.factor()
        self.in_function -= 1
        if name in _INVERTIBLE and power == -1:
            name, power = "arc" + name, 1
        if name == "log":
            if base is None:  # 10 or e, depending on who writes
                return self.power(sympy.Function("log")(value), power)
            result = sympy.log(value, base)
        else:
            result = getattr(sympy, _FUNCTIONS[name])(value)
        return self.power(result, power)

    def root(self) -> Any:
        index: Any = self.sympy.Integer(2)
        if self.take_text("["):
            index = self.up_to("]")
        rest = self.rest()
        if rest[:1].isdigit():
            value = self.number()
        else:
            value = self.atom() if rest.startswith("(") else self.argument()
        if not (index.is_Integer and 2 <= index <= 20):
            raise UnreadableError("the index of a root is a small number")
        sign = -1 if value.is_negative and index % 2 else 1
        return sign * self.power(sign * value, self.sympy.Rational(1, index))

    def over(self, above: Any, below: Any) -> Any:
        if below.is_number and below.evalf(15, maxn=60, chop=True) == 0:
            raise UnreadableError("a division by zero has no value")
        return above / below

    def power(self, base: Any, exponent: Any) -> Any:
        if exponent == 1:
            return base
        if base.is_zero and not exponent.is_positive:
            raise UnreadableError("a division by zero has no value")
        size, times = _largest(base), _largest(exponent)
        if exponent.is_Integer and base.is_Rational:
            is_small = size.bit_length() * times <= _MAX_BITS
        else:
            is_small = size.bit_length() <= 256 and times <= _MAX_EXPONENT
            if exponent.has(self.sympy.factorial):
                is_small = False
            elif not exponent.is_Rational:
                places = dict.fromkeys(exponent.free_symbols, 3)
                is_small &= bool(abs(exponent.evalf(5, subs=places, maxn=20)) <= _MAX_EXPONENT)
        if not is_small:
            raise UnreadableError("a power is too large")
        value = base**exponent
        if count_terms(value) > MAX_TERMS:
            raise UnreadableError("a power has too many terms")
        return value

    def factorial(self, value: Any) -> Any:
        if self.rest().startswith("!"):
            raise UnreadableError("a double factorial is not known")
        is_small = _largest(value) <= _MAX_FACTORIAL
        if not is_small or (value.is_number and not (value.is_Integer and value >= 0)):
            raise UnreadableError("only factorials of small numbers are evaluated")
        return self.sympy.factorial(value)
