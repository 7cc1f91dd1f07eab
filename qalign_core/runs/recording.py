"""A run as the lines of its trace, while it happens: for the page, for files and for lessons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from qalign_core.chain.chain import run_chains
from qalign_core.chain.merging import merge
from qalign_core.chain.priority import ASIDE
from qalign_core.chain.sampling import encode_prompt, sample_iid
from qalign_core.decide.answers.extraction import get_extractor
from qalign_core.errors import QAlignError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.runs.trace import base_line, end_line, header_line, step_line
from qalign_core.types import Sampling, Step, TraceHeader

_BASE_CONCURRENCY = 4  # the chains come first: base samples must not fill every row of the engine


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of a trace (newline included), and the step if it is a step's."""

    line: str
    step: Step | None = None


def header_of(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    beta: float,
    seed: int,
    steps: int,
    n_chains: int = 1,
    reference: str | None = None,
    extractor: str | None = None,
    origin: str = "live",
) -> TraceHeader:
    """The header of a run that starts now, with what the models say of themselves.

    Raises:
        InvalidPrompt: the prompt is empty, or longer than the model's context.
    """
    return TraceHeader(
        lm=lm.id,
        rm=rm.id,
        prompt=prompt,
        beta=float(beta),
        seed=seed,
        steps=steps,
        chains=n_chains,
        sampling=getattr(lm, "sampling", Sampling(max_new_tokens=lm.max_new_tokens)),
        prompt_tokens=len(encode_prompt(lm, prompt)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin=origin,
        reference=reference,
        extractor=extractor,
        lm_revision=getattr(lm, "revision", ""),
        rm_revision=getattr(rm, "revision", ""),
        notes=tuple(getattr(lm, "notes", ())),
    )


async def record(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    beta: float,
    steps: int,
    seed: int,
    n_chains: int = 1,
    n_base: int = 0,
    lookahead: int = 1,
    reference: str | None = None,
    extractor: str | None = None,
    origin: str = "live",
) -> AsyncIterator[Recorded]:
    """Run chains, and base samples beside them, and yield the lines of the trace as they happen.

    Args:
        lm, rm, prompt, beta, steps, seed, n_chains, lookahead: as in `run_chains`.
        n_base: independent base samples whose rewards go into `base` lines.
        reference: the known right answer, for the header.
        extractor: name of the extractor that reads the answers in the steps' lines.
        origin: "live" or "recorded".

    Raises:
        QAlignError: as `run_chains`; a line that says so is yielded first.
    """
    extract = get_extractor(extractor) if extractor else None
    header = header_of(
        lm,
        rm,
        prompt,
        beta=beta,
        seed=seed,
        steps=steps,
        n_chains=n_chains,
        reference=reference,
        extractor=extractor,
        origin=origin,
    )
    yield Recorded(header_line(header))

    async def chain_lines() -> AsyncIterator[Recorded]:
        async for step in run_chains(
            lm,
            rm,
            prompt,
            n_chains=n_chains,
            beta=beta,
            steps=steps,
            seed=seed,
            lookahead=lookahead,
        ):
            answer = extract(step.proposal.response.text) if extract else None
            yield Recorded(step_line(step, answer), step)

    async def base_lines() -> AsyncIterator[Recorded]:
        ASIDE.set(True)  # `merge` follows these lines in a task of their own
        rewards: list[float] = []
        async for sample in sample_iid(
            lm, rm, prompt, n=n_base, seed=seed, concurrency=_BASE_CONCURRENCY
        ):
            rewards.append(sample.reward)
            if len(rewards) & (len(rewards) - 1) == 0 or len(rewards) == n_base:
                yield Recorded(base_line(rewards))  # at 1, 2, 4, ...: each replaces the last

    try:
        async for recorded in merge(chain_lines(), base_lines()):
            yield recorded
    except QAlignError as error:
        yield Recorded(end_line("failed", str(error)))
        raise
    yield Recorded(end_line("finished", "; ".join(getattr(lm, "notes", ()))))
