"""Material of one's own: lessons, problem sets, recorded runs and a registry, from folders.

The operator names the folders when the app starts; a visitor's request never leads to one. A file
that cannot be used is left out, with one sentence.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qalign_core.errors import InvalidSetting, InvalidTask, InvalidTrace, QAlignError
from qalign_core.record.store import load_trace
from qalign_core.registry import drop_broken_rewards, entries
from qalign_study.lessons.facts import RUNS
from qalign_study.lessons.files import NAME, InvalidLesson, Lesson, load_lessons, name_of
from qalign_study.lessons.messages import check_lesson
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sets.seeded import N_PROBLEMS

MAX_TRACE = 20 * 2**20
"""Largest size in bytes of a recorded run, which a visitor's browser loads."""
REGISTRY = "registry.toml"
"""The file of a folder with models and rewards, as `QALIGN_REGISTRY` names one."""


@dataclass(frozen=True, slots=True)
class Material:
    """What the pages offer besides the models.

    Attributes:
        lessons: by name, the project's first.
        sets: the operator's problem sets by name.
        faults: a sentence for each file, or reward of a registry, that was left out.
    """

    lessons: Mapping[str, Lesson] = field(default_factory=load_lessons)
    sets: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def load_material(folders: Iterable[Path]) -> Material:
    """Read the files of some folders; recorded runs are added to `RUNS`.

    Raises:
        InvalidSetting: one of them is not a folder.
    """
    folders = dict.fromkeys(Path(os.path.abspath(folder)) for folder in folders)
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise InvalidSetting(f"{missing[0]} is not a folder; give one with lessons or problem sets")
    faults: list[str] = []

    def read_all(kind: str, read: Callable[[Path], None]) -> None:
        for path in files_of(kind, *folders):
            try:
                read(path)
            except QAlignError as error:
                sentence = str(error)
                faults.append(sentence if path.name in sentence else f"{path.name}: {sentence}")

    lessons, sets = dict(load_lessons()), dict[str, tuple[Problem, ...]]()
    known = [*lessons, *map(name_of, files_of("lesson", *folders))]

    def read_lesson(path: Path) -> None:
        lesson, sentences = check_lesson(path, known)
        if lesson is None:
            more = f" (and {len(sentences) - 1} more: qalign lesson check)" * (len(sentences) > 1)
            raise InvalidLesson(sentences[0] + more)
        _refuse_twice(lesson.name, lessons, "lesson", InvalidLesson)
        lessons[lesson.name] = lesson

    def read_set(path: Path) -> None:
        _refuse_twice(path.stem, {*sets, *N_PROBLEMS}, "problem set", InvalidTask)
        sets[path.stem] = tuple(load_problems(path, code=True))

    read_all("registry", _use_registry)
    registry = Path(os.environ.get("QALIGN_REGISTRY", "")).name
    faults += [f"{registry}: reward {id}: {why}" for id, why in drop_broken_rewards().items()]
    read_all("run", add_run)
    read_all("lesson", read_lesson)
    read_all("set", read_set)
    return Material(lessons, sets, tuple(faults))


def add_runs(folder: Path) -> None:
    """Add the recorded runs of a lesson's folder to `RUNS`.

    Raises:
        InvalidTrace: one cannot be read, or its name is taken.
    """
    for path in files_of("run", folder):
        if RUNS.get(path.stem) != path:
            add_run(path)


def files_of(kind: str, *folders: Path) -> list[Path]:
    """Return the files of some folders that are of a kind, "registry", "run", "lesson" or "set"."""
    files = (path for folder in folders for path in sorted(folder.iterdir()))
    return [path for path in files if _kind_of(path) == kind]


def add_run(path: Path) -> None:
    """Add a recorded run to `RUNS`.

    Raises:
        InvalidTrace: it cannot be read, or its name is taken.
    """
    _refuse_twice(path.stem, RUNS, "recorded run", InvalidTrace)
    if (size := path.stat().st_size) > MAX_TRACE:
        raise InvalidTrace(f"a recorded run has at most {MAX_TRACE:,} bytes, this one {size:,}")
    load_trace(path)
    RUNS[path.stem] = path


def _kind_of(path: Path) -> str:
    """Return the kind of a file, as `files_of` takes it; "" if it is none of them."""
    if path.name.startswith(".") or not path.is_file():
        return ""
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            return "run" if file.read(16) == b'{"type":"header"' else "set"
    if path.suffix != ".toml":
        return ""
    if path.name == REGISTRY:
        return "registry"
    try:
        return "set" if "template" in tomllib.loads(path.read_text("utf-8-sig")) else "lesson"
    except ValueError:  # the fault is named when it is read as a lesson
        return "lesson"


def _refuse_twice(name: str, known: Iterable[str], what: str, kind: type[QAlignError]) -> None:
    if not NAME.fullmatch(name):
        raise kind(f"{name!r} is no name for a {what}; use letters, digits, - and _, at most 60")
    if name in known:
        raise kind(f"there already is a {what} with the name {name!r}; rename the file")


def _use_registry(path: Path) -> None:
    if other := os.environ.get("QALIGN_REGISTRY"):
        raise InvalidSetting(f"QALIGN_REGISTRY={other:.200} is used; add this file's entries to it")
    os.environ["QALIGN_REGISTRY"] = str(path)
    entries.cache_clear()
    try:
        entries()
    except QAlignError:
        del os.environ["QALIGN_REGISTRY"]
        entries.cache_clear()
        raise
