"""The panel of lessons beside the pages, and the page that lists them."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from components.common.options import PLAIN
from components.common.rpc import server_functions
from components.learn.exhibit import build_exhibit
from qalign_study.lessons.facts import RUNS
from qalign_study.lessons.files import Lesson, Stop
from qalign_study.lessons.messages import check_prediction, lesson_message, list_lessons

PANEL = "window.QAlignLearn.mount(props, server, trigger); // 'change'"
LIST = "window.QAlignLearn.list(element.querySelector('.learn-list'));"


def build_panel(known: Mapping[str, Lesson], *, first: bool) -> gr.HTML:
    """The panel, hidden until a lesson is open; its value is where it leads the Lab and Results.

    Args:
        known: the lessons by name.
        first: whether the first lesson opens by itself on a first visit.
    """

    def lesson(name: str) -> dict[str, Any]:
        return lesson_message(known[str(name)])

    def stop_of(request: dict[str, Any]) -> Stop:
        stops = known[str(request["lesson"])].stops
        return stops[int(request["stop"]) % len(stops)]

    def check(request: dict[str, Any]) -> dict[str, Any]:
        return check_prediction(stop_of(request), str(request["prediction"])[:100])

    def run(name: str) -> str:
        names = {stop.at.run for each in known.values() for stop in each.stops}
        if name not in names:  # the name is untrusted: only runs of lessons are read
            raise ValueError(f"no lesson shows a run {str(name)[:40]!r}")
        return RUNS[name].read_text(encoding="utf-8")

    def exhibit(request: dict[str, Any]) -> dict[str, Any]:
        return build_exhibit(stop_of(request), answered=request.get("answered") is True)

    return gr.HTML(
        "",
        html_template="",
        js_on_load=PANEL,
        first=lesson_message(next(iter(known.values()))) if first else None,
        list=list_lessons(known),
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
