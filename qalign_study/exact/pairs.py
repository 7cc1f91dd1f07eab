"""Detailed balance of a move between pairs of long texts, too many to enumerate.

For a pair of texts, all sequences of the move's choices that lead from one to the other are
followed, in both directions, so each flow is exact although the world is only sampled.

    >>> from qalign_core.chain.moves.suffix import Suffix
    >>> pairs = compare_pairs(LongTexts(256), Suffix(), (Target(0.5),), lambda y: y.text.count("a"))
    >>> pairs.difference < TOLERANCE
    True
"""

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qalign_core.chain.moves.choices import StepChoices
from qalign_core.chain.moves.move import Move, Proposal
from qalign_core.chain.randomness import StepAddress
from qalign_core.errors import InvalidSetting
from qalign_core.target import Scores, Target, log_acceptance
from qalign_core.types import Array, NoProposal, Response
from qalign_study.exact.enumerable import EnumerableLM, Tokens
from qalign_study.exact.moves import (
    DeadEnd,
    Path,
    ReplayedChoices,
    check_proposal,
    finish,
    walk,
)

PIECES = (*"ab:. \n,;!?-=12", ". ", "\n\n", "the")
"""Tokens of the long texts; the end comes behind them."""
PAIRS = 24
"""Texts from which proposals are made; each gives a pair, unless it is refused."""
TOLERANCE = 1e-8
"""Balance holds if the two flows of every pair differ by no more than this, relatively."""
_PLACES = 7  # the law of the next token repeats after this many places
_Known = dict[Tokens, tuple[float, ...]]  # entropies of texts


