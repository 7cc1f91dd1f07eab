"""The laws that a language model and a reward model must obey, tested by drawing from them.

The chain is exact only if all laws hold. `check` yields one finding per law. A law whose test needs
something that the models do not return has a finding with `holds=None` and the reason.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qalign_core.chain.checks import check_lengths, check_models, check_response, check_types
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
    """The verdict on one law: whether it holds (None if it cannot be tested), and why."""

    law: str
    holds: bool | None
    evidence: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "FAILS", None: "cannot be tested"}[self.holds]
        return f"{verdict}: {self.law}. {self.evidence}"


@dataclass(frozen=True)
class Subject:
    """The models under test and the responses that were drawn from them, one per seed.

    `on_draw` is called after each draw.
    """

    lm: LanguageModel
    rm: RewardModel
    prompt: str
    on_draw: Callable[[], object] = lambda: None
    responses: tuple[Response, ...] = ()

    @property
    def longest(self) -> Response:
        """Return the longest response."""
        return max(self.responses, key=len)

    def limited(self, limit: int) -> Any:
        """Return the language model with a lower length limit, if its sampling can be set."""
        lm: Any = self.lm
        if limit >= lm.max_new_tokens or not hasattr(lm, "with_sampling"):
            return lm
        return lm.with_sampling(replace(lm.sampling, max_new_tokens=limit))

    async def draw_one(self, seed: int, prefix: Sequence[int] = (), lm: Any = None) -> Response:
        """Draw the response of a seed."""
        ids = self.lm.encode(self.prompt)
        response: Response = await (lm or self.lm).extend(ids, prefix, seed=seed)
        check_types(response, self.lm)
        self.on_draw()
        return response

    async def draw(self, n: int, prefix: Sequence[int] = (), lm: Any = None) -> list[Response]:
        """Draw the responses of the seeds below n, all at once."""
        return [*await asyncio.gather(*(self.draw_one(seed, prefix, lm) for seed in range(n)))]


Verdict = tuple[bool | None, str]


async def verify_seed(subject: Subject) -> Verdict:
    """Draw some seeds again, one request at a time."""
    n = N_SEEDS // 4
    if len({response.tokens for response in subject.responses}) == 1:
        return None, f"{N_SEEDS} seeds gave one response; use a higher temperature, top-p or top-k"
    for seed in range(n):
        if (await subject.draw_one(seed)).tokens != subject.responses[seed].tokens:
            return False, f"seed {seed} gave one text among {N_SEEDS} requests and another alone"
    return True, f"{n} seeds gave the same text alone as among {N_SEEDS} requests"


async def verify_prefix(subject: Subject) -> Verdict:
    """Continue prefixes of a response: they must stay, and the next token keep its probability."""
    whole, gaps = subject.longest, []
    cuts = range(1, len(whole), max(1, len(whole) // 8))
    for cut in cuts:
        for response in await subject.draw(N_SEEDS // 2, whole.tokens[:cut]):
            if response.tokens[:cut] != whole.tokens[:cut]:
                return False, f"a prefix of {cut} tokens came back changed"
            check_lengths(response, cut, subject.lm)
            log_probs = response.log_probs[-len(response) + cut :]
            if (
                log_probs
                and whole.log_prob is not None
                and response.tokens[cut] == whole.tokens[cut]
            ):
                gaps.append(abs(log_probs[0] - whole.log_probs[cut]))
    if not cuts:
        return None, "no response has two tokens"
    summary = f"prefixes of {len(cuts)} lengths came back unchanged"
    if not gaps:
        return True, f"{summary}; no log-probabilities of what follows could be compared"
    gap = math.fsum(gaps) / len(gaps)
    return gap <= NEAR, f"{summary}; the next token's log-probability differs by {gap:.2g}"


async def verify_log_probs(subject: Subject) -> Verdict:
    """Test draws of whole responses, and of continuations where a token was least likely."""
    verdict = await _compare_counts(subject)
    whole = subject.longest
    if not verdict[0] or len(whole) < 2 or whole.log_prob is None:
        return verdict
    cut = min(range(1, len(whole)), key=lambda place: whole.log_probs[place])
    holds, evidence = await _compare_counts(subject, whole.tokens[:cut])
    if holds is None:
        return verdict
    return holds, f"{verdict[1]}; after a prefix of {cut} tokens, {evidence}"


async def _compare_counts(subject: Subject, prefix: tuple[int, ...] = ()) -> Verdict:
    """Compare how often some tokens follow a prefix with the returned log-probabilities."""
    cut = len(prefix)
    whole = await subject.draw(N_DRAWS, prefix, subject.limited(cut + FIRST))
    if any(len(response.log_probs) < len(response) - cut for response in whole):
        return None, "the model returns no log-probabilities"
    responses = [
        replace(each, tokens=each.tokens[cut:], log_probs=each.log_probs[cut - len(each) :])
        for each in whole
    ]
    tried = [_cells(responses, length) for length in range(1, FIRST + 1)]
    observed, expected, total = max(tried, key=lambda cells: (cells[2] > 1.001, len(cells[0])))
    if total > 1.001:
        return False, f"the probabilities of what {N_DRAWS} draws gave sum to {total:.4g}"
    if len(observed) < 2:
        return None, _untestable(responses)
    from scipy.stats import chi2  # slow to import

    statistic = float(((observed - expected) ** 2 / expected).sum())
    p = min(1.0, 2 * len(tried) * float(chi2.sf(statistic, len(observed) - 1)))
    evidence = f"chi-square over {len(observed)} cells of {N_DRAWS} draws: p = {p:.2g}"
    return p >= FALSE_ALARM, f"{evidence}; a correct model fails with probability {FALSE_ALARM:g}"


def _untestable(responses: Sequence[Response]) -> str:
    """Explain why all draws share one cell: the first tokens are too certain, varied, or both."""
    likeliest = [
        max(math.exp(math.fsum(response.log_probs[:length])) for response in responses)
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


def _cells(responses: Sequence[Response], length: int) -> tuple[Array, Array, float]:
    """Return observed counts, expected counts and the sum of the returned probabilities.

    A cell is a start of `length` tokens. Starts that are expected fewer than `LEAST` times, or were
    never drawn, share one cell. The least likely others join it until it expects `LEAST`.
    """
    n, counts = len(responses), Counter(response.tokens[:length] for response in responses)
    stated = {r.tokens[:length]: math.exp(math.fsum(r.log_probs[:length])) for r in responses}
    big = sorted(
        (t for t in stated if n * stated[t] >= LEAST), key=lambda t: stated[t], reverse=True
    )
    while big and n * (1 - sum(stated[t] for t in big)) < LEAST:
        big.pop()
    observed, expected = [counts[t] for t in big], [n * stated[t] for t in big]
    cells = [*observed, n - sum(observed)], [*expected, n - sum(expected)]
    return np.array(cells[0]), np.array(cells[1]), sum(stated.values())


async def verify_limit(subject: Subject) -> Verdict:
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


async def verify_reward(subject: Subject) -> Verdict:
    """Score responses at once, and one after another from the last to the first."""
    rm, prompt = subject.rm, subject.prompt
    together = await asyncio.gather(*(rm.score(prompt, response) for response in subject.responses))
    alone = [await rm.score(prompt, response) for response in reversed(subject.responses)][::-1]
    if not all(map(math.isfinite, [*together, *alone])):
        return False, "a reward is not finite"
    gap = max(abs(a - b) for a, b in zip(together, alone, strict=True))
    evidence = f"{len(alone)} responses scored twice differ by at most {gap:.2g}"
    return gap <= 1e-4 * max(1.0, *map(abs, alone)), evidence


LAWS: dict[str, Callable[[Subject], Awaitable[Verdict]]] = {
    "the same seed gives the same text": verify_seed,
    "a prefix continues as it was drawn": verify_prefix,
    "log-probabilities are those of the sampled distribution": verify_log_probs,
    "whole and continued responses share the length limit": verify_limit,
    "the reward is finite and repeats": verify_reward,
}
"""The laws that `check` tests, in order."""


async def check(
    lm: LanguageModel, rm: RewardModel, prompt: str, on_draw: Callable[[], object] = lambda: None
) -> AsyncIterator[Finding]:
    """Yield one finding per law; an error while a law is tested is a failure of that law.

    `on_draw` is called after each draw.

    Raises:
        QAlignError: no response can be drawn.
    """
    check_models(lm, rm)
    subject = Subject(lm, rm, prompt, on_draw)
    subject = replace(subject, responses=tuple(await subject.draw(N_SEEDS)))
    for name, law in LAWS.items():
        try:
            holds, evidence = await law(subject)
        except QAlignError as error:
            holds, evidence = False, str(error)
        yield Finding(name, holds, evidence)
