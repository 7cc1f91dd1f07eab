"""Run the four methods over a problem set, many problems at once, and keep all that was drawn.

A run can be stopped at any moment and goes on where it was, and any number of workers can share
one folder. A problem's record appears whole or not at all; since randomness is addressed, workers
that do the same problem write the same numbers, and a claim only saves them from doing so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, fields
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from qalign_core.analysis.comparisons import METHODS, Method
from qalign_core.chain.chain import run_chain
from qalign_core.chain.cost import n_at_budget, parameters_of
from qalign_core.chain.kernel import check_beta
from qalign_core.chain.sampling import check_count, gather, sample_iid
from qalign_core.errors import InvalidSetting, InvalidTask
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.runs.draft import Draft
from qalign_core.runs.problem_sets import Problem
from qalign_core.runs.results import SETTINGS, Settings, record_name, to_bytes
from qalign_core.types import Sampling

Progress = Callable[[int, int], None]
"""Told how many problems are done, and of how many."""

HEARTBEAT = 10.0
"""Seconds between two signs of life of a worker; what it drew is saved as often."""
ABANDONED = 60.0
"""Seconds without a sign of life after which another worker takes over."""


async def evaluate(
    lm: LanguageModel,
    rm: RewardModel,
    problems: Sequence[Problem],
    *,
    beta: float,
    folder: str | Path,
    methods: Sequence[Method] = METHODS,
    budget: int = 512,
    states: int = 0,
    seed: int = 0,
    task: str = "",
    command: str = "",
    concurrency: int = 128,
    progress: Progress | None = None,
) -> None:
    """Draw `budget` samples and one chain of the same price for every problem, into `folder`.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        problems: with answers to compare with, or all open-ended with constraints to check: then
            minimum Bayes risk with ROUGE-1 takes the place of the votes.
        beta: of the chain, raw RM units; frozen before anything is drawn.
        folder: where the results go, or where a run with the same settings was stopped.
        methods: of "qalign", "bon", "mv", "wmv"; only what they need is drawn.
        budget: independent samples a problem. The chain ends where it has cost as much; alone, it
            has so many states.
        states: the chain has at most so many states; 0 if only the budget is to end it.
        seed: address of the randomness; the problem at place k (from 0) uses `seed + k`.
        task: name of the problem set, for labels.
        command: how the run was started, for labels.
        concurrency: problems in work at once, so that a local engine's batch is full.
        progress: told at the start and after every problem.

    Raises:
        InvalidSetting: settings out of range, or the folder holds results of other settings.
        InvalidTask: nothing says what is right for a problem, or only some are open-ended.
        QAlignError: a model failed; what was drawn is kept.
    """
    check_count("budget", budget, 1)
    check_count("states", states, 0)
    check_count("concurrency", concurrency, 1)
    if not methods or any(method not in METHODS for method in methods):
        raise InvalidSetting(f"methods must be some of {', '.join(METHODS)}, got {list(methods)}")
    if not problems:
        raise InvalidTask("there are no problems to evaluate; give a set with at least one")
    for problem in problems:
        if problem.answer is None and problem.writing is None:
            raise InvalidTask(
                f"problem {problem.id!r} has neither an answer to compare with nor constraints to "
                "check; 'evaluate' needs one of them"
            )
    if len({problem.extractor is None for problem in problems}) > 1:
        raise InvalidTask(
            "some problems are open-ended and some are not; put them in two files and evaluate each"
        )
    settings = Settings(
        lm=lm.id,
        rm=rm.id,
        beta=check_beta(beta),
        seed=seed,
        budget=budget,
        states=states,
        methods=tuple(method for method in METHODS if method in methods),
        task=task,
        problems=tuple(problem.id for problem in problems),
        digest=_digest(problems),
        sampling=getattr(lm, "sampling", Sampling(max_new_tokens=lm.max_new_tokens)),
        lm_parameters=parameters_of(lm),
        rm_parameters=parameters_of(rm),
        lm_revision=str(getattr(lm, "revision", "")),
        rm_revision=str(getattr(rm, "revision", "")),
        created=datetime.now(UTC).date().isoformat(),
        command=command,
        open_ended=problems[0].extractor is None,
    )
    folder = Path(folder)
    _join(folder, settings)
    targets = [folder / record_name(place) for place in range(len(problems))]
    n_done = sum(target.exists() for target in targets)
    queue = _to_do(targets)
    if progress is not None:
        progress(n_done, len(problems))

    async def work() -> None:
        nonlocal n_done
        for place in queue:
            if place is None:  # what is left is in the hands of other workers
                await asyncio.sleep(1.0)
                continue
            target = targets[place]
            draft = Draft.load(target.with_suffix(".draft"), problems[place])
            async with _claimed(target, draft):
                await _draw(lm, rm, problems[place], draft, settings, seed + place)
                _write_whole(target, to_bytes(draft.record()))
            target.with_suffix(".draft").unlink(missing_ok=True)
            if progress is not None:
                n_done = sum(target.exists() for target in targets)
                progress(n_done, len(problems))

    await gather(*(work() for _ in range(min(concurrency, len(problems)))))


async def _draw(
    lm: LanguageModel,
    rm: RewardModel,
    problem: Problem,
    draft: Draft,
    settings: Settings,
    seed: int,
) -> None:
    """Draw what the draft of a problem still lacks, pool and chain side by side."""
    meter, budget = settings.meter, settings.budget
    needs_pool = any(method != "qalign" for method in settings.methods)

    async def draw_pool() -> int:
        n = budget if needs_pool else 0
        pool = sample_iid(lm, rm, problem.prompt, n=n, seed=seed, first=draft.n_samples)
        async for sample in pool:
            draft.add_sample(sample)
        return sum(meter.price(cost) for cost in draft.pool_costs)

    async def draw_chain() -> None:
        # Enough for any pool: each step costs at least one token, a sample at most all of them.
        steps = budget * lm.max_new_tokens if needs_pool else budget - 1
        if settings.states:
            steps = min(steps, settings.states - 1)
        spent = sum(meter.price(cost) for cost in draft.chain_costs)
        chain = run_chain(
            lm,
            rm,
            problem.prompt,
            beta=settings.beta,
            steps=steps,
            seed=seed,
            start=draft.last_step,
        )
        async for step in chain:
            draft.add_step(step)
            spent += meter.price(step.cost)
            known = pool.done() or draft.n_states >= budget
            if needs_pool and known and spent >= await pool:
                break
        await chain.aclose()  # type: ignore[attr-defined]

    pool = asyncio.ensure_future(draw_pool())
    try:
        if "qalign" in settings.methods:
            await draw_chain()
        total = await pool
    finally:
        pool.cancel()
        await asyncio.gather(pool, return_exceptions=True)
    if needs_pool and draft.n_states:
        # The chain may have run ahead of the pool; end it where a slower one would have ended.
        running = list(accumulate(meter.price(cost) for cost in draft.chain_costs))
        draft.cut_chain(n_at_budget(running, total))


# --- the folder ------------------------------------------------------------------------------


def _join(folder: Path, settings: Settings) -> None:
    """Start a results folder, or make sure that the one there is of the same settings."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            f"{folder} cannot be used ({error.strerror}); give another folder with --out"
        ) from error
    path = folder / SETTINGS
    if not path.exists():
        if any(folder.glob("*.npz")):
            raise InvalidSetting(f"{folder} holds results but no {SETTINGS}; use an empty folder")
        _write_whole(path, settings.to_json().encode())
        return
    there = Settings.from_json(path.read_text("utf-8"), str(path))
    for field in fields(Settings):
        old, new = getattr(there, field.name), getattr(settings, field.name)
        if old != new and field.name not in ("created", "command", "task"):
            what = "other problems" if field.name in ("problems", "digest") else f"{old!r}"
            raise InvalidSetting(
                f"{folder} holds results of another run ({field.name}: {what}, now {new!r:.60}); "
                "use another folder, or the same settings to go on"
            )


