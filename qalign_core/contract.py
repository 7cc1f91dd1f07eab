"""The laws that a language model and a reward model must obey, checked on one's own models.

The chain is exact only if they hold. `check` draws from the models and yields one finding per law.
Each law can also be `None`: the models do not return what a test of it needs, and it says what.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qalign_core.chain.sampling import check_lengths, check_models, check_response
from qalign_core.errors import QAlignError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import Array, Response

FALSE_ALARM = 1e-4
"""How often the chi-square test refuses a correct model."""
N_SEEDS, N_DRAWS = 16, 500
LEAST = 10
"""Expected counts below which cells of the chi-square test are merged."""
FIRST = 4
"""Tokens of the responses that the chi-square test reads."""
NEAR = 0.05
"""Mean difference of log-probabilities that a model in half precision may show."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a law: whether it holds (None if it cannot be tested), and why."""

    law: str
    holds: bool | None
    evidence: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "FAILS", None: "cannot be tested"}[self.holds]
        return f"{verdict}: {self.law}. {self.evidence}"


@dataclass(frozen=True)
class Subject:
    """The models under test and what was drawn from them: a response per seed.

    `told` is called after each draw.
    """

    lm: LanguageModel
    rm: RewardModel
    prompt: str
    told: Callable[[], object] = lambda: None
    drawn: tuple[Response, ...] = ()

    @property
    def longest(self) -> Response:
        """The longest response."""
        return max(self.drawn, key=len)

    def limited(self, limit: int) -> Any:
        """The language model with a lower limit on the length, if its sampling can be set."""
        lm: Any = self.lm
        if limit >= lm.max_new_tokens or not hasattr(lm, "with_sampling"):
            return lm
        return lm.with_sampling(replace(lm.sampling, max_new_tokens=limit))

    async def draw_one(self, seed: int, prefix: Sequence[int] = (), lm: Any = None) -> Response:
        """The response of a seed."""
        ids = self.lm.encode(self.prompt)
        response: Response = await (lm or self.lm).extend(ids, prefix, seed=seed)
        self.told()
        return response

    async def draw(self, n: int, prefix: Sequence[int] = (), lm: Any = None) -> list[Response]:
        """Responses of the seeds below n, requested at once."""
        return [*await asyncio.gather(*(self.draw_one(seed, prefix, lm) for seed in range(n)))]


Found = tuple[bool | None, str]


async def same_seed(subject: Subject) -> Found:
    """Draw some seeds again, one request at a time."""
    n = N_SEEDS // 4
    if len({response.tokens for response in subject.drawn}) == 1:
        return None, f"{N_SEEDS} seeds gave one response; use a higher temperature, top-p or top-k"
    for seed in range(n):
        if (await subject.draw_one(seed)).tokens != subject.drawn[seed].tokens:
            return False, f"seed {seed} gave one text among {N_SEEDS} requests and another alone"
    return True, f"{n} of {N_SEEDS} seeds drawn together gave the same text alone"


