"""Draw one run: the steps of its chains, the samples of its pool, and the lines of its trace.

Every command and every page draws with this module. The draws are a function of the run and its
models alone, so a resumed run continues as if it had never stopped.

    >>> from qalign_core import collect, load_language_model, load_reward_model
    >>> lm, rm = load_language_model("embedded"), load_reward_model("embedded")
    >>> run = Run(prompt="What is 9 + 12?", steps=2, pool=0)
    >>> [item.line.partition(",")[0] for item in collect(record(lm, rm, run))]
    ['{"type":"header"', '{"type":"step"', '{"type":"step"', '{"type":"step"', '{"type":"end"']
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import sample_iid
from qalign_core.chain.cost import meter_of, parameters_of, prompt_scored, reading_of
from qalign_core.chain.merging import gather, merge
from qalign_core.chain.moves.own import own_move
from qalign_core.context import BACKGROUND
from qalign_core.decide.answers.graders import get_grader
from qalign_core.errors import QAlignError
from qalign_core.messages import encode_prompt
from qalign_core.move_spec import parse_moves
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.format import LineWriter, end_line, header_line
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.run import Run, Sampling
from qalign_core.types import ScoredResponse, Step

TOLERANCE = 0.02
"""Largest relative difference in compute between chains and pool at equal FLOPs."""

APPLIES = frozenset(
    (
        *("prompt", "reference", "extractor", "lm", "rm", "beta", "sharpness", "move", "steps"),
        *("chains", "seed", "burn_in", "pool", "matched"),
    )
)
"""The settings that drawing a run applies, in addition to those that its language model applies."""

_AHEAD = 8  # samples of a pool drawn concurrently
_AHEAD_IN_BACKGROUND = 4  # while chains have priority: samples must not fill every row

Draw = Step | ScoredResponse
"""A step of a chain, or an independent sample."""


def check_applied(lm: LanguageModel, run: Run) -> None:
    """Refuse a run with a setting that neither its language model nor this module applies.

    A model without `applies` is responsible for temperature, top-p, top-k and the length limit.

    Raises:
        InvalidSetting: there is one, and it is not at its default.
    """
    usual = frozenset({"temperature", "max_new_tokens", "top_p", "top_k"})
    run.sampling.refuse_unapplied(getattr(lm, "applies", usual), f"the model {lm.id}")
    run.refuse_unapplied({*APPLIES, *Sampling.settings()}, "the chain")


def header_fields(lm: LanguageModel, rm: RewardModel, run: Run) -> dict[str, Any]:
    """Return the fields of a `Header`: the run, and what its models report of themselves.

    Raises:
        InvalidSetting: a setting is not applied.
    """
    check_applied(lm, run)
    sampling = getattr(lm, "sampling", Sampling(max_new_tokens=lm.max_new_tokens))
    applied = {name: getattr(sampling, name) for name in Sampling.settings()}
    own = [own_move(part.name) for part in parse_moves(run.move) if part.is_own]
    return {
        "run": run.with_changes(**applied, lm=lm.id, rm=rm.id),
        "lm_revision": str(getattr(lm, "revision", "")),
        "rm_revision": str(getattr(rm, "revision", "")),
        "lm_parameters": parameters_of(lm),
        "rm_parameters": parameters_of(rm),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "notes": (*getattr(lm, "notes", ()), *(move.note for move in own)),
        "move_revision": " ".join(move.revision for move in own),
    }


def make_header(lm: LanguageModel, rm: RewardModel, run: Run) -> TraceHeader:
    """Make the header of a run that starts now.

    Raises:
        InvalidPrompt: the prompt is empty, or longer than the model's context.
    """
    n_prompt = len(encode_prompt(lm, run.prompt))
    n_scored = prompt_scored(n_prompt, reading_of(rm))
    return TraceHeader(**header_fields(lm, rm, run), prompt_tokens=n_prompt, prompt_scored=n_scored)


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """One line of a trace (newline included), with its step or sample, if it has one."""

    line: str
    draw: Draw | None = None


async def record(
    lm: LanguageModel,
    rm: RewardModel,
    run: Run,
    *,
    known: Trace | None = None,
) -> AsyncIterator[RecordedLine]:
    """Draw a run and yield the lines of its trace as they happen.

    Args:
        lm, rm: its models.
        run: what to draw.
        known: the part that exists already; only the lines after it are yielded.

    Raises:
        QAlignError: as `draw`; a line with the reason is yielded first.
    """
    if run.extractor:
        get_grader(run.extractor)
    if known is None:
        known = Trace(make_header(lm, rm, run))
        yield RecordedLine(header_line(known.header))
    lines, n = LineWriter(run), len(known.pool)
    try:
        async with aclosing(draw(lm, rm, run, known=known)) as draws:  # type: ignore[type-var]
            async for item in draws:
                if isinstance(item, Step):
                    yield RecordedLine(lines.step(item), item)
                else:
                    yield RecordedLine(lines.sample(n, item), item)
                    n += 1
    except QAlignError as error:
        yield RecordedLine(end_line("failed", str(error)))
        raise
    if known.end is None or known.end[0] != "finished":
        yield RecordedLine(end_line("finished", "; ".join(getattr(lm, "notes", ()))))


def draw(
    lm: LanguageModel, rm: RewardModel, run: Run, *, known: Trace | None = None
) -> AsyncIterator[Draw]:
    """Draw the missing steps and samples of a run and yield them as they arrive.

    `run.matched` sets the order and the end. "none": chains and pool run concurrently, and the
    chains have priority. "pool": after every step the pool catches up with the cost of the chains,
    so that a run stopped halfway is a fair comparison up to that point; if the last sample leaves
    the two costs more than `TOLERANCE` apart, every chain makes another step, up to twice the
    number of steps. "chain": first the pool, then one step of each chain at a time, until the
    chains have cost as much.

    Args:
        lm, rm: its models.
        run: what to draw.
        known: the part that exists already.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward, EngineError.
    """
    check_applied(lm, run)
    streams: dict[str, Callable[..., AsyncIterator[Draw]]] = {
        "none": _side_by_side,
        "pool": _pool_matched,
        "chain": _chain_matched,
    }
    return streams[run.matched](lm, rm, run, known or Trace(TraceHeader()))


async def _side_by_side(
    lm: LanguageModel, rm: RewardModel, run: Run, known: Trace
) -> AsyncIterator[Draw]:
    async def pool() -> AsyncIterator[ScoredResponse]:
        # `merge` runs the pool in its own task, so the chains keep their priority
        BACKGROUND.set(True)
        async for sample in _samples(lm, rm, run, known, _AHEAD_IN_BACKGROUND):
            yield sample

    streams: list[AsyncIterator[Draw]] = [*_chains(lm, rm, run, _latest(known), run.steps), pool()]
    async for item in merge(*streams):
        yield item


async def _pool_matched(
    lm: LanguageModel, rm: RewardModel, run: Run, known: Trace
) -> AsyncIterator[Draw]:
    meter, latest = meter_of(lm, rm), _latest(known)
    at = Counter[int]()  # price of step t of all chains, where known
    for step in known.steps:
        at[step.t] += meter.price(step.cost)
    goal = sum(at[t] for t in range(run.steps + 1))
    spent = [meter.price(sample.cost) for sample in known.pool]
    samples = _samples(lm, rm, run, known, _AHEAD)

    async def catch_up() -> AsyncIterator[ScoredResponse]:
        while sum(spent) < goal and len(spent) < run.pool:
            sample = await anext(samples)
            spent.append(meter.price(sample.cost))
            yield sample

    async with aclosing(samples):  # type: ignore[type-var]
        for last in range(run.steps, 2 * run.steps + 2):
            goal += at[last] if last > run.steps else 0
            async for step in merge(*_chains(lm, rm, run, latest, last)):
                latest[step.chain] = step
                goal += meter.price(step.cost)
                yield step
                async for sample in catch_up():
                    yield sample
            async for sample in catch_up():
                yield sample
            if at[last + 1]:  # the interrupted run went on from here
                continue
            nearest = min(abs(total - goal) for total in accumulate(spent, initial=0))
            if len(spent) >= run.pool or nearest <= TOLERANCE * goal:
                return


async def _chain_matched(
    lm: LanguageModel, rm: RewardModel, run: Run, known: Trace
) -> AsyncIterator[Draw]:
    meter, latest = meter_of(lm, rm), _latest(known)
    goal = sum(meter.price(sample.cost) for sample in known.pool)
    async for sample in _samples(lm, rm, run, known, _AHEAD):
        goal += meter.price(sample.cost)
        yield sample
    spent = sum(meter.price(step.cost) for step in known.steps)
    async with AsyncExitStack() as stack:
        chains = _chains(lm, rm, run, latest, run.steps)
        for chain in chains:
            stack.push_async_callback(chain.aclose)  # type: ignore[attr-defined]
        # an interruption may have split a round: the other chains catch up first
        behind = {k: latest[k].t if k in latest else -1 for k in range(run.chains)}
        while spent < goal or len(set(behind.values())) > 1:
            t = min(behind.values())
            if t >= run.steps:
                return
            due = [k for k, reached in behind.items() if reached == t]
            for step in await gather(*(anext(chains[k]) for k in due)):
                behind[step.chain] = step.t
                spent += meter.price(step.cost)
                yield step


async def draw_step(
    lm: LanguageModel, rm: RewardModel, run: Run, chain: int, t: int, before: Step | None
) -> Step:
    """Draw one step of a run again, from its seed, its chain and its number.

    Args:
        lm, rm: the run's models.
        run: its settings.
        chain: number of the chain, from 0.
        t: number of the step; 0 is the draft.
        before: the step before it, whose state the step starts from; None for the draft.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    async with aclosing(_chain(lm, rm, run, chain, t, before)) as steps:
        step: Step = await anext(steps)
    return step


def _latest(known: Trace) -> dict[int, Step]:
    return {chain: steps[-1] for chain, steps in known.chains.items()}


def _chains(
    lm: LanguageModel, rm: RewardModel, run: Run, latest: Mapping[int, Step], steps: int
) -> list[AsyncIterator[Step]]:
    """Return every chain of a run, from its latest step to step number `steps`."""
    return [_chain(lm, rm, run, k, steps, latest.get(k)) for k in range(run.chains)]


def _chain(
    lm: LanguageModel, rm: RewardModel, run: Run, number: int, steps: int, start: Step | None
) -> Any:
    options: dict[str, Any] = {"target": run.target, "move": run.move, "seed": run.seed}
    return run_chain(lm, rm, run.prompt, chain=number, start=start, steps=steps, **options)


def _samples(
    lm: LanguageModel, rm: RewardModel, run: Run, known: Trace, ahead: int
) -> AsyncIterator[ScoredResponse]:
    """Yield the missing samples of a run's pool."""
    first = min(len(known.pool), run.pool)
    return sample_iid(lm, rm, run.prompt, n=run.pool, seed=run.seed, first=first, concurrency=ahead)
