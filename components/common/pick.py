"""Model, reward and beta on the stage of a page: two menus and a slider in one line."""

from typing import Any

import gradio as gr

from components.common.beta import beta_slider
from components.common.form import RunForm
from components.common.options import PRIVATE
from components.session.runs import Runs
from qalign_core.registry import LOADED

REST = ("second", "share")
"""The settings of the reward that need more room than the line has."""


def pick_row(form: RunForm, page: str, beta: float) -> None:
    """Build the line with the form's language model, reward and beta.

    `place_rest` puts the other settings of the reward elsewhere.

    Args:
        form: of the page.
        page: what the ids begin with.
        beta: what the slider shows at first.
    """
    with gr.Row(elem_id=f"{page}-pick", elem_classes="q-pick"):
        form.add("lm", "rm")
        form.widgets["beta"] = beta_slider(beta, page)
    for name in REST:
        form.widgets[name].unrender()


def place_rest(form: RunForm) -> None:
    """Put the second reward and its share into the current context."""
    for name in REST:
        form.widgets[name].render()


def describe_models(form: RunForm, runs: Runs) -> None:
    """Have the menu of language models show whether the chosen one is loaded, and its speed."""

    def describe(lm: str) -> Any:
        return gr.Dropdown(info=describe_model(lm, runs))

    lm = form.widgets["lm"]
    gr.on([lm.focus, lm.change], describe, lm, lm, **PRIVATE, queue=False)


def describe_model(lm: str, runs: Runs) -> str:
    """Return what a language model does, whether it is loaded, and how long its last run took."""
    if runs.usual and lm == "embedded":
        return "writes the texts; your browser draws a run in seconds"
    loaded = "loaded" if lm in LOADED.ids() else "not loaded yet, so its first run takes longer"
    if lm not in runs.durations:
        return f"writes the texts; {loaded}"
    steps, seconds = runs.durations[lm]
    return f"writes the texts; {loaded}; {steps:,} steps took {seconds:.0f} s here"
