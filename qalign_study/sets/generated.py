"""Generated tasks with known answers: grade-school word problems, and short constrained writing.

The embedded language model was trained on generated tasks of the `"train"` split only. By default,
these functions return the `"held_out"` split. The two never share a problem, since a
hash of the problem's content (its numbers and kinds of event, not its wording) decides the split.
"""

import hashlib
import random
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting
from qalign_core.run import INVENTORY_QUESTION

ProblemKind = Literal["in_distribution", "shifted", "long"]
EventKind = Literal["gain", "loss", "boxes", "days", "times", "half", "distractor"]
Split = Literal["held_out", "train"]

HELD_OUT_SHARE = 1 / 8
LARGEST = 99  # every amount on the way to the answer is in 2..LARGEST


@dataclass(frozen=True, slots=True)
class Event:
    """One sentence of a problem; `a` and `b` are its numbers (0 if it has none).

    gain/loss: `a` things; boxes: `a` boxes of `b`; days: `b` things on each of `a` days; times: the
    amount times `a`; half: no number; distractor: a number `a` that has nothing to do with it.
    `subject` is what a distractor counts ("years", "chairs"), or the box of "boxes".
    """

    kind: EventKind
    a: int = 0
    b: int = 0
    subject: str = ""
    text: str = ""

    def apply(self, amount: int) -> int:
        """The amount after the event, worked out correctly (half of an odd amount rounds down)."""
        return _AFTER[self.kind][0](amount, self.a, self.b)

    def mistake(self, amount: int) -> int:
        """The amount after the event, with the mistake that people are known to make with it."""
        return _AFTER[self.kind][1](amount, self.a, self.b)


_After = Callable[[int, int, int], int]
_AFTER: dict[EventKind, tuple[_After, _After]] = {
    "gain": (lambda v, a, b: v + a, lambda v, a, b: v - a),
    "loss": (lambda v, a, b: v - a, lambda v, a, b: v + a),
    "boxes": (lambda v, a, b: v + a * b, lambda v, a, b: v + a + b),
    "days": (lambda v, a, b: v + a * b, lambda v, a, b: v + b),
    "times": (lambda v, a, b: v * a, lambda v, a, b: v + a),
    "half": (lambda v, a, b: v // 2, lambda v, a, b: v - 2),
    "distractor": (lambda v, a, b: v, lambda v, a, b: v + a),
}
"""The amount after an event, from the amount before it, a and b: right, and mistaken."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem and its answer; `start`, `events`, `words` are what the prompt was made of."""

    prompt: str
    answer: str
    kind: ProblemKind
    start: int
    events: tuple[Event, ...]
    words: dict[str, str]

    @property
    def key(self) -> str:
        """The content that makes two problems the same one, whatever their wording."""
        parts = [f"{event.kind}:{event.a}:{event.b}" for event in self.events]
        return "|".join([str(self.start), *parts])


@dataclass(frozen=True, slots=True)
class WritingTask:
    """A short text to write, with three constraints that `met_constraints` checks."""

    prompt: str
    use: str
    end: str
    sentences: int

    @property
    def key(self) -> str:
        """The content that makes two tasks the same one, whatever their wording."""
        return f"write|{self.use}|{self.end}|{self.sentences}"

    @property
    def row_fields(self) -> dict[str, Any]:
        """The field of a problem's line."""
        return {"constraints": {"use": self.use, "end": self.end, "sentences": self.sentences}}

    def followed(self, text: str) -> bool:
        """True if a text meets all three constraints."""
        return met_constraints(self, text) == 3


_WORDS = tomllib.loads((ASSETS / "tasks" / "generated.toml").read_text("utf-8"))
GIRLS: list[str] = _WORDS["girls"]
BOYS: list[str] = _WORDS["boys"]
NOUNS: list[str] = _WORDS["nouns"]
_EVENTS: dict[EventKind, Any] = _WORDS["events"]
PHRASINGS: dict[EventKind, list[str]] = {k: e["phrasings"] for k, e in _EVENTS.items()}
SHIFTED_PHRASINGS: dict[EventKind, list[str]] = {k: e["shifted"] for k, e in _EVENTS.items()}
_PROBLEMS: dict[ProblemKind, Any] = _WORDS["problems"]
_REQUESTS: list[str] = _WORDS["requests"]
_NUMBERS = dict(enumerate(_WORDS["numbers"], start=1))
"""How a request says its number of sentences."""
_COUNTED = re.compile(r"\{a\} (\w+)")


class HasKey(Protocol):
    """A task with a key that decides its split."""

    @property
    def key(self) -> str:
        """The content that makes two of them the same one, whatever their wording."""
        ...


_T = TypeVar("_T", bound=HasKey)


def generate_problem(
    rng: random.Random, kind: ProblemKind = "in_distribution", *, split: Split = "held_out"
) -> Problem:
    """Draw a word problem.

    Args:
        rng: the source of randomness; the same state gives the same problem.
        kind: "in_distribution" (2-3 events), "shifted" (3-4 events, more distractors, phrasings
            that the reward model has not seen) or "long" (6-8 events).
        split: "held_out" for problems that no embedded model was trained on, "train" for the rest.

    Raises:
        InvalidSetting: `kind` is none of the three.
    """
    if kind not in _PROBLEMS:
        raise InvalidSetting(f"kind must be one of {', '.join(_PROBLEMS)}, got {kind!r}")
    while True:
        problem = draw_split(lambda: _draw_problem(rng, kind), split)
        # A corpus may contradict itself now and then; what people are shown may not.
        if split == "train" or not contradict(problem.events):
            return problem


def generate_writing_task(rng: random.Random, *, split: Split = "held_out") -> WritingTask:
    """Draw a writing task: use one word, end with another, in so many sentences."""
    return draw_split(lambda: _draw_writing_task(rng), split)


def read_writing_task(prompt: str) -> WritingTask | None:
    """The writing task that a prompt states in one of the generated wordings; None for others."""
    for request in _REQUESTS:
        pattern = re.escape(request)
        for name, what in (
            ("n", "|".join(_NUMBERS.values())),
            ("use", "[a-z]+"),
            ("end", "[a-z]+"),
        ):
            pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>{what})")
        if match := re.fullmatch(pattern, prompt.strip()):
            sentences = next(k for k, words in _NUMBERS.items() if words == match["n"])
            return WritingTask(prompt, match["use"], match["end"], sentences)
    return None


