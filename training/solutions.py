"""Worked solutions, right ones and misconceived ones, in words that vary: what the LM learns from.

A base model picks up common mistakes from its corpus. This corpus has some too: for each kind of
event a wrong way of calculating that a reader can see, at a fixed frequency. The language model
learns the frequencies; the reward model then has to see which operation does not fit its sentence.
"""

from __future__ import annotations

import random
from functools import cache

from qalign_core.runs.generated import (
    BOYS,
    GIRLS,
    LARGEST,
    NOUNS,
    Event,
    EventKind,
    Problem,
    WritingTask,
)

MISCONCEPTIONS: dict[EventKind, float] = {
    "gain": 0.05,  # subtracts
    "loss": 0.07,  # adds
    "boxes": 0.57,  # adds the two numbers instead of multiplying them: most do, so a vote is wrong
    "days": 0.35,  # counts one day only
    "times": 0.28,  # adds 2 or 3
    "half": 0.42,  # subtracts 2
    "distractor": 0.36,  # adds a number that has nothing to do with the question
}

_OPENINGS = (
    "",
    "",
    "{name} starts with {start} {things}. ",
    "We begin with {start}. ",
    "Let us count the {things}. ",
    "Step by step. ",
)
_ADD = (
    "Adding {a} gives {v} + {a} = {w}.",
    "That makes {v} + {a} = {w}.",
    "{a} more is {v} + {a} = {w}.",
    "Now {he} has {v} + {a} = {w} {things}.",
    "So {v} + {a} = {w}.",
)
_SUBTRACT = (
    "Taking away {a} gives {v} - {a} = {w}.",
    "That leaves {v} - {a} = {w}.",
    "{a} less is {v} - {a} = {w}.",
    "Now {he} has {v} - {a} = {w} {things}.",
    "So {v} - {a} = {w}.",
)
_MULTIPLY = (
    "{v} times {a} is {v} * {a} = {w}.",
    "That makes {v} * {a} = {w}.",
    "Multiplying by {a} gives {v} * {a} = {w}.",
    "Now {he} has {v} * {a} = {w} {things}.",
    "So {v} * {a} = {w}.",
)
_HALVE = (
    "Half of {v} is {v} / 2 = {w}.",
    "That leaves {v} / 2 = {w}.",
    "Dividing by 2 gives {v} / 2 = {w}.",
    "Now {he} has {v} / 2 = {w} {things}.",
    "So {v} / 2 = {w}.",
)
_BOXES_RIGHT = (
    "The {subject} hold {a} * {b} = {c}.",
    "{a} {subject} of {b} are {a} * {b} = {c}.",
    "There are {a} * {b} = {c} in the {subject}.",
    "First {a} * {b} = {c}.",
)
_BOXES_WRONG = (
    "The {subject} hold {a} + {b} = {c}.",
    "{a} {subject} and {b} are {a} + {b} = {c}.",
    "There are {a} + {b} = {c} in the {subject}.",
    "First {a} + {b} = {c}.",
)
_DAYS_RIGHT = (
    "{a} days of {b} are {a} * {b} = {c}.",
    "In {a} days that is {a} * {b} = {c}.",
    "Over the days {he} gets {a} * {b} = {c}.",
    "First {a} * {b} = {c}.",
)
_IGNORE = (
    "The {a} {subject} do not matter.",
    "We leave out the {a} {subject}.",
    "The {subject} change nothing.",
    "The {a} {subject} are not {things}.",
    "The number {a} is not needed.",
)
# Half of them end with the things: without that choice, whatever is rewritten from one of the last
# words on comes back as it was.
_CLOSINGS = (
    "The answer is {v}.",
    "The answer is {v} {things}.",
    "So there are {v} {things}. The answer is {v}.",
    "There are {v} of them. The answer is {v} {things}.",
    "{name} has {v} {things}. The answer is {v}.",
    "{name} has {v} now. The answer is {v} {things}.",
)


def write_solution(rng: random.Random, problem: Problem, *, people: bool = True) -> str:
    """A worked solution, wrong as often as `MISCONCEPTIONS` says; it ends "The answer is 18.".

    The number follows, and every other time the things. Without `people`, no sentence of it names
    the person or says "he" or "she".
    """
    while True:
        wrong = [rng.random() < MISCONCEPTIONS[event.kind] for event in problem.events]
        if (solution := _work_out(rng, problem, wrong, people)) is not None:
            return solution


def write_text(rng: random.Random, task: WritingTask, p_meet: float = 0.75) -> str:
    """A short text that meets each of the task's constraints with probability `p_meet` or so."""
    n = task.sentences
    if rng.random() > p_meet:
        n = rng.choice([k for k in (1, 2, 3, 4) if k != n])
    nouns = [rng.choice(NOUNS) for _ in range(2 * n)]
    if rng.random() < p_meet:
        nouns[rng.randrange(2 * n - 1)] = task.use  # not the last place: that is the end word's
    if rng.random() < p_meet:
        nouns[-1] = task.end
    sentences = [
        rng.choice(_SENTENCES).format(
            n1=nouns[2 * i],
            n2=nouns[2 * i + 1],
            adjective=rng.choice(_ADJECTIVES),
            name=rng.choice(GIRLS + BOYS),
        )
        for i in range(n)
    ]
    return " ".join(sentences)


