"""The regions of the Compare page: the settings of a comparison, and its results."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import gradio as gr

from components.common.folding import fold
from components.common.form import RunForm
from components.common.new_problem import list_kinds
from components.common.options import PLAIN
from components.common.pick import connect_models, pick_row, place_rest
from components.common.saving import file_saver, save_line
from components.common.status import status_line, status_value
from components.session.runs import Runs, Status
from qalign_core.run import Run
from qalign_study.export.dictionary import with_terms
from qalign_study.measure.comparisons import Budget
from qalign_study.sheet.words import COMPUTE_NOTE

BUDGETS: dict[str, Budget] = {"Equal compute (FLOPs)": "flops", "Equal samples": "samples"}
IN_A_ROW = 3
"""Settings side by side."""
PLOT: dict[str, Any] = {"show_label": False, "container": False}
IDLE = Status("idle", "A recorded comparison is shown. Press Compare to draw it live.")

PANEL = """
const host = element.querySelector(".qc-host");
host.qalignCompare = window.QAlignCompare.mount(host, {
  cut: (at) => trigger("cut", at), // 'cut'
  save: (kind) => trigger("save", { kind }), // 'save'
});
watch("value", () => host.qalignCompare.view(props.value));
host.qalignCompare.view(props.value);
"""
RANKS = """
const rank = () => window.QAlignCompare.rank(props.value);
watch("value", rank);
rank();
"""
HEADING = (
    "All methods use the same models. Three rules choose from one pool of samples of the [model "
    "alone](base). QAlign follows a [chain](chain) that rewrites its answer. The chain and the "
    "pool have the same [compute](compute); the majority vote reads no reward, so it costs less."
)


class Controls(NamedTuple):
    """The buttons and settings that draw a comparison, and the line about its run."""

    run: gr.Button
    stop: gr.Button
    new: gr.Button
    status: gr.HTML
    form: RunForm
    budget: gr.Radio
    kind: gr.Dropdown

    @property
    def settings(self) -> list[Any]:
        """The widgets of the settings, in the order in which a run reads them."""
        return [*self.form.values(), self.budget]


class Results(NamedTuple):
    """The parts of a comparison on the page."""

    panel: gr.HTML
    ranks: gr.HTML
    curves: gr.Plot
    curves_note: gr.HTML
    rewards_note: gr.HTML
    histograms: gr.Plot
    mixture: gr.Checkbox
    saver: gr.HTML

    @property
    def outputs(self) -> list[Any]:
        """The components that show a comparison; the others take what a visitor chooses."""
        return list(self[:6])


def build_controls(start: Run, runs: Runs, sets: Iterable[str]) -> Controls:
    """Build the bar, the settings on the stage, and the fold of the others.

    Args:
        start: what the settings show at first.
        runs: of this server.
        sets: names of the operator's problem sets.
    """
    gr.HTML(f'<p class="qc-sub">{with_terms(HEADING)}</p>', **PLAIN)
    with gr.Row(elem_id="compare-bar"):
        run = gr.Button("Compare", variant="primary", elem_id="compare-run")
        stop = gr.Button("Stop", elem_id="compare-stop")
        new = gr.Button("New problem", elem_id="compare-new")
        status = status_line(status_value(IDLE))
    form = RunForm(start, runs, page="compare")
    warning = pick_row(form)
    budget, kind = _fold(form, sets)
    connect_models(form, warning)
    return Controls(run, stop, new, status, form, budget, kind)


def _fold(form: RunForm, sets: Iterable[str]) -> tuple[gr.Radio, gr.Dropdown]:
    """Build the fold of the settings that the stage does not show."""
    with fold("Change the problem or the settings", "compare-settings"):
        form.add("prompt")
        with gr.Row():
            form.add("reference")
            kind = gr.Dropdown(
                list_kinds(sets),
                value="in_distribution",
                label="Kind of problem",
                info="used by the button New problem",
                filterable=False,
            )
        with gr.Row():
            place_rest(form)
        with gr.Row():
            form.add("steps", "seed")
        budget = gr.Radio(list(BUDGETS.items()), value="flops", label="Equal for all methods")
        rest = [name for name in form.rest if name != "pool"]
        for at in range(0, len(rest), IN_A_ROW):
            with gr.Row():
                form.add(*rest[at : at + IN_A_ROW])
    return budget, kind


def build_results(page: gr.Column) -> Results:
    """Build the parts that show a comparison, in the page's column."""
    with page:
        panel = gr.HTML(
            value="",
            html_template='<div class="qc-host"></div>',
            js_on_load=PANEL,
            elem_id="compare-panel",
            **PLAIN,
        )
        curves_note = gr.HTML("", elem_id="compare-note", **PLAIN)
        curves = gr.Plot(elem_id="compare-curves", elem_classes="qc-plot", **PLOT)
        gr.HTML(save_line("compare-curves"), **PLAIN)
        gr.HTML(f'<p class="qc-sub">{COMPUTE_NOTE}</p>', elem_id="compare-counted", **PLAIN)
        rewards_note = gr.HTML("", elem_id="compare-rewards", **PLAIN)
        mixture = gr.Checkbox(
            label="Also draw the target: a mixture of normal curves, tilted by exp(reward / β)",
            container=False,
            elem_id="compare-mixture",
        )
        histograms = gr.Plot(elem_id="compare-histograms", elem_classes="qc-plot", **PLOT)
        gr.HTML(save_line("compare-histograms"), **PLAIN)
    ranks = gr.HTML(value="", html_template="<i hidden></i>", js_on_load=RANKS)
    return Results(
        panel, ranks, curves, curves_note, rewards_note, histograms, mixture, file_saver()
    )
