"""A run over a problem set, in a folder: one trace per problem, and the settings.

A run can be interrupted and resumed at any moment, by any number of processes at once. Since
randomness is addressed, the traces are the same whichever process draws them. Everything else
(answers, results, figures) is derived from the traces and can be deleted.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import astuple, replace
from pathlib import Path

from qalign_core.chain.merging import gather
from qalign_core.decide.answers.graders import title_of
from qalign_core.errors import InvalidSetting, InvalidTask, InvalidTrace
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.format import read_header, to_dict
from qalign_core.record.runner import header_fields, make_header, record
from qalign_core.record.store import content_of, open_trace, read_trace, write_whole
from qalign_core.record.trace import SetHeader, Trace, check_same_run, grows
from qalign_core.run import Run
from qalign_core.validation import (
    check_count,
    first_line,
    from_json,
    is_whole,
    read_file,
    short_repr,
)
from qalign_study.sets.checks import Judgement
from qalign_study.sets.problem_sets import Problem, check_prompts, load_problems, problem_line

HEADER, PROBLEMS = "set.json", "problems.jsonl"
"""The files of the folder with what was asked for, and with the problem set."""
VERSION = 3
"""The version of the settings in a folder and of packed results."""
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
        raise InvalidTask("there are no problems; give a set with at least one problem")
    runs = [run_of(run, problem, place).check() for place, problem in enumerate(problems)]
    check_prompts(lm, problems)
    headers = [make_header(lm, rm, each) for each in runs]
    folder = Path(folder)
    shared = run.with_changes(prompt="", reference=None, extractor=problems[0].extractor)
    about = {**header_fields(lm, rm, shared), "task": task, "command": command, "source": source}
    ids = tuple(problem.id for problem in problems)
    _join(folder, SetHeader(**about, problems=ids, digest=digest_of(problems)), problems)
    left = dict.fromkeys(range(len(problems)))
    elsewhere: set[int] = set()  # by another process, when last looked at

    def report(n_new: int) -> None:
        if progress is not None:
            progress(n_new, len(problems) - len(left), len(elsewhere))

    async def work(places: Iterator[int]) -> None:
        for place in places:
            with open_trace(trace_path(folder, place), headers[place]) as file:
                if file is None:
                    elsewhere.add(place)
                    continue
                report(len(file.known.steps) + len(file.known.pool))
                recording = record(lm, rm, runs[place], known=file.known)
                async with aclosing(recording) as lines:  # type: ignore[type-var]
                    async for item in lines:
                        file.write(item.line)
                        report(item.draw is not None)
            del left[place]

    while left:
        elsewhere.clear()
        places = iter(tuple(left))
        await gather(*(work(places) for _ in range(min(at_once, len(left)))))
        report(0)
        if left:
            await asyncio.sleep(WAIT)


def read_set(folder: Path, *, code: bool = False) -> tuple[SetHeader, tuple[Problem, ...]]:
    """Read a folder's settings and its problems.

    Args:
        folder: of a run.
        code: the Python files that the problems name may be run.

    Raises:
        InvalidTrace: it is no folder of a run, or its problems are not those that were run.
    """
    try:
        header = read_set_header(read_file(folder / HEADER).decode(), str(folder))
        problems = tuple(load_problems(folder / PROBLEMS, code=code))
    except (OSError, UnicodeDecodeError, InvalidTask) as error:
        raise InvalidTrace(f"{folder} is not the folder of a run ({first_line(error)})") from error
    if digest_of(problems) != header.digest:
        raise InvalidTrace(f"{folder / PROBLEMS} was changed; restore the set that was run")
    return header, problems


def sets_in(folder: Path, *, code: bool = False) -> dict[str, Path]:
    """The folders of runs by their names: this one, or else those in it, in order.

    With `code` the Python files that their problems name are run.

    Raises:
        InvalidTrace: there is none, or one cannot be read.
    """
    headers = [folder] if os.path.exists(folder / HEADER) else sorted(folder.glob(f"*/{HEADER}"))
    if not headers:
        raise InvalidTrace(
            f"{folder} has no results; give a folder that evaluate or run wrote, or one with such "
            "folders in it"
        )
    places = [folder.resolve() if path == folder else path.parent.absolute() for path in headers]
    for place in places:
        read_set(place, code=code)
    return {place.name: place for place in places}


def traces_of(folder: str | Path, n: int) -> Iterator[tuple[int, Trace]]:
    """The traces of a folder of `n` problems that have begun, by place.

    Raises:
        InvalidTrace: one cannot be read.
    """
    for place in range(n):
        trace = read_trace(trace_path(Path(folder), place))
        if trace is not None:
            yield place, trace


def _join(folder: Path, header: SetHeader, problems: Sequence[Problem]) -> None:
    """Start a folder, or make sure that the one there is of the same run, or of less of it."""
    path, problem_lines = folder / HEADER, "".join(map(problem_line, problems)).encode()
    content = content_of(path, InvalidSetting)
    if content is None:
        if content_of(folder / PROBLEMS, InvalidSetting) not in (None, problem_lines):
            raise InvalidSetting(
                f"{folder / PROBLEMS} was not written by this program; use another folder"
            )
    else:
        there = read_set_header(content.decode(errors="replace"), str(path))
        n = len(there.problems)
        first = replace(header, problems=header.problems[:n], digest=digest_of(problems[:n]))
        check_same_run(folder, there, first)
        if n == len(problems) and not grows(there, header):
            return
    write_whole(folder / PROBLEMS, problem_lines)
    write_whole(path, header_json(header).encode())


def digest_of(problems: Sequence[Problem]) -> str:
    """A hash of a whole set: of all that is asked, and of what is right."""
    content = [[p.id, p.prompt, p.answer, p.extractor and title_of(p.extractor)] for p in problems]
    for check in (p.check for p in problems if p.check is not None):
        values = [*astuple(check)]
        if isinstance(check, Judgement):  # the same file in another folder is the same judge
            values = [check.prompt, title_of(check.judge)]
        content.append(values)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def header_json(header: SetHeader) -> str:
    """Return the settings of a set's runs as JSON text."""
    return json.dumps({"version": VERSION, **to_dict(header)}, indent=1, ensure_ascii=False)


def read_set_header(text: str, place: str) -> SetHeader:
    """Read back what `header_json` wrote.

    Raises:
        InvalidTrace: it is not that, or of another version; the message names `place`.
    """
    try:
        values = from_json(text)
        version = values.get("version") if isinstance(values, dict) else None
        if not is_whole(version, VERSION, VERSION):
            raise InvalidTrace(
                f"{place} has version {short_repr(version)}, this program reads {VERSION}; "
                "evaluate again"
            )
        return read_header(SetHeader, values)
    except InvalidTrace:
        raise
    except ValueError as error:
        raise InvalidTrace(f"{place} has no readable settings: {first_line(error)}") from error
