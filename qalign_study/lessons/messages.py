"""Lessons as sent to the browser, without their answers, and the check of predictions.

The core's own number decides whether a prediction is right.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from qalign_core.validation import first_line
from qalign_study.lessons.facts import RUNS, Place, Share, Tied, format_value, run_of, value_of
from qalign_study.lessons.files import (
    HIGHLIGHTS,
    PHASES,
    SLOT,
    VEILS,
    Ask,
    Lesson,
    Source,
    Stop,
    end_of,
    onward_fault,
    parse_lesson,
)

PRAISE = re.compile(r"^(?:Yes|Close|Correct|Right)[:,.!]\s+")
"""The beginning of an explanation that only those who predicted right may read."""


def fill_facts(text: str, place: Place, before: Place) -> str:
    """Replace the braces of a lesson's text by the core's numbers, and backticks by quotes."""
    numbers = SLOT.sub(
        lambda slot: format_value(
            value_of(slot[2] + (f":{slot[3]}" if slot[3] else ""), before if slot[1] else place)
        ),
        text,
    )
    return re.sub(r"`([^`]+)`", r"“\1”", numbers)


def _place(place: Place) -> dict[str, Any]:
    payload = asdict(place)
    query = {f"lab-{name}": value for name, value in payload.pop("lab")}
    chosen = {"set": payload.pop("set")}
    return {**payload, "query": urlencode(chosen if place.page == "results" else query)}


def _question(ask: Ask, stop: Stop) -> dict[str, Any]:
    highlight = HIGHLIGHTS[stop.at.page][stop.highlight]
    of_one = ask.kind == "number" and isinstance(value_of(ask.fact, ask.then), Share)
    return {
        "question": fill_facts(ask.question, ask.then, ask.then),
        "kind": ask.kind,
        "options": list(ask.options.items()),
        "unit": "%" if of_one else "",
        "veil": VEILS.get(stop.at.page, highlight) if ask.veil else "",
        "marks": list(run_of(ask.then.run).rewards) if ask.kind == "spot" else [],
    }


def _stop(stop: Stop) -> dict[str, Any]:
    message = {
        "title": stop.title,
        "text": fill_facts(stop.text, stop.at, stop.at),
        "notes": fill_facts(stop.notes, stop.at, stop.at),
        "at": _place(stop.at),
        "highlight": HIGHLIGHTS[stop.at.page][stop.highlight],
    }
    return message | ({"ask": _question(stop.ask, stop)} if stop.ask else {})


def lesson_message(lesson: Lesson) -> dict[str, Any]:
    """Return a lesson as sent to the browser, without its answers."""
    end = end_of(lesson.stops[-1])
    runs = {stop.at.run for stop in lesson.stops if stop.at.page == "watch"}
    return {
        "name": lesson.name,
        "title": lesson.title,
        "summary": lesson.summary,
        "stops": [_stop(stop) for stop in lesson.stops],
        "end": fill_facts(lesson.end, end, end),
        "learnt": [(question, fill_facts(text, end, end)) for question, text in lesson.learnt],
        "onward": lesson.onward,
        "runs": {name: _first_line(name) for name in sorted(runs)},
    }


def _first_line(name: str) -> str:
    """Return the first line of a recorded run as its file has it: the page compares it."""
    with RUNS[name].open(encoding="utf-8") as file:
        return next(file)


def check_prediction(stop: Stop, prediction: str) -> dict[str, Any]:
    """Return the outcome of a prediction, by the core's own number.

    Without a prediction, as on a projector, the explanation is the one for a right prediction,
    less the praise with which it may begin.

    Args:
        stop: one with a question.
        prediction: the value of an option, or a number; "" for none.

    Raises:
        ValueError: the prediction is not an answer to this question.
    """
    ask = stop.ask
    if ask is None:
        raise ValueError(f"the stop “{stop.title}” has no question")
    value, right = find_outcome(ask, stop.at, prediction)
    explanation = fill_facts(ask.wrong if right is False else ask.right, ask.then, stop.at)
    if right is None:
        explanation = PRAISE.sub("", explanation)
        explanation = explanation[:1].upper() + explanation[1:]
    return {
        "right": right,
        "value": value,
        "explanation": explanation,
        "at": _place(ask.then),
        "highlight": HIGHLIGHTS[ask.then.page][ask.highlight],
    }


def find_outcome(ask: Ask, at: Place, prediction: str) -> tuple[str, bool | None]:
    """Return the right value, and whether the prediction is right; None if there is none."""
    if ask.kind == "choice":
        value = _right_option(ask, at)
        if prediction and prediction not in ask.options:
            raise ValueError(f"{prediction[:40]!r} is not one of the options")
        return value, prediction == value if prediction else None
    off = abs(float(prediction) - number_of(ask)) if prediction else 0
    return format_value(value_of(ask.fact, ask.then)), off <= ask.within if prediction else None


def number_of(ask: Ask) -> float:
    """The number that is right, a share in percent; only of a question that asks for a number."""
    number = value_of(ask.fact, ask.then)
    return 100 * number if isinstance(number, Share) else float(number)


def _right_option(ask: Ask, at: Place) -> str:
    """Return the right option; `Tied` if another one is as right."""
    if not ask.fact:  # the options are facts
        return _least({name: -float(value_of(name, ask.then)) for name in ask.options})
    now = value_of(ask.fact, ask.then)
    if isinstance(now, str):
        return now
    if not ask.moves:
        return _least({option: abs(float(option) - now) for option in ask.options})
    by = float(now) - float(value_of(ask.fact, at))
    return "same" if abs(by) < 1e-9 else "up" if by > 0 else "down"


def _least(distances: Mapping[str, float]) -> str:
    """Return the option with the least distance; `Tied` if another one has it too."""
    least = min(distances.values())
    best, *others = (name for name, each in distances.items() if each - least < 1e-9)
    return Tied(best) if others else best


SHOWN_FROM = {
    "new_length": "rewrite", "new_answer": "rewrite", "new_reward": "score", "better": "score",
    "reward_factor": "chance", "alpha": "chance", "u": "coin", "taken": "verdict",
}  # fmt: skip
"""The phase of a step from which Watch shows a fact of it."""


def check_lesson(
    path: Path, known: Collection[str] = (), *, reveals: bool = False
) -> tuple[Lesson | None, list[str]]:
    """Read a lesson's file and compute every number in it.

    Args:
        path: of the file.
        known: the lessons with which it may go on.
        reveals: whether a stop that shows its own answer is a fault too.

    Returns:
        The lesson, None if it has a fault; and all faults in the order of their lines, a sentence
        each that begins with FILE:LINE.
    """
    lesson, source = parse_lesson(path)
    if lesson is None:
        return None, source.sentences
    if fault := onward_fault(lesson, [*known, lesson.name]):
        source.add((), "onward", fault)
    end = end_of(lesson.stops[-1])
    _check_numbers(source, (), {"end": lesson.end}, end, end)
    for k, (_, text) in enumerate(lesson.learnt, start=1):
        _check_numbers(source, (f"learnt {k}",), {"text": text}, end, end)
    for k, stop in enumerate(lesson.stops, start=1):
        texts = {"text": stop.text, "notes": stop.notes}
        _check_numbers(source, (f"stop {k}",), texts, stop.at, stop.at)
        if ask := stop.ask:
            table = (f"stop {k}", "ask")
            texts = {"question": ask.question, "right": ask.right, "wrong": ask.wrong}
            _check_numbers(source, table, texts, ask.then, stop.at)
            if fault := _answer_fault(ask, stop):
                key = "moves" if ask.moves else "fact" if ask.fact else "options"
                source.add(table, key, fault)
            elif reveals and _shows_answer(ask, stop):
                source.add(
                    table, "fact", f"the page shows {ask.fact!r} from the phase "
                    f"{SHOWN_FROM[ask.fact]} on, and the stop is at {PHASES[stop.at.phase]}; "
                    "choose an earlier phase, or veil = true"
                )  # fmt: skip
    return (None if source.sentences else lesson), source.sentences


def _check_numbers(
    source: Source, table: tuple[str, ...], texts: Mapping[str, str], place: Place, before: Place
) -> None:
    """Add a fault for each pair of braces whose number cannot be computed."""
    for key, text in texts.items():
        for slot in SLOT.finditer(text):
            try:
                fill_facts(slot[0], place, before)
            except Exception as error:  # a fact that gets no or a wrong argument raises any error
                source.add(table, key, f"{slot[0]} cannot be computed: {_reason(error)}")


def _answer_fault(ask: Ask, stop: Stop) -> str:
    """Return why the answer to a question cannot be computed; "" if it can."""
    try:
        if ask.kind == "spot" and not run_of(ask.then.run).rewards:
            return "a spot needs a run with samples of the model alone; this run has none"
        value, _ = find_outcome(ask, stop.at, "")
        if isinstance(value, Tied):
            return "two options are equally right in this run; ask about another step"
        if ask.kind == "choice" and value not in ask.options:
            return f"the answer is {value!r}, which is not one of the options"
        if ask.kind != "choice":
            number_of(ask)
    except Exception as error:  # a fact that gets no or a wrong argument raises any error
        return f"the answer cannot be computed: {_reason(error)}"
    return ""


def _shows_answer(ask: Ask, stop: Stop) -> bool:
    """True if the step that a question is about is open, with the answer in it."""
    at, then = replace(stop.at, phase=0, tab=""), replace(ask.then, phase=0, tab="")
    if at != then or at.page != "watch" or ask.veil or ask.fact not in SHOWN_FROM:
        return False
    return stop.at.phase >= PHASES.index(SHOWN_FROM[ask.fact])


def _reason(error: Exception) -> str:
    """Return an error in a few words; the usual one is a missing or wrong argument of a fact."""
    return f"{type(error).__name__}, {first_line(error)}; check what follows its colon"


def list_lessons(lessons: Mapping[str, Lesson]) -> list[dict[str, Any]]:
    """Return the entries of the list of lessons."""
    return [
        {"name": each.name, "title": each.title, "summary": each.summary, "minutes": each.minutes,
         "stops": len(each.stops)}
        for each in lessons.values()
    ]  # fmt: skip
