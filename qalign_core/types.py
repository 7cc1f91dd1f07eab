"""The values that the engine hands around: frozen, so a step that was yielded never changes."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from qalign_core.run import Run

Array = NDArray[Any]
"""Type of the arrays of numbers; each docstring gives the shape."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response `y`: the ids that the LM emitted, EOS included if it ended by itself.

    Attributes:
        tokens: token ids; `len(response)` is the `|y|` of the acceptance ratio.
        text: the decoded ids without special tokens, for people; never tokenised again.
        finished: True if the last id is an EOS, False if the length limit cut the response.
        pieces: the text of each token, for display only (empty, or one string a token).
        log_probs: natural log of the probability of each id under the distribution that it was
            drawn from (temperature, top-p, top-k); empty if the model does not say. `extend` may
            give those of its new ids alone, and the chain has those of the prefix.
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
        """Natural log of p(y|x) of the whole response as sampled; None if the model does not say.

        An end at the length limit has probability 1, so there is nothing to add for it.
        """
        return math.fsum(self.log_probs) if len(self.log_probs) == len(self.tokens) else None


@dataclass(frozen=True, slots=True)
class TokenScore:
    """What a model, as sampled, thinks of a token where it stands.

    Attributes:
        log_p: natural log of its probability.
        others: the most probable tokens in its place, as texts, each with its natural log.
        entropy: of the distribution in its place, in nats; None if the model does not return it.
    """

    log_p: float
    others: tuple[tuple[str, float], ...]
    entropy: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of compute, a function of the run alone (`chain.cost`); `+` goes field by field.

    Attributes:
        generated: new tokens drawn from the LM.
        scored: tokens that the RM processes.
        read: tokens that were kept, and that the LM reads again behind new ones.
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
class CostModel:
    """Prices tokens in one unit: FLOPs, or the LM's tokens where its size is unknown.

    Attributes:
        lm_parameters, rm_parameters: sizes of the models; 0 if unknown or none.
    """

    lm_parameters: int = 0
    rm_parameters: int = 0

    @property
    def unit(self) -> str:
        """What `price` counts."""
        return "FLOPs" if self.lm_parameters else "tokens processed"

    def price(self, cost: Cost) -> int:
        """FLOPs ~ 2 * parameters * tokens, summed over the LM and the RM; additive."""
        if not self.lm_parameters:
            return cost.processed
        return 2 * (self.lm_parameters * cost.processed + self.rm_parameters * cost.scored)

    def prompt_price(self, n_read: int, n_scored: int) -> int:
        """What a run pays once, whatever it draws: each model reads its tokens of the prompt."""
        return self.price(Cost(n_read, n_scored)) if self.lm_parameters else 0


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response and its reward `r(x, y)` (raw RM units); `cost` is what both took."""

    response: Response
    reward: float
    cost: Cost = field(default=Cost(), compare=False, repr=False)

    @property
    def log_prob(self) -> float | None:
        """Natural log of p(y|x) of the response as sampled; None if the model does not say."""
        return self.response.log_prob


@dataclass(frozen=True, slots=True)
class NoProposal:
    """A move that could make no proposal: no response and no reward, but its cost counts.

    Attributes:
        reason: in a few plain words.
        kept: how many ids of the state were kept before it drew.
        tokens: the ids drawn in vain.
        pieces: their texts, for display.
    """

    reason: str
    kept: int = 0
    tokens: tuple[int, ...] = ()
    pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: the proposal is kept even if it was rejected.

    `t = 0` is the initial draw: index 0, `current` is the draw itself, accepted by definition,
    `log_alpha = 0` and `log_u = -inf` since no `u` decided it.

    Attributes:
        chain: number of the chain within its run.
        t: number of the step, 0 to T.
        index: the first `index` ids of `current` were kept.
        current: the state before the step.
        proposal: the candidate state; where the move refused, `current` itself.
        log_alpha: natural log of the acceptance probability, <= 0.
        log_u: natural log of the uniform draw; accepted iff `log_u < log_alpha`.
        accepted: the verdict.
        cost: tokens spent on this step.
        kept_again: the last `kept_again` ids of `current` were kept too.
        log_correction: what the move adds to the target's log ratio; None in a trace of the
            paper's move, where it is `log(|y| / |y'|)`.
        refused: why there is no proposal, if there is none.
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

    @property
    def state(self) -> ScoredResponse:
        """The chain's state after the step: on rejection the old one, counted again."""
        return self.proposal if self.accepted else self.current

    @property
    def changed(self) -> bool:
        """Whether the proposal differs from the state that it was drawn from."""
        return self.proposal.response.tokens != self.current.response.tokens


