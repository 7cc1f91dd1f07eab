"""The values of a chain, frozen: responses, rewards, costs, steps.

    >>> response = Response((5, 9, 2), text="4", finished=True, log_probs=(-0.5, -1.0, -0.25))
    >>> len(response), response.log_prob
    (3, -1.75)
    >>> Cost(generated=3) + Cost(generated=2, scored=5)
    Cost(generated=5, scored=5, read=0)

Since they are frozen, a step that was yielded never changes.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
"""Type of numeric arrays; each docstring gives the shape."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response `y`: the token ids from the LM, including the EOS if it has one.

    Attributes:
        tokens: token ids; `len(response)` is the `|y|` of the acceptance ratio.
        text: the decoded ids without special tokens, for display; never tokenized again.
        finished: True if the last id is an EOS, False if the length limit cut the response.
        pieces: the text of each token, for display only (empty, or one string per token).
        log_probs: natural log of the probability of each id under the distribution that it was
            drawn from (temperature, top-p, top-k); empty if the model does not return them.
            A model may return those of new ids alone; the chain adds those of the prefix.
    """

    tokens: tuple[int, ...]
    text: str
    finished: bool
    pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)
    log_probs: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def log_prob(self) -> float | None:
        """Natural log of p(y|x) of the whole response as sampled; None if unknown.

        An end at the length limit has probability 1, so it adds nothing.
        """
        return math.fsum(self.log_probs) if len(self.log_probs) == len(self.tokens) else None


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of compute, a function of the run alone (`chain.cost`); `+` adds field by field.

    Attributes:
        generated: new tokens drawn from the LM.
        scored: tokens that the RM processes.
        read: tokens kept from behind the new ones, which the LM reads again.
    """

    generated: int = 0
    scored: int = 0
    read: int = 0

    @property
    def processed(self) -> int:
        """Tokens that the LM processes."""
        return self.generated + self.read

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.generated + other.generated, self.scored + other.scored, self.read + other.read
        )


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response, its reward `r(x, y)` (raw RM units), and the cost of both."""

    response: Response
    reward: float
    cost: Cost = field(default=Cost(), compare=False, repr=False)

    @property
    def log_prob(self) -> float | None:
        """Natural log of p(y|x) of the response as sampled; None if unknown."""
        return self.response.log_prob


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate state `y'`.

    Attributes:
        response: `y'`.
        kept: length of the prefix that was kept from the state.
        log_correction: terms that add up to `log q(y|y')/q(y'|y)` without the LM's factor
            p(y)/p(y'), which cancels; for the paper's move `log |y| - log |y'|`.
        kept_again: length of the end of the state that was also kept.
        move: the name of the move, if a mixture chose it.
    """

    response: Response
    kept: int
    log_correction: tuple[ArrayLike, ...]
    kept_again: int = 0
    move: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NoProposal:
    """The result of a move that made no proposal: the state repeats, at the cost of the draws.

    Attributes:
        reason: a short description.
        kept: number of ids of the state that were kept before drawing.
        tokens: the ids drawn and discarded.
        pieces: their texts, for display.
        move: the name of the move, if a mixture chose it.
    """

    reason: str
    kept: int = 0
    tokens: tuple[int, ...] = ()
    pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)
    move: str = field(default="", compare=False)
    log_correction: ClassVar = (-math.inf,)
    kept_again: ClassVar = 0


MoveResult = Proposal | NoProposal
"""Result of one attempt of a move."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: the proposal is kept even if it was rejected.

    `t = 0` is the initial draw: index 0, `current` is the draw itself, accepted by definition with
    `log_alpha = 0` and `log_u = -inf`.

    Attributes:
        chain: number of the chain within its run.
        t: number of the step, 0 to T.
        index: `kept` of the proposal, the length of the prefix of `current`.
        current: the state before the step.
        proposal: the candidate state; `current` itself if the move made no proposal.
        log_alpha: natural log of the acceptance probability, <= 0.
        log_u: natural log of the uniform draw; accepted iff `log_u < log_alpha`.
        accepted: True if the proposal was accepted.
        cost: tokens spent on this step.
        kept_again: the last `kept_again` ids of `current` were also kept.
        log_correction: the move's term in log alpha; None for the paper's move in traces, which do
            not store it; there it is `log(|y| / |y'|)`.
        refused: why, if the move made no proposal.
        move: the name of the move; empty at t = 0, and for the paper's move in traces.
    """

    chain: int
    t: int
    index: int
    current: ScoredResponse
    proposal: ScoredResponse
    log_alpha: float
    log_u: float
    accepted: bool
    cost: Cost
    kept_again: int = 0
    log_correction: float | None = field(default=None, compare=False)
    refused: NoProposal | None = None
    move: str = field(default="", compare=False)

    @property
    def state(self) -> ScoredResponse:
        """The chain's state after the step; after a rejection the old state, counted again."""
        return self.proposal if self.accepted else self.current

    @property
    def changed(self) -> bool:
        """True if the proposal differs from the state before the step."""
        return self.proposal.response.tokens != self.current.response.tokens