def kind_of(prompt: str) -> ProblemKind | Literal["inventory"] | None:
    """The kind of problem whose wordings and number of events a prompt has; None for others."""
    if INVENTORY_QUESTION in prompt:
        return "inventory"
    sentences = re.split(r"(?<=[.?]) ", prompt.strip())
    first, events, last = sentences[0], sentences[1:-1], sentences[-1]
    if not _has_wording(_WORDS["starts"], first) or not _has_wording(_WORDS["questions"], last):
        return None
    for kind, form in _PROBLEMS.items():
        wordings = SHIFTED_PHRASINGS if kind == "shifted" else PHRASINGS
        known = [wording for each in wordings.values() for wording in each]
        if len(events) in form["lengths"] and all(_has_wording(known, event) for event in events):
            return kind
    return None


def _has_wording(wordings: list[str], sentence: str) -> bool:
    """True if a sentence is one of these wordings with words and numbers filled in."""
    return any(_pattern(wording).fullmatch(sentence) for wording in wordings)


@cache
def _pattern(wording: str) -> re.Pattern[str]:
    filled = re.sub(r"\\{(a|b|start)\\}", r"\\d+", re.escape(wording))
    return re.compile(re.sub(r"\\{\w+\\}", r"[A-Za-z ]+", filled))


def constraints(task: WritingTask, text: str) -> dict[str, bool]:
    """Return, for each of the three constraints in words, whether a text meets it."""
    words = re.findall(r"[a-z]+", text.lower())
    counted = len(re.findall(r"[.!?](?=\s|$)", text))
    length = _NUMBERS.get(task.sentences, f"{task.sentences} sentences")
    return {
        f"uses “{task.use}”": task.use in words,
        f"ends with “{task.end}”": bool(words) and words[-1] == task.end,
        f"has {length}": counted == task.sentences,
    }


def met_constraints(task: WritingTask, text: str) -> int:
    """How many of the three constraints a text meets."""
    return sum(constraints(task, text).values())


