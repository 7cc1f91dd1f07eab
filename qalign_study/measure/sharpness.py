"""Which sharpness to take: each at the beta that suits it, by how often its chains are right.

No acceptance rate singles out an alpha: at each there is a beta that half of the changed proposals
are accepted at. So the right answers of problems decide, and what is reported must be of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from qalign_core.errors import InvalidSetting
from qalign_core.protocols import AnswerExtractor, LanguageModel, RewardModel
from qalign_core.run import check_alpha, check_beta, check_count
from qalign_core.types import Cost, TraceHeader
from qalign_study.measure.curves import Point, curves
from qalign_study.measure.tuning import NoBeta, Tuned, tune_beta, walk


class Asked(Protocol):
    """A problem whose right answer is known."""

    @property
    def prompt(self) -> str:
        """The user's text."""

    @property
    def extractor(self) -> str | None:
        """Name of what reads the answer; None for an open-ended prompt."""

    @property
    def extract(self) -> AnswerExtractor | None:
        """Reads the answer; None if the text is its own."""

    def is_right(self, answer: str) -> bool | None:
        """Whether an answer is right."""


@dataclass(frozen=True, slots=True)
class Sharpness:
    """A sharpness that was tried.

    Attributes:
        alpha: power of the LM's probability in the target.
        tuned: the beta that goes with it; None without a reward, where beta plays no role.
        right: how often the vote of a chain's states is right, with its 95 % band over problems;
            None if no beta reaches the target there.
        cost: tokens spent, those for its beta too.
    """

    alpha: float
    tuned: Tuned | None
    right: Point | None
    cost: Cost


async def tune_alpha(
    lm: LanguageModel,
    rm: RewardModel,
    problems: Sequence[Asked],
    alphas: Sequence[float],
    *,
    target: float = 0.5,
    start: float = 1.0,
    steps: int = 64,
    rounds: int = 6,
    seed: int = 0,
) -> tuple[Sharpness, ...]:
    """Find out how often the vote of a chain's states is right at each sharpness, at its own beta.

    `tune_beta` finds the beta of each; then a chain a problem runs there with further randomness,
    the same at every alpha. The first quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        problems: of a set, with right answers (not those to be evaluated on).
        alphas: to be tried.
        target, start, rounds: of `tune_beta`.
        steps: proposals a problem and round, and of the chains that vote.
        seed: address of the randomness.

    Returns:
        What came of each alpha, from the smallest on.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: as `tune_beta`, but that
            a sharpness without a beta is an outcome here.
    """
    if not problems or not alphas:
        raise InvalidSetting("tuning alpha needs a problem and an alpha at least; give some")
    if any(problem.is_right("") is None for problem in problems):
        raise InvalidSetting(
            "tuning alpha needs problems with right answers, and one has none; give another set, "
            "or one alpha"
        )
    check_count("steps", steps, 8)
    prompts = [problem.prompt for problem in problems]
    readers = [(problem.extract, problem.is_right) for problem in problems]
    tried = []
    for alpha in sorted({check_alpha(alpha) for alpha in alphas}):
        header = TraceHeader(rm=rm.id, alpha=alpha, beta=check_beta(start), steps=steps,
                             burn_in=steps // 4, extractor=problems[0].extractor)  # fmt: skip
        tuned = None
        if header.rewarded:
            try:
                tuned = await tune_beta(lm, rm, prompts, target=target, start=start, alpha=alpha,
                                        steps=steps, rounds=rounds, seed=seed)  # fmt: skip
            except NoBeta as failed:
                tried.append(Sharpness(alpha, None, None, failed.cost))
                continue
            header = replace(header, beta=tuned.beta)
        draws, spent = await walk(lm, rm, prompts, readers, header=header, seed=seed + rounds)
        (right,) = curves(draws, budget="samples", ns=[steps + 1])
        cost = spent + tuned.cost if tuned else spent
        tried.append(Sharpness(alpha, tuned, right, cost))
    return tuple(tried)
