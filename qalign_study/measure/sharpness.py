"""Which sharpness to take: each at the beta that suits it, by how often its chains are right.

No acceptance rate singles out a sharpness: each has a beta at which half of the changed proposals
are accepted. So the right answers of problems decide, and the results to report must be of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qalign_core.errors import InvalidSetting
from qalign_core.mix import SUFFIX
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import check_count
from qalign_core.target import Target
from qalign_core.types import Cost, TraceHeader
from qalign_study.measure.curves import Point, curves
from qalign_study.measure.tuning import START, NoBeta, Tuned, tune_beta, walk
from qalign_study.sets.problem_sets import Problem


@dataclass(frozen=True, slots=True)
class Tried:
    """A sharpness that was tried.

    Attributes:
        sharpness: power of the LM's probability in the target.
        tuned: the beta that goes with it; None without a reward, where beta plays no role.
        right: how often the vote of a chain's states is right, with its 95 % band over problems;
            None if no beta reaches the target there.
        cost: tokens spent, those for its beta too.
    """

    sharpness: float
    tuned: Tuned | None
    right: Point | None
    cost: Cost


async def tune_sharpness(
    lm: LanguageModel,
    rm: RewardModel,
    problems: Sequence[Problem],
    sharpnesses: Sequence[float],
    *,
    acceptance: float = 0.5,
    start: Target = START,
    move: str = SUFFIX,
    steps: int = 64,
    rounds: int = 6,
    seed: int = 0,
) -> tuple[Tried, ...]:
    """Find out how often the vote of a chain's states is right at each sharpness, at its own beta.

    `tune_beta` finds the beta of each; then a chain a problem runs there with further randomness,
    the same at every sharpness. The first quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        problems: of a set, with right answers (not those to be evaluated on).
        sharpnesses: to be tried, each with the beta of `start` first.
        acceptance, move, rounds: of `tune_beta`.
        steps: proposals a problem and round, and of the chains that vote.
        seed: address of the randomness.

    Returns:
        What came of each sharpness, from the smallest on.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: as `tune_beta`, but that
            a sharpness without a beta is an outcome here.
    """
    if not problems or not sharpnesses:
        raise InvalidSetting("tuning needs at least one problem and one sharpness")
    if any(problem.is_right("") is None for problem in problems):
        raise InvalidSetting(
            "tuning the sharpness needs problems with right answers, and one has none; "
            "give a different set, or only one sharpness"
        )
    check_count("steps", steps, 8)
    prompts = [problem.prompt for problem in problems]
    readers = [(problem.extract, problem.is_right) for problem in problems]
    tried = []
    for sharpness in sorted(set(sharpnesses)):
        first = replace(start, sharpness=sharpness)
        header = TraceHeader(rm=rm.id, sharpness=first.sharpness, beta=first.beta, move=move,
                             steps=steps, burn_in=steps // 4,
                             extractor=problems[0].extractor)  # fmt: skip
        tuned = None
        if header.rewarded:
            try:
                tuned = await tune_beta(lm, rm, prompts, acceptance=acceptance, start=first,
                                        move=move, steps=steps, rounds=rounds,
                                        seed=seed)  # fmt: skip
            except NoBeta as failed:
                tried.append(Tried(first.sharpness, None, None, failed.cost))
                continue
            header = replace(header, beta=tuned.beta)
        draws, spent = await walk(lm, rm, prompts, readers, header=header, seed=seed + rounds)
        (right,) = curves(draws, budget="samples", ns=[steps + 1])
        cost = spent + tuned.cost if tuned else spent
        tried.append(Tried(first.sharpness, tuned, right, cost))
    return tuple(tried)
