"""The answer that a grader reads from each text, and whether it is right; or homework.

Examples:
  qalign grade results
  qalign grade handed-in --csv grades.csv
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from qalign_core.decide.answers.graders import format_references, references
from qalign_core.errors import InvalidTask
from qalign_core.record.store import load_trace, write_whole
from qalign_core.record.trace import Trace
from qalign_core.run import Run
from qalign_study.commands import shared
from qalign_study.lessons.homework import UNDECIDED, grade_folder
from qalign_study.sets.checks import Likeness
from qalign_study.sets.folder import HEADER, read_set, traces_of
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sheet.files import csv_of
from qalign_study.train.reward_training import SAMPLES

WIDTH = 60
"""Characters of a text that are printed, its last ones: there the answer is."""


@dataclass(frozen=True, slots=True)
class GradedText:
    """A text, and what its grader makes of it; the verdict is "right", "wrong" or "no answer"."""

    id: str
    text: str
    answer: str | None
    reference: str
    verdict: str


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign grade`."""
    parser.usage = f"{parser.usage} FILE"
    parser.add_argument(
        "file",
        metavar="FILE",
        help="folder of a run, a trace, or a problem set: its field response (a text or a list), "
        "or else its solution, or else the right answer itself is graded; or a folder with the "
        "lesson of a homework and the files that learners saved",
    )
    extractor = Run.settings()["extractor"].metadata
    parser.add_argument("--extractor", metavar="STR", help=extractor["help"])
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all numbers as CSV")


async def command(options: argparse.Namespace) -> None:
    """Print one line per text, and how many are right."""
    path = Path(options.file)
    if (path / SAMPLES / HEADER).exists():  # of train-rm
        options.file = path = path / SAMPLES
    has_files = any(path.glob("*.toml")) or any(path.glob("*.json"))
    if path.is_dir() and not (path / HEADER).exists() and has_files:
        await _grade_homework(path, options.csv or path / "grades.csv")
        return
    graded = [
        grade(problem, text)
        for problem, texts in _texts(options.file, options.extractor)
        for text in dict.fromkeys(texts)
    ]
    if options.csv is not None:
        import pandas as pd

        write_whole(options.csv, csv_of(pd.DataFrame(map(asdict, graded))).encode(errors="replace"))
    for each in graded:
        if options.json:
            print(json.dumps(asdict(each), ensure_ascii=False))
        else:
            right = format_references(each.reference)
            print("\t".join(map(_line, (each.id, each.text, each.answer, right, each.verdict))))
    if not options.json:
        counts = Counter(each.verdict for each in graded)
        print(
            f"{len(graded)} text{'s' * (len(graded) != 1)}: "
            + ", ".join(f"{n} {what}" for what, n in counts.items())
        )


async def _grade_homework(folder: Path, csv: Path) -> None:
    """Print one line per learner, and write a row per learner and question."""
    import pandas as pd

    rows, sentences = await grade_folder(folder)
    for sentence in sentences:
        print(f"qalign: {sentence}", file=sys.stderr)
    columns = ("file", "name", "stop", "question", "answer", "right", "value", "draws")
    frame = pd.DataFrame(rows, columns=columns).astype({"stop": "Int64"})
    write_whole(csv, csv_of(frame).encode(errors="replace"))
    for (file, name), part in frame.dropna(subset="stop").groupby(["file", "name"], sort=False):
        right = (part["right"] == "yes").sum()
        graded = (part["right"] != UNDECIDED).sum()
        draws = part["draws"].iloc[0]
        print(
            "\t".join((_line(file), _line(name), f"{right} of {graded} right", f"draws: {draws}"))
        )
    print(f"{csv}: {len(frame)} rows")


def grade(problem: Problem, text: str) -> GradedText:
    """Read the answer of a text, and compare it; or check the text of an open-ended problem."""
    if problem.check is not None:
        verdict = "right" if problem.is_right(text) else "wrong"
        return GradedText(problem.id, text, None, " or ".join(_wanted(problem)), verdict)
    answer = problem.grader.extract(text) if problem.grader else None
    right = "right" if problem.is_right(answer) else "wrong"
    verdict = "no answer" if answer is None else right
    return GradedText(problem.id, text, answer, problem.answer or "", verdict)


_TRACE = re.compile(rb'\s*{\s*"type"\s*:\s*"header"')  # its first line, however it is spaced


def _texts(file: str, extractor: str | None) -> Iterator[tuple[Problem, list[str]]]:
    """The problems of a folder, a trace or a set, with the texts that there are for each."""
    path = Path(file)
    if path.is_dir():
        _, problems = read_set(path, code=True)
        problems = _with_extractor(problems, extractor)
        for place, trace in traces_of(path, len(problems)):
            yield problems[place], _of_trace(trace)
    elif path.is_file() and _TRACE.match(path.read_bytes()[:64]):
        trace = load_trace(path)
        header, texts = trace.header, _of_trace(trace)
        problem = Problem(path.stem, header.run.prompt, header.run.reference, header.run.extractor)
        yield _with_extractor((problem,), extractor or header.run.extractor)[0], texts
    else:
        for problem in _with_extractor(tuple(load_problems(file, code=True)), extractor):
            yield problem, _of_set(problem)


def _with_extractor(problems: tuple[Problem, ...], extractor: str | None) -> tuple[Problem, ...]:
    if bare := [each.id for each in problems if each.answer is None and each.check is None]:
        raise InvalidTask(f"problem {bare[0]!r} has no answer to compare with; give one to each")
    return shared.with_grader(extractor, problems)


def _of_trace(trace: Trace) -> list[str]:
    samples = [*trace.pool, *(step.proposal for step in trace.steps)]
    return [sample.response.text for sample in samples]


def _of_set(problem: Problem) -> list[str]:
    for name in ("response", "solution"):
        texts = problem.extra.get(name)
        if isinstance(texts, str):
            return [texts]
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return texts
    if right := _wanted(problem):
        return right
    raise InvalidTask(f"problem {problem.id!r} has no text to grade; give it a field response")


def _wanted(problem: Problem) -> list[str]:
    """The right answers, or the texts that a response should be like."""
    if isinstance(problem.check, Likeness):
        return [*problem.check.references]
    return [] if problem.answer is None else [*references(problem.answer)]


def _line(value: str | None) -> str:
    text = " ".join((value or "-").split())
    return text if len(text) <= WIDTH else f"…{text[1 - WIDTH :]}"
