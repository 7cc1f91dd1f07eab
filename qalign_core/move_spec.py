r"""Parse the setting `move`: which moves a chain makes, and how often.

    >>> parse_moves("0.2*suffix+0.8*block(:)")
    (Part(weight=0.2, name='suffix', delimiter=''), Part(weight=0.8, name='block', delimiter=':'))
    >>> [part.weight for part in parse_moves("suffix+entropy")]
    [0.5, 0.5]

A term is `suffix`, `entropy`, `block(...)` or a move from the user's file, `mine.py:Mine`, with an
optional weight (default 1). A block's delimiter is written in parentheses, without quotes; `\n`,
`\t`, `\)` and `\\` are a newline, a tab, a parenthesis and a backslash.
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
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Part:
    """One move of a mix.

    Attributes:
        weight: the probability that a step makes this move.
        name: `SUFFIX`, `ENTROPY`, `BLOCK`, or a move from the user's file, FILE.py:NAME.
        delimiter: the text that ends a block; empty for other moves.
    """

    weight: float
    name: str
    delimiter: str = ""

    @property
    def is_own(self) -> bool:
        """True if the move is in a file of the user."""
        return ".py:" in self.name

    @property
    def reads_log_probs(self) -> bool:
        """True if the move needs the log-probabilities of the text that it rewrites."""
        return self.name not in (SUFFIX, ENTROPY)


def parse_moves(text: str) -> tuple[Part, ...]:
    """Parse a setting into moves whose weights sum to 1.

    Raises:
        InvalidSetting: it is not a list of moves, or the moves cannot reach every response.
    """
    parts: list[Part] = []
    at = 0
    # in a link typed by hand, "+" arrives as a space
    while (term := _TERM.match(text, at)) and text[term.end() : term.end() + 1] in ("", "+", " "):
        delimiter = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), term["of"] or "")
        parts.append(Part(float(term["weight"] or 1), term["name"].partition("(")[0], delimiter))
        at = term.end() + 1
    total = math.fsum(part.weight for part in parts)
    if at != len(text) + 1 or not all(part.weight > 0 for part in parts):
        raise InvalidSetting(
            f"move must be moves such as suffix, entropy or 0.5*suffix+0.5*block(:), each with a "
            f"weight above 0, got {short_repr(text)}"
        )
    if all(part.name == BLOCK for part in parts):
        raise InvalidSetting(
            f"block moves alone cannot reach every response, got {short_repr(text)}; "
            f"add suffix, as in {SUFFIX}+{text:.80}"
        )
    return tuple(Part(part.weight / total, part.name, part.delimiter) for part in parts)
