"""A run over a problem set, in a folder: a trace a problem, and what was asked for.

A folder can be left at any moment and taken up again, by any number of processes at once; since
randomness is addressed, it fills with the same traces whoever draws them. Everything else (answers,
results, figures) is derived from the traces, and can be thrown away.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from qalign_core.analysis.diagnostics import acceptance
from qalign_core.chain.cost import parameters_of
from qalign_core.chain.merging import gather
from qalign_core.decide.rules import majority_vote, minimum_bayes_risk
from qalign_core.decide.utilities import rouge1
from qalign_core.errors import InvalidSetting, InvalidTask, InvalidTrace
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import Run, Sampling, check_count
from qalign_core.runs.problem_sets import Problem, load_problems, problem_line
from qalign_core.runs.results import SETTINGS, Array, Record, Results, Settings
from qalign_core.runs.runner import header_of, record
from qalign_core.runs.store import open_trace, read_trace, write_whole
from qalign_core.types import Cost, ScoredResponse, Trace

PROBLEMS = "problems.jsonl"
"""The file of the folder with the problem set."""
WAIT = 1.0
"""Seconds after which a problem that another process has in work is looked at again."""

Progress = Callable[[int, int, int], None]
"""Told how many draws are in the folder that were not before, and how many problems are done and
in the hands of other processes."""


def run_of(run: Run, problem: Problem, place: int) -> Run:
    """The run of the problem at a place of the set, from 0: its texts, and a seed of its own."""
    return run.with_changes(
        prompt=problem.prompt,
        reference=problem.answer,
        extractor=problem.extractor,
        seed=run.seed + place,
    )


def trace_path(folder: Path, place: int) -> Path:
    """The trace of the problem at a place: by its number, since an id may be any text."""
    return folder / f"{place:05}.jsonl"


async def run_set(
    lm: LanguageModel,
    rm: RewardModel,
    run: Run,
    problems: Sequence[Problem],
    folder: str | Path,
    *,
    at_once: int = 64,
    task: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> None:
    """Draw a run for every problem of a set into `folder`, or go on where it was left.

    Args:
        lm, rm: the models.
        run: what to draw for each; prompt, reference, extractor and seed are the problem's
            (`run_of`).
        problems: the set.
        folder: where the traces go.
        at_once: problems in work side by side, so that a local engine's batch is full.
        task, command: name of the set and how the run was started, for labels.
        progress: told as the folder fills.

    Raises:
        InvalidSetting: settings out of range, or the folder holds other things.
        InvalidPrompt: a prompt is too long; nothing is drawn then.
        QAlignError: a model failed; what was drawn is kept.
    """
    check_count("at_once", at_once, 1)
    if not problems:
        raise InvalidTask("there are no problems; give a set with at least one")
    runs = [run_of(run, problem, place).check() for place, problem in enumerate(problems)]
    headers = [header_of(lm, rm, each) for each in runs]
    folder = Path(folder)
    _join(folder, _settings(lm, rm, run, problems, task, command), problems)
    left = dict.fromkeys(range(len(problems)))
    taken: set[int] = set()  # by another process, when last looked at
    told = progress or (lambda n_new, n_done, n_elsewhere: None)

    async def work(places: Iterator[int]) -> None:
        for place in places:
            with open_trace(trace_path(folder, place), headers[place]) as file:
                if file is None:
                    taken.add(place)
                    continue
                known = file.known
                told(len(known.steps) + len(known.pool), len(problems) - len(left), len(taken))
                async for item in record(lm, rm, runs[place], known=known):
                    file.write(item.line)
                    told(item.drawn is not None, len(problems) - len(left), len(taken))
            del left[place]

    while left:
        taken.clear()
        places = iter(tuple(left))
        await gather(*(work(places) for _ in range(min(at_once, len(left)))))
        told(0, len(problems) - len(left), len(taken))
        if left:
            await asyncio.sleep(WAIT)


def traces_of(folder: str | Path, n: int) -> Iterator[tuple[int, Trace]]:
    """The traces of a folder of `n` problems that have begun, by place.

    Raises:
        InvalidTrace: one cannot be read.
    """
    for place in range(n):
        trace = read_trace(trace_path(Path(folder), place))
        if trace is not None:
            yield place, trace


def results_in(folder: str | Path) -> Results:
    """The numbers of every problem of a folder that has begun, finished or not.

    Raises:
        InvalidTrace: it is no folder of a run, or a trace cannot be read.
    """
    folder = Path(folder)
    try:
        settings = Settings.from_json((folder / SETTINGS).read_text("utf-8"), str(folder))
        problems = load_problems(folder / PROBLEMS)
    except (OSError, UnicodeDecodeError, InvalidTask) as error:
        raise InvalidTrace(f"{folder} is not the folder of a run ({error})") from error
    traces = traces_of(folder, len(problems))
    done = [record_of(problems[k], trace) for k, trace in traces if trace.steps or trace.pool]
    return Results(settings, tuple(done))


def record_of(problem: Problem, trace: Trace) -> Record:
    """The numbers of a trace: pool and first chain; the same whatever came first."""
    pool, steps = trace.pool, next(iter(trace.chains.values()), ())
    extract = problem.extract or str  # an open-ended response is its own answer
    read = {text: extract(text) for text in {s.response.text for s in pool}}
    read |= {text: extract(text) for text in {s.proposal.response.text for s in steps}}
    number: dict[str, int] = {}

    def numbered(samples: Iterable[ScoredResponse]) -> list[int]:
        said = (read[sample.response.text] for sample in samples)
        return [-1 if answer is None else number.setdefault(answer, len(number)) for answer in said]

    pool_answer = numbered(pool)
    chain_answer = numbered(step.proposal for step in steps)
    return Record(
        id=problem.id,
        answers=np.array(list(number), dtype=np.str_),
        right=np.array([problem.is_right(answer) for answer in number], bool),
        pool_reward=np.array([sample.reward for sample in pool], np.float32),
        pool_answer=np.array(pool_answer, np.int32),
        pool_cost=_matrix(sample.cost for sample in pool),
        chain_reward=np.array([step.proposal.reward for step in steps], np.float32),
        chain_answer=np.array(chain_answer, np.int32),
        chain_cost=_matrix(step.cost for step in steps),
        chain_accepted=np.array([step.accepted for step in steps], bool),
        chain_changed=np.array([step.t == 0 or step.changed for step in steps], bool),
        chain_length=np.array([len(step.proposal.response) for step in steps], np.int32),
    )


def _matrix(costs: Iterable[Cost]) -> Array:
    """A row a draw, a column a count of `Cost`, shape [n, 2]."""
    return np.array([astuple(cost) for cost in costs], dtype=np.int32).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chains of one prompt came to.

    Attributes:
        id: the problem's.
        answer: the vote of all states, or None (none could be read, or the prompt is open-ended).
        share: the answer's share of the states, 0 without one.
        text: the response that represents it; by minimum Bayes risk if the prompt is open-ended.
        reference: the known right answer, if there is one.
        n_states: of all chains.
        accepted: share of the proposals that differ from the state that were accepted.
    """

    id: str
    answer: str | None
    share: float
    text: str
    reference: str | None
    n_states: int
    accepted: float | None


