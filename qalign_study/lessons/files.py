"""Lessons as data: each file of `assets/lessons/` is one, a list of stops; the first is first.

    title = "One step"                  what it is called, in the list and on the panel
    says = "What is kept, and why."     one sentence for the list
    minutes = 5
    end = "That was one step."          what stands under the last stop (optional)
    onward = ["run=stuck", "beta"]      runs of the gallery and lessons to go on with (optional)

    [[learnt]]                          what can be said now, under that (optional)
    question = "What is kept?"
    text = "The tokens before the cut."

    [[stop]]
    title = "The chance"
    text = "Two numbers decide: {reward_factor} and {length_ratio}."
    at = { page = "watch", run = "watch", step = 1, phase = "score" }
    lit = "chance"
    notes = "Ask for hands first."      what only the presenter sees (optional)

    [stop.ask]
    question = "How likely is it to be taken?"
    fact = "alpha"                      what the core says when the prediction is checked
    within = 10                         a number: right if it is as close as that
    right = "Yes: {alpha}."
    wrong = "No: it is {alpha}."
    veil = true                         what would tell it is hidden until it is made (optional)
    then = { phase = "verdict" }        where the page goes then (optional)

A prediction with `options` is a choice, one with `spot = true` is a place among the rewards of the
model alone, any other a number (of a share: in %). Of options that are numbers, the one nearest to
the fact is right. Instead of `fact`, `moves` is a fact that goes "up", "down" or stays the "same"
from `at` to `then`, and `largest = true` says that the options are facts. A stop's `at` keeps what
it does not name of the same page from the stop before. In braces stand facts
(`qalign_study/lessons/facts.py`), of `then` where there is one; `{before.alpha}` is that of `at`.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError
from qalign_study.lessons.facts import RUNS, Place, facts_of

FOLDER = ASSETS / "lessons"
PHASES = ("cut", "rewrite", "score", "chance", "coin", "verdict")
"""Names of a step's phases in a lesson, in the player's order."""
STAGE = ("problem", "text", "chance", "verdict", "votes", "trace", "transport")
"""The parts of the stage of Watch, which carry these names."""
HIGHLIGHTS: dict[str, dict[str, str]] = {
    "watch": {
        **{name: f"[data-stage={name}]" for name in STAGE},
        "time": ".qp-histogram",
        "whatif": ".qp-whatif",
        "more": ".qp-view",
    },
    "compare": {"line": ".qc-budget", "cards": ".qc-columns"},
    # on a phone a section's panel has no box, so its first figure is highlighted
    "lab": {"section": ".lab-panel, .lab-figure", "controls": "#lab-world"},
    "results": {"figure": "#results-error", "findings": "#results-said"},
}
"""The parts of each page that a stop can highlight, with their selectors."""
VEILS = {
    "compare": ".qc-columns, .qc-conclusion",
    "lab": ".lab-figure, .lab-words",
    "results": "#results-error, #results-said, #results-advice, #results-table",
}
"""The parts of a page that show the outcome, where that is more than the lit part."""
PAGES = tuple(HIGHLIGHTS)
KEYS = {
    "watch": ("run", "step", "phase", "chain", "tab"),
    "compare": (),
    "lab": ("lab",),
    "results": ("set",),
}
"""The keys of a stop's `at` for each page."""
SLOT = re.compile(r"\{(before\.)?(\w+)(?::([^{}]*))?\}")
Kind = Literal["choice", "number", "spot"]


