"""What was drawn, as numbers: all that curves, paired differences and tables are computed from."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from qalign_core.chain.cost import CostModel
from qalign_core.decide.arrays import least_risk, vote
from qalign_core.decide.methods import log_probs_of
from qalign_core.decide.rouge import rouge1
from qalign_core.decide.rules import RULES, Rule, Vote
from qalign_core.protocols import AnswerExtractor
from qalign_core.record.trace import Header, Trace
from qalign_core.run import Run
from qalign_core.types import Array, Cost, ScoredResponse
from qalign_study.measure.comparisons import Comparison

if TYPE_CHECKING:
    import pandas as pd

Measure = Literal["right", "same", "reward"]
"""What is asked of a decision: is it right, is it what all draws decide, or what is its reward."""


@dataclass(frozen=True, eq=False)
class Record:
    """What was drawn for one problem: N independent samples, T + 1 steps of each chain.

    Steps stand by t: step 0 of every chain, step 1 of every chain, and so on; so what was spent
    up to some t is always the beginning.

    Attributes:
        id: of the problem.
        answers: the distinct answers, in canonical form; of an open-ended problem the texts.
        right: whether each is the right one, shape [answers].
        pool_reward, chain_reward: rewards of samples and of proposals, shapes [N], [steps].
        pool_answer, chain_answer: which of `answers` each has, -1 for none.
        pool_cost, chain_cost: the counts of `Cost` for each, shapes [N, 3], [steps, 3].
        chain_accepted, chain_changed: of each proposal; True for the initial draw, t = 0.
        chain_length: of each proposal, |y'| in tokens, shape [steps].
        pool_log_prob, chain_log_prob: ln p of samples and of proposals as sampled, shapes [N],
            [steps]; empty where the sharpness is 1.
        chain_correction: the log correction of each proposal's move, shape [steps]; empty where all
            are the paper's, `log(|y| / |y'|)`.
        n_chains: how many chains the steps belong to.
        prompt: tokens of the prompt that LM and RM read once.
    """

    id: str
    answers: Array
    right: Array
    pool_reward: Array
    pool_answer: Array
    pool_cost: Array
    chain_reward: Array
    chain_answer: Array
    chain_cost: Array
    chain_accepted: Array
    chain_changed: Array
    chain_length: Array
    pool_log_prob: Array = field(default_factory=lambda: np.zeros(0))
    chain_log_prob: Array = field(default_factory=lambda: np.zeros(0))
    chain_correction: Array = field(default_factory=lambda: np.zeros(0))
    n_chains: int = 1
    prompt: tuple[int, int] = (0, 0)

    @cached_property
    def state_of(self) -> Array:
        """The step at which the state of each step was proposed, shape [steps]."""
        steps = np.arange(len(self.chain_accepted))
        proposed = np.where(self.chain_accepted, steps, 0).reshape(-1, self.n_chains)
        return np.maximum.accumulate(proposed).ravel()

    def pool_tilt(self, sharpness: float) -> Array:
        """The term `(sharpness - 1) ln p` of each sample's log-weight, shape [N]."""
        if sharpness == 1.0:
            return np.zeros(len(self.pool_reward))
        return (sharpness - 1.0) * self.pool_log_prob.astype(np.float64)

    def columns(self, source: str, places: Array) -> dict[str, Array]:
        """Return the columns of a frame that samples ("pool") and states ("chain") share.

        Args:
            source: the draws.
            places: where each one was drawn; a state, in the step that proposed it.
        """
        reward, answer, cost = (
            getattr(self, f"{source}_{name}") for name in ("reward", "answer", "cost")
        )
        texts = [None if k < 0 else str(self.answers[k]) for k in answer[places].tolist()]
        return {
            "reward": reward[places],
            "right": self.is_right(answer[places]),
            "answer": np.array(texts, dtype=object),
            "generated": cost[:, 0],
            "scored": cost[:, 1],
        }

    def vote(self, utility: Array | None) -> Vote:
        """How votes over the answers are decided, or with a utility the minimum Bayes risk."""
        if utility is not None:
            return lambda answer, weight: least_risk(answer, weight, utility)
        return lambda answer, weight: vote(answer, weight, len(self.answers))

    def is_right(self, answer: Array) -> Array:
        """Whether answers (by number, -1 for none) are right, same shape."""
        return np.append(self.right, False)[answer]


@dataclass(frozen=True, eq=False)
class Draws:
    """What was drawn for one prompt or for a whole set, as numbers.

    Attributes:
        header: what was run; its `beta` is also that of the importance weights, `burn_in` the
            states of each chain that are dropped before deciding.
        records: of the problems that have begun, in order; a single prompt is a set of one.
        measure: what is asked of a decision.
    """

    header: Header
    records: tuple[Record, ...]
    measure: Measure = "right"

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that there are draws for; without a reward there is no best of n."""
        counts = {"chain": self.header.run.chains, "pool": self.header.run.pool}
        rewarded = self.header.run.has_reward
        rules = (rule for rule in RULES.values() if rewarded or not rule.needs_reward)
        return tuple(rule for rule in rules if counts[rule.draws])

    @property
    def has_pool(self) -> bool:
        """Whether there are independent samples of every problem."""
        return bool(self.records) and all(len(record.pool_reward) for record in self.records)

    def to_frame(self) -> "pd.DataFrame":
        """One row per draw of each problem: samples, and the states of the chains by t.

        `answer` is in canonical form, missing if there is none; of an open-ended problem it is the
        text. `results.frame_in` has the texts.
        """
        import pandas as pd

        parts = []
        for each in self.records:
            steps, samples = np.arange(len(each.chain_reward)), np.arange(len(each.pool_reward))
            chain = {"t": steps // each.n_chains, "chain": steps % each.n_chains}
            chain |= each.columns("chain", each.state_of)
            chain |= {"accepted": each.chain_accepted, "changed": each.chain_changed}
            pool = {"t": samples, **each.columns("pool", samples)}
            for source, columns in (("chain", chain), ("pool", pool)):
                parts.append(pd.DataFrame({"problem": each.id, "source": source, **columns}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def utility(self, record: Record) -> Array | None:
        """ROUGE-1 of all pairs of an open-ended problem's texts; None where answers are counted."""
        return rouge1.matrix(record.answers.tolist()) if self.header.run.open_ended else None


def prices(cost: Array, meter: CostModel) -> Array:
    """The price of each row of counts, shape [n]: linear in the counts, so one product."""
    each = [meter.price(Cost(*row)) for row in np.eye(cost.shape[-1], dtype=int).tolist()]
    return cost.astype(np.float64) @ np.array(each, dtype=np.float64)


def generated(cost: Array) -> Array:
    """The generated tokens of each row of counts, shape [n]."""
    return cost[:, 0].astype(np.float64)


def record_of(
    trace: Trace,
    extract: AnswerExtractor | None,
    is_right: Callable[[str], bool | None],
    *,
    id: str = "prompt",
) -> Record:
    """The numbers of a trace, as far as all its chains have come.

    Args:
        trace: what was drawn for one problem.
        extract: reads the answers; None for an open-ended prompt, where a text is its own.
        is_right: whether an answer is right; None, where nobody knows, counts as not.
        id: of the problem.
    """
    read = cache(extract or str)
    numbers: dict[str, int] = {}

    def number(samples: Iterable[ScoredResponse]) -> Array:
        answers = (read(sample.response.text) for sample in samples)
        kept = [-1 if a is None else numbers.setdefault(a, len(numbers)) for a in answers]
        return np.array(kept, dtype=np.int32)

    pool, sharpness = trace.pool, trace.header.run.sharpness
    steps = [step for at_t in zip(*trace.chains.values(), strict=False) for step in at_t]
    corrected = steps if trace.header.run.move != Run.move else []
    corrections = np.array([step.log_correction or 0.0 for step in corrected], dtype=np.float64)
    pool_answer = number(pool)
    chain_answer = number(step.proposal for step in steps)
    return Record(
        id=id,
        answers=np.array(list(numbers), dtype=np.str_),
        right=np.array([bool(is_right(answer)) for answer in numbers], dtype=bool),
        pool_reward=np.array([sample.reward for sample in pool], dtype=np.float64),
        pool_answer=pool_answer,
        pool_cost=_counts(sample.cost for sample in pool),
        chain_reward=np.array([step.proposal.reward for step in steps], dtype=np.float64),
        chain_answer=chain_answer,
        chain_cost=_counts(step.cost for step in steps),
        chain_accepted=np.array([step.accepted for step in steps], dtype=bool),
        chain_changed=np.array([step.t == 0 or step.changed for step in steps], dtype=bool),
        chain_length=np.array([len(step.proposal.response) for step in steps], dtype=np.int32),
        pool_log_prob=log_probs_of(pool, sharpness),
        chain_log_prob=log_probs_of((step.proposal for step in steps), sharpness),
        chain_correction=np.maximum(corrections, np.finfo(np.float32).min),  # a refusal has -inf
        n_chains=max(1, len(trace.chains)),
        prompt=(trace.header.prompt_tokens, trace.header.prompt_scored),
    )


def draws_of(comparison: Comparison) -> Draws:
    """A comparison as numbers, as far as all its chains have come."""
    record = record_of(comparison.trace, comparison.extract, comparison.problem.is_right)
    return Draws(comparison.header, (record,), measure_of(comparison))


def measure_of(comparison: Comparison) -> Measure:
    """What can be measured: being right, or else staying the same, or else the reward."""
    if comparison.extract is None:
        return "reward"
    return "same" if comparison.header.run.reference is None else "right"


def _counts(costs: Iterable[Cost]) -> Array:
    return np.array([astuple(cost) for cost in costs], dtype=np.int32).reshape(-1, 3)
