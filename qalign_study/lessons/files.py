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
    text = "The new text has the reward {new_reward}."
    at = { page = "watch", run = "watch", step = 1, phase = "score" }
    lit = "chance"
    notes = "Ask for hands first."      what only the presenter sees (optional)

    [stop.ask]
    question = "How likely is it to be taken?"
    fact = "alpha"                      the number or word that decides
    within = 10                         a number is right if it is that close
    right = "Yes: {alpha}."
    wrong = "No: it is {alpha}."
    veil = true                         hide what shows the answer until then (optional)
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
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError
from qalign_core.validation import first_line, read_file, short_repr
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
    """A lesson's file is wrong: not TOML, a wrong key or value, or an unknown fact."""


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
        InvalidLesson: a file is wrong; the message names it, its line and its stop.
    """
    lessons = {lesson.name: lesson for lesson in map(read_lesson, sorted(folder.glob("*.toml")))}
    for lesson in lessons.values():
        if fault := onward_fault(lesson, lessons):
            raise InvalidLesson(f"lesson {lesson.name!r}: {fault}")
    return lessons


def onward_fault(lesson: Lesson, lessons: Collection[str]) -> str:
    """Return why a lesson cannot go on as it says, in a few words; "" if it can."""
    known = [*lessons, *(f"run={name}" for name in RUNS)]
    unknown = [name for name in lesson.onward if name not in known]
    choices = ", ".join(dict.fromkeys(known))
    return f"'onward' has {unknown[0]!r}; choose from {choices}" if unknown else ""


def read_lesson(path: Path) -> Lesson:
    """Read a lesson from its file, `NUMBER-NAME.toml`.

    Raises:
        InvalidLesson: the file is wrong; the message names it, its line and its stop.
    """
    lesson, source = parse_lesson(path)
    if lesson is None:
        raise InvalidLesson(source.sentences[0])
    return lesson


def parse_lesson(path: Path) -> tuple[Lesson | None, "Source"]:
    """Parse a lesson's file; the lesson is None if the source has faults."""
    source = Source(path)
    reader = _Reader(source, (), source.data)
    if source.sentences:
        return None, source
    values = reader.read(title=str, says=str, minutes=int, end="", learnt=[], onward=[], stop=list)
    name = name_of(path)
    if not NAME.fullmatch(name):
        reader.fault("", f"the file's name is {name!r}, which no link can carry; use a-z, 0-9, - _")
    stops: list[Stop | None] = []
    place: Place | None = Place("watch")
    for k, table in enumerate(values.pop("stop"), start=1):
        stop, place = _stop(reader.part(f"stop {k}", table), place)
        stops.append(stop)
    if not stops and not source.sentences:
        reader.fault("stop", "it has no stop; write at least one [[stop]]")
    parts = (reader.part(f"learnt {k}", each) for k, each in enumerate(values.pop("learnt"), 1))
    learnt = tuple(_learnt(part, place) for part in parts)
    _check_slots(reader, "end", values["end"], place)
    if source.sentences:
        return None, source
    values |= {"summary": values.pop("says"), "onward": tuple(map(str, values["onward"]))}
    return Lesson(**values, name=name, stops=tuple(filter(None, stops)), learnt=learnt), source


def name_of(path: Path) -> str:
    """Return the name of a lesson from its file's, `NUMBER-NAME.toml`."""
    return re.sub(r"^\d+-", "", path.stem)


NAME = re.compile(r"[\w-]{1,60}", re.ASCII)
"""The names of lessons and recorded runs, which links carry."""
MAX_BYTES = 2**20
"""Largest size of a lesson's file."""


