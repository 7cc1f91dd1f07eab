"""A run over a problem set, in a folder: a trace a problem, and what was asked for.

A folder can be left at any moment and taken up again, by any number of processes at once; since
randomness is addressed, it fills with the same traces whoever draws them. Everything else (answers,
results, figures) is derived from the traces, and can be thrown away.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from qalign_core.analysis.diagnostics import acceptance
from qalign_core.analysis.record import record_of
from qalign_core.chain.merging import gather
from qalign_core.decide.rules import consensus
from qalign_core.errors import InvalidSetting, InvalidTask, InvalidTrace
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import Run, check_count
from qalign_core.runs.problem_sets import Problem, load_problems, problem_line
from qalign_core.runs.results import Results, header_json, read_set_header, unpack
from qalign_core.runs.runner import header_of, record, told_of
from qalign_core.runs.trace import check_same_run, content_of, open_trace, read_trace, write_whole
from qalign_core.types import SetHeader, Trace

HEADER, PROBLEMS = "set.json", "problems.jsonl"
"""The files of the folder with what was asked for, and with the problem set."""
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
    source: str = "",
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
        task, command, source: name of the set, how the run was started and where its rows are
            from, for labels.
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
    header = SetHeader(
        **told_of(lm, rm, run),
        task=task,
        command=command,
        source=source,
        problems=tuple(problem.id for problem in problems),
        digest=digest_of(problems),
    )
    header = replace(header, prompt="", reference=None, extractor=problems[0].extractor)
    _join(folder, header, problems)
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
                drawn = record(lm, rm, runs[place], known=known)
                async with aclosing(drawn) as lines:  # type: ignore[type-var]
                    async for item in lines:
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


def load_results(path: str | Path) -> Results:
    """The numbers of a folder, or of a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    return results_in(path) if Path(path).is_dir() else unpack(path)


def results_in(folder: str | Path) -> Results:
    """The numbers of the problems of a folder that are finished; if none is, of those begun.

    A problem in work would stand in a comparison with samples that its chain has not answered yet.

    Raises:
        InvalidTrace: it is no folder of a run, or a trace cannot be read.
    """
    folder = Path(folder)
    try:
        header = read_set_header((folder / HEADER).read_text("utf-8"), str(folder))
        problems = load_problems(folder / PROBLEMS)
    except (OSError, UnicodeDecodeError, InvalidTask) as error:
        raise InvalidTrace(f"{folder} is not the folder of a run ({error})") from error
    if digest_of(problems) != header.digest:
        raise InvalidTrace(f"{folder / PROBLEMS} was changed; put back the set that was run")
    begun = [
        (
            record_of(trace, problems[k].extract, problems[k].is_right, id=problems[k].id),
            trace.end is not None and trace.end[0] == "finished",
        )
        for k, trace in traces_of(folder, len(problems))
        if trace.steps or trace.pool
    ]
    finished = tuple(record for record, is_finished in begun if is_finished)
    return Results(header, finished or tuple(record for record, _ in begun))


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
    return tuple(answer_of(problems[place], trace) for place, trace in traces if trace.steps)


def answer_of(problem: Problem, trace: Trace) -> Answer:
    """What the chains of a problem's trace came to; there has to be a state."""
    states = trace.states
    decision = consensus(states, problem.extract)
    return Answer(
        id=problem.id,
        answer=decision.answer,
        share=decision.shares[0][1] if decision.answer is not None else 0.0,
        text=decision.chosen.response.text if decision.chosen else "",
        reference=problem.answer,
        n_states=len(states),
        accepted=acceptance(trace.steps).changed.value,
    )


def _join(folder: Path, header: SetHeader, problems: Sequence[Problem]) -> None:
    """Start a folder, or make sure that the one there is of the same run."""
    path, ours = folder / HEADER, "".join(map(problem_line, problems)).encode()
    said = content_of(path, InvalidSetting)
    if said is None:
        if content_of(folder / PROBLEMS, InvalidSetting) not in (None, ours):
            raise InvalidSetting(
                f"{folder / PROBLEMS} is a file of somebody else's; use another folder"
            )
        write_whole(folder / PROBLEMS, ours)
        write_whole(path, header_json(header).encode())
        return
    there = read_set_header(said.decode(errors="replace"), str(path))
    check_same_run(folder, there, header)


def digest_of(problems: Sequence[Problem]) -> str:
    """A hash of a whole set: of all that is asked, and of what is right."""
    content = [[p.id, p.prompt, p.answer, p.extractor] for p in problems]
    for check in (each for p in problems for each in (p.writing, p.instructions)):
        content += [list(astuple(check))] if check is not None else []
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
