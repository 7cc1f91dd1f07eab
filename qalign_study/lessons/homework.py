"""Homework: a page that asks a lesson's questions about a learner's own run, and its grading.

The page needs no server. It draws the run with a seed that follows from the learner's name, and
saves one file: the name, the seed, the answers and the trace.
"""

import hashlib
import json
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qalign_core.chain.concurrent import sample_iid
from qalign_core.errors import QAlignError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import draw_step
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.types import ScoredResponse, Step
from qalign_core.validation import first_line, from_json, is_text, read_file, short_repr
from qalign_study.export.browser import POLICY, embedded_data, engine_header
from qalign_study.export.player import FOLLOW, NO_SCRIPT, PLAIN, head, player_parts
from qalign_study.export.scripts import WEB, as_data
from qalign_study.lessons.facts import LEARNERS, Tied, run_of
from qalign_study.lessons.files import SLOT, InvalidLesson, Lesson, Stop, end_of, read_lesson
from qalign_study.lessons.material import add_runs, files_of
from qalign_study.lessons.messages import find_outcome, lesson_message, number_of

MAX_NAME = 40
"""The most UTF-16 units of a name, so that the seed's address fits a block of the hash."""
MAX_BYTES = 5 * 2**20
"""The largest size of a learner's file."""
OWN = "own"
"""The name of a learner's run while it is graded."""
REDRAWN = 16
"""Random steps that are redrawn of each run, besides those that the lesson asks about."""
UNDECIDED = "no right answer in this run"
"""The verdict on a question whose values are equal in a learner's run."""
NEAR = 1e-3
"""The largest difference of rewards between two machines."""
_START = """
const data = (name) => JSON.parse(document.getElementById(name).textContent);
QAlignHomework.mount(document.querySelector("main"), { ...data("homework"), run: data("run"),
  files: data("files"), worker: document.getElementById("worker").textContent });
"""


class InvalidHomework(QAlignError, ValueError):
    """A learner's file is not one that the page saved; one sentence.

    Attributes:
        name: the learner's name; "" if the file has no readable one.
    """

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