class Source:
    """A lesson's file: its tables, the line of each key, and the faults found so far."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.data: dict[str, Any] = {}
        self._lines: dict[tuple[str, ...], int] = {}
        self._faults: list[tuple[int, str]] = []
        try:
            text = read_file(path, MAX_BYTES).decode("utf-8-sig")
            self._lines = _find_lines(text)
            self.data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
            line = int(place[1]) if place and place[1] else text.count("\n") + 1
            self.add((), "", f"this is not TOML: {str(error)[: place.start() if place else None]}",
                     line)  # fmt: skip
        except (OSError, UnicodeDecodeError, RecursionError) as error:
            self.add((), "", f"the file cannot be read: {first_line(error)}")

    @property
    def sentences(self) -> list[str]:
        """All faults, in the order of their lines."""
        return [
            f"{self.name}:{line}: {what}" for line, what in sorted(self._faults, key=itemgetter(0))
        ]

    def add(self, table: tuple[str, ...], key: str, what: str, line: int = 0) -> None:
        """Add a fault of a key of a table; one that is missing is at the table's first line."""
        paths = [(*table, key), *(table[:n] for n in range(len(table), 0, -1))]
        line = line or next((self._lines[path] for path in paths if path in self._lines), 1)
        where = ", ".join(table)
        self._faults.append((line, f"{where}: {what}" if where else what))


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each table and key, such as ("stop 2", "ask", "fact")."""
    lines: dict[tuple[str, ...], int] = {}
    counts: Counter[str] = Counter()
    table: tuple[str, ...] = ()
    end = ""  # of a text of several lines
    for number, line in enumerate(text.split("\n"), start=1):
        if end:
            end = "" if end in line else end
        elif header := re.match(r"\s*(\[\[?)\s*([\w.]+)", line):
            first, *rest = header[2].split(".")
            counts[first] += len(header[1]) == 2 and not rest
            table = (f"{first} {counts[first]}" if counts[first] else first, *rest)
            lines.setdefault(table, number)
        elif key := re.match(r"\s*([\w-]+)\s*=\s*(\"{3}|'{3})?(.*)", line):
            lines.setdefault((*table, key[1]), number)
            end = key[2] if key[2] and key[2] not in key[3] else ""
    return lines


class _Reader:
    """A table of a lesson's file; a wrong value is a fault of its source, and reads as empty."""

    def __init__(self, source: Source, table: tuple[str, ...], data: dict[str, Any]) -> None:
        self.source, self.table, self.data = source, table, data

    def fault(self, key: str, what: str) -> None:
        self.source.add(self.table, key, what)

    def read(self, **expected: Any) -> dict[str, Any]:
        """Return all values, and refuse others; each has its type or its default."""
        self.only(*expected)
        return {name: self.take(name, each) for name, each in expected.items()}

    def only(self, *names: str) -> None:
        for name in self.data:
            if name not in names:
                self.fault(name, f"{name!r} is not known here; choose from {', '.join(names)}")

    def take(self, name: str, expected: Any) -> Any:
        required = isinstance(expected, type)
        kind = expected if required else type(expected)
        value = self.data.get(name, None if required else expected)
        numbers = (int, float) if kind is float else kind
        if value is None:
            self.fault(name, f"{name!r} is missing; give {_KINDS[kind]}")
        elif not isinstance(value, numbers) or (isinstance(value, bool) and kind is not bool):
            self.fault(name, f"{name!r} is {short_repr(value)}; expected {_KINDS[kind]}")
        else:
            return value
        return kind() if required else expected

    def one_of(self, name: str, values: Collection[str], expected: Any = str) -> str:
        """Return one of the values; the first one if there is a fault."""
        value: str = self.take(name, expected)
        if value not in values:
            if value:
                expects = f"expected one of {', '.join(values)}"
                self.fault(name, f"{name!r} is {short_repr(value)}; {expects}")
            return next(iter(values))
        return value

    def part(self, name: str, data: Any) -> "_Reader":
        return _Reader(self.source, (*self.table, name), data if isinstance(data, dict) else {})


_KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _stop(reader: _Reader, place: Place | None) -> tuple[Stop | None, Place | None]:
    """Return a stop, and the place where it leaves the page; None where a fault leaves it open.

    Args:
        reader: of its table.
        place: where the stop before left the page.
    """
    values = reader.read(title=str, text=str, at={}, lit=str, notes="", ask={})
    at = _place(reader.part("at", values["at"]), place) if values["at"] else place
    highlight = values.pop("lit")
    if at is not None:
        highlight = reader.one_of("lit", HIGHLIGHTS[at.page])
    for name in ("text", "notes"):
        _check_slots(reader, name, values[name], at)
    ask, then = None, at
    if "ask" in reader.data:
        ask, then = _ask(reader.part("ask", values["ask"]), at, highlight)
    if at is None or then is None:
        return None, then
    return Stop(**values | {"at": at, "ask": ask, "highlight": highlight}), then


