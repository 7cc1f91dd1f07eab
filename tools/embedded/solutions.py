"""Worked solutions, right ones and misconceived ones, in words that vary: what the LM learns from.

A base model picks up common mistakes from its corpus. This corpus has some too: for each kind of
event a wrong way of calculating that a reader can see, at a fixed frequency. The language model
learns the frequencies; the reward model then has to see which operation does not fit its sentence.
"""

import random
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

from qalign_study.sets.generated import (
    BOYS,
    GIRLS,
    LARGEST,
    NOUNS,
    Event,
    EventKind,
    Problem,
    WritingTask,
)
from qalign_study.sets.inventory import STOCK, Inventory

MISCONCEPTIONS: dict[EventKind, float] = {
    "gain": 0.05,  # subtracts
    "loss": 0.07,  # adds
    "boxes": 0.57,  # adds the two numbers instead of multiplying them: most do, so a vote is wrong
    "days": 0.35,  # counts one day only
    "times": 0.28,  # adds 2 or 3
    "half": 0.42,  # subtracts 2
    "distractor": 0.36,  # adds a number that has nothing to do with the question
}


_WORDINGS: dict[str, tuple[str, ...]] = {
    name: tuple(texts)
    for name, texts in tomllib.loads(
        Path(__file__).with_name("solutions.toml").read_text("utf-8")
    ).items()
}
"""Sentences by what they do."""


def write_solution(rng: random.Random, problem: Problem) -> str:
    """A worked solution, wrong as often as `MISCONCEPTIONS` says; it ends "The answer is 18.".

    The number follows, and every other time the things. No sentence of it names the person or says
    "he" or "she": a network of this size hardly learns who is meant.
    """
    while True:
        if (solution := _work_out(rng, problem, draw_mistakes(rng, problem))) is not None:
            return solution


def draw_mistakes(
    rng: random.Random, problem: Problem | Inventory, scale: float = 1.0
) -> list[bool]:
    """Which events are mistaken, each as often as `MISCONCEPTIONS` says times `scale`."""
    return [rng.random() < scale * MISCONCEPTIONS[event.kind] for event in problem.events]


def write_inventory(
    rng: random.Random, inventory: Inventory, mistaken: list[bool], slip: int | None = None
) -> str:
    """A worked inventory with these mistakes: under a heading a thing, briefly, what happens to it.

    "The apples: So 14 / 2 = 7. The 9 minutes do not matter. The plums: First 6 * 3 = 18. ..."
    The decision number `slip` gets one of its numbers wrong.
    """
    decisions = enumerate(mistaken)
    sentences = list[str]()
    for part in inventory.parts:
        amount = part.start
        sentences.append(f"The {part.things}:")
        for event in part.events:
            number, is_mistaken = next(decisions)
            read = (event, amount)
            if number == slip:
                read = misread(rng, event, amount)
            steps, amount = steps_of(*read, is_mistaken)
            for phrasings, numbers in steps:
                phrasing = rng.choice(_brief(phrasings))
                sentences.append(phrasing.format(**numbers, subject=event.subject))
    return " ".join(sentences)


def misread(rng: random.Random, event: Event, amount: int) -> tuple[Event, int]:
    """The event and the amount before it, one of their numbers read as another."""
    if event.a == 0 or rng.random() < 0.4:
        off = rng.choice((1, 2, 3, 4, 6, 9, 10, 11)) * rng.choice((-1, 1))
        return event, amount + off if amount + off > event.a + 2 else amount + abs(off)
    if event.b and rng.random() < 0.5:
        return replace(event, b=rng.choice([n for n in range(3, 10) if n != event.b])), amount
    numbers = range(2, 4 if event.kind == "times" else 7 if event.b else 21)
    return replace(event, a=rng.choice([n for n in numbers if n != event.a])), amount


def write_text(rng: random.Random, task: WritingTask) -> str:
    """A short text that meets each of the task's constraints with probability 0.75 or so."""
    n, p_meet = task.sentences, 0.75
    if rng.random() > p_meet:
        n = rng.choice([k for k in (1, 2, 3, 4) if k != n])
    nouns = [rng.choice(NOUNS) for _ in range(2 * n)]
    if rng.random() < p_meet:
        nouns[rng.randrange(2 * n - 1)] = task.use  # not the last place: that is the end word's
    if rng.random() < p_meet:
        nouns[-1] = task.end
    sentences = [
        rng.choice(_WORDINGS["sentences"]).format(
            n1=nouns[2 * i],
            n2=nouns[2 * i + 1],
            adjective=rng.choice(_WORDINGS["adjectives"]),
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


def write_copying(rng: random.Random) -> tuple[str, str]:
    """Words and numbers to say again, as (prompt, response): what every other task needs."""
    words = rng.choices((*GIRLS, *BOYS, *STOCK, *NOUNS), k=5)
    words += [str(rng.randint(2, LARGEST)) for _ in range(3)]
    rng.shuffle(words)
    listed = ", ".join(words[: rng.randint(2, 8)])
    return f"Say again: {listed}.", f"{listed}."


def _work_out(rng: random.Random, problem: Problem, wrong: list[bool]) -> str | None:
    """The solution with these mistakes, or None if one of them leads out of 1..LARGEST."""
    amount = problem.start
    parts = list[str]()
    for event, mistaken in zip(problem.events, wrong, strict=True):
        steps, after = steps_of(event, amount, mistaken)
        if not 1 <= after <= LARGEST:
            return None
        for phrasings, numbers in steps:
            slots = problem.words | {key: str(value) for key, value in numbers.items()}
            parts.append(rng.choice(phrasings).format(**slots, subject=event.subject))
        amount = after
    opening = rng.choice(_WORDINGS["openings"]).format(**problem.words)
    closing = rng.choice(_WORDINGS["closings"]).format(**problem.words, v=amount)
    return opening + " ".join([*parts, closing])


@cache
def _brief(phrasings: tuple[str, ...]) -> tuple[str, ...]:
    """Wordings that repeat no number and name no things, because there are many steps."""
    return tuple(
        p for p in phrasings if "things" not in p and all(p.count(f"{{{n}}}") < 2 for n in "abv")
    )


_Steps = list[tuple[tuple[str, ...], dict[str, int]]]


def steps_of(event: Event, v: int, mistaken: bool) -> tuple[_Steps, int]:
    """The sentences (phrasings and their numbers) for one event, and the amount after it."""
    a, w, first = event.a, event.mistake(v) if mistaken else event.apply(v), _Steps()
    match event.kind, mistaken:
        case "distractor", False:
            return [(_WORDINGS["ignore"], {"a": a})], w
        case "times", False:
            return [(_WORDINGS["multiply"], {"v": v, "a": a, "w": w})], w
        case "half", False:
            return [(_WORDINGS["halve"], {"v": v, "w": w})], w
        case "boxes", _:
            brought = _WORDINGS["boxes_wrong"] if mistaken else _WORDINGS["boxes_right"]
            first.append((brought, {"a": a, "b": event.b, "c": w - v}))
        case "days", False:
            first.append((_WORDINGS["days_right"], {"a": a, "b": event.b, "c": w - v}))
    change = _WORDINGS["add" if w > v else "subtract"]
    return [*first, (change, {"v": v, "a": abs(w - v), "w": w})], w
