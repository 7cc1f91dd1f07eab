"""From samples to one answer: the four decision rules, and the weights that they decide with.

Sampling and deciding are separate axes: a pool of independent samples feeds best-of-n, majority
voting (MV) and weighted majority voting (WMV); the states of a chain, with repeats, feed MV or
minimum Bayes risk (MBR), `y_hat = argmax_y sum_t w_t u(y, y^t)` (paper, Eq. 3).

Every rule breaks ties by first appearance, so majority voting never depends on the reward. Sums
that are compared are correctly rounded (`math.fsum`), so their order cannot break a tie.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product, starmap

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.decide.arrays import softmax
from qalign_core.decide.rouge import rouge1
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.protocols import AnswerExtractor, Utility
from qalign_core.target import Target, check_target
from qalign_core.types import Array, ScoredResponse, Step
from qalign_core.validation import short_repr


@dataclass(frozen=True, slots=True)
class Decision:
    """A final answer and the evidence for it.

    Attributes:
        answer: the extracted final answer, or None if no sample had one (or there is no extractor).
        chosen: the response that represents the answer; None only if there was none.
        index: its position among the samples; None only if there was none.
        shares: weight of every answer (of all weight, abstentions included), best first.
        weights: the weight of each sample, summing to 1.
        scores: what the rule maximized, per sample (reward, vote share, expected utility).
    """

    answer: str | None
    chosen: ScoredResponse | None
    index: int | None
    shares: tuple[tuple[str, float], ...] = ()
    weights: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def text(self) -> str | None:
        """The text of the chosen response, if there is one."""
        return None if self.chosen is None else self.chosen.response.text


def best_of_n(
    samples: Sequence[ScoredResponse], extract: AnswerExtractor | None = None
) -> Decision:
    """Best-of-n: `argmax_i r(x, y_i)`; of equal rewards the first.

    All weight is on the chosen sample. `extract`, if given, only fills in `Decision.answer`.

    Raises:
        InvalidSetting: no samples.
        InvalidReward: a reward is not finite.
    """
    return take_highest(samples, finite_rewards(samples), extract)


def take_highest(
    samples: Sequence[ScoredResponse],
    scores: Sequence[float],
    extract: AnswerExtractor | None = None,
) -> Decision:
    """Take the sample with the highest score; of equal scores the first.

    All weight is on the chosen sample. `extract`, if given, only fills in `Decision.answer`.
    """
    best = max(range(len(samples)), key=lambda i: (scores[i], -i))
    return Decision(
        answer=_read_answer(extract, samples[best].response.text) if extract else None,
        chosen=samples[best],
        index=best,
        weights=tuple(float(i == best) for i in range(len(samples))),
        scores=tuple(scores),
    )


def majority_vote(
    samples: Sequence[ScoredResponse],
    extract: AnswerExtractor,
    *,
    weights: Sequence[float] | None = None,
) -> Decision:
    """Majority voting: the answer with the largest total weight, by default the most frequent one.

    This is MBR (paper, Eq. 3) with `u` = exact match of the extracted answers. Of answers with
    equal weight, the one that appears first wins. The response shown for the winner is its
    highest-reward member. A sample with no answer casts no vote, but its weight stays in the
    denominator of the shares; if no sample has an answer, the decision's `answer`, `chosen` and
    `index` are None.

    Args:
        samples: independent samples, or the states of a chain with their repeats.
        extract: response text -> canonical answer; called once per distinct text.
        weights: >= 0, one a sample, of any total; None = equal.

    Raises:
        InvalidSetting: no samples, weights that do not fit them, or an extractor that returns no
            answer as a text.
        InvalidReward: a reward is not finite.
    """
    rewards = finite_rewards(samples)
    raw = _raw_weights(weights, len(samples))
    total = math.fsum(raw)
    read = cache(partial(_read_answer, extract))
    answers = [read(sample.response.text) for sample in samples]

    members: dict[str, list[int]] = {}
    for i, answer in enumerate(answers):
        if answer is not None:
            members.setdefault(answer, []).append(i)

    votes = {answer: math.fsum(raw[i] for i in group) for answer, group in members.items()}

    # `members` is in order of first appearance, which a stable sort keeps among equal votes
    order = sorted(members, key=lambda answer: -votes[answer])
    chosen = max(members[order[0]], key=lambda i: (rewards[i], -i)) if order else None
    return Decision(
        answer=order[0] if order else None,
        chosen=None if chosen is None else samples[chosen],
        index=chosen,
        shares=tuple((answer, votes[answer] / total) for answer in order),
        weights=tuple(w / total for w in raw),
        scores=tuple(0.0 if a is None else votes[a] / total for a in answers),
    )


def weighted_majority_vote(
    samples: Sequence[ScoredResponse],
    extract: AnswerExtractor,
    *,
    target: Target,
) -> Decision:
    """Weighted majority voting: `majority_vote` with weights `softmax(r / beta)` (Section 3.2).

    Self-normalised importance sampling of the target with independent samples of the base LM, of
    a sharper one too; `effective_sample_size(decision.weights)` says how many of them really count.

    Raises:
        InvalidSetting: no samples, or `importance_weights` of them.
        InvalidReward: a reward is not finite.
    """
    weights = importance_weights(finite_rewards(samples), target, samples)
    return majority_vote(samples, extract, weights=weights)


def minimum_bayes_risk(
    samples: Sequence[ScoredResponse],
    utility: Utility,
    weights: Sequence[float] | None = None,
    *,
    extract: AnswerExtractor | None = None,
) -> Decision:
    """Minimum Bayes risk: `argmax_y sum_t w_t u(y, y^t)` over the samples (paper, Eq. 3).

    Of equal candidates, the one that appears first wins; with exact match as the utility the answer
    is that of `majority_vote`, ties included.

    Args:
        samples: independent samples, or the states of a chain with their repeats.
        utility: `u(y, y')` of two texts, not assumed symmetric; called once per ordered pair of
            distinct texts. If it has a method `matrix(texts) -> array [n, n]`, that is called
            instead, once.
        weights: >= 0, one a sample, of any total; None = equal.
        extract: if given, only fills in `Decision.answer`.

    Raises:
        InvalidSetting: no samples, or weights that do not fit them.
        InvalidReward: a reward is not finite.
    """
    finite_rewards(samples)
    raw = _raw_weights(weights, len(samples))
    total = math.fsum(raw)

    position: dict[str, int] = {}  # distinct text -> its row
    rows = [position.setdefault(s.response.text, len(position)) for s in samples]
    u = _utility_matrix(utility, list(position))[:, rows]  # [distinct texts, samples]
    expected = [math.fsum(row) for row in (u * np.asarray(raw)).tolist()]

    chosen = rows.index(expected.index(max(expected)))  # rows are numbered by first appearance
    return Decision(
        answer=_read_answer(extract, samples[chosen].response.text) if extract else None,
        chosen=samples[chosen],
        index=chosen,
        weights=tuple(w / total for w in raw),
        scores=tuple(expected[row] / total for row in rows),
    )


def consensus(
    samples: Sequence[ScoredResponse],
    extract: AnswerExtractor | None,
    weights: Sequence[float] | None = None,
) -> Decision:
    """The majority vote, or without an extractor (open-ended) the minimum Bayes risk with ROUGE-1.

    Raises:
        InvalidSetting, InvalidReward: as both.
    """
    if extract is None:
        return minimum_bayes_risk(samples, rouge1, weights)
    return majority_vote(samples, extract, weights=weights)


def importance_weights(
    rewards: Sequence[float],
    target: Target,
    samples: Sequence[ScoredResponse] = (),
) -> tuple[float, ...]:
    """Self-normalised weights `w_i = softmax_i(r_i / beta)`, shape [n] (paper, Section 3.2).

    The largest reward is subtracted first, so the weights do not change when a constant is added
    to all rewards, and no reward is too large. Of a sharper target they are
    `softmax_i(r_i / beta + (sharpness - 1) log p_i)` (docs/method.md, "Sharper targets").

    Args:
        rewards: of the samples.
        target: what they are weighted towards.
        samples: what knows the log-probabilities; not read where the sharpness is 1.

    Raises:
        InvalidSetting: a log-probability that is needed is not known.
    """
    check_target(target)
    tilt = tilt_of(samples, target.sharpness)
    if not rewards:
        return ()
    return tuple(softmax(np.asarray(rewards, np.float64), target.beta, tilt).tolist())


def tilt_of(samples: Iterable[ScoredResponse], sharpness: float) -> Array | float:
    """What a sharper target adds to log-weights, `(sharpness - 1) ln p`, shape [n]; 0 at 1.

    Raises:
        InvalidSetting: as `log_probs_of`.
    """
    return 0.0 if sharpness == 1.0 else (sharpness - 1.0) * log_probs_of(samples, sharpness)


def log_probs_of(samples: Iterable[ScoredResponse], sharpness: float) -> Array:
    """The ln p(y|x) of each sample that a sharper target needs, shape [n]; empty at sharpness 1.

    Raises:
        InvalidSetting: a log-probability is not known.
    """
    if sharpness == 1.0:
        return np.zeros(0)
    log_probs = [sample.log_prob for sample in samples]
    if None in log_probs:
        raise InvalidSetting(
            f"sharpness = {sharpness:g} needs the log-probability of every response, and "
            f"{log_probs.count(None)} of {len(log_probs)} have none; draw them from a model that "
            "returns log-probabilities"
        )
    return np.array(log_probs, np.float64)


def effective_sample_size(weights: Sequence[float]) -> float:
    """Effective sample size of importance weights, `(sum w)^2 / sum w^2`, between 1 and n."""
    squares = math.fsum(w * w for w in weights)
    return math.fsum(weights) ** 2 / squares if squares > 0 else 0.0


def chain_states(steps: Iterable[Step], burn_in: int = 0) -> list[ScoredResponse]:
    """Collect the states `y^t` with `t >= burn_in`, with repeats, as the estimator needs them.

    Raises:
        InvalidSetting: a negative `burn_in`, or one that leaves no state.
    """
    return [step.state for step in _after(steps, burn_in)]


def waste_recycling(
    steps: Iterable[Step], burn_in: int = 0
) -> tuple[list[ScoredResponse], list[float]]:
    """Weigh what a chain saw, rejected proposals included, by the probability of becoming a state.

    Step `t` gives `alpha_t` to its proposal and `1 - alpha_t` to the state that it started from;
    the initial draw gives 1 to itself. Each step so contributes
    `E[f(y^t) | y^{t-1}, y'_t] = alpha_t f(y'_t) + (1 - alpha_t) f(y^{t-1})`, the state averaged
    over the coin `u` that decided it (Ceperley, Chester & Kalos 1977, for Metropolis acceptance;
    Frenkel 2004 calls it waste recycling and generalises it to other acceptance rules). It has
    exactly the expectation of the plain average over states, after any number of steps.
    Its variance is usually lower but need not be (Delmas & Jourdain 2009).

    Returns:
        samples and their weights, zero weights left out, the weights summing to the number of
        steps; ready for `majority_vote(samples, extract, weights=weights)`.

    Raises:
        InvalidSetting: a negative `burn_in`, or one that leaves no step.
    """
    weighted: list[tuple[ScoredResponse, float]] = []
    for step in _after(steps, burn_in):
        alpha = 1.0 if step.t == 0 else math.exp(min(0.0, step.log_alpha))
        weighted += [(step.current, 1.0 - alpha), (step.proposal, alpha)]
    kept = [(sample, weight) for sample, weight in weighted if weight > 0]
    return [sample for sample, _ in kept], [weight for _, weight in kept]


def _after(steps: Iterable[Step], burn_in: int) -> list[Step]:
    if burn_in < 0:
        raise InvalidSetting(f"burn-in must be 0 steps or more, got {burn_in}")
    kept = [step for step in steps if step.t >= burn_in]
    if not kept:
        raise InvalidSetting(
            f"a burn-in of {burn_in} leaves no state to decide from; run more steps or drop fewer"
        )
    return kept


def finite_rewards(samples: Sequence[ScoredResponse]) -> list[float]:
    """Return the rewards of samples.

    Raises:
        InvalidSetting: no samples, or something else instead of them.
        InvalidReward: a reward is not finite.
    """
    others = {type(samples).__name__}
    if isinstance(samples, Sequence):
        others = {type(each).__name__ for each in samples if not isinstance(each, ScoredResponse)}
    if others:
        raise InvalidSetting(
            f"expected scored responses to decide from, got {min(others)}; give "
            "the states of a trace (trace.states) or of steps (chain_states(steps)), or "
            "independent samples (trace.pool, sample_iid)"
        )
    if not samples:
        raise InvalidSetting("no samples to decide from; draw at least one")
    rewards = [float(sample.reward) for sample in samples]
    for i, reward in enumerate(rewards):
        if not math.isfinite(reward):
            text = samples[i].response.text
            raise InvalidReward(
                f"the reward of sample {i} is {reward}, expected a finite number; "
                f"its response begins {text[:60]!r}"
            )
    return rewards


def _read_answer(extract: AnswerExtractor, text: str) -> str | None:
    """The answer in a text, or None if it has none; raise if the extractor reads none."""
    if not callable(extract):
        raise InvalidSetting(
            f"{short_repr(extract)} does not read answers; give a function from a response's text "
            "to its answer, such as extract_number, or decide by minimum_bayes_risk"
        )
    answer = extract(text)
    if answer is None or isinstance(answer, str):
        return answer
    raise InvalidSetting(
        f"the extractor returned {short_repr(answer)} for {short_repr(text)}; "
        "expected the answer as a text, or None if there is none"
    )


def _raw_weights(weights: Sequence[float] | None, n: int) -> list[float]:
    """Weights as given: ties are compared before dividing by the total, which would round."""
    if weights is None:
        return [1.0] * n
    try:
        raw = [float(w) for w in weights]
    except (TypeError, ValueError):
        raise InvalidSetting(
            f"weights = {short_repr(weights)}; give one number per sample"
        ) from None
    if len(raw) != n:
        raise InvalidSetting(f"got {len(raw)} weights for {n} samples; give one weight per sample")
    if not all(math.isfinite(w) and w >= 0 for w in raw) or not any(raw):
        raise InvalidSetting("weights must be finite, >= 0 and not all 0; give at least one > 0")
    return raw


def _utility_matrix(utility: Utility, texts: list[str]) -> Array:
    """All `u(y, y')`, candidates in rows, shape [n, n]."""
    matrix: Callable[[list[str]], ArrayLike] | None = getattr(utility, "matrix", None)
    n = len(texts)
    values = np.asarray(matrix(texts) if matrix else [*starmap(utility, product(texts, texts))])
    if values.size != n * n or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise InvalidSetting(
            f"the utility of {n} texts gave {short_repr(values.ravel()[:4].tolist())}; expected a "
            "finite number for every pair of texts"
        )
    return values.astype(np.float64).reshape(n, n)