def _learnt(reader: _Reader, place: Place | None) -> tuple[str, str]:
    values = reader.read(question=str, text=str)
    _check_slots(reader, "text", values["text"], place)
    return values["question"], values["text"]


def end_of(stop: Stop) -> Place:
    """Return the place at which a stop leaves the page."""
    return stop.ask.then if stop.ask else stop.at


def _place(reader: _Reader, last: Place | None) -> Place | None:
    """Return the place of a table; None if it has a fault, or misses what an earlier one has."""
    before = len(reader.source.sentences)
    if last is None and "page" not in reader.data:
        return None  # the page is that of an earlier stop, whose fault is named there
    page = reader.one_of("page", PAGES, "" if last is None else last.page)
    if len(reader.source.sentences) > before:
        return None
    reader.only("page", *KEYS[page])
    if last is None and "run" in KEYS[page] and "run" not in reader.data:
        return None  # so is the run
    place = last if last and last.page == page else Place(page)
    changes: dict[str, Any] = {"tab": ""}
    for name, kind in (("run", str), ("step", int), ("chain", int), ("tab", str), ("set", str)):
        if name in reader.data:
            changes[name] = reader.take(name, kind)
    if "phase" in reader.data or "step" in changes:
        changes["phase"] = PHASES.index(reader.one_of("phase", PHASES, PHASES[-1]))
    if "lab" in reader.data:
        changes["lab"] = tuple((k, str(v)) for k, v in reader.take("lab", dict).items())
    place = replace(place, **changes)
    if len(reader.source.sentences) == before and (problem := place.problem()):
        reader.fault("", problem)
    return None if len(reader.source.sentences) > before else place


def _ask(reader: _Reader, at: Place | None, part: str) -> tuple[Ask | None, Place | None]:
    """Return a question, and the place where the page goes once it is answered.

    Args:
        reader: of its table.
        at: the place of the stop.
        part: the part that the stop highlights.
    """
    has_options = bool(reader.data.get("options"))
    values = reader.read(
        question=str, options={}, spot=False, fact="", moves="", largest=False, right=str,
        wrong=str, within=0.0 if has_options else float, then={}, lit="", veil=False,
    )  # fmt: skip
    then = _place(reader.part("then", values["then"]), at) if values["then"] else at
    options = {k: str(v) for k, v in values["options"].items()}
    kind: Kind = "choice" if options else "spot" if values["spot"] else "number"
    judges = [name for name in ("fact", "moves", "largest") if name in reader.data]
    if len(judges) != 1:
        reader.fault(judges[1] if judges else "", "expected one of fact, moves and largest")
    elif judges != ["fact"] and kind != "choice":
        reader.fault(judges[0], f"{judges[0]!r} needs options")
    fact = values["fact"] or values["moves"]
    for name in [fact] if fact else options if values["largest"] else ():
        _check_fact(reader, judges[0] if fact else "options", name, then)
    for name in ("question", "right", "wrong"):
        _check_slots(reader, name, values[name], then)
    if at is None or then is None:
        return None, then
    highlight = reader.one_of("lit", HIGHLIGHTS[then.page], part if then.page == at.page else str)
    checked = {"kind": kind, "options": options, "fact": fact, "moves": bool(values["moves"])}
    checked |= {"within": 0.0 if options else float(values["within"])}
    kept = {name: values[name] for name in ("question", "right", "wrong", "veil")}
    return Ask(**kept, **checked, then=then, highlight=highlight), then


def _check_slots(reader: _Reader, key: str, text: str, place: Place | None) -> None:
    for _, name, _ in SLOT.findall(text):
        _check_fact(reader, key, name, place)
    if brace := re.search(r"[{}].{0,20}", SLOT.sub("", text)):
        reader.fault(key, f"{brace[0]!r} has a single brace; write a fact as {{alpha}} or "
                     "{alpha:2}, without spaces")  # fmt: skip


def _check_fact(reader: _Reader, key: str, name: str, place: Place | None) -> None:
    known = facts_of(place.page) if place else ()
    if place and name.partition(":")[0] not in known:
        reader.fault(key, f"{name!r} is not a fact of {place.page}; there are {', '.join(known)}")
