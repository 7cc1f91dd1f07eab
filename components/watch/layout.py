"""The regions of the Watch page: the stage with its buttons and player, and the drawer."""

from collections.abc import Iterable
from typing import NamedTuple

import gradio as gr

from components.common.folding import fold
from components.common.form import RunForm
from components.common.new_problem import list_kinds
from components.common.pick import place_rest
from components.common.status import status_line, status_value
from components.session.runs import IDLE


class Bar(NamedTuple):
    """The buttons above the stage, and the line about a run."""

    run: gr.Button
    status: gr.HTML
    stop: gr.Button
    new: gr.Button
    settings: gr.Button
    gallery: gr.Button


class Drawer(NamedTuple):
    """The parts of the drawer that are no settings of a run."""

    kind: gr.Dropdown
    new: gr.Button
    tune: gr.Button


def build_bar() -> Bar:
    """Build the buttons above the stage, and the line about a run."""
    with gr.Row(elem_id="watch-bar"):
        run = gr.Button("Run it live", variant="primary", elem_id="watch-run")
        status = status_line(status_value(IDLE))
        stop = gr.Button("Stop", elem_id="watch-stop")
        new = gr.Button("New problem", elem_id="watch-new")
        settings = gr.Button("Settings", elem_id="watch-settings")
        gallery = gr.Button("Gallery", elem_id="watch-gallery")
    return Bar(run, status, stop, new, settings, gallery)


def build_drawer(form: RunForm, sets: Iterable[str]) -> Drawer:
    """Build the drawer of the settings that the stage does not show."""
    with gr.Column(elem_id="watch-drawer"):
        with gr.Row(elem_id="watch-drawer-head"):
            gr.HTML('<h2 class="q-drawer-title">Settings of the next run</h2>')
            close = gr.Button("Close")
        kind = gr.Dropdown(
            list_kinds(sets), value="in_distribution", label="Kind of problem", filterable=False
        )
        new = gr.Button("New problem")
        form.add("prompt", "reference")
        place_rest(form)
        tune = gr.Button("Find the β that accepts about half", elem_id="watch-tune")
        form.add("steps")
        form.widgets["seed"] = gr.Textbox(  # an empty gr.Number shows, and sends, 0
            label="Seed",
            info="the same seed and settings give everybody the same run; "
            "the status line shows the seed",
            placeholder="new for each run",
            elem_id="watch-seed",
        )
        form.add("chains")
        with fold("More", "watch-more"):
            form.add(*form.rest)
        close.click(None, js="() => QAlignShell.drawer(false)")
    return Drawer(kind, new, tune)