def write_drill(rng: random.Random) -> tuple[str, str]:
    """Bare equations, as (prompt, response): arithmetic practice, without any words around it."""
    sums = list[tuple[str, int]]()
    while len(sums) < 6:
        v, a = rng.randint(2, LARGEST), rng.randint(2, 30)
        match rng.choices("+-*x/", (3, 3, 2, 1, 1))[0]:
            case "+":
                left, right = f"{v} + {a}", v + a
            case "-":
                left, right = f"{v} - {a}", v - a
            case "*":
                v, a = rng.randint(2, 48), rng.randint(2, 3)
                left, right = f"{v} * {a}", v * a
            case "x":
                v, a = rng.randint(2, 6), rng.randint(3, 9)
                left, right = f"{v} * {a}", v * a
            case _:
                left, right = f"{v} / 2", v // 2
        if 1 <= right <= LARGEST:
            sums.append((left, right))
    prompt = "Work out " + ", ".join(left for left, _ in sums) + "."
    return prompt, " ".join(f"{left} = {right}." for left, right in sums)


def _work_out(rng: random.Random, problem: Problem, wrong: list[bool], people: bool) -> str | None:
    """The solution with these mistakes, or None if one of them leads out of 1..LARGEST."""
    amount = problem.start
    parts = list[str]()
    for event, mistaken in zip(problem.events, wrong, strict=True):
        steps, after = _step(event, amount, mistaken)
        if not 1 <= after <= LARGEST:
            return None
        for phrasings, numbers in steps:
            slots = problem.words | {key: str(value) for key, value in numbers.items()}
            phrasing = rng.choice(_phrasings(phrasings, people))
            parts.append(phrasing.format(**slots, subject=event.subject))
        amount = after
    opening = rng.choice(_phrasings(_OPENINGS, people)).format(**problem.words)
    closing = rng.choice(_phrasings(_CLOSINGS, people)).format(**problem.words, v=amount)
    return opening + " ".join([*parts, closing])


@cache
def _phrasings(phrasings: tuple[str, ...], people: bool) -> tuple[str, ...]:
    return tuple(p for p in phrasings if people or ("{name}" not in p and "{he}" not in p))


_Steps = list[tuple[tuple[str, ...], dict[str, int]]]


def _step(event: Event, v: int, mistaken: bool) -> tuple[_Steps, int]:
    """The sentences (phrasings and their numbers) for one event, and the amount after it."""
    a, b = event.a, event.b
    match event.kind, mistaken:
        case ("gain", False) | ("loss", True) | ("distractor", True) | ("times", True):
            return [(_ADD, {"v": v, "a": a, "w": v + a})], v + a
        case ("gain", True) | ("loss", False):
            return [(_SUBTRACT, {"v": v, "a": a, "w": v - a})], v - a
        case "boxes", _:
            c = a + b if mistaken else a * b
            first = _BOXES_WRONG if mistaken else _BOXES_RIGHT
            steps = [(first, {"a": a, "b": b, "c": c}), (_ADD, {"v": v, "a": c, "w": v + c})]
            return steps, v + c
        case "days", True:
            return [(_ADD, {"v": v, "a": b, "w": v + b})], v + b
        case "days", False:
            c = a * b
            steps = [(_DAYS_RIGHT, {"a": a, "b": b, "c": c}), (_ADD, {"v": v, "a": c, "w": v + c})]
            return steps, v + c
        case "times", False:
            return [(_MULTIPLY, {"v": v, "a": a, "w": v * a})], v * a
        case "half", True:
            return [(_SUBTRACT, {"v": v, "a": 2, "w": v - 2})], v - 2
        case "half", False:
            return [(_HALVE, {"v": v, "w": v // 2})], v // 2
        case _:
            return [(_IGNORE, {"a": a})], v


_ADJECTIVES = ("new", "small", "red", "quiet", "tall", "bright", "cold", "green", "slow", "happy")
_SENTENCES = (
    "The {adjective} {n1} waits by the {n2}.",
    "A {n1} rests under the {n2}.",
    "{name} looks at the {n1} and the {n2}.",
    "{name} puts the {n1} near the {n2}.",
    "Nobody sees the {adjective} {n1} behind the {n2}.",
    "In the evening the {n1} is next to the {n2}.",
    "{name} likes the {n1} more than the {n2}.",
    "There is a {adjective} {n1} beside the {n2}.",
    "Every morning {name} walks from the {n1} to the {n2}.",
    "{name} dreams of a {n1} and a {adjective} {n2}.",
)
