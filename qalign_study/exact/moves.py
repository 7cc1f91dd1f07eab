"""Any move, written out: every sequence of its choices is replayed in a finite world.

A move draws only through `Choices`. Here the choices are not drawn: each is taken in turn, with its
probability, so what comes out is the whole proposal law of the very code that a chain runs.
"""

import math
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from qalign_core.chain.moves.move import Made, Move, Proposal
from qalign_core.errors import InvalidSetting
from qalign_core.types import Array, Refused, Response
from qalign_study.exact.enumerable import EnumerableLM, Tokens

MOST = 10**6
"""Sequences of choices from one state; a move with more is not enumerated."""


class Replayed:
    """Choices that follow a path; where it ends, the first option of each is taken.

    Attributes:
        open: for each choice behind the path's end, how many further options it has.
        p: probability of the choices that were taken.
    """

    def __init__(self, lm: EnumerableLM, completions: Any, path: Sequence[int]) -> None:
        self.max_new_tokens = lm.max_new_tokens
        self._lm, self._completions, self._path = lm, completions, path
        self._n = 0
        self.open: list[int] = []
        self.p = 1.0

    def _take(self, n: int) -> int:
        taken = self._path[self._n] if self._n < len(self._path) else 0
        if self._n >= len(self._path):
            self.open.append(n)
        self._n += 1
        return taken

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """One of the places, in proportion to its weight."""
        k = self._take(len(weights))
        self.p *= weights[k] / math.fsum(weights)
        return k

    def uniform(self, n: int, role: str = "index") -> int:
        """One of {0, ..., n-1}."""
        k = self._take(n)
        self.p /= n
        return k

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """The first `kept` ids of `y`, and one of the ways to go on."""
        options = self._completions(y.tokens[:kept], until)
        tokens, p = options[self._take(len(options))]
        self.p *= p
        return self._lm.response(tokens)

    async def log_probs(self, before: Tokens, tokens: Tokens) -> tuple[float, ...]:
        """Natural log of the probability of each of the tokens behind others."""
        return self._lm.response((*before, *tokens)).log_probs[len(before) :]

    async def entropies(self, y: Response) -> tuple[float, ...]:
        """Entropy of the next token at every place of `y`, in nats."""
        return tuple(self._lm.entropy(y.tokens[:at]) for at in range(len(y)))

    def join(self, y: Response, tail: Tokens, log_probs: Sequence[float]) -> Response:
        """`y` followed by a tail."""
        return self._lm.response((*y.tokens, *tail))


def outcomes(lm: EnumerableLM, move: Move, y: Response) -> Iterator[tuple[float, Made]]:
    """Everything that a move can make of a state, each with its probability.

    Raises:
        InvalidSetting: the probabilities do not sum to 1, or there are more than `MOST`.
    """
    completions = _completions(lm)
    paths: list[tuple[int, ...]] = [()]
    total, n = 0.0, 0
    while paths:
        path = paths.pop()
        choices = Replayed(lm, completions, path)
        made = _finish(move.propose(choices, y))
        so_far = path
        for options in choices.open:
            paths += [(*so_far, other) for other in range(1, options)]
            so_far = (*so_far, 0)
        total, n = total + choices.p, n + 1
        if n > MOST:
            raise InvalidSetting(f"the move makes more than {MOST:,} choices; use a smaller world")
        if choices.p:
            yield choices.p, made
    if abs(total - 1.0) > 1e-9:
        raise InvalidSetting(
            f"the choices from {y.text!r} have probabilities that sum to {total:.6g}; "
            "draw all randomness through `choices`"
        )


def _finish(made: Coroutine[Any, Any, Made]) -> Made:
    """Run a coroutine that waits for nothing."""
    try:
        made.send(None)
    except StopIteration as end:
        found: Made = end.value
        return found
    raise InvalidSetting("the move waits for something other than its choices")


@cache
def _completions(lm: EnumerableLM) -> Any:
    @cache
    def found(prefix: Tokens, until: frozenset[int]) -> list[tuple[Tokens, float]]:
        return list(lm.completions(prefix, lm.max_new_tokens, until=until))

    return found


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The proposal law of a move in a finite world, one entry per way; shapes [ways].

    Attributes:
        old, new: numbers of the two states among the base LM's responses.
        p: probability of the way.
        correction: log correction of the way.
    """

    old: Array
    new: Array
    p: Array
    correction: Array


_KNOWN: "WeakKeyDictionary[EnumerableLM, dict[Move, Law]]" = WeakKeyDictionary()


def law_of(lm: EnumerableLM, move: Move) -> Law:
    """The proposal law of a move, found once; a refusal is no way.

    Raises:
        InvalidSetting: it proposes a text that the base LM cannot emit.
    """
    known = _KNOWN.setdefault(lm, {})
    if move in known:
        return known[move]
    number = {state.tokens: a for a, state in enumerate(lm.support)}
    ways: dict[tuple[int, int, float], float] = {}
    for a, y in enumerate(lm.support):
        for chance, made in outcomes(lm, move, y):
            if isinstance(made, Refused):
                continue
            b = number.get(made.response.tokens)
            if b is None:
                raise InvalidSetting(
                    f"the move proposes {made.response.text!r}, which the model cannot emit; "
                    "refuse it"
                )
            way = a, b, _total(made)
            ways[way] = ways.get(way, 0.0) + chance
    old, new, correction = np.array([*ways], float).reshape(-1, 3).T  # none: all are refused
    p = np.array([*ways.values()])
    known[move] = Law(old.astype(int), new.astype(int), p, correction)
    return known[move]


def _total(made: Proposal) -> float:
    return math.fsum(float(term) for term in made.log_correction)  # type: ignore[arg-type]
