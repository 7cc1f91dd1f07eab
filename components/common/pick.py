"""Model, reward and beta on the stage of a page: two menus and a slider in one line."""

from typing import Any

import gradio as gr

from components.common.beta import beta_slider
from components.common.form import RunForm
from components.common.options import PRIVATE
from components.common.prompt_warning import add_prompt_warning
from components.session.runs import Runs
from qalign_core.registry import LOADED

REST = ("second", "share")
"""The settings of the reward that need more room than the line has."""


def pick_row(form: RunForm) -> gr.Row:
    """Build the line with the form's language model, reward and beta, and two hidden ones below it.

    `place_rest` puts the other settings of the reward elsewhere. Scripts fill the first hidden line
    when the settings are no longer those of the run that is shown, and `connect_models` the second,
    which is returned.
    """
    with gr.Row(elem_id=f"{form.page}-pick", elem_classes="q-pick"):
        form.add("lm", "rm")
        form.widgets["beta"] = beta_slider(form.start.beta, form.page)
    for name in REST:
        form.widgets[name].unrender()
    gr.HTML(
        html_template='<p role="status"></p>',
        elem_id=f"{form.page}-stale",
        elem_classes="q-stale",
        apply_default_css=False,
    )
    return gr.Row(visible=False, elem_classes="q-foreign")


def place_rest(form: RunForm) -> None:
    """Put the second reward and its share into the current context."""
    for name in REST:
        form.widgets[name].render()


def connect_models(form: RunForm, warning: gr.Row) -> None:
    """Have the menu of language models describe the chosen one, and a row warn of a foreign prompt.

    Args:
        form: with its prompt.
        warning: as `pick_row` returns it.
    """

    def describe(lm: str) -> Any:
        return gr.Dropdown(info=describe_model(lm, form.runs))

    lm = form.widgets["lm"]
    gr.on([lm.focus, lm.change], describe, lm, lm, **PRIVATE, queue=False)
    add_prompt_warning(warning, form)


def describe_model(lm: str, runs: Runs) -> str:
    """Return what a language model does, whether it is loaded, and how long its last run took."""
    if runs.usual and lm == "embedded":
        return "writes the texts, in your browser"
    loaded = "loaded" if lm in LOADED.ids() else "not loaded yet, so its first run takes longer"
    if lm not in runs.durations:
        return f"writes the texts; {loaded}"
    steps, seconds = runs.durations[lm]
    return f"writes the texts; {loaded}; {steps:,} steps took {seconds:.0f} s here"
