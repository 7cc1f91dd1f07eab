"""Any move, written out: every sequence of its choices is replayed in a finite world.

A move draws only through `Choices`. Here the choices are not drawn: each is taken in turn, with its
probability, so what comes out is the whole proposal law of the very code that a chain runs.
"""

import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from qalign_core.chain.checks import check_result
from qalign_core.chain.moves.move import Move, MoveResult, Proposal
from qalign_core.errors import InvalidSetting
from qalign_core.types import Array, NoProposal, Response
from qalign_core.validation import short_repr
from qalign_study.exact.enumerable import EnumerableLM, Tokens

MOST = 20_000
"""Sequences of choices from one text; a move with more is not enumerated."""
OUTSIDE = "the same choices give different proposals; draw all randomness through `choices`"

Path = tuple[tuple[int, tuple[Any, ...]], ...]
"""Choices in order: the number of each option, and the question that it answered."""


class ReplayedChoices:
    """Choices that follow a path; where it ends, the first option of each is taken.

    Attributes:
        path: the choices so far.
        open: for each choice behind the given path's end, how many options it has.
        p: probability of the choices that were taken.
    """

    def __init__(self, lm: EnumerableLM, completions: Any, path: Path) -> None:
        self.max_new_tokens = lm.max_new_tokens
        self.path, self.open = list(path), list[int]()
        self.p = 1.0
        self._lm, self._completions, self._n = lm, completions, 0
        self._roles = set[str]()

    def _take(self, n: int, role: str, *details: Any) -> int:
        if role in self._roles:
            raise InvalidSetting(
                f"the move draws twice in the role {role!r} of one step; give each its own"
            )
        self._roles.add(role)
        question = (n, role, *details)
        if self._n == len(self.path):
            self.open.append(n)
            self.path.append((0, question))
        option, before = self.path[self._n]
        if before != question:
            raise InvalidSetting(OUTSIDE)
        self._n += 1
        return option

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """One of the places, in proportion to its weight."""
        total = math.fsum(weights)
        if not (0 < total < math.inf and min(weights) >= 0):
            raise InvalidSetting(
                f"the move draws with the weights {short_repr(weights)}; give finite "
                "weights >= 0, at least one of them above 0"
            )
        k = self._take(len(weights), role, tuple(weights))
        self.p *= weights[k] / total
        return k

    def uniform(self, n: int, role: str = "index") -> int:
        """One of {0, ..., n-1}."""
        if n < 1:
            raise InvalidSetting(f"the move draws from {n} places; at least 1 was expected")
        k = self._take(n, role)
        self.p /= n
        return k

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """The first `kept` ids of `y`, and one of the ways to go on."""
        prefix = y.tokens[:kept]
        if not 0 <= kept <= min(len(y), self.max_new_tokens - 1) or self._lm.eos in prefix:
            raise InvalidSetting(
                f"the move keeps {kept} of {len(y)} tokens and draws on; keep 0 to {len(y) - 1}"
            )
        return self._extend(prefix, until, role)

    def _extend(self, prefix: Tokens, until: frozenset[int], role: str) -> Response:
        options = self._completions(prefix, until)
        tokens, p = options[self._take(len(options), role, prefix, until)]
        self.p *= p
        return self._lm.response(tokens)

    async def log_probs(self, before: Tokens, tokens: Tokens) -> tuple[float, ...]:
        """Natural log of the probability of each of the tokens behind others."""
        return self._lm.response((*before, *tokens)).log_probs[len(before) :]

    async def entropies(self, y: Response) -> tuple[float, ...]:
        """Entropy of the next token at every place of `y`, in nats."""
        return tuple(self._lm.entropy(y.tokens[:at]) for at in range(len(y)))

    def join(self, y: Response, tail: Tokens, log_probs: Sequence[float]) -> Response:
        """`y` followed by a tail with these log-probabilities."""
        joined = self._lm.response((*y.tokens, *tail))
        return replace(joined, log_probs=(*y.log_probs, *log_probs))


class DeadEnd(BaseException):  # a move may catch every Exception
    """The choices so far lead nowhere that matters."""