def seed_of(name: str) -> int:
    """Return the seed of a learner's run, as the page derives it from the name."""
    digest = hashlib.blake2b(f"name/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 2**31


def header_of(lesson: Lesson) -> TraceHeader:
    """Return the header of the run whose settings the learners' runs have.

    Raises:
        InvalidLesson: the lesson cannot be homework; the message names a stop.
    """
    places = [place for stop in lesson.stops for place in (stop.at, end_of(stop))]
    runs = {place.run for place in places if place.page == "watch"}
    for k, stop in enumerate(lesson.stops, start=1):
        if fault := _stop_fault(stop):
            raise InvalidLesson(f"{lesson.name} cannot be homework: stop {k} {fault}")
    if len(runs) != 1 or not any(stop.ask for stop in lesson.stops):
        raise InvalidLesson(
            f"{lesson.name} cannot be homework: it has {len(runs)} runs; all stops have to be "
            "about one run, and one of them has to ask"
        )
    return run_of(runs.pop()).header


def _stop_fault(stop: Stop) -> str:
    """Return why learners cannot take a stop at home, in a few words; "" if they can."""
    if stop.at.page != "watch" or end_of(stop).page != "watch":
        return f"is on the page {stop.at.page}; use the page watch only"
    if stop.ask and stop.ask.kind == "spot":
        return "asks for a spot; ask for a number or a choice"
    for text in (stop.text, stop.ask.question if stop.ask else ""):
        if slot := SLOT.search(text):
            return f"shows {slot[0]}, a number of the recorded run; learners have their own"
    return ""


def homework_page(lesson: Lesson) -> str:
    """Return a page that draws a run for a learner's name, asks, and saves the answers.

    Raises:
        InvalidLesson: the lesson cannot be homework.
        InvalidSetting: a browser cannot draw its run.
    """
    header = header_of(lesson)
    stops = [
        {name: stop.get(name) for name in ("title", "text", "at", "ask")}
        for stop in lesson_message(lesson)["stops"]
    ]
    homework = {"lesson": lesson.name, "title": lesson.title, "stops": stops, "most": MAX_NAME}
    style, script = player_parts(WEB / "engine" / "homework.js")
    style = PLAIN.replace("80ch", "1240px") + style
    data = as_data(json.dumps(homework))
    return (
        f"{head('Homework', style, f'{NO_SCRIPT}; {POLICY}')}<body><main></main>\n"
        f'<script type="application/json" id="homework">{data}</script>\n{embedded_data(header)}'
        f"<script>{script}</script><script>{FOLLOW}{_START}</script></body></html>\n"
    )


OTHERS = (".toml", ".jsonl", ".csv")
"""Endings of the lesson, its run and the grades. Every other file is a learner's, so that one with
a wrong ending, or in a folder of its own, is refused by name and not left out."""


@dataclass(frozen=True, slots=True)
class HandedIn:
    """A learner's file."""

    name: str
    answers: dict[str, str]
    trace: Trace


def read_homework(path: Path, lesson: Lesson) -> HandedIn:
    """Read a learner's file; its content is untrusted.

    Raises:
        InvalidHomework: it is not one that the page of this lesson saved.
    """
    try:
        values = from_json(read_file(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidHomework(f"{path.name} cannot be read: {first_line(error)}") from error
    match values:
        case {"lesson": str(of), "name": str(name), "answers": dict(answers), "trace": str(text)}:
            is_name = is_text(name) and 0 < len(name.encode("utf-16-le")) / 2 <= MAX_NAME
            if not (is_name and name == " ".join(name.split()) and name.isprintable()):
                raise InvalidHomework(
                    f"{path.name} has the name {short_repr(name)}; a page saves none"
                )
            if of != lesson.name:
                raise InvalidHomework(
                    f"{path.name} is about {short_repr(of)}, and this homework is {lesson.name!r}",
                    name,
                )
            if not all(isinstance(each, str) and len(each) <= 100 for each in answers.values()):
                raise InvalidHomework(f"{path.name} has an answer that is no short text", name)
        case _:
            raise InvalidHomework(
                f"{path.name} was not saved by a homework page: it needs the fields lesson, "
                "name, answers and trace"
            )
    try:
        trace = parse_trace(text)
        expected = from_json(engine_header(header_of(lesson)))
        own = from_json(engine_header(trace.header))
    except (QAlignError, ValueError) as error:
        raise InvalidHomework(
            f"{path.name} has no readable run: {first_line(error)}", name
        ) from error
    if other := [name for name, value in expected.items() if name != "seed" and own[name] != value]:
        raise InvalidHomework(
            f"{path.name} has a run with another {other[0]}: {short_repr(own[other[0]])} "
            f"instead of {short_repr(expected[other[0]])}",
            name,
        )
    return HandedIn(name, answers, trace)


async def check_draws(
    lm: LanguageModel, rm: RewardModel, handed_in: HandedIn, lesson: Lesson
) -> str:
    """Redraw what the questions are graded by, and a random sample of the other steps.

    A question can be about anything up to its step, such as all votes so far, so every step up to
    the last one that the lesson asks about is redrawn, in all chains, and so are all samples.

    Returns:
        How many draws were redrawn, if all are the same; or "no" with the first difference.
    """
    trace, header = handed_in.trace, handed_in.trace.header
    if header.run.seed != seed_of(handed_in.name):
        return f"no: seed {header.run.seed} is not the seed of this name, {seed_of(handed_in.name)}"
    chains, pool = trace.chains, trace.pool
    whole = len(chains) == header.run.chains and len(pool) == header.run.pool
    if not whole or any(
        [s.t for s in c] != [*range(header.run.steps + 1)] for c in chains.values()
    ):
        return "no: the run is not finished"
    run, chance = header.run, random.SystemRandom()  # which draws are checked must be unknown
    last = max(max(s.at.step, end_of(s).step) for s in lesson.stops if s.ask)
    early = [(k, t) for k in chains for t in range(last + 1)]
    late = [(k, t) for k in chains for t in range(last + 1, run.steps + 1)]
    places = sorted(early + chance.sample(late, min(REDRAWN, len(late))))
    for k, t in places:
        step = await draw_step(lm, rm, run, k, t, chains[k][t - 1] if t else None)
        if not _is_same_step(step, chains[k][t]):
            return f"no: step {t} of chain {k + 1} is another"
    unchecked = iter(enumerate(pool))
    async for sample in sample_iid(lm, rm, run.prompt, n=len(pool), seed=run.seed):
        k, own = next(unchecked)
        if not _is_same(sample, own):
            return f"no: sample {k} is another"
    also = f" and all {len(pool)} samples" if pool else ""
    return f"{len(places)} of {len(early) + len(late)} steps{also} redrawn"


def _is_same_step(one: Step, other: Step) -> bool:
    alike = (one.index, one.accepted) == (other.index, other.accepted)
    close = _is_near(one.log_u, other.log_u) and _is_near(one.log_alpha, other.log_alpha)
    return alike and close and _is_same(one.proposal, other.proposal)


def _is_same(one: ScoredResponse, other: ScoredResponse) -> bool:
    same = (one.response, one.cost) == (other.response, other.cost)
    return same and _is_near(one.reward, other.reward)


def _is_near(one: float, other: float) -> bool:
    return one == other or abs(one - other) < NEAR * max(1.0, abs(one))


def grade_answers(lesson: Lesson, handed_in: HandedIn) -> list[dict[str, Any]]:
    """Return a row per question: its text, the answer, whether it is right, and the right one.

    The right answers are those of the learner's own run.
    """
    rows = []
    LEARNERS[OWN] = handed_in.trace
    try:
        for k, stop in enumerate(lesson.stops, start=1):
            if stop.ask is not None:
                answer = handed_in.answers.get(str(k), "")
                rows.append({"stop": k, "question": stop.ask.question, "answer": answer,
                             **_grade(stop, answer)})  # fmt: skip
    finally:
        del LEARNERS[OWN]
    return rows


def _grade(stop: Stop, answer: str) -> dict[str, str]:
    assert stop.ask is not None
    ask, at = replace(stop.ask, then=replace(stop.ask.then, run=OWN)), replace(stop.at, run=OWN)
    try:
        value, _ = find_outcome(ask, at, "")
        if ask.kind == "choice":
            has_right = value in ask.options and not isinstance(value, Tied)
        else:
            has_right = math.isfinite(number_of(ask))
    except Exception as error:  # a number that this run does not have raises any error
        return {"right": f"unknown: {first_line(error)}", "value": ""}
    if not has_right:
        return {"right": UNDECIDED, "value": ""}
    try:
        _, right = find_outcome(ask, at, answer)
    except ValueError:
        return {"right": "no: not an answer to this question", "value": value}
    return {"right": {True: "yes", False: "no", None: "no answer"}[right], "value": value}


async def grade_folder(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Grade the files of a folder, which has the lesson's file too.

    Returns:
        A row per learner and question, with "file", "name" and "draws"; and a sentence for each
        file that is refused, or whose name another one has.

    Raises:
        InvalidLesson: the folder has no lesson, or several, or one that cannot be homework.
        QAlignError: the models cannot be loaded, or fail.
    """
    lessons = files_of("lesson", folder)
    if len(lessons) != 1:
        raise InvalidLesson(
            f"{folder} has {len(lessons) or 'no'} lesson files (NUMBER-NAME.toml); put the one of "
            "the homework, and no other, beside the learners' files"
        )
    add_runs(folder)
    lesson = read_lesson(lessons[0])
    run = header_of(lesson).run
    lm, rm = load_language_model(run.lm, sampling=run.sampling), load_reward_model(run.rm)
    rows: list[dict[str, Any]] = []
    sentences: list[str] = []
    files: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.suffix in OTHERS:
            continue
        try:
            handed_in = read_homework(path, lesson)
        except InvalidHomework as error:
            sentences.append(str(error))
            rows.append({"file": path.name, "name": error.name, "draws": f"refused: {error}"})
            continue
        who = {"file": path.name, "name": handed_in.name}
        other = files.setdefault(handed_in.name.casefold(), path.name)
        if other != path.name:
            sentences.append(
                f"{path.name} has the name {short_repr(handed_in.name)}, as {other} has; ask which "
                "file counts"
            )
        draws = await check_draws(lm, rm, handed_in, lesson)
        rows += [who | row | {"draws": draws} for row in grade_answers(lesson, handed_in)]
    return rows, sentences
