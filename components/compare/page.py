"""The Compare page: four ways to decide, one budget, side by side."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import gradio as gr

from components.common.folding import fold
from components.common.form import RunForm
from components.common.new_problem import list_kinds
from components.common.options import PLAIN, PRIVATE, heading, on_link
from components.common.pick import describe_models, pick_row, place_rest
from components.common.prompt_warning import add_prompt_warning
from components.common.saving import file_saver, save_line
from components.common.status import next_problem, stale_line, status_line, status_value, stop_run
from components.compare.figures import compute_curves, reward_histograms
from components.compare.view import naming, ranking, view, writing_task
from components.session.drawing import draw_run
from components.session.links import linked
from components.session.runs import Feed, Runs, Status
from qalign_core.assets import ASSETS
from qalign_core.decide.rules import weighted_vote
from qalign_core.errors import QAlignError
from qalign_core.record.format import trace_lines
from qalign_core.record.store import load_trace
from qalign_core.run import Run
from qalign_core.validation import from_json
from qalign_study.export.dictionary import with_terms
from qalign_study.measure.comparisons import Budget, Comparison, Cut, full_cut, ladder
from qalign_study.measure.curves import curves
from qalign_study.measure.record import Measure, draws_of, measure_of
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.files import draws_csv
from qalign_study.sheet.words import COMPUTE_NOTE, in_a_sentence

RECORDED = ASSETS / "runs" / "compare.jsonl"
BUDGETS: dict[str, Budget] = {"Equal compute (FLOPs)": "flops", "Equal samples": "samples"}
AT_LEAST, SHARE_OF_TIME = 0.25, 0.15
"""Seconds between two updates, and the most of a run's time that goes into showing it."""

IDLE = Status("idle", "A recorded comparison is shown. Press Compare to draw a new one.")

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


IN_A_ROW = 3
"""Settings side by side."""
RUNGS = 10
"""Budgets of the curves."""
PLOT: dict[str, Any] = {"show_label": False, "container": False}


class Selection:
    """The comparison on a visitor's screen, recorded or from a feed; each session has its own.

    It is no dataclass: Gradio would copy the whole comparison whenever it describes the page.

    Attributes:
        recorded: the comparison shown until a run begins.
        budget: the budget that is equal for all methods.
        cut: the selected size of the budget; None for the largest.
        feed: the feed of the run that began here, if any.
    """

    def __init__(self, recorded: Comparison | None = None, budget: Budget = "flops") -> None:
        self.recorded, self.budget = recorded, budget
        self.cut: Cut | None = None
        self.feed: Feed | None = None

    @property
    def comparison(self) -> Comparison | None:
        """The comparison on screen; a run's comparison grows with every step and sample."""
        if self.feed is None:
            return self.recorded
        trace = self.feed.trace
        return None if trace is None else Comparison(trace)

    def follow(self, feed: Feed) -> Feed:
        """Show this feed's run from now on."""
        self.feed = feed
        return feed

    def __deepcopy__(self, memo: dict[int, object]) -> "Selection":
        return Selection(self.comparison, self.budget)  # the comparison itself never changes

    def histograms(self, mixture: bool) -> Any:
        """Draw the histograms of the selected budget; skip the update if nothing has been drawn."""
        if self.comparison is None or not self.comparison.ready:
            return gr.skip()
        cut = self.cut or full_cut(self.comparison, self.budget)
        return reward_histograms(self.comparison, cut, mixture=mixture)


def curve_figure(comparison: Comparison, budget: Budget) -> Any:
    """Draw the methods against compute."""
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, budget, rungs=RUNGS))
    return compute_curves(comparison, points, draws.measure)


CURVES: dict[Measure, str] = {
    "right": "how often each method would be right with new draws at each budget, with 95% bands. "
    "The marks below show its answer with these draws (a cross marks a wrong answer)",
    "same": "how often each method would return the same answer with new draws as with all of "
    "these, with 95% bands. The marks below show its answer with these draws",
    "reward": "the reward of the text that each method would choose with new draws, with 95% bands",
}


LEARNED = {
    False: "The embedded reward model learned, from problems with known answers, to score right "
    "responses above wrong ones. It never sees the answer to your problem. ",
    True: "The embedded reward model learned to score how many constraints of a writing task are "
    "met, so its rewards for other texts mean little. ",
}
"""The embedded model, by whether the prompt is open-ended."""


def curve_note(comparison: Comparison) -> str:
    """Describe the curves, and the variation that their bands leave out."""
    measure = CURVES[measure_of(comparison)]
    if writing_task(comparison) is not None:
        measure += ". The marks below show how many constraints its text meets with these draws"
    text = f"QAlign’s band resamples {len(comparison.chains)} chains and blocks of their states."
    if len(comparison.chains) == 1:
        text = (
            "QAlign’s band resamples blocks of one chain’s states, so it leaves out the "
            "differences between chains. Run several chains to include them."
        )
    return heading("What would more compute buy?", f"The curves show {measure}. {text}")