def answers_in(folder: str | Path, problems: Sequence[Problem]) -> tuple[Answer, ...]:
    """What the chains in a folder came to, for every problem that has begun, in order.

    Raises:
        InvalidTrace: a trace cannot be read.
    """
    traces = traces_of(folder, len(problems))
    return tuple(_decide(problems[place], trace) for place, trace in traces if trace.steps)


def _decide(problem: Problem, trace: Trace) -> Answer:
    states = trace.states
    if problem.extract is None:
        decision = minimum_bayes_risk(states, rouge1)
    else:
        decision = majority_vote(states, problem.extract)
    return Answer(
        id=problem.id,
        answer=decision.answer,
        share=decision.shares[0][1] if decision.answer is not None else 0.0,
        text=decision.chosen.response.text if decision.chosen else "",
        reference=problem.answer,
        n_states=len(states),
        accepted=acceptance(trace.steps).changed.value,
    )


def _settings(
    lm: LanguageModel,
    rm: RewardModel,
    run: Run,
    problems: Sequence[Problem],
    task: str,
    command: str,
) -> Settings:
    return Settings(
        lm=lm.id,
        rm=rm.id,
        beta=run.beta,
        seed=run.seed,
        budget=run.pool or run.steps + 1,
        states=run.steps + 1 if run.chains else 0,
        methods=(*(("qalign",) if run.chains else ()), *(("bon", "mv", "wmv") if run.pool else ())),
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


def _join(folder: Path, settings: Settings, problems: Sequence[Problem]) -> None:
    """Start a folder, or make sure that the one there is of the same settings."""
    path = folder / SETTINGS
    if not path.is_file():
        write_whole(folder / PROBLEMS, "".join(map(problem_line, problems)).encode())
        write_whole(path, settings.to_json().encode())
        return
    there = Settings.from_json(path.read_text("utf-8"), str(path))
    for each in fields(Settings):
        old, new = getattr(there, each.name), getattr(settings, each.name)
        if old != new and each.name not in ("created", "command", "task"):
            what = "other problems" if each.name in ("problems", "digest") else f"{old!r:.60}"
            raise InvalidSetting(
                f"{folder} holds another run ({each.name}: {what}, now {new!r:.60}); "
                "use another folder, or the same settings to go on"
            )


def _digest(problems: Sequence[Problem]) -> str:
    content = [[p.id, p.prompt, p.answer, p.extractor] for p in problems]
    content += [list(astuple(p.writing)) for p in problems if p.writing is not None]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