def walk(
    follow: Callable[[Path], ReplayedChoices], move: Move, y: Response
) -> Iterator[tuple[ReplayedChoices, MoveResult | None]]:
    """Every sequence of a move's choices from a state, and what each makes; None at a dead end.

    Raises:
        InvalidSetting: there are more than `MOST`, or the move does not repeat itself.
    """

    def replay(path: Path) -> tuple[ReplayedChoices, MoveResult | None]:
        choices = follow(path)
        try:
            return choices, finish(move.propose(choices, y))
        except DeadEnd:
            return choices, None

    paths: list[Path] = [()]
    for _ in range(MOST):
        path = paths.pop()
        choices, outcome = replay(path)
        if not path and _facts(replay(path)[1]) != _facts(outcome):
            raise InvalidSetting(OUTSIDE)
        yield choices, outcome
        for at, options in enumerate(choices.open, len(path)):
            before, question = choices.path[:at], choices.path[at][1]
            paths += [(*before, (other, question)) for other in range(1, options)]
        if not paths:
            return
    raise InvalidSetting(f"the move has more than {MOST:,} outcomes; draw fewer texts per step")


def outcomes(lm: EnumerableLM, move: Move, y: Response) -> Iterator[tuple[float, MoveResult]]:
    """Everything that a move can make of a state, each with its probability.

    Raises:
        InvalidSetting: the probabilities do not sum to 1, or `walk` refuses.
    """
    completions, total = _completions(lm), 0.0
    for choices, outcome in walk(lambda path: ReplayedChoices(lm, completions, path), move, y):
        total += choices.p
        if choices.p and outcome is not None:
            yield choices.p, outcome
    if abs(total - 1.0) > 1e-9:
        raise InvalidSetting(
            f"the choices from {y.text!r} have probabilities that sum to {total:.6g}; "
            "draw all randomness through `choices`"
        )


def finish(coroutine: Coroutine[Any, Any, MoveResult]) -> MoveResult:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        outcome: MoveResult = end.value
        return outcome
    raise InvalidSetting("the move waits for something other than its choices")


def _facts(outcome: MoveResult | None) -> tuple[Any, ...]:
    """Return the facts in which two calls with the same choices must agree."""
    if isinstance(outcome, Proposal):
        return outcome.response.tokens, outcome.kept, outcome.kept_again, _total(outcome)
    return (outcome,)


def check_proposal(y: Response, proposal: Proposal, log_probs: Sequence[float]) -> float:
    """The log correction of a proposal whose text has these log-probabilities.

    Raises:
        InvalidSetting: as `check_result`, or its log-probabilities are another text's.
    """
    check_result(proposal, y)
    new = proposal.response
    if log_probs != new.log_probs and not (
        len(log_probs) == len(new.log_probs) and np.allclose(log_probs, new.log_probs, 1e-9, 1e-9)
    ):
        raise InvalidSetting(
            f"the move proposes {short_repr(new.text)} with the log-probabilities of another text; "
            "take them from `choices`"
        )
    return _total(proposal)


@lru_cache(maxsize=64)
def _completions(lm: EnumerableLM) -> Any:
    @cache
    def complete(prefix: Tokens, until: frozenset[int]) -> list[tuple[Tokens, float]]:
        return list(lm.completions(prefix, lm.max_new_tokens, until=until))

    return complete


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


@lru_cache(maxsize=64)
def law_of(lm: EnumerableLM, move: Move) -> Law:
    """Write out the proposal law of a move (cached); a refusal is no way.

    Raises:
        InvalidSetting: it proposes a text that the base LM cannot emit, or misdescribes one.
    """
    number = {state.tokens: a for a, state in enumerate(lm.support)}
    ways: dict[tuple[int, int, float], float] = {}
    for a, y in enumerate(lm.support):
        for chance, outcome in outcomes(lm, move, y):
            if isinstance(outcome, NoProposal):
                continue
            b = number.get(outcome.response.tokens)
            if b is None:
                raise InvalidSetting(
                    f"the move proposes {outcome.response.text!r}, which the model cannot emit; "
                    "refuse it"
                )
            way = a, b, check_proposal(y, outcome, lm.support[b].log_probs)
            ways[way] = ways.get(way, 0.0) + chance
    old, new, correction = np.array([*ways], float).reshape(-1, 3).T  # none: all are refused
    p = np.array([*ways.values()])
    return Law(old.astype(int), new.astype(int), p, correction)


def _total(proposal: Proposal) -> float:
    return math.fsum(float(term) for term in proposal.log_correction)  # type: ignore[arg-type]
