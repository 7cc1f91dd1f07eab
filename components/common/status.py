"""The line that says what a run is doing."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import gradio as gr

from components.common.form import ANSWERS, USUAL, with_labels
from components.common.new_problem import new_problem
from components.session.runs import STOPPED, Runs, Status
from qalign_core.run import NO_EXTRACTOR
from qalign_core.validation import from_json
from qalign_study.sets.problem_sets import Problem

ACTIVE = ("loading", "queued", "sampling")


def status_value(status: Status, **more: str) -> str:
    """The value of the status line.

    `more` is "query" of the run's link, a "notice", or the header of a run that the browser is to
    "draw".
    """
    text = with_labels(status.text) if status.state == "failed" else status.text
    return json.dumps({"state": status.state, "text": text, **more})


def status_line(value: str) -> gr.HTML:
    """One line that says what the run is doing; its value comes from `status_value`."""
    return gr.HTML(
        value=value,
        html_template='<div class="q-status" role="status"><i></i><span></span></div>',
        js_on_load="""
const line = element.querySelector(".q-status");
const update = () => window.QAlignShell.status(line, props);
watch("value", update);
update();
""",
        apply_default_css=False,
    )


def is_active(value: object) -> bool:
    """Whether a status line's value, as a browser sends it back, says that a run goes on."""
    try:
        return bool(from_json(str(value)[:9999])["state"] in ACTIVE)
    except (ValueError, TypeError, KeyError):
        return False


async def stop_run(runs: Runs, visitor: str, value: object, more: str = "") -> str:
    """End a visitor's run and say so in the status line, which said `said`; `more` is said too."""
    stopped = await runs.stop(visitor) or is_active(value)  # the event's end may have come first
    status = STOPPED if stopped else Status("idle", "Nothing is being drawn.")
    return status_value(replace(status, text=status.text + more))


def next_problem(
    sets: Mapping[str, Sequence[Problem]], kind: str, value: object
) -> tuple[object, ...]:
    """Return a new problem for the prompt, its answer, how to read it, and the status line.

    While a run goes on the status line stays that run's. A problem whose answers a Python file
    reads has no answer on the page.

    Args:
        sets: the operator's own.
        kind: of the generated problems, or the name of a set.
        value: of the status line.
    """
    extractor = USUAL
    if kind in sets:
        problem = random.choice(sets[kind])
        prompt, extractor = problem.prompt, problem.extractor or NO_EXTRACTOR
        answer = problem.answer or ""
        if extractor not in ANSWERS.values():
            answer, extractor = "", USUAL
    else:
        prompt, answer = new_problem(kind)
    status = Status("idle", f"Next run: {prompt}")
    line = gr.skip() if is_active(value) else status_value(status)
    return prompt, answer, extractor, line
