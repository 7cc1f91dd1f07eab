"""The values that the engine hands around: frozen, so a step that was yielded never changes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of a model cost: token positions run through the network, and those reused.

    `processed` counts every position that went through the network (prompt, prefix and new
    tokens alike); `reused` counts the positions whose keys and values came from a cache instead.
    """

    processed: int
    reused: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """A response `y`: the ids that the LM emitted, EOS included if it ended by itself.

    Attributes:
        tokens: token ids; `len(response)` is the `|y|` of the acceptance ratio.
        text: the decoded ids without special tokens, for people; never tokenised again.
        finished: True if the last id is an EOS, False if the length limit cut the response.
        pieces: the text of each token, for display only (empty, or one string a token).
        work: what drawing it cost, if the model counts that.
    """

    tokens: tuple[int, ...]
    text: str
    finished: bool
    pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)
    work: Work | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)


class Reward(float):
    """A reward that remembers what computing it cost; otherwise a plain float (raw RM units)."""

    __slots__ = ("work",)
    work: Work | None

    def __new__(cls, value: float, work: Work | None = None) -> Reward:
        """A float that also carries `work`."""
        self = super().__new__(cls, value)
        self.work = work
        return self


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of compute, LM and RM apart; `+` and `-` work field by field.

    Attributes:
        generated: new tokens drawn from the LM.
        lm_processed: positions run through the LM (prompt, prefix and new tokens).
        lm_reused: positions that the LM took from a cache.
        rm_processed: positions run through the RM.
        rm_reused: positions that the RM took from a cache.
    """

    generated: int = 0
    lm_processed: int = 0
    lm_reused: int = 0
    rm_processed: int = 0
    rm_reused: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.generated + other.generated,
            self.lm_processed + other.lm_processed,
            self.lm_reused + other.lm_reused,
            self.rm_processed + other.rm_processed,
            self.rm_reused + other.rm_reused,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.generated - other.generated,
            self.lm_processed - other.lm_processed,
            self.lm_reused - other.lm_reused,
            self.rm_processed - other.rm_processed,
            self.rm_reused - other.rm_reused,
        )


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response and its reward `r(x, y)` (raw RM units); `cost` is what both took."""

    response: Response
    reward: float
    cost: Cost = field(default=Cost(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: the proposal is kept even if it was rejected.

    `t = 0` is the initial draw: index 0, `current` is the draw itself, accepted by definition,
    `log_alpha = 0` and `log_u = -inf` since no `u` decided it.

    Attributes:
        chain: number of the chain within its run.
        t: number of the step, 0 to T.
        index: the first `index` ids of `current` were kept; uniform over {0..|current|-1}.
        current: the state before the step.
        proposal: the candidate state.
        log_alpha: natural log of the acceptance probability, <= 0.
        log_u: natural log of the uniform draw; accepted iff `log_u < log_alpha`.
        accepted: the verdict.
        cost: tokens spent on this step.
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

    @property
    def state(self) -> ScoredResponse:
        """The chain's state after the step: on rejection the old one, counted again."""
        return self.proposal if self.accepted else self.current

    @property
    def changed(self) -> bool:
        """Whether the proposal differs from the state that it was drawn from."""
        return self.proposal.response.tokens != self.current.response.tokens


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the base LM is sampled; a different setting is a different base distribution.

    Attributes:
        temperature: > 0; 1.0 is the LM itself.
        top_p: in (0, 1]; 1.0 is off.
        top_k: >= 0; 0 is off.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 128


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What a run was: enough to label it, to check it and to run it again."""

    lm: str = ""
    rm: str = ""
    prompt: str = ""
    beta: float = math.nan
    seed: int = 0
    steps: int = 0
    chains: int = 1
    sampling: Sampling = Sampling()
    prompt_tokens: int = 0
    created: str = ""
    origin: str = "live"
    reference: str | None = None
    extractor: str | None = None
    lm_revision: str = ""
    rm_revision: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A run as it happened: header, every step of every chain, rewards of base samples if drawn."""

    header: TraceHeader
    steps: tuple[Step, ...]
    base_rewards: tuple[float, ...] = ()

    @classmethod
    def collect(cls, steps: Iterable[Step], header: TraceHeader | None = None) -> Trace:
        """Make a trace of steps already drawn: `Trace.collect([s async for s in ...])`."""
        collected = tuple(steps)
        if header is None:
            chains = {step.chain for step in collected}
            header = TraceHeader(steps=max((s.t for s in collected), default=0), chains=len(chains))
        return cls(header, collected)

    def chain(self, chain: int) -> Trace:
        """The part of the trace that belongs to one chain."""
        return replace(self, steps=tuple(s for s in self.steps if s.chain == chain))

    @property
    def chains(self) -> tuple[int, ...]:
        """Numbers of the chains, ascending."""
        return tuple(sorted({step.chain for step in self.steps}))

    @property
    def states(self) -> tuple[ScoredResponse, ...]:
        """The states y^0..y^T with repeats, in order of the steps (chain after chain)."""
        return tuple(s.state for s in sorted(self.steps, key=lambda s: (s.chain, s.t)))

    @property
    def cost(self) -> Cost:
        """Tokens spent on all steps."""
        return sum((step.cost for step in self.steps), Cost())


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
