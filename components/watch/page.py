"""The Watch page: a chain that anyone can follow, step by step."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from components.common.form import RunForm, with_labels
from components.common.options import PLAIN, PRIVATE, on_link
from components.common.pick import connect_models, pick_row
from components.common.status import next_problem, status_value, stop_run
from components.session.drawing import BrowserReply, draw_run, header_for_browser
from components.session.links import from_query, linked
from components.session.offer import describe_load
from components.session.runs import IDLE, Runs, Status
from components.watch.diagnostics import diagnose
from components.watch.gallery import WATCH, gallery_list, page_parts, recorded_run
from components.watch.inside import text_functions
from components.watch.layout import Bar, Drawer, build_bar, build_drawer
from components.watch.player import chain_player
from components.watch.tuning import FINDING, tune_run
from qalign_core.errors import QAlignError
from qalign_core.record.format import parse_header
from qalign_core.registry import LOADED
from qalign_core.run import Run
from qalign_core.validation import from_json
from qalign_study.export.browser import unsupported_reason
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.words import number, percent

PLAYS = " ▶ plays them."
KEEPS = " β is the estimate of the last round, or unchanged if none was done."
FILLER = "window.QAlignShell.fills(props, trigger); // 'change'"
SEEDS = 10_000
"""New seeds are below: few digits, so that people can tell each other which run they saw."""


def link_of(header: str) -> dict[str, str]:
    """Return the query of a link that draws a run again, from the first line of its trace.

    "undrawable" is the reason why a browser cannot draw it, "" if it can.

    Raises:
        InvalidTrace: it is no header.
    """
    run = parse_header(header).run
    return {"query": run.query(), "undrawable": unsupported_reason(run)}


@dataclass(frozen=True)
class Handlers:
    """What the page does at each event.

    Attributes:
        runs: of this server.
        sets: the operator's problem sets.
        start: the settings of the recorded run.
        form: the settings of the next run.
        status: the line about a run.
        notice: hidden; what a press on "Run it live" draws, for the page's script.
    """

    runs: Runs
    sets: Mapping[str, Sequence[Problem]]
    start: Run
    form: RunForm
    status: gr.HTML
    notice: gr.Textbox

    def read_run(self, values: Sequence[Any]) -> Run:
        """Return the run of the settings; an empty seed becomes a new one."""
        settings = dict(zip(self.form.widgets, values, strict=True))
        if not (settings["seed"] or "").strip():
            settings["seed"] = secrets.randbelow(SEEDS)
        return self.form.read(list(settings.values()))

    async def draw(
        self, request: gr.Request, browser: str, *values: Any
    ) -> AsyncIterator[tuple[str, str]]:
        """Draw a run with the settings of the form, on the server or in the visitor's browser."""
        runs = self.runs
        visitor, here = str(request.session_hash), BrowserReply.read(browser)
        try:
            wanted = self.read_run(values)
            if here.seed is not None:
                wanted = wanted.with_changes(seed=here.seed)
            more, why = {"query": wanted.query()}, unsupported_reason(wanted) or here.why
            if runs.usual and not why:
                await runs.stop(visitor)
                loading = Status("loading", "Your browser draws this run; the models are loading…")
                yield gr.skip(), status_value(loading)
                header = await header_for_browser(runs, wanted)
                yield gr.skip(), status_value(loading, draw=header, **more)
                return
        except QAlignError as error:
            yield gr.skip(), status_value(Status("failed", f"Failed: {error}."))
            return
        place = f" · drawn on the server: {with_labels(why)}" * runs.usual
        async for now in runs.stream(visitor, lambda feed: draw_run(feed, runs, wanted)):
            line = now.status
            if line.state != "failed":
                plays = PLAYS if line.state == "stopped" else ""
                line = replace(line, text=f"{line.text}{plays} · seed {wanted.seed}{place}")
            yield now.text or gr.skip(), status_value(line, **more)

    async def tune(self, request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, str]]:
        """Find the beta that accepts about half, and move the slider with each estimate."""
        runs = self.runs
        try:
            wanted = self.read_run(values)
        except QAlignError as error:
            yield gr.skip(), status_value(Status("failed", f"Failed: {error}."))
            return
        work = runs.stream(str(request.session_hash), lambda feed: tune_run(feed, runs, wanted))
        estimates = 0
        async for now in work:
            lines = now.text.splitlines()
            beta, *more = from_json(lines[-1]) if lines else [gr.skip()]
            line = now.status
            if line.state == "stopped":  # as the reply to Stop, which may come first or last
                line = replace(line, text=line.text + KEEPS)
            if more:
                rate, low, high = more
                band = f"{number(low, 2)} to {number(high, 2)}"
                text = f"β = {number(beta)} accepts {percent(rate)} (95% band of β: {band})"
                line = Status("finished", text)
            # Stop keeps the estimate of the last round, which the slider shows by then
            yield beta if len(lines) > estimates else gr.skip(), status_value(line)
            estimates = len(lines)

    async def stop(self, line: str, request: gr.Request) -> str:
        """End the visitor's run or search."""
        more = KEEPS if FINDING in line else PLAYS
        return await stop_run(self.runs, str(request.session_hash), line, more)

    async def pose_problem(self, kind: str, request: gr.Request) -> tuple[object, ...]:
        """End the visitor's run, and put a new problem into the form."""
        await self.runs.stop(str(request.session_hash))
        return next_problem(self.sets, kind, status_value(IDLE))

    def follow_link(self, query: dict[str, str]) -> Any:
        """Fill the form with the run of a link."""
        link = linked("watch", query, self.runs, self.start)
        if link is None:
            return gr.skip()
        wanted, sentence = link
        notice = f"{sentence} Press “Run it live” to draw this run."
        return {**self.form.show(wanted), self.status: status_value(IDLE, notice=notice)}

    def fill(self, header: str) -> dict[Any, Any]:
        """Put the settings of the run that is shown into the form, and say what a press draws."""
        try:
            run = parse_header(header).run
        except QAlignError:
            return {self.notice: ""}
        wanted, notices = from_query(
            dict(parse_qsl(run.query())), self.runs.limits, self.runs.offer
        )
        sentences = [each.replace("The link's", "This run's") for each in notices]
        if not notices and wanted.lm != self.start.lm and wanted.lm not in LOADED.ids():
            load = describe_load(wanted.lm)
            sentences = [f"“Run it live” draws this run again: it loads {load} first."]
        return {**self.form.show(wanted), self.notice: " ".join(sentences)}