def split_of(key: str) -> Split:
    """The split that a problem with this `key` belongs to, wherever it is generated."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return "held_out" if int.from_bytes(digest, "big") < HELD_OUT_SHARE * 2**64 else "train"


def draw_split(draw: Callable[[], _T], split: Split) -> _T:
    """Draw until what comes belongs to the split."""
    while split_of((problem := draw()).key) != split:
        pass
    return problem


def _draw_problem(rng: random.Random, kind: ProblemKind) -> Problem:
    words = draw_words(rng)
    start = rng.randint(6, 30)
    words["start"] = str(start)
    amount, events = start, list[Event]()
    n_events = rng.choice(_PROBLEMS[kind]["lengths"])
    while len(events) < n_events:
        event = draw_event(rng, _PROBLEMS[kind]["weights"])
        if not _keeps_in_range(event, amount) or (
            event.kind == "distractor" and _is_mostly_talk(events, n_events)
        ):
            continue
        amount = event.apply(amount)
        events.append(phrase(rng, kind, event, words))
    begin, ask = (rng.choice(_WORDS[part]).format(**words) for part in ("starts", "questions"))
    prompt = " ".join([begin, *(event.text for event in events), ask])
    return Problem(prompt, str(amount), kind, start, tuple(events), words)


def contradict(events: Iterable[Event]) -> bool:
    """True if two sentences give two numbers for one thing ("Ben is 18 years old", then 6)."""
    subjects = [event.subject for event in events if event.kind == "distractor"]
    return len(subjects) > len(set(subjects))


def draw_words(rng: random.Random) -> dict[str, str]:
    """Draw the words of a problem: two names, pronouns, and the things that are counted."""
    name, friend = rng.sample(GIRLS + BOYS, 2)
    he, him, his = ("she", "her", "her") if name in GIRLS else ("he", "him", "his")
    pronouns = {"he": he, "him": him, "his": his, "He": he.title(), "His": his.title()}
    return {"name": name, "friend": friend, "things": rng.choice(_WORDS["things"]), **pronouns}


def _is_mostly_talk(events: list[Event], n_events: int) -> bool:
    """True if one more distractor would leave fewer than half of the events to calculate."""
    return 2 * (sum(event.kind == "distractor" for event in events) + 1) > n_events


def draw_event(rng: random.Random, weights: dict[EventKind, float]) -> Event:
    """An event with its numbers, of a kind drawn by `weights`; not yet with its sentence."""
    kind = rng.choices(list(weights), list(weights.values()))[0]
    ranges = _EVENTS[kind]
    parts: dict[str, Any] = {n: rng.randint(*ranges[n]) for n in ("a", "b") if n in ranges}
    if kind == "boxes":
        parts["subject"] = rng.choice(_WORDS["boxes"])
    return Event(kind, **parts)


def _keeps_in_range(event: Event, amount: int) -> bool:
    """True if the amount stays whole and within 2..LARGEST."""
    return not (event.kind == "half" and amount % 2) and 2 <= event.apply(amount) <= LARGEST


def phrase(rng: random.Random, kind: ProblemKind, event: Event, words: dict[str, str]) -> Event:
    """The event with its sentence, and with what a distractor counts."""
    phrasings = (SHIFTED_PHRASINGS if kind == "shifted" else PHRASINGS)[event.kind]
    phrasing = rng.choice(phrasings)
    subject = event.subject
    if event.kind == "distractor":
        counted = _COUNTED.search(phrasing)
        assert counted, f"a distractor's phrasing counts something: {phrasing!r}"
        subject = counted[1]
    text = phrasing.format(
        **words,
        a=event.a,
        b=event.b,
        subject=subject,
        multiplies="doubles" if event.a == 2 else "triples",
        as_many="twice" if event.a == 2 else "three times",
    )
    return Event(event.kind, event.a, event.b, subject, text)


def _draw_writing_task(rng: random.Random) -> WritingTask:
    use, end = rng.sample(NOUNS, 2)
    sentences = rng.randint(1, 3)
    n = _NUMBERS[sentences]
    prompt = rng.choice(_REQUESTS).format(n=n, use=use, end=end)
    return WritingTask(prompt, use, end, sentences)
