"""The Compare page: four ways to decide, one budget, side by side."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import gradio as gr

from components.common.form import RunForm
from components.common.options import PRIVATE, on_link
from components.common.status import next_problem, status_value, stop_run
from components.compare.layout import Controls, Results, build_controls, build_results
from components.compare.notes import curve_figure, curve_note, reward_note
from components.compare.selection import Selection, link_of, parse_budget
from components.compare.view import ranking, view
from components.session.drawing import draw_run
from components.session.links import linked
from components.session.runs import Feed, Runs, Status
from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError
from qalign_core.record.format import trace_lines
from qalign_core.record.store import load_trace
from qalign_core.run import Run
from qalign_core.validation import from_json
from qalign_study.measure.comparisons import Comparison, Cut, matched_run
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.files import draws_csv

RECORDED = ASSETS / "runs" / "compare.jsonl"
AT_LEAST, SHARE_OF_TIME = 0.25, 0.15
"""Seconds between two updates, and the most of a run's time that goes into showing it."""


@dataclass(frozen=True)
class Handlers:
    """What the page does at each event.

    Attributes:
        runs: of this server.
        start: the settings of the recorded run.
        controls, results: the page's regions, whose components are the keys of updates.
    """

    runs: Runs
    start: Run
    controls: Controls
    results: Results

    def describe(self, selection: Selection, state: str, mixture: bool) -> dict[Any, Any]:
        """Return the updates of all outputs, once the run has ended."""
        comparison = selection.comparison
        if comparison is None or not comparison.ready:
            return {}
        return {
            self.results.panel: view(comparison, state=state, budget=selection.budget),
            self.results.ranks: ranking(comparison),
            self.results.curves: curve_figure(comparison, selection.budget),
            self.results.curves_note: curve_note(comparison),
            self.results.rewards_note: reward_note(comparison),
            self.results.histograms: selection.histograms(mixture),
        }

    async def draw(
        self, request: gr.Request, selection: Selection, mixture: bool, *values: Any
    ) -> AsyncIterator[dict[Any, Any]]:
        """Draw a comparison with the settings of the form, and show it while it grows."""
        status = self.controls.status
        try:
            *settings, choice = values
            wanted, budget = self.controls.form.read(settings), parse_budget(choice)
        except QAlignError as error:
            yield {status: status_value(Status("failed", f"Failed: {error}."))}
            return
        selection.feed, selection.budget, selection.cut = Feed(), budget, None
        more = {"query": link_of(wanted, budget)}
        planned = matched_run(wanted, budget, self.runs.limits.samples)
        due = 0.0
        stream = self.runs.stream(
            str(request.session_hash),
            lambda feed: draw_run(selection.follow(feed), self.runs, planned),
        )
        async for now in stream:
            updates = {status: status_value(now.status, **more)}
            if time.monotonic() >= due and (comparison := selection.comparison) is not None:
                began = time.monotonic()
                updates[self.results.panel] = await asyncio.to_thread(
                    view, comparison, state="live", budget=budget, every_rung=False
                )
                took = time.monotonic() - began
                due = time.monotonic() + max(AT_LEAST, took / SHARE_OF_TIME)
            yield updates
        # Stop shows the same, and which of the two comes last is not certain
        state = "stopped" if now.status.state == "stopped" else "done"
        all_of_it = await asyncio.to_thread(self.describe, selection, state, mixture)
        yield {status: updates[status], **all_of_it}

    async def stop(
        self, selection: Selection, mixture: bool, line: str, request: gr.Request
    ) -> dict[Any, Any]:
        """End the visitor's run, and show all that it drew."""
        status = self.controls.status
        now = await stop_run(self.runs, str(request.session_hash), line)
        if from_json(now)["state"] == "idle":
            return {status: now}
        return {
            **await asyncio.to_thread(self.describe, selection, "stopped", mixture),
            status: now,
        }

    def select_cut(self, selection: Selection, mixture: bool, event: gr.EventData) -> Any:
        """Draw the histograms of the budget that the visitor points at."""
        try:
            selection.cut = Cut(int(event.t), int(event.n))
            return selection.histograms(mixture)
        except (QAlignError, AttributeError, TypeError, ValueError):
            selection.cut = None  # a browser sent what this page never sends
            return gr.skip()

    def save(self, selection: Selection, event: gr.EventData) -> Any:
        """Return the comparison as a file."""
        comparison = selection.comparison
        if comparison is None:
            return gr.skip()
        kind = "csv" if getattr(event, "kind", "") == "csv" else "jsonl"
        lines = trace_lines(comparison.trace)
        text = draws_csv(comparison) if kind == "csv" else "".join(lines)
        seed, beta = comparison.header.run.seed, comparison.header.run.beta
        return json.dumps({"name": f"qalign-compare-seed{seed}-beta{beta:g}.{kind}", "text": text})

    def show_recorded(self, selection: Selection, mixture: bool) -> Any:
        """Show the recorded comparison, unless a run was begun."""
        updates = {} if selection.feed else self.describe(selection, "recorded", mixture)
        # a run may have been begun, and be done, by then
        return gr.skip() if selection.feed else updates

    def follow_link(self, query: dict[str, str]) -> Any:
        """Fill the form with the run of a link."""
        link = linked("compare", query, self.runs, self.start)
        if link is None:
            return gr.skip()
        wanted, sentence = link
        ready = status_value(Status("idle", f"{sentence} Press Compare to draw this run."))
        form, budget, status = self.controls.form, self.controls.budget, self.controls.status
        return {**form.show(wanted), budget: parse_budget(query.get("budget")), status: ready}