class InvalidLesson(QAlignError, ValueError):
    """A lesson's file cannot be read: not TOML, a wrong key or value, or an unknown fact."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A prediction, and how it is checked.

    Attributes:
        question: its text.
        kind: the kind of answer.
        options: of a choice, the name of each value.
        fact: the fact that it is compared with; "" if the options are facts.
        moves: what counts is where the fact goes from before to after.
        within: how far off a number or a spot may be.
        right, wrong: the explanation of a right and of a wrong prediction.
        then: where the page goes once it is made.
        highlight: the part that is highlighted then.
        veil: whether the parts that show the outcome are hidden until then.
    """

    question: str
    kind: Kind
    options: Mapping[str, str]
    fact: str
    moves: bool
    within: float
    right: str
    wrong: str
    then: Place
    highlight: str
    veil: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop: its text, its place on the pages, and its question."""

    title: str
    text: str
    at: Place
    highlight: str
    notes: str
    ask: Ask | None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson; `name` is what a link calls it, `learnt` are questions with their answers."""

    name: str
    title: str
    summary: str
    minutes: int
    stops: tuple[Stop, ...]
    end: str
    learnt: tuple[tuple[str, str], ...]
    onward: tuple[str, ...]


@cache
def load_lessons(folder: Path = FOLDER) -> dict[str, Lesson]:
    """Load all lessons by name, in the order of their files.

    Raises:
        InvalidLesson: a file is wrong; the message names it, and its line or stop.
    """
    by_name = {}
    for path in sorted(folder.glob("*.toml")):
        lesson = read_lesson(path)
        by_name[lesson.name] = lesson
    for lesson in by_name.values():
        runs = {f"run={path.stem}" for path in RUNS.glob("*.jsonl")}
        for name in lesson.onward:
            if name not in {*by_name, *runs}:
                raise InvalidLesson(
                    f"lesson {lesson.name!r} continues with {name!r}, which does not exist; "
                    f"there are {', '.join([*by_name, *sorted(runs)])}"
                )
    return by_name


def read_lesson(path: Path) -> Lesson:
    """Read a lesson from its file, `NUMBER-NAME.toml`.

    Raises:
        InvalidLesson: the file is wrong; the message names it, and its line or stop.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidLesson(f"{path.name} is not TOML: {error}") from None
    reader = _Reader(path.name, data)
    values = reader.read(title=str, says=str, minutes=int, end="", learnt=[], onward=[], stop=list)
    stops: list[Stop] = []
    for k, stop in enumerate(values.pop("stop"), start=1):
        stops.append(_stop(reader.part(f"stop {k}", stop), stops))
    if not stops:
        raise InvalidLesson(f"{path.name} has no stop; write at least one [[stop]]")
    values["summary"] = values.pop("says")
    parts = (reader.part(f"learnt {k}", each) for k, each in enumerate(values.pop("learnt"), 1))
    return Lesson(
        **values | {"onward": tuple(map(str, values["onward"]))},
        name=re.sub(r"^\d+-", "", path.stem),
        stops=tuple(stops),
        learnt=tuple(_learnt(part, stops[-1]) for part in parts),
    )


class _Reader:
    """A table of a lesson's file; each error names its place."""

    def __init__(self, where: str, data: dict[str, Any]) -> None:
        self.where = where
        self.data = data

    def wrong(self, what: str) -> InvalidLesson:
        return InvalidLesson(f"{self.where}: {what}")

    def read(self, **expected: Any) -> dict[str, Any]:
        """Return all values, and refuse others; each has its type or its default."""
        self.only(*expected)
        return {name: self.take(name, each) for name, each in expected.items()}

    def only(self, *names: str) -> None:
        for name in self.data:
            if name not in names:
                raise self.wrong(f"{name!r} is not known here; choose from {', '.join(names)}")

    def take(self, name: str, expected: Any) -> Any:
        required = isinstance(expected, type)
        kind = expected if required else type(expected)
        value = self.data.get(name, None if required else expected)
        if value is None:
            raise self.wrong(f"{name!r} is missing")
        numbers = (int, float) if kind is float else kind
        if not isinstance(value, numbers) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"{name!r} is {value!r}; expected {_KINDS[kind]}")
        return value

    def one_of(self, name: str, values: Collection[str], expected: Any = str) -> str:
        value: str = self.take(name, expected)
        if value not in values:
            raise self.wrong(f"{name!r} is {value!r}; expected one of {', '.join(values)}")
        return value

    def part(self, name: str, data: Any) -> "_Reader":
        return _Reader(f"{self.where}, {name}", data if isinstance(data, dict) else {})


_KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _stop(reader: _Reader, before: list[Stop]) -> Stop:
    values = reader.read(title=str, text=str, at={}, lit=str, notes="", ask={})
    at = end_of(before[-1]) if before else Place("watch")
    if values["at"]:
        at = _place(reader.part("at", values["at"]), at)
    reader.one_of("lit", HIGHLIGHTS[at.page])
    has_ask = "ask" in reader.data
    ask = _ask(reader.part("ask", values["ask"]), at, values["lit"]) if has_ask else None
    for text in (values["text"], values["notes"]):
        _check_slots(reader, text, at)
    highlight = values.pop("lit")
    return Stop(**values | {"at": at, "ask": ask, "highlight": highlight})


def _learnt(reader: _Reader, last: Stop) -> tuple[str, str]:
    values = reader.read(question=str, text=str)
    _check_slots(reader, values["text"], end_of(last))
    return values["question"], values["text"]


def end_of(stop: Stop) -> Place:
    """Return the place at which a stop leaves the page."""
    return stop.ask.then if stop.ask else stop.at


def _place(reader: _Reader, last: Place) -> Place:
    page = reader.one_of("page", PAGES, last.page)
    reader.only("page", *KEYS[page])
    place = last if last.page == page else Place(page)
    changes: dict[str, Any] = {"tab": ""}
    for name, kind in (("run", str), ("step", int), ("chain", int), ("tab", str), ("set", str)):
        if name in reader.data:
            changes[name] = reader.take(name, kind)
    if "phase" in reader.data or "step" in changes:
        changes["phase"] = PHASES.index(reader.one_of("phase", PHASES, PHASES[-1]))
    if "lab" in reader.data:
        changes["lab"] = tuple((k, str(v)) for k, v in reader.take("lab", dict).items())
    place = replace(place, **changes)
    if problem := place.problem():
        raise reader.wrong(problem)
    return place


def _ask(reader: _Reader, at: Place, default: str) -> Ask:
    values = reader.read(
        question=str, options={}, spot=False, fact="", moves="", largest=False, right=str,
        wrong=str, within=0.0 if reader.data.get("options") else float, then={}, lit="", veil=False,
    )  # fmt: skip
    then = _place(reader.part("then", values["then"]), at) if values["then"] else at
    options = {k: str(v) for k, v in values["options"].items()}
    kind: Kind = "choice" if options else "spot" if values["spot"] else "number"
    judges = [name for name in ("fact", "moves", "largest") if name in reader.data]
    if len(judges) != 1:
        raise reader.wrong("expected one of fact, moves and largest")
    fact = values["fact"] or values["moves"]
    for name in [fact] if fact else options:
        _check_fact(reader, name, then)
    if judges != ["fact"] and kind != "choice":
        raise reader.wrong(f"{judges[0]!r} needs options")
    for text in (values["right"], values["wrong"]):
        _check_slots(reader, text, then)
    within = 0.0 if options else float(values["within"])
    highlight = reader.one_of(
        "lit", HIGHLIGHTS[then.page], default if then.page == at.page else str
    )
    checked = {"kind": kind, "options": options, "fact": fact, "moves": bool(values["moves"])}
    checked |= {"within": within, "then": then, "highlight": highlight}
    kept = {name: values[name] for name in ("question", "right", "wrong", "veil")}
    return Ask(**kept, **checked)


def _check_slots(reader: _Reader, text: str, place: Place) -> None:
    for _, name, _ in SLOT.findall(text):
        _check_fact(reader, name, place)


def _check_fact(reader: _Reader, name: str, place: Place) -> None:
    known = facts_of(place.page)
    if name.partition(":")[0] not in known:
        raise reader.wrong(f"{name!r} is not a fact of {place.page}; there are {', '.join(known)}")
