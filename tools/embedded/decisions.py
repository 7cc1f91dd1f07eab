"""Read a worked inventory decision by decision: which are right, mistaken, or a slip of the pen."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal, NamedTuple

from qalign_study.sets.generated import Event
from qalign_study.sets.inventory import Inventory, Part
from tools.embedded.solutions import steps_of

Outcome = Literal["right", "mistaken", "slip"]

_HEADING = re.compile(r"The (\w+):")
_SENTENCE = re.compile(r"[^.]+\.")
_EQUATION = re.compile(r"\d+ [-+*/] \d+ = \d+")


class Decision(NamedTuple):
    """The outcome of one decision; `end` is where its last sentence ends in the text.

    "mistaken" is the event's usual mistake; a "slip" is anything else: a number miscopied, a sum
    that is wrong, a sentence left out.
    """

    outcome: Outcome
    end: int


class _Sentence(NamedTuple):
    equation: str | None
    end: int


def read_decisions(inventory: Inventory, text: str) -> list[Decision]:
    """The decisions of a response, one an event of the inventory, in order."""
    headings = list(_HEADING.finditer(text))
    bodies = {
        heading[1]: (heading.end(), following.start() if following else len(text))
        for heading, following in zip_longest(headings, headings[1:])
    }
    decisions, reached = list[Decision](), 0
    for part in inventory.parts:
        start, end = bodies.get(part.things, (reached, reached))
        decisions += _read_part(part, list(_sentences(text, start, end)), start)
        reached = decisions[-1].end
    return decisions


def equations(event: Event, amount: int, mistaken: bool) -> list[str | None]:
    """Return each decision's equation, or None for a sentence that has none."""
    steps, _ = steps_of(event, amount, mistaken)
    matches = [
        _EQUATION.search(phrasings[0].format(**numbers, subject="")) for phrasings, numbers in steps
    ]
    return [match and match[0] for match in matches]


def _sentences(text: str, start: int, end: int) -> Iterator[_Sentence]:
    for sentence in _SENTENCE.finditer(text, start, end):
        equation = _EQUATION.search(sentence[0])
        yield _Sentence(equation and equation[0], sentence.end())


def _read_part(part: Part, sentences: list[_Sentence], start: int) -> Iterator[Decision]:
    amount, at = part.start, 0
    for number, event in enumerate(part.events):
        outcome, n = _read(event, amount, sentences[at:])
        if outcome == "slip":
            rest = part.events[number + 1 :]
            n = _length_of_slip(rest[0] if rest else None, amount, sentences[at:])
        amount = _amount_after(amount, sentences[at : at + n])
        at += n
        yield Decision(outcome, sentences[at - 1].end if at else start)


def _read(event: Event, amount: int, sentences: list[_Sentence]) -> tuple[Outcome, int]:
    """The outcome of the event in the next sentences, and how many of them are about it."""
    written = [sentence.equation for sentence in sentences]
    for mistaken in (False, True):
        expected = equations(event, amount, mistaken)
        if written[: len(expected)] == expected:
            return ("mistaken" if mistaken else "right"), len(expected)
    return "slip", 0


def _length_of_slip(following: Event | None, amount: int, sentences: list[_Sentence]) -> int:
    """How many sentences a slip takes: as many as let the next event be read, if any does."""
    if following is None:
        return len(sentences)
    for n in (1, 2, 0):
        after = _amount_after(amount, sentences[:n])
        if n <= len(sentences) and _read(following, after, sentences[n:])[0] != "slip":
            return n
    return min(1, len(sentences))


def _amount_after(amount: int, sentences: list[_Sentence]) -> int:
    results = [int(s.equation.split()[-1]) for s in sentences if s.equation]
    return results[-1] if results else amount
