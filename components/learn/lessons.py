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
(`components/learn/facts.py`), of `then` where there is one; `{before.alpha}` is that of `at`.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from components.learn.facts import RUNS, Place, facts_of
from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError

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
    # on a phone a section's panel is no box: then its first figure is lit
    "lab": {"section": ".lab-panel, .lab-figure", "controls": "#lab-world"},
    "results": {"figure": "#results-error", "findings": "#results-said"},
}
"""What of each page a stop can light, and where that is."""
VEILS = {
    "compare": ".qc-columns, .qc-concluded",
    "lab": ".lab-figure, .lab-told",
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
"""What a stop's `at` may say of each page."""
SLOT = re.compile(r"\{(before\.)?(\w+)(?::([^{}]*))?\}")
Kind = Literal["choice", "number", "spot"]


class InvalidLesson(QAlignError, ValueError):
    """A lesson's file cannot be read: not TOML, a wrong key or value, a fact that is none."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A prediction, and how it is checked.

    Attributes:
        question: what is asked.
        kind: how it is answered.
        options: of a choice, what each of its values is called.
        fact: what it is compared with; "" if the options are facts.
        moves: what counts is where the fact goes from before to after.
        within: how far off a number or a spot may be.
        right, wrong: what is said of it.
        then: where the page goes once it is made.
        highlight: what is lit then.
        veil: whether what tells the outcome is hidden until then.
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
    """One stop: what is said, of what, and what is asked."""

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
    """All lessons by name, in the order of their files.

    Raises:
        InvalidLesson: a file is wrong; the message names it, and its line or stop.
    """
    found = {}
    for path in sorted(folder.glob("*.toml")):
        lesson = read_lesson(path)
        found[lesson.name] = lesson
    for lesson in found.values():
        runs = {f"run={path.stem}" for path in RUNS.glob("*.jsonl")}
        for name in lesson.onward:
            if name not in {*found, *runs}:
                raise InvalidLesson(
                    f"lesson {lesson.name!r} continues with {name!r}, which does not exist; "
                    f"there are {', '.join([*found, *sorted(runs)])}"
                )
    return found


def read_lesson(path: Path) -> Lesson:
    """A lesson from its file, `NUMBER-NAME.toml`.

    Raises:
        InvalidLesson: the file is wrong; the message names it, and its line or stop.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidLesson(f"{path.name} is not TOML: {error}") from None
    reader = _Reader(path.name, data)
    given = reader.read(title=str, says=str, minutes=int, end="", learnt=[], onward=[], stop=list)
    stops: list[Stop] = []
    for k, stop in enumerate(given.pop("stop"), start=1):
        stops.append(_stop(reader.part(f"stop {k}", stop), stops))
    if not stops:
        raise InvalidLesson(f"{path.name} has no stop; write at least one [[stop]]")
    given["summary"] = given.pop("says")
    parts = (reader.part(f"learnt {k}", each) for k, each in enumerate(given.pop("learnt"), 1))
    return Lesson(
        **given | {"onward": tuple(map(str, given["onward"]))},
        name=re.sub(r"^\d+-", "", path.stem),
        stops=tuple(stops),
        learnt=tuple(_learnt(part, stops[-1]) for part in parts),
    )


class _Reader:
    """A table of a lesson's file; what is wrong with it is said with its place."""

    def __init__(self, where: str, data: dict[str, Any]) -> None:
        self.where = where
        self.data = data

    def wrong(self, what: str) -> InvalidLesson:
        return InvalidLesson(f"{self.where}: {what}")

    def read(self, **expected: Any) -> dict[str, Any]:
        """All values, and no others: each of a type, or else of that of its default."""
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
    given = reader.read(title=str, text=str, at={}, lit=str, notes="", ask={})
    at = end_of(before[-1]) if before else Place("watch")
    if given["at"]:
        at = _place(reader.part("at", given["at"]), at)
    reader.one_of("lit", HIGHLIGHTS[at.page])
    asked = "ask" in reader.data
    ask = _ask(reader.part("ask", given["ask"]), at, given["lit"]) if asked else None
    for text in (given["text"], given["notes"]):
        _check_slots(reader, text, at)
    highlight = given.pop("lit")
    return Stop(**given | {"at": at, "ask": ask, "highlight": highlight})


def _learnt(reader: _Reader, last: Stop) -> tuple[str, str]:
    given = reader.read(question=str, text=str)
    _check_slots(reader, given["text"], end_of(last))
    return given["question"], given["text"]


def end_of(stop: Stop) -> Place:
    """Where a stop leaves the page."""
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


def _ask(reader: _Reader, at: Place, lit: str) -> Ask:
    given = reader.read(
        question=str, options={}, spot=False, fact="", moves="", largest=False, right=str,
        wrong=str, within=0.0 if reader.data.get("options") else float, then={}, lit="", veil=False,
    )  # fmt: skip
    then = _place(reader.part("then", given["then"]), at) if given["then"] else at
    options = {k: str(v) for k, v in given["options"].items()}
    kind: Kind = "choice" if options else "spot" if given["spot"] else "number"
    judged = [name for name in ("fact", "moves", "largest") if name in reader.data]
    if len(judged) != 1:
        raise reader.wrong("expected one of fact, moves and largest")
    fact = given["fact"] or given["moves"]
    for name in [fact] if fact else options:
        _check_fact(reader, name, then)
    if judged != ["fact"] and kind != "choice":
        raise reader.wrong(f"{judged[0]!r} needs options")
    for text in (given["right"], given["wrong"]):
        _check_slots(reader, text, then)
    within = 0.0 if options else float(given["within"])
    lit = reader.one_of("lit", HIGHLIGHTS[then.page], lit if then.page == at.page else str)
    found = {"kind": kind, "options": options, "fact": fact, "moves": bool(given["moves"])}
    found |= {"within": within, "then": then, "highlight": lit}
    kept = {name: given[name] for name in ("question", "right", "wrong", "veil")}
    return Ask(**kept, **found)


def _check_slots(reader: _Reader, text: str, place: Place) -> None:
    for _, name, _ in SLOT.findall(text):
        _check_fact(reader, name, place)


def _check_fact(reader: _Reader, name: str, place: Place) -> None:
    known = facts_of(place.page)
    if name.partition(":")[0] not in known:
        raise reader.wrong(f"{name!r} is not a fact of {place.page}; there are {', '.join(known)}")