def build_compare_page(
    runs: Runs,
    demo: gr.Blocks,
    looked_at: gr.State,
    watched: RunForm,
    sets: Mapping[str, Sequence[Problem]],
) -> None:
    """Build the page's widgets in the current context and register its events.

    Args:
        runs: of this server.
        demo: the app.
        looked_at: changes when a visitor first opens the page; then the recorded run is shown.
        watched: the settings of Watch; this page uses its problem until the visitor sets one here.
        sets: the operator's problem sets.
    """
    recorded = Comparison(load_trace(RECORDED))
    start = recorded.header.run
    with gr.Column(elem_id="compare") as column:
        controls = build_controls(start, runs, sets)
    results = build_results(column)
    handlers = Handlers(runs, start, controls, results)
    seen = [gr.State(Selection(recorded)), results.mixture]
    connect_run(handlers, seen)
    connect_problem(controls, watched, sets)
    controls.form.watch(demo, budget=controls.budget)
    connect_results(handlers, seen)
    linked_outputs = [*controls.settings, controls.status]
    on_link(demo, "compare", handlers.follow_link, linked_outputs, **PRIVATE)
    looked_at.change(handlers.show_recorded, seen, results.outputs, concurrency_limit=2, **PRIVATE)


def connect_run(handlers: Handlers, seen: list[Any]) -> None:
    """Register the buttons that begin and end a run.

    Args:
        handlers: of the page.
        seen: the visitor's `Selection`, and whether its mixture is drawn.
    """
    controls, form = handlers.controls, handlers.controls.form
    outputs = [*handlers.results.outputs, controls.status]
    running = controls.run.click(
        handlers.draw,
        [*seen, *controls.settings],
        outputs,
        js=f"(...v) => {{ QAlignCompare.panel()?.start(); "
        f"QAlignShell.run('compare', {form.names('budget')}, v.slice(2)); return v; }}",
        concurrency_limit=None,
        **PRIVATE,
    )
    controls.stop.click(
        handlers.stop,
        [*seen, controls.status],
        outputs,
        js="(...v) => { QAlignCompare.panel()?.stop(); return QAlignShell.stop('compare', v); }",
        cancels=[running],
        queue=False,
        **PRIVATE,
    )


def connect_problem(
    controls: Controls, watched: RunForm, sets: Mapping[str, Sequence[Problem]]
) -> None:
    """Register new problems, and the problem that this page takes from Watch."""
    texts, status = controls.form.problem, controls.status
    controls.new.click(
        partial(next_problem, sets), [controls.kind, status], [*texts, status], **PRIVATE
    )
    prompt = controls.form.widgets["prompt"]
    prompt.change(None, prompt, None, js="(prompt) => QAlignCompare.expect(prompt)")
    theirs = watched.problem
    follow = "(...v) => QAlignCompare.follow(v.slice(0, 3), v.slice(3))"
    gr.on([text.change for text in theirs], None, [*theirs, *texts], texts, js=follow, **PRIVATE)


def connect_results(handlers: Handlers, seen: list[Any]) -> None:
    """Register what a visitor chooses in the results: a budget, the mixture, a file."""
    histograms, mixture = handlers.results.histograms, handlers.results.mixture
    events = cast(Any, handlers.results.panel)
    events.cut(handlers.select_cut, seen, histograms, **PRIVATE)
    mixture.change(lambda selection, on: selection.histograms(on), seen, histograms, **PRIVATE)
    events.save(handlers.save, seen[0], handlers.results.saver, **PRIVATE)