def reward_note(comparison: Comparison) -> str:
    """Describe how the rewards are used, and what the embedded model learned to score."""
    vote = in_a_sentence(naming(comparison)[weighted_vote.id].word)
    learned = LEARNED[comparison.extract is None] * (comparison.header.run.rm == Run.rm)
    return heading(
        "Which rewards did the methods see?",
        f"QAlign and {vote} aim at the same [target](target). The chain samples from it; {vote} "
        f"weights samples from the model alone. {learned}Only differences between rewards count.",
    )


def _budget(value: object) -> Budget:
    return "samples" if value == "samples" else "flops"


def matched_run(run: Run, budget: Budget, samples: int) -> Run:
    """Return the run of a comparison: its pool has the chains' compute, or as many samples.

    Args:
        run: the settings of the chains.
        budget: the quantity that is equal.
        samples: the largest pool that the server allows.
    """
    if budget == "flops":
        return run.with_changes(matched="pool", pool=samples)
    return run.with_changes(pool=min(samples, run.chains * (run.steps + 1)))


def link_of(run: Run, budget: Budget) -> str:
    """Return the query that draws this comparison again."""
    query = run.query()
    return query if budget == "flops" else f"{query}&budget={budget}".lstrip("&")


def _fold(form: RunForm, sets: Iterable[str]) -> tuple[gr.Radio, gr.Dropdown]:
    """Build the fold of the settings that the stage does not show."""
    with fold("Change the problem or the settings", "compare-settings"):
        form.add("prompt")
        with gr.Row():
            form.add("reference")
            kind = gr.Dropdown(
                list_kinds(sets),
                value="in_distribution",
                label="Kind of new problem",
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


def build_compare_page(
    runs: Runs,
    demo: gr.Blocks,
    looked_at: gr.State,
    watched: RunForm | None = None,
    sets: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
) -> None:
    """Build the page's widgets in the current context and register its events.

    Args:
        runs: of this server.
        demo: the app.
        looked_at: changes when a visitor first opens the page; then the recorded run is shown.
        watched: the settings of Watch; this page uses its problem until the visitor sets one here.
    """
    recorded = Comparison(load_trace(RECORDED))
    start = recorded.header.run
    with gr.Column(elem_id="compare"):
        gr.HTML(f'<p class="qc-sub">{with_terms(HEADING)}</p>', **PLAIN)
        with gr.Row(elem_id="compare-bar"):
            run = gr.Button("Compare", variant="primary", elem_id="compare-run")
            stop = gr.Button("Stop", elem_id="compare-stop")
            new = gr.Button("New problem", elem_id="compare-new")
            status = status_line(status_value(IDLE))
        form = RunForm(start, runs, page="compare")
        pick_row(form, "compare", start.beta)
        stale_line("compare")
        foreign = gr.Row(visible=False, elem_classes="q-foreign")
        budget_choice, kind = _fold(form, sets)
        describe_models(form, runs)
        add_prompt_warning(foreign, form, runs.offer)
        panel = gr.HTML(
            value="",
            html_template='<div class="qc-host"></div>',
            apply_default_css=False,
            padding=False,
            js_on_load=PANEL,
            elem_id="compare-panel",
        )
        about = gr.HTML("", elem_id="compare-note", **PLAIN)
        compute = gr.Plot(elem_id="compare-curves", elem_classes="qc-plot", **PLOT)
        gr.HTML(save_line("compare-curves"), **PLAIN)
        gr.HTML(f'<p class="qc-sub">{COMPUTE_NOTE}</p>', elem_id="compare-counted", **PLAIN)
        seen = gr.HTML("", elem_id="compare-rewards", **PLAIN)
        mixture = gr.Checkbox(
            label="Also draw the target: a mixture of normal curves, tilted by exp(reward / β)",
            container=False,
            elem_id="compare-mixture",
        )
        histograms = gr.Plot(elem_id="compare-histograms", elem_classes="qc-plot", **PLOT)
        gr.HTML(save_line("compare-histograms"), **PLAIN)
    ranks = gr.HTML(value="", html_template="<i hidden></i>", js_on_load=RANKS)
    saver = file_saver()
    selection = gr.State(Selection(recorded))

    def finished(selection: Selection, state: str, mixture: bool) -> dict[Any, Any]:
        """Return the updates of all outputs, once the run has ended."""
        comparison = selection.comparison
        if comparison is None or not comparison.ready:
            return {}
        return {
            panel: view(comparison, state=state, budget=selection.budget),
            ranks: ranking(comparison),
            compute: curve_figure(comparison, selection.budget),
            about: curve_note(comparison),
            seen: reward_note(comparison),
            histograms: selection.histograms(mixture),
        }

    async def on_run(
        request: gr.Request, selection: Selection, mixture: bool, *values: Any
    ) -> AsyncIterator[dict[Any, Any]]:
        try:
            *settings, choice = values
            wanted, budget = form.read(settings), _budget(choice)
        except QAlignError as error:
            yield {status: status_value(Status("failed", f"Failed: {error}."))}
            return
        selection.feed, selection.budget, selection.cut = Feed(), budget, None
        more = {"query": link_of(wanted, budget)}
        planned = matched_run(wanted, budget, runs.limits.samples)
        due = 0.0
        stream = runs.stream(
            str(request.session_hash),
            lambda feed: draw_run(selection.follow(feed), runs, planned),
        )
        async for now in stream:
            updates = {status: status_value(now.status, **more)}
            if time.monotonic() >= due and (comparison := selection.comparison) is not None:
                began = time.monotonic()
                updates[panel] = await asyncio.to_thread(
                    view, comparison, state="live", budget=budget, every_rung=False
                )
                took = time.monotonic() - began
                due = time.monotonic() + max(AT_LEAST, took / SHARE_OF_TIME)
            yield updates
        # Stop shows the same, and which of the two comes last is not certain
        state = "stopped" if now.status.state == "stopped" else "done"
        all_of_it = await asyncio.to_thread(finished, selection, state, mixture)
        yield {status: updates[status], **all_of_it}

    async def on_stop(
        selection: Selection, mixture: bool, line: str, request: gr.Request
    ) -> dict[Any, Any]:
        now = await stop_run(runs, str(request.session_hash), line)
        if from_json(now)["state"] == "idle":
            return {status: now}
        return {**await asyncio.to_thread(finished, selection, "stopped", mixture), status: now}

    def on_cut(selection: Selection, mixture: bool, event: gr.EventData) -> Any:
        try:
            selection.cut = Cut(int(event.t), int(event.n))
            return selection.histograms(mixture)
        except (QAlignError, AttributeError, TypeError, ValueError):
            selection.cut = None  # a browser sent what this page never sends
            return gr.skip()

    def on_save(selection: Selection, event: gr.EventData) -> Any:
        comparison = selection.comparison
        if comparison is None:
            return gr.skip()
        kind = "csv" if getattr(event, "kind", "") == "csv" else "jsonl"
        lines = trace_lines(comparison.trace, comparison.extract)
        text = draws_csv(comparison) if kind == "csv" else "".join(lines)
        seed, beta = comparison.header.run.seed, comparison.header.run.beta
        return json.dumps({"name": f"qalign-compare-seed{seed}-beta{beta:g}.{kind}", "text": text})

    def on_look(selection: Selection, mixture: bool) -> Any:
        updates = {} if selection.feed else finished(selection, "recorded", mixture)
        # a run may have been begun, and be done, by then
        return gr.skip() if selection.feed else updates

    def follow_link(query: dict[str, str]) -> Any:
        link = linked("compare", query, runs, start)
        if link is None:
            return gr.skip()
        wanted, sentence = link
        ready = status_value(Status("idle", f"{sentence} Press Compare to draw it."))
        return {**form.show(wanted), budget_choice: _budget(query.get("budget")), status: ready}

    widgets = [*form.values(), budget_choice]
    outputs = [panel, ranks, compute, about, seen, histograms]
    running = run.click(
        on_run,
        [selection, mixture, *widgets],
        [*outputs, status],
        js=f"(...v) => {{ QAlignCompare.panel()?.start(); "
        f"QAlignShell.run('compare', {form.names('budget')}, v.slice(2)); return v; }}",
        concurrency_limit=None,
        **PRIVATE,
    )
    stop.click(
        on_stop,
        [selection, mixture, status],
        [*outputs, status],
        js="(...v) => { QAlignCompare.panel()?.stop(); return QAlignShell.stop('compare', v); }",
        cancels=[running],
        queue=False,
        **PRIVATE,
    )
    texts = form.problem
    new.click(partial(next_problem, sets), [kind, status], [*texts, status], **PRIVATE)
    prompt = form.widgets["prompt"]
    prompt.change(None, prompt, None, js="(prompt) => QAlignCompare.expect(prompt)")
    if watched is not None:
        theirs = watched.problem
        follow = "(...v) => QAlignCompare.follow(v.slice(0, 3), v.slice(3))"
        gr.on(
            [text.change for text in theirs], None, [*theirs, *texts], texts, js=follow, **PRIVATE
        )
    form.watch(demo, budget=budget_choice)
    events = cast(Any, panel)
    events.cut(on_cut, [selection, mixture], histograms, **PRIVATE)
    mixture.change(
        lambda selection, on: selection.histograms(on), [selection, mixture], histograms, **PRIVATE
    )
    events.save(on_save, selection, saver, **PRIVATE)
    on_link(demo, "compare", follow_link, [*widgets, status], **PRIVATE)
    looked_at.change(on_look, [selection, mixture], outputs, concurrency_limit=2, **PRIVATE)
