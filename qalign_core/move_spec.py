r"""Parse the setting `move`: which moves a chain makes, and how often.

    >>> parse_moves("0.2*suffix+0.8*block(:)")
    (Part(weight=0.2, name='suffix', delimiter=''), Part(weight=0.8, name='block', delimiter=':'))
    >>> [part.weight for part in parse_moves("suffix+entropy")]
    [0.5, 0.5]

A term is a name in `MOVES`, `block(...)` or a move from the user's file, `mine.py:Mine`, with an
optional weight (default 1). A block's delimiter is written in parentheses, without quotes; `\n`,
`\t`, `\)` and `\\` are a newline, a tab, a parenthesis and a backslash.

A move is one file in `chain/moves`, whose class `move_kind` adds to `MOVES`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from qalign_core.errors import InvalidSetting
from qalign_core.validation import is_file_name, short_repr

SUFFIX = "suffix"
"""Name of the paper's move."""
_TERM = re.compile(
    r"(?:(?P<weight>\d+\.?\d*|\.\d+)\*)?(?P<name>[^\s*+()]+\.py:\w+|"
    r"[a-z]\w*(?=\(|[+ ]|$)(?:\((?P<of>(?:\\.|[^\\)])+)\))?)"
)
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class MoveKind:
    """A move that a setting can name.

    Attributes:
        name: its name in settings and traces.
        build: (language model, text in parentheses) -> the move.
        needs_log_probs: True if it reads the log-probabilities of the text that it rewrites.
        takes_text: True if its name is followed by a text in parentheses.
        reaches_all: True if it alone can reach every response.
        methods: names of the methods of the language model that it calls.
    """

    name: str
    build: Callable[[Any, str], Any]
    needs_log_probs: bool = False
    takes_text: bool = False
    reaches_all: bool = True
    methods: tuple[str, ...] = ()


MOVES: dict[str, MoveKind] = {}
"""The moves by name; `move_kinds` fills it."""
AnyMove = TypeVar("AnyMove", bound=type)


def move_kind(
    build: Callable[[Any, str], Any] | None = None, **declared: Any
) -> Callable[[AnyMove], AnyMove]:
    """Add the decorated class to `MOVES`, under its `name`.

    Args:
        build: makes the move of a language model and a text; default the class without arguments.
        declared: the other fields of `MoveKind`.
    """

    def add(move: AnyMove) -> AnyMove:
        kind: Any = move
        needs = bool(getattr(kind, "needs_log_probs", False))
        builder = build or (lambda lm, text: kind())
        MOVES[kind.name] = MoveKind(kind.name, builder, needs, **declared)
        return move

    return add


@cache
def move_kinds() -> Mapping[str, MoveKind]:
    """Import every file of `chain/moves`, and return the moves that they add."""
    for module in iter_modules([str(Path(__file__).parent / "chain" / "moves")]):
        import_module(f"qalign_core.chain.moves.{module.name}")
    return MOVES


@dataclass(frozen=True, slots=True)
class Part:
    """One move of a mix.

    Attributes:
        weight: the probability that a step makes this move.
        name: of `MOVES`, or a move from the user's file, FILE.py:NAME.
        delimiter: the text in parentheses, such as the one that ends a block.
    """

    weight: float
    name: str
    delimiter: str = ""

    @property
    def is_own(self) -> bool:
        """True if the move is in a file of the user."""
        return is_file_name(self.name)

    @property
    def reads_log_probs(self) -> bool:
        """True if the move needs the log-probabilities of the text that it rewrites."""
        return self.is_own or move_kinds()[self.name].needs_log_probs


def parse_moves(text: str) -> tuple[Part, ...]:
    """Parse a setting into moves whose weights sum to 1.

    Raises:
        InvalidSetting: it is not a list of moves, or the moves cannot reach every response.
    """
    kinds, parts, at = move_kinds(), [], 0
    # in a link typed by hand, "+" arrives as a space
    while (term := _TERM.match(text, at)) and text[term.end() : term.end() + 1] in ("", "+", " "):
        delimiter = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), term["of"] or "")
        part = Part(float(term["weight"] or 1), term["name"].partition("(")[0], delimiter)
        if not part.is_own:
            kind = kinds.get(part.name)
            if kind is None or kind.takes_text != bool(delimiter):
                break
        parts.append(part)
        at = term.end() + 1
    total = math.fsum(part.weight for part in parts)
    if at != len(text) + 1 or not all(part.weight > 0 for part in parts):
        raise InvalidSetting(
            f"move must be written like suffix, entropy or 0.5*suffix+0.5*block(:), each weight "
            f"above 0, got {short_repr(text)}"
        )
    if not any(part.is_own or kinds[part.name].reaches_all for part in parts):
        raise InvalidSetting(
            f"{parts[0].name} moves alone cannot reach every response, got {short_repr(text)}; "
            f"add suffix, as in {SUFFIX}+{text:.80}"
        )
    return tuple(Part(part.weight / total, part.name, part.delimiter) for part in parts)