def build_watch_page(
    runs: Runs,
    demo: gr.Blocks,
    trace: Path | None,
    folders: Mapping[str, Path],
    sets: Mapping[str, Sequence[Problem]],
) -> RunForm:
    """Build the page's widgets in the current context and register its events.

    Args:
        runs: of this server.
        demo: the app.
        trace: what is shown before any click, instead of the recorded run.
        folders: of results, by name, whose chains may be shown.
        sets: the operator's problem sets.

    Returns:
        The settings: Compare takes their problem over.

    Raises:
        InvalidTrace, InvalidSetting: as `recorded_run`.
    """
    text, start = recorded_run(trace or WATCH)
    with gr.Column(elem_id="watch"):
        bar = build_bar()
        form = RunForm(start, runs, page="watch")
        warning = pick_row(form)
        name = trace.name if trace else "Recorded run"
        player = chain_player(text, name, [diagnose, link_of, page_parts, *text_functions(runs)])
        gallery_list(folders)
    drawer = build_drawer(form, sets)
    connect_models(form, warning)
    header_line = gr.HTML("", html_template="", js_on_load=FILLER, visible="hidden", **PLAIN)
    handlers = Handlers(runs, sets, start, form, bar.status, gr.Textbox(visible=False))
    connect_form(handlers, header_line)
    connect_runs(handlers, bar, drawer, player)
    form.watch(demo)
    on_link(demo, "watch", handlers.follow_link, [*form.values(), bar.status], **PRIVATE)
    return form


def connect_form(handlers: Handlers, header_line: gr.HTML) -> None:
    """Fill the form with the settings of each run that the player shows."""
    form, notice = handlers.form, handlers.notice
    widgets = form.values()
    header_line.change(
        handlers.fill,
        header_line,
        [notice, *widgets],
        queue=False,
        trigger_mode="always_last",
        **PRIVATE,
    ).then(
        None,
        [notice, *widgets],
        js=f"(notice, ...values) => QAlignShell.filled({form.names()}, values, notice)",
    )


def connect_runs(handlers: Handlers, bar: Bar, drawer: Drawer, player: gr.HTML) -> None:
    """Register the buttons that begin and end a run or a search for beta, and those that open."""
    form, status = handlers.form, handlers.status
    widgets = form.values()
    here = gr.Textbox(visible=False)  # what the browser says of drawing there
    running = bar.run.click(
        handlers.draw,
        [here, *widgets],
        [player, status],
        js=f"(_, ...values) => QAlignShell.runWatch({form.names()}, values)",
        concurrency_limit=None,
        **PRIVATE,
    )
    tuning = drawer.tune.click(
        handlers.tune,
        widgets,
        [form.widgets["beta"], status],
        js="(...values) => QAlignShell.tune(values)",
        concurrency_limit=None,
        **PRIVATE,
    )
    bar.stop.click(
        handlers.stop,
        status,
        status,
        js="(status) => QAlignShell.stop('watch', status)",
        cancels=[running, tuning],
        queue=False,
        **PRIVATE,
    )
    bar.settings.click(None, js="() => QAlignShell.drawer()")
    bar.gallery.click(None, js="() => QAlignGallery.open()")
    for button in (bar.new, drawer.new):
        button.click(
            handlers.pose_problem,
            drawer.kind,
            [*form.problem, status],
            js="(kind) => QAlignShell.next(kind)",
            cancels=[running, tuning],
            queue=False,
            **PRIVATE,
        ).then(None, form.widgets["prompt"], js="(problem) => QAlignShell.pose(problem)")