@dataclass(frozen=True)
class Header(Run):
    """What was run: the run itself, and what its models said of themselves.

    Attributes:
        lm_revision, rm_revision: exact versions of the models, with "int8" for rounded weights.
        lm_parameters, rm_parameters: their sizes, for FLOPs; 0 if unknown or none.
        created: when it began (ISO 8601).
        notes: what must be said of the models, such as that one is approximate, or of the move.
        move_revision: hash of the file of one's own moves; empty without one.
    """

    lm_revision: str = ""
    rm_revision: str = ""
    lm_parameters: int = 0
    rm_parameters: int = 0
    created: str = ""
    notes: tuple[str, ...] = ()
    move_revision: str = ""

    @property
    def meter(self) -> CostModel:
        """What prices a draw of these models."""
        return CostModel(self.lm_parameters, self.rm_parameters)

    @property
    def open_ended(self) -> bool:
        """Whether minimum Bayes risk with ROUGE-1 takes the place of the votes."""
        return self.extractor is None

    @property
    def run(self) -> Run:
        """The run that draws the same again."""
        return Run(**{name: getattr(self, name) for name in Run.kinds()})


@dataclass(frozen=True)
class TraceHeader(Header):
    """What the run of one prompt was.

    Attributes:
        prompt_tokens: the prompt's length for the LM, which reads it once a run.
        prompt_scored: tokens of it that the RM reads once a run.
    """

    prompt_tokens: int = 0
    prompt_scored: int = 0


@dataclass(frozen=True)
class SetHeader(Header):
    """Settings of the runs over a problem set; prompt and reference differ per problem.

    Attributes:
        task: name of the set.
        problems: ids of all its problems, done or not.
        digest: hash of the whole set.
        command: how to run it again.
        source: where its rows are from: preset, and the hub's revision or the file's hash.
    """

    task: str = ""
    problems: tuple[str, ...] = ()
    digest: str = ""
    command: str = ""
    source: str = ""


@dataclass(frozen=True)
class Trace:
    """A run as it happened.

    Attributes:
        header: what was run.
        steps: the steps of all chains, in the order in which they came.
        pool: independent samples of the model alone, in order of their number.
        end: (reason, message) once the run has ended; the reason is "finished", "stopped" or
            "failed".
    """

    header: TraceHeader
    steps: tuple[Step, ...] = ()
    pool: tuple[ScoredResponse, ...] = ()
    end: tuple[str, str] | None = None

    # `qalign_core` sets these two: pandas and ArviZ are imported when one is called
    to_frame: ClassVar[Callable[["Trace"], Any]]
    to_datatree: ClassVar[Callable[["Trace"], Any]]

    @classmethod
    def collect(cls, steps: Iterable[Step], header: TraceHeader | None = None) -> Self:
        """Make a trace of steps already drawn: `Trace.collect([s async for s in ...])`."""
        collected = tuple(steps)
        if header is None:
            chains = {step.chain for step in collected}
            last = max((s.t for s in collected), default=0)
            header = TraceHeader(steps=last, chains=max(1, len(chains)))
        return cls(header, collected)

    @cached_property
    def chains(self) -> dict[int, tuple[Step, ...]]:
        """The steps of each chain by its number, both ascending."""
        found: dict[int, list[Step]] = {}
        for step in sorted(self.steps, key=lambda step: (step.chain, step.t)):
            found.setdefault(step.chain, []).append(step)
        return {chain: tuple(steps) for chain, steps in found.items()}

    @property
    def states(self) -> tuple[ScoredResponse, ...]:
        """The states y^0..y^T with repeats, in order of the steps (chain after chain)."""
        return tuple(step.state for steps in self.chains.values() for step in steps)

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the independent samples."""
        return tuple(sample.reward for sample in self.pool)


@dataclass(frozen=True, slots=True)
class Decision:
    """A final answer and why.

    Attributes:
        answer: the extracted final answer, or None if no sample had one (or none was asked for).
        chosen: the response that represents the answer; None only if there was none.
        index: its place among the samples; None only if there was none.
        shares: weight of every answer (of all weight, abstentions included), best first.
        weights: the weight of each sample, summing to 1.
        scores: what the rule maximised, a value a sample (reward, vote share, expected utility).
    """

    answer: str | None
    chosen: ScoredResponse | None
    index: int | None
    shares: tuple[tuple[str, float], ...] = ()
    weights: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