async def same_prefix(subject: Subject) -> Found:
    """Continue beginnings of a response: they stay, and what follows has the same chances."""
    whole, gaps = subject.longest, []
    cuts = range(1, len(whole), max(1, len(whole) // 8))
    for cut in cuts:
        for response in await subject.draw(N_SEEDS // 2, whole.tokens[:cut]):
            if response.tokens[:cut] != whole.tokens[:cut]:
                return False, f"a prefix of {cut} tokens came back changed"
            check_lengths(response, cut, subject.lm)
            told = response.log_probs[-len(response) + cut :]
            if told and whole.log_prob is not None and response.tokens[cut] == whole.tokens[cut]:
                gaps.append(abs(told[0] - whole.log_probs[cut]))
    if not cuts:
        return None, "no response has two tokens"
    came_back = f"prefixes of {len(cuts)} lengths came back unchanged"
    if not gaps:
        return True, f"{came_back}; no log-probabilities of what follows could be compared"
    gap = math.fsum(gaps) / len(gaps)
    return gap <= NEAR, f"{came_back}; the next token's log-probability differs by {gap:.2g}"


async def told_chances(subject: Subject) -> Found:
    """Compare how often responses begin with some tokens with the chances that the model tells."""
    drawn = await subject.draw(N_DRAWS, lm=subject.limited(FIRST))
    if any(response.log_prob is None for response in drawn):
        return None, "the model returns no log-probabilities"
    tried = [_cells(drawn, length) for length in range(1, FIRST + 1)]
    observed, expected, total = max(tried, key=lambda cells: (cells[2] > 1.001, len(cells[0])))
    if total > 1.001:
        return False, f"the probabilities of what {N_DRAWS} draws gave sum to {total:.4g}"
    if len(observed) < 2:
        return None, _untestable(drawn)
    from scipy.stats import chi2  # slow to import

    statistic = float(((observed - expected) ** 2 / expected).sum())
    p = min(1.0, len(tried) * float(chi2.sf(statistic, len(observed) - 1)))
    said = f"chi-square over {len(observed)} cells of {N_DRAWS} draws: p = {p:.2g}"
    return p >= FALSE_ALARM, f"{said}; a correct model fails with probability {FALSE_ALARM:g}"


def _untestable(drawn: Sequence[Response]) -> str:
    """Say why all draws share one cell: their first tokens are too certain, too varied, or both."""
    likeliest = [
        max(math.exp(math.fsum(response.log_probs[:length])) for response in drawn)
        for length in range(1, FIRST + 1)
    ]
    if N_DRAWS * likeliest[0] < LEAST:
        return (
            f"the likeliest first token has a probability of {likeliest[0]:.2g}, too little for "
            f"{N_DRAWS} draws; use a lower temperature, top-p or top-k"
        )
    sure = "the first tokens are nearly certain"
    if N_DRAWS * likeliest[-1] < LEAST:
        return f"{sure} and those after them too varied for {N_DRAWS} draws; use another prompt"
    return f"{sure}; use a higher temperature, top-p or top-k"


def _cells(drawn: Sequence[Response], length: int) -> tuple[Array, Array, float]:
    """Counts of the first tokens of responses, what their told chances expect, and their sum.

    Starts that are expected fewer than `LEAST` times, or were never drawn, share one cell. The
    least likely others join it until it expects `LEAST`.
    """
    n, counts = len(drawn), Counter(response.tokens[:length] for response in drawn)
    told = {r.tokens[:length]: math.exp(math.fsum(r.log_probs[:length])) for r in drawn}
    big = sorted((t for t in told if n * told[t] >= LEAST), key=lambda t: told[t], reverse=True)
    while big and n * (1 - sum(told[t] for t in big)) < LEAST:
        big.pop()
    observed, expected = [counts[t] for t in big], [n * told[t] for t in big]
    cells = [*observed, n - sum(observed)], [*expected, n - sum(expected)]
    return np.array(cells[0]), np.array(cells[1]), sum(told.values())


async def shared_limit(subject: Subject) -> Found:
    """Draw whole responses and continuations under a limit that some of them reach."""
    lm = subject.limited(max(2, len(subject.longest) // 2))
    limit, reached = lm.max_new_tokens, 0
    for cut in range(0, min(limit, len(subject.longest)), max(1, limit // 4)):
        prefix = subject.longest.tokens[:cut]
        for response in await subject.draw(N_SEEDS, prefix, lm):
            check_response(response, prefix, lm)
            reached += len(response) == limit
    if not reached:
        return None, f"no response reached the limit of {limit}; set max_new_tokens lower"
    return True, f"{reached} whole and continued responses reached the limit of {limit}, none more"


async def steady_reward(subject: Subject) -> Found:
    """Score responses at once, and one after another from the last to the first."""
    rm, prompt = subject.rm, subject.prompt
    together = await asyncio.gather(*(rm.score(prompt, response) for response in subject.drawn))
    alone = [await rm.score(prompt, response) for response in reversed(subject.drawn)][::-1]
    if not all(map(math.isfinite, [*together, *alone])):
        return False, "a reward is not finite"
    gap = max(abs(a - b) for a, b in zip(together, alone, strict=True))
    said = f"{len(alone)} responses scored twice differ by at most {gap:.2g}"
    return gap <= 1e-4 * max(1.0, *map(abs, alone)), said


LAWS: dict[str, Callable[[Subject], Awaitable[Found]]] = {
    "the same seed gives the same text": same_seed,
    "a prefix continues as it was drawn": same_prefix,
    "log-probabilities are those of the sampled distribution": told_chances,
    "whole and continued responses share the length limit": shared_limit,
    "the reward is finite and repeats": steady_reward,
}
"""What is checked, in order."""


async def check(
    lm: LanguageModel, rm: RewardModel, prompt: str, told: Callable[[], object] = lambda: None
) -> AsyncIterator[Finding]:
    """One finding per law of two models, as each is found; an error in a law is its failure.

    `told` is called after each draw.

    Raises:
        QAlignError: nothing can be drawn at all.
    """
    check_models(lm, rm)
    subject = Subject(lm, rm, prompt, told)
    subject = replace(subject, drawn=tuple(await subject.draw(N_SEEDS)))
    for name, law in LAWS.items():
        try:
            holds, evidence = await law(subject)
        except QAlignError as error:
            holds, evidence = False, str(error)
        yield Finding(name, holds, evidence)
