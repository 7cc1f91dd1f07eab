"""The panel of lessons beside the pages, and the page that lists them.

A lesson is sent to the browser without its answers. Predictions are sent back, and the core's own
number decides.
"""

from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from components.common.options import PLAIN
from components.common.rpc import server_functions
from components.learn.exhibit import build_exhibit
from components.learn.facts import RUNS, Place, Share, format_value, run_of, value_of
from components.learn.lessons import (
    HIGHLIGHTS,
    SLOT,
    VEILS,
    Ask,
    Lesson,
    Stop,
    end_of,
    load_lessons,
)
from qalign_core.record.trace import header_line

PANEL = "window.QAlignLearn.mount(props, server, trigger); // 'change'"
LIST = "window.QAlignLearn.list(element.querySelector('.learn-list'));"


def fill_facts(text: str, place: Place, before: Place) -> str:
    """Replace the braces of a lesson's text by the core's numbers."""
    return SLOT.sub(
        lambda slot: format_value(
            value_of(slot[2] + (f":{slot[3]}" if slot[3] else ""), before if slot[1] else place)
        ),
        text,
    )


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
        "runs": {name: header_line(run_of(name).header) for name in sorted(runs)},
    }


def check_prediction(stop: Stop, prediction: str) -> dict[str, Any]:
    """Return the outcome of a prediction, by the core's own number.

    Args:
        stop: one with a question.
        prediction: the value of an option, or a number; "" for none.

    Raises:
        ValueError: the prediction is not an answer to this question.
    """
    ask = stop.ask
    if ask is None:
        raise ValueError(f"the stop “{stop.title}” has no question")
    value, right = _outcome(ask, stop.at, prediction)
    text = ask.right if right else ask.wrong
    return {
        "right": right,
        "value": value,
        "explanation": fill_facts(text, ask.then, stop.at),
        "at": _place(ask.then),
        "highlight": HIGHLIGHTS[ask.then.page][ask.highlight],
    }


def _outcome(ask: Ask, at: Place, prediction: str) -> tuple[str, bool | None]:
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
    assert not isinstance(number, str)
    return 100 * number if isinstance(number, Share) else number


def _right_option(ask: Ask, at: Place) -> str:
    """Return the right option."""
    if not ask.fact:  # the options are facts
        return max(ask.options, key=lambda name: float(value_of(name, ask.then)))
    now = value_of(ask.fact, ask.then)
    if isinstance(now, str):
        return now
    if not ask.moves:
        return min(ask.options, key=lambda option: abs(float(option) - now))
    by = float(now) - float(value_of(ask.fact, at))
    return "same" if abs(by) < 1e-9 else "up" if by > 0 else "down"


def list_lessons() -> list[dict[str, Any]]:
    """Return the entries of the list of lessons.

    Raises:
        InvalidLesson: a file in `assets/lessons` is wrong.
    """
    return [
        {"name": each.name, "title": each.title, "summary": each.summary, "minutes": each.minutes,
         "stops": len(each.stops)}
        for each in load_lessons().values()
    ]  # fmt: skip


def build_panel(*, first: bool) -> gr.HTML:
    """The panel, hidden until a lesson is open; its value is where it leads the Lab and Results.

    Args:
        first: whether the first lesson opens by itself on a first visit.

    Raises:
        InvalidLesson: a file in `assets/lessons` is wrong.
    """
    known = load_lessons()

    def lesson(name: str) -> dict[str, Any]:
        return lesson_message(known[str(name)])

    def check(request: dict[str, Any]) -> dict[str, Any]:
        stops = known[str(request["lesson"])].stops
        return check_prediction(
            stops[int(request["stop"]) % len(stops)], str(request["prediction"])[:100]
        )

    def run(name: str) -> str:
        names = {stop.at.run for each in known.values() for stop in each.stops}
        if name not in names:  # the name is untrusted: only runs of lessons are read
            raise ValueError(f"no lesson shows a run {str(name)[:40]!r}")
        return (RUNS / f"{name}.jsonl").read_text(encoding="utf-8")

    def exhibit(request: dict[str, Any]) -> dict[str, Any]:
        stops = known[str(request["lesson"])].stops
        return build_exhibit(
            stops[int(request["stop"]) % len(stops)], answered=request.get("answered") is True
        )

    return gr.HTML(
        "",
        html_template="",
        js_on_load=PANEL,
        first=lesson_message(next(iter(known.values()))) if first else None,
        list=list_lessons(),
        server_functions=server_functions(lesson, check, run, exhibit),
        elem_id="learn-host",
        visible="hidden",
        **PLAIN,
    )


def build_learn_page() -> None:
    """The list of lessons, with what the visitor's own browser remembers of each."""
    gr.HTML(
        '<p class="qc-sub">Short lessons on these pages: predict, then see the numbers. Your '
        "answers stay in your browser.</p>"
        '<p class="qc-sub"><a href="room" target="_blank">Teach a class</a>: open a room that '
        "others join by a link. Everybody predicts and runs a chain, and the chains are "
        "pooled.</p>",
        **PLAIN,
    )
    gr.HTML("", html_template='<div class="learn-list"></div>', js_on_load=LIST, **PLAIN)
