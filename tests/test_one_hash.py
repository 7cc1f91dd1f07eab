"""What a run draws, decides by and costs is a fact of the run: one hash, wherever it is drawn.

Each test draws the same seed elsewhere: in company, after others, with other rows, in another
process, resumed, at another door. The hash is of every proposal and verdict, of every independent
sample, and of what each of them cost.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import termios
from pathlib import Path

import pytest
from forks import Program

from components.session.drawing import draw_run
from components.session.runs import Runs
from qalign_core import load_language_model, load_reward_model, load_trace, registry
from qalign_core.assets import ASSETS
from qalign_core.chain.cost import reads_on
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import make_header, record
from qalign_core.record.store import open_trace
from qalign_core.record.trace import Trace
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.run import Limits, Run
from qalign_study.commands import main
from qalign_study.sets.folder import run_of, run_set
from qalign_study.sets.problem_sets import Problem, problem_line

PROBLEM = Problem("p", "Tom has 5 eggs. He buys 2 boxes of 6 eggs each. How many?", "17", "number")
OTHERS = [Problem("o", "Mia finds 2 shells. How many?", "2", "number")]
RUN = run_of(Run(seed=3, steps=5, chains=2, pool=6), PROBLEM, 0)
FIRST = 4
"""Proposals of a chain, and samples, that a run has however it ends: these are hashed."""
WHOLE = 10**6
"""In place of that: all there are."""


def fingerprint(trace: Trace, first: int = FIRST) -> str:
    """A hash of the first draws of a run."""
    steps = [
        [
            *(s.chain, s.t, s.index, s.proposal.response.tokens, s.proposal.reward, s.cost),
            *(s.accepted, s.log_alpha, s.log_u, s.state.response.text),
        ]
        for chain in trace.chains.values()
        for s in chain[: first + 1]
    ]
    pool = [[s.response.tokens, s.response.text, s.reward, s.cost] for s in trace.pool[:first]]
    assert len(pool) == first or first == WHOLE
    return hashlib.sha256(repr((steps, pool)).encode()).hexdigest()


async def draw_trace(run: Run = RUN, **options: int) -> Trace:
    lm = load_language_model(run.lm, sampling=run.sampling, **options)
    rm = load_reward_model(run.rm)
    return parse_trace("".join([item.line async for item in record(lm, rm, run)]))


@pytest.fixture(scope="module")
def alone() -> Trace:
    return asyncio.run(draw_trace())


@pytest.fixture(scope="module")
def expected(alone: Trace) -> str:
    return fingerprint(alone)


async def test_in_company_of_eight(expected: str) -> None:
    others = [RUN.with_changes(seed=100 + k, steps=2, pool=2, chains=1) for k in range(8)]
    traces = await asyncio.gather(*map(draw_trace, [*others[:4], RUN, *others[4:]]))
    assert fingerprint(traces[4]) == expected


async def test_after_thirty(expected: str) -> None:
    for k in range(3):
        run = RUN.with_changes(steps=0, pool=0, chains=1)
        await asyncio.gather(*(draw_trace(run.with_changes(seed=10 * k + i)) for i in range(10)))
    assert fingerprint(await draw_trace()) == expected


@pytest.mark.parametrize(
    "rows", [1, *(pytest.param(rows, marks=pytest.mark.more) for rows in (3, 16)), 64]
)
async def test_at_any_number_of_rows(expected: str, rows: int) -> None:
    try:
        assert fingerprint(await draw_trace(rows=rows)) == expected
    finally:
        registry.unload("embedded")


async def test_resumed_after_six_kills(alone: Trace, tmp_path: Path) -> None:
    """Each time between two draws, or in the middle of writing one."""
    lm, rm = load_language_model("embedded"), load_reward_model("embedded")
    path, rng = tmp_path / "run.jsonl", random.Random(1)

    async def draw(most: int) -> None:
        with open_trace(path, make_header(lm, rm, RUN)) as file:
            assert file is not None
            async for item in record(lm, rm, RUN, known=file.known):
                file.write(item.line)
                most -= 1
                if not most:
                    break

    for _ in range(6):
        await draw(rng.randrange(1, 3))
        os.truncate(path, path.stat().st_size - rng.randrange(40))
    await draw(WHOLE)
    assert fingerprint(load_trace(path), WHOLE) == fingerprint(alone, WHOLE)


@pytest.fixture
def problems(tmp_path: Path) -> str:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(map(problem_line, [PROBLEM, *OTHERS])))
    return str(path)


OPTIONS = ["--seed", "3", "--chains", "2", "--steps", "5", "--pool", "6"]


TWO_THREADS = """
import sys, torch
from qalign_study.commands import main
torch.set_num_threads(2)
sys.exit(main(sys.argv[1:]))
"""


async def test_drawn_by_two_processes_of_which_one_is_killed(
    alone: Trace, problems: str, tmp_path: Path
) -> None:
    """The other process has another number of threads."""
    out = tmp_path / "out"
    command = ["run", "--prompts", problems, "--out", str(out), "--at-once", "1", *OPTIONS]
    screen, terminal = os.openpty()  # a bar that counts draws appears on a terminal only
    termios.tcsetwinsize(terminal, (24, 80))
    other = Program(*command, code=TWO_THREADS, stderr=terminal)
    os.close(terminal)
    try:
        output = b""
        while not re.search(rb" [1-9][0-9]*/", output):
            output += os.read(screen, 1)
        lm, rm = load_language_model("embedded"), load_reward_model("embedded")
        everything = [PROBLEM, *OTHERS]
        await run_set(lm, rm, RUN, everything, out, progress=lambda *_: other.kill())
    finally:
        other.kill()
        other.wait()
        os.close(screen)
    assert fingerprint(load_trace(out / "00000.jsonl"), WHOLE) == fingerprint(alone, WHOLE)
    for place, problem in enumerate(OTHERS, start=1):
        there = load_trace(out / f"{place:05}.jsonl")
        assert fingerprint(there) == fingerprint(await draw_trace(run_of(RUN, problem, place)))


DOORS = {
    "run": "run --quiet --out {out}",
    "run of a set": "run --prompts {set} --quiet --out {folder}",
    "compare": "compare --out {out}",
    "evaluate": "evaluate --task {set} --budget 8 --problems 1 --out {folder}",
}


@pytest.mark.parametrize("door", DOORS)
def test_at_every_door_of_the_command_line(
    alone: Trace, problems: str, tmp_path: Path, door: str
) -> None:
    out, folder = tmp_path / "run.jsonl", tmp_path / "folder"
    command = DOORS[door].format(out=out, set=problems, folder=folder).split()
    options, wanted = OPTIONS, RUN
    if door == "compare":
        options, wanted = OPTIONS[:6], RUN.with_changes(pool=4096, matched="pool")
    elif door == "evaluate":
        options, wanted = OPTIONS[:4], RUN.with_changes(pool=8, steps=8 * 192, matched="chain")
    if "{set}" not in DOORS[door]:
        options = [*options, "--prompt", PROBLEM.prompt, "--reference", "17"]
    assert main([*command, *options]) == 0
    trace = load_trace(folder / "00000.jsonl" if "{folder}" in DOORS[door] else out)
    assert fingerprint(trace) == fingerprint(alone)
    whole = alone if wanted == RUN else asyncio.run(draw_trace(wanted))
    assert fingerprint(trace, WHOLE) == fingerprint(whole, WHOLE)


@pytest.mark.parametrize("page", ["watch", "compare"])
async def test_on_the_pages(alone: Trace, page: str) -> None:
    runs = Runs(Limits())
    wanted = RUN if page == "watch" else RUN.with_changes(matched="pool", pool=1024)
    async for view in runs.stream("visitor", lambda feed: draw_run(feed, runs, wanted)):
        text = view.text
    trace = parse_trace(text)
    assert fingerprint(trace) == fingerprint(alone)
    whole = alone if wanted == RUN else await draw_trace(wanted)
    assert fingerprint(trace, WHOLE) == fingerprint(whole, WHOLE)


@pytest.mark.recorded
@pytest.mark.parametrize(
    ("run", "n"),
    [
        ("watch", 128),
        pytest.param("watch", None, marks=pytest.mark.more),
        pytest.param("beyond", None, marks=pytest.mark.more),
    ],
)
async def test_a_reward_has_the_same_bits_whatever_was_read_before(run: str, n: int | None) -> None:
    trace = load_trace(ASSETS / "runs" / f"{run}.jsonl")
    steps = trace.steps[:n]
    texts = [step.proposal.response for step in steps] + [s.response for s in trace.pool[:16]]
    rng, rewards = random.Random(0), list[list[float]]()
    for k in range(2):  # what is kept of the texts before decides where each is read on
        fresh = HFRewardModel.from_pretrained(ASSETS / "models" / "rm")
        order = rng.sample(range(len(texts)), len(texts)) if k else list(range(len(texts)))
        scored = {i: await fresh.score(trace.header.run.prompt, texts[i]) for i in order}
        rewards.append([scored[i] for i in range(len(texts))])
    assert rewards[0] == rewards[1]


async def test_another_seed_and_a_cost_that_a_cache_decides_have_another_hash(
    expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: either would be seen."""
    assert fingerprint(await draw_trace(RUN.with_changes(seed=4))) != expected
    rm, seen = load_reward_model("embedded"), set[tuple[int, int]]()

    def of_the_cache(known: int, total: int) -> int:
        again = (known, total) in seen
        seen.add((known, total))
        return 0 if again else reads_on(known, total)

    monkeypatch.setattr(rm, "n_read", of_the_cache)
    assert fingerprint(await draw_trace()) != fingerprint(await draw_trace())