class LongTexts(EnumerableLM):
    """A world of texts of every length up to a real limit, too many to enumerate.

    The law of the next token reads the token before it and the place, and has no symmetry. Lengths
    are spread evenly from 1 to the limit, and some texts are cut there.

    Args:
        limit: the longest text, in tokens.
        pieces: tokens beyond `PIECES`.
    """

    def __init__(self, limit: int, pieces: Sequence[str] = ()) -> None:
        pieces = tuple(dict.fromkeys((*PIECES, *pieces)))
        rng, n = np.random.default_rng(3), len(pieces)
        self.id, self.max_new_tokens = "long texts", limit
        self.pieces, self.eos = (*pieces, "<eos>"), n
        weights = rng.gamma(0.8, size=(n + 1, n)) * rng.gamma(2.0, size=(_PLACES, 1, n)) + 0.01
        self._p = weights / weights.sum(axis=2, keepdims=True)
        self._log_p = np.log(self._p).tolist()
        self._up_to = np.cumsum(self._p, axis=2).tolist()
        self._h = -(self._p * np.log(self._p)).sum(axis=2)

    def _end(self, place: int) -> float:
        """The probability that the next token ends the text."""
        return 1 / (1.125 * self.max_new_tokens + 1 - place)

    def _last(self, prefix: Sequence[int]) -> int:
        return prefix[-1] if prefix else self.eos

    def next_token_probabilities(self, prefix: Sequence[int]) -> Array:
        """Probabilities of the next id after `prefix`, shape [V]."""
        place = len(prefix)
        end = self._end(place)
        return np.append((1 - end) * self._p[place % _PLACES, self._last(prefix)], end)

    def entropy(self, prefix: Sequence[int]) -> float:
        """Entropy of the next id after `prefix`, in nats."""
        end = self._end(len(prefix))
        inner = float(self._h[len(prefix) % _PLACES, self._last(prefix)])
        return (1 - end) * (inner - math.log(1 - end)) - end * math.log(end)

    def response(self, tokens: Sequence[int]) -> Response:
        """The response with these ids."""
        tokens = tuple(tokens)
        ended = bool(tokens) and tokens[-1] == self.eos
        log_probs, last = list[float](), self.eos
        for place, token in enumerate(tokens[:-1] if ended else tokens):
            rest = math.log(1 - self._end(place))
            log_probs.append(rest + self._log_p[place % _PLACES][last][token])
            last = token
        if ended:
            log_probs.append(math.log(self._end(len(tokens) - 1)))
        pieces = tuple(self.pieces[token] for token in tokens)
        return Response(tokens, self.text(tokens), ended, pieces, tuple(log_probs))

    async def extend(
        self,
        prompt_ids: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        until: frozenset[int] = frozenset(),
    ) -> Response:
        """Draw the rest of a response."""
        rng, tokens = np.random.default_rng(seed), list(prefix)
        while len(tokens) < self.max_new_tokens:
            ends = rng.random() < self._end(len(tokens))
            tokens.append(self.eos if ends else self._next(tokens, rng.random()))
            if ends or tokens[-1] in until:
                break
        return self.response(tokens)

    def _next(self, prefix: Sequence[int], u: float) -> int:
        up_to = self._up_to[len(prefix) % _PLACES][self._last(prefix)]
        return min(bisect(up_to, u), self.eos - 1)

    def starts(self) -> Iterator[Response]:
        """Texts of all lengths from 1 to the limit, the short ones more often; some are cut."""
        rng, most = np.random.default_rng(4), self.max_new_tokens
        even, short = np.linspace(1, most, PAIRS // 2), np.geomspace(1, most, PAIRS // 2)
        for k, length in enumerate(np.rint([*even, *short]).astype(int).tolist()):
            tokens = list[int]()
            for u in rng.random(length):
                tokens.append(self._next(tokens, u))
            if length < most or k % 2:
                tokens[-1] = self.eos
            yield self.response(tokens)


class Towards(ReplayedChoices):
    """Choices that follow a path, but draw only what leads to one text, the goal."""

    def __init__(self, lm: LongTexts, goal: Response, known: _Known, path: Path) -> None:
        super().__init__(lm, None, path)
        self.goal, self.known, self.log_p_extended = goal, known, 0.0

    @property
    def log_p(self) -> float:
        """Natural log of the probability of the choices that were taken."""
        return (math.log(self.p) if self.p else -math.inf) + self.log_p_extended

    def _extend(self, prefix: Tokens, until: frozenset[int], role: str) -> Response:
        self._take(1, role, prefix, until)
        kept, goal = len(prefix), self.goal
        if len(goal) <= kept or goal.tokens[:kept] != prefix:
            raise DeadEnd
        ends = (at for at in range(kept + 1, len(goal)) if goal.tokens[at - 1] in until)
        stop = next(ends, len(goal)) if until else len(goal)
        self.log_p_extended += math.fsum(goal.log_probs[kept:stop])
        return goal if stop == len(goal) else self._lm.response(goal.tokens[:stop])

    async def entropies(self, y: Response) -> tuple[float, ...]:
        """Entropy of the next token at every place of `y`, in nats."""
        if y.tokens not in self.known:
            self.known[y.tokens] = await super().entropies(y)
        return self.known[y.tokens]


class _Noted(StepChoices):
    """The choices of a real step, which also keep every text that was drawn."""

    def __init__(self, lm: LongTexts, t: int) -> None:
        super().__init__(lm, (), StepAddress(0, 0, t))
        self.texts = list[Tokens]()

    async def extend(self, y: Response, kept: int, **how: Any) -> Response:
        response = await super().extend(y, kept, **how)
        self.texts.append(response.tokens)
        return response


@dataclass(frozen=True, slots=True)
class _Ways:
    """All ways of a move from one text to another; shapes [ways].

    Attributes:
        log_p: natural log of the probability of each way.
        correction: log correction of each way.
    """

    log_p: Array
    correction: Array

    def log_flow(self, target: Target, *, new: Scores, old: Scores) -> float:
        """Natural log of the probability of going there in one step."""
        log_alpha = log_acceptance(target, new=new, old=old, log_correction=(self.correction,))
        return float(np.logaddexp.reduce(self.log_p + log_alpha, initial=-math.inf))


def _ways(lm: LongTexts, move: Move, old: Response, new: Response, known: _Known) -> _Ways:
    log_p, corrections = list[float](), list[float]()
    for choices, outcome in walk(lambda path: Towards(lm, new, known, path), move, old):
        if isinstance(outcome, Proposal) and outcome.response.tokens == new.tokens:
            corrections.append(check_proposal(old, outcome, new.log_probs))
            log_p.append(choices.log_p)  # type: ignore[attr-defined]
    return _Ways(np.array(log_p), np.array(corrections))


@dataclass(frozen=True, slots=True)
class Pairs:
    """How far a move is from balance over pairs of long texts.

    Attributes:
        n: pairs that were compared.
        difference: the largest relative difference of a pair's two flows, 0 to 1, at any target.
        worst: the two texts of that pair; None if no pair was compared.
        lengths: the shortest and the longest text of the pairs.
    """

    n: int
    difference: float
    worst: tuple[Response, Response] | None
    lengths: tuple[int, int]

    @property
    def is_exact(self) -> bool:
        """True if balance holds."""
        return self.difference <= TOLERANCE


def compare_pairs(
    lm: LongTexts, move: Move, targets: Sequence[Target], reward: Callable[[Response], float]
) -> Pairs:
    """Compare both flows of pairs of texts; the most different pair is kept.

    Raises:
        InvalidSetting: as `compare_flows`.
    """
    pairs = list(compare_flows(lm, move, targets, reward))
    if not pairs:
        return Pairs(0, 0.0, None, (0, 0))
    difference, old, new = max(pairs, key=lambda pair: pair[0])
    lengths = [len(y) for _, *both in pairs for y in both]
    return Pairs(len(pairs), difference, (old, new), (min(lengths), max(lengths)))


def compare_flows(
    lm: LongTexts, move: Move, targets: Sequence[Target], reward: Callable[[Response], float]
) -> Iterator[tuple[float, Response, Response]]:
    """Propose from texts of every length, and compare the flows of each pair in both directions.

    Yields the relative difference of the flows, the largest over the targets, and the two texts.

    Raises:
        InvalidSetting: the ways of the move between two texts cannot be followed: it discards a
            text that it drew, or `walk` refuses.
    """
    for t, old in enumerate(lm.starts(), 1):
        choices = _Noted(lm, t)
        outcome = finish(move.propose(choices, old))
        if isinstance(outcome, NoProposal) or outcome.response.tokens == old.tokens:
            continue
        new, known = outcome.response, _Known()
        check_proposal(old, outcome, lm.response(new.tokens).log_probs)
        there, back = _ways(lm, move, old, new, known), _ways(lm, move, new, old, known)
        if not len(there.log_p) or any(new.tokens[: len(text)] != text for text in choices.texts):
            raise InvalidSetting(
                "the move discards a text that it drew, so it cannot be certified for long texts"
            )
        a, b = (Scores(reward(y), y.log_prob) for y in (old, new))
        log_p = math.fsum(new.log_probs) - math.fsum(old.log_probs)
        off = 0.0
        for target in targets:
            flows = there.log_flow(target, new=b, old=a), back.log_flow(target, new=a, old=b)
            gap = flows[0] - flows[1] - log_p - float(target.log_ratio(b, a))
            off = max(off, -math.expm1(-abs(gap)))
        yield off, old, new
