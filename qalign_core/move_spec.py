r"""Which moves a chain draws its proposals from, and how often: the setting `move`, read once.

`suffix`; `suffix+block(:)`; `0.2*suffix+0.8*block(\n)`; `entropy`; `mine.py:Mine`, a move of the
user's own file. A term is a move, with a weight (1 where there is none). A block's delimiter is
written in brackets, unquoted; `\n`, `\t`, `\)` and `\\` are a line's end, a tab, a bracket and a
backslash.
"""

import math
import re
from dataclasses import dataclass

from qalign_core.errors import InvalidSetting
from qalign_core.validation import short_repr

SUFFIX, ENTROPY, BLOCK = "suffix", "entropy", "block"
_TERM = re.compile(
    r"(?:(?P<weight>\d+\.?\d*|\.\d+)\*)?(?P<name>[^\s*+()]+\.py:\w+|"
    rf"{SUFFIX}|{ENTROPY}|{BLOCK}\((?P<of>(?:\\.|[^\\)])+)\))"
)
_MEANT = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Part:
    """One move of a mix.

    Attributes:
        weight: the probability that a step makes this move.
        name: `SUFFIX`, `ENTROPY`, `BLOCK`, or the place of an own move, FILE.py:NAME.
        delimiter: the text that ends a block; empty for the other moves.
    """

    weight: float
    name: str
    delimiter: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the move is in a file of the user's own."""
        return ".py:" in self.name

    @property
    def reads_log_probs(self) -> bool:
        """Whether the move needs the log-probabilities of the text that it rewrites."""
        return self.name not in (SUFFIX, ENTROPY)


def parse_moves(text: str) -> tuple[Part, ...]:
    """The moves that a setting names, with weights that sum to 1.

    Raises:
        InvalidSetting: it names no moves, or moves that cannot reach every response.
    """
    found: list[Part] = []
    at = 0
    # a "+" of a link typed by hand arrives as a space
    while (term := _TERM.match(text, at)) and text[term.end() : term.end() + 1] in ("", "+", " "):
        delimiter = re.sub(r"\\(.)", lambda m: _MEANT.get(m[1], m[1]), term["of"] or "")
        found.append(Part(float(term["weight"] or 1), term["name"].partition("(")[0], delimiter))
        at = term.end() + 1
    total = math.fsum(part.weight for part in found)
    if at != len(text) + 1 or not all(part.weight > 0 for part in found):
        raise InvalidSetting(
            f"move must be moves such as suffix, entropy or 0.5*suffix+0.5*block(:), each with a "
            f"weight above 0, got {short_repr(text)}"
        )
    if all(part.name == BLOCK for part in found):
        raise InvalidSetting(
            f"block moves alone cannot reach every response, got {short_repr(text)}; "
            f"add suffix, as in {SUFFIX}+{text:.80}"
        )
    return tuple(Part(part.weight / total, part.name, part.delimiter) for part in found)