def _to_do(targets: Sequence[Path]) -> Iterator[int | None]:
    """Places of problems to do, claimed for the caller; None while others have all the rest."""
    left = []
    for place, target in enumerate(targets):
        if not target.exists():
            if _claim(target):
                yield place
            else:
                left.append(place)
    while left:
        mine = next((p for p in left if not targets[p].exists() and _claim(targets[p])), None)
        left = [p for p in left if p != mine and not targets[p].exists()]
        if mine is not None or left:
            yield mine


def _claim(target: Path) -> bool:
    claim = target.with_suffix(".claim")
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        try:
            if time.time() - claim.stat().st_mtime < ABANDONED:
                return False
            claim.touch()
        except FileNotFoundError:  # given up or finished this very moment
            return False
    return True


@asynccontextmanager
async def _claimed(target: Path, draft: Draft) -> AsyncIterator[None]:
    """Keep a claim alive and what was drawn saved; in the end, however it comes, give it up."""
    claim, path = target.with_suffix(".claim"), target.with_suffix(".draft")

    async def stay_alive() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            claim.touch()
            _write_whole(path, draft.to_bytes())

    heart = asyncio.ensure_future(stay_alive())
    try:
        yield
    finally:
        heart.cancel()
        if not target.exists():
            _write_whole(path, draft.to_bytes())
        claim.unlink(missing_ok=True)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that is either there as a whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def _digest(problems: Sequence[Problem]) -> str:
    content = [[p.id, p.prompt, p.answer, p.extractor] for p in problems]
    content += [list(astuple(p.writing)) for p in problems if p.writing is not None]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
