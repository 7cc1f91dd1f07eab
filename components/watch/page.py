"""The Watch page: a chain that anyone can follow, step by step."""

import json
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from components.common.folding import fold
from components.common.form import RunForm
from components.common.new_problem import list_kinds
from components.common.options import PLAIN, PRIVATE, on_link
from components.common.pick import describe_models, pick_row, place_rest
from components.common.prompt_warning import add_prompt_warning
from components.common.status import next_problem, stale_line, status_line, status_value, stop_run
from components.session.drawing import BrowserReply, draw_run, header_for_browser
from components.session.gpu import with_gpu
from components.session.links import from_query, linked
from components.session.offer import describe_load
from components.session.runs import IDLE, Feed, Runs, Status
from components.watch.diagnostics import diagnose
from components.watch.gallery import WATCH, gallery_list, page_parts, recorded_run
from components.watch.inside import text_functions
from components.watch.player import chain_player
from qalign_core.errors import QAlignError
from qalign_core.record.format import parse_header
from qalign_core.registry import LOADED
from qalign_core.run import Run
from qalign_core.types import Response
from qalign_core.validation import from_json
from qalign_study.export.browser import unsupported_reason
from qalign_study.measure.tuning import ROUNDS, STEPS, tune_beta
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.evaluated import NO_FOLDERS
from qalign_study.sheet.words import number, percent

PLAYS = " ▶ continues."
FINDING = "Finding"
KEEPS = " β is the estimate of the last round, or unchanged if none was done."
FILLER = "window.QAlignShell.fills(props, trigger); // 'change'"
SEEDS = 10_000
"""New seeds are below: few digits, so that people can tell each other which run they saw."""


@with_gpu
async def tune_run(feed: Feed, runs: Runs, run: Run) -> None:
    """Find the beta at which half of the changed proposals are accepted, and write it.

    Each line is an estimate: a list of a beta, and in the last line also its acceptance and its
    band. The status has the number of proposals and of rounds, done and in all.

    Raises:
        QAlignError: the settings or the models do not allow it, or no beta does it.
    """
    run.check(runs.limits)
    lm, rm = await runs.models(feed, run)

    place, n = "", 0

    def begin_round(tried: Sequence[float]) -> None:
        nonlocal place, n
        place, n = f"round {len(tried)} of at most {ROUNDS}", 0
        if len(tried) > 1:
            feed.write(json.dumps([round_beta(tried[-1])]) + "\n")

    async def extend(*args: Sequence[int], **options: Any) -> Response:
        nonlocal n
        response = await lm.extend(*args, **options)
        n += 1
        proposals = f"{min(max(0, n - 1), STEPS)} of {STEPS} proposals"  # the first text is a draft
        feed.status = Status("sampling", f"{FINDING} β: {place}, {proposals}. Stop ends it")
        return response

    counted: Any = SimpleNamespace(
        id=lm.id, max_new_tokens=lm.max_new_tokens, encode=lm.encode, extend=extend
    )
    tuned = await tune_beta(
        counted,
        rm,
        run.prompt,
        start=run.target,
        move=run.move,
        seed=run.seed,
        notify=begin_round,
    )
    values = [round_beta(tuned.beta), tuned.acceptance, tuned.low, tuned.high]
    feed.write(json.dumps(values) + "\n")


def round_beta(beta: float) -> float:
    """Round a beta to three digits, as the slider shows it."""
    return float(f"{beta:.3g}")


def link_of(header: str) -> dict[str, str]:
    """Return the query of a link that draws a run again, from the first line of its trace.

    "undrawable" is the reason why a browser cannot draw it, "" if it can.

    Raises:
        InvalidTrace: it is no header.
    """
    run = parse_header(header).run
    return {"query": run.query(), "undrawable": unsupported_reason(run)}


def _drawer(form: RunForm, sets: Iterable[str]) -> tuple[gr.Dropdown, gr.Button, gr.Button]:
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
            max_length=20,
            elem_id="watch-seed",
        )
        form.add("chains")
        with fold("More", "watch-more"):
            form.add(*form.rest)
        close.click(None, js="() => QAlignShell.drawer(false)")
    return kind, new, tune


def build_watch_page(
    runs: Runs,
    demo: gr.Blocks,
    trace: Path | None = None,
    folders: Mapping[str, Path] = NO_FOLDERS,
    sets: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
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
        with gr.Row(elem_id="watch-bar"):
            run = gr.Button("Run it live", variant="primary", elem_id="watch-run")
            status = status_line(status_value(IDLE))
            stop = gr.Button("Stop", elem_id="watch-stop")
            new = gr.Button("New problem", elem_id="watch-new")
            settings = gr.Button("Settings", elem_id="watch-settings")
            recorded = gr.Button("Gallery", elem_id="watch-gallery")
        form = RunForm(start, runs, page="watch")
        pick_row(form, "watch", start.beta)
        stale_line("watch")
        foreign = gr.Row(visible=False, elem_classes="q-foreign")
        name = trace.name if trace else "Recorded run"
        player = chain_player(text, name, [diagnose, link_of, page_parts, *text_functions(runs)])
        gallery_list(folders)
    kind, new_in_drawer, tune = _drawer(form, sets)
    describe_models(form, runs)
    add_prompt_warning(foreign, form, runs.offer)
    widgets = form.values()

    def read_run(values: Sequence[Any]) -> Run:
        """Return the run of the settings; an empty seed becomes a new one."""
        settings = dict(zip(form.widgets, values, strict=True))
        if not (settings["seed"] or "").strip():
            settings["seed"] = secrets.randbelow(SEEDS)
        return form.read(list(settings.values()))

    async def on_run(
        request: gr.Request, browser: str, *values: Any
    ) -> AsyncIterator[tuple[str, str]]:
        visitor, here = str(request.session_hash), BrowserReply.read(browser)
        try:
            wanted = read_run(values)
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
        place = f" · drawn on the server: {why}" * runs.usual
        async for now in runs.stream(visitor, lambda feed: draw_run(feed, runs, wanted)):
            text = now.status.text + (PLAYS if now.status.state == "stopped" else "")
            line = replace(now.status, text=f"{text} · seed {wanted.seed}{place}")
            yield now.text or gr.skip(), status_value(line, **more)

    async def on_tune(request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, str]]:
        try:
            wanted = read_run(values)
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

    async def on_stop(line: str, request: gr.Request) -> str:
        more = KEEPS if FINDING in line else PLAYS
        return await stop_run(runs, str(request.session_hash), line, more)

    async def on_new(kind: str, request: gr.Request) -> tuple[object, ...]:
        await runs.stop(str(request.session_hash))
        return next_problem(sets, kind, status_value(IDLE))

    def follow_link(query: dict[str, str]) -> Any:
        link = linked("watch", query, runs, start)
        if link is None:
            return gr.skip()
        wanted, sentence = link
        notice = f"{sentence} Press “Run it live” to draw that run again."
        return {**form.show(wanted), status: status_value(IDLE, notice=notice)}

    def fill(header: str) -> dict[Any, Any]:
        """Put the settings of the run that is shown into the form, and say what a press draws."""
        try:
            run = parse_header(header).run
        except QAlignError:
            return {notice: ""}
        wanted, notices = from_query(dict(parse_qsl(run.query())), runs.limits, runs.offer)
        sentences = [each.replace("The link's", "This run's") for each in notices]
        if not notices and wanted.lm != start.lm and wanted.lm not in LOADED.ids():
            load = describe_load(wanted.lm)
            sentences = [f"“Run it live” draws this run again: it loads {load} first."]
        return {**form.show(wanted), notice: " ".join(sentences)}

    header_line = gr.HTML("", html_template="", js_on_load=FILLER, visible="hidden", **PLAIN)
    notice = gr.Textbox(visible=False)
    header_line.change(
        fill, header_line, [notice, *widgets], queue=False, trigger_mode="always_last", **PRIVATE
    ).then(
        None,
        [notice, *widgets],
        js=f"(notice, ...values) => QAlignShell.filled({form.names()}, values, notice)",
    )
    here = gr.Textbox(visible=False)  # what the browser says of drawing there
    running = run.click(
        on_run,
        [here, *widgets],
        [player, status],
        js=f"(_, ...values) => QAlignShell.runWatch({form.names()}, values)",
        concurrency_limit=None,
        **PRIVATE,
    )
    tuning = tune.click(
        on_tune,
        widgets,
        [form.widgets["beta"], status],
        js="(...values) => QAlignShell.tune(values)",
        concurrency_limit=None,
        **PRIVATE,
    )
    stop.click(
        on_stop,
        status,
        status,
        js="(status) => QAlignShell.stop('watch', status)",
        cancels=[running, tuning],
        queue=False,
        **PRIVATE,
    )
    settings.click(None, js="() => QAlignShell.drawer()")
    recorded.click(None, js="() => QAlignGallery.open()")
    for button in (new, new_in_drawer):
        button.click(
            on_new,
            kind,
            [*form.problem, status],
            js="(kind) => QAlignShell.next(kind)",
            cancels=[running, tuning],
            queue=False,
            **PRIVATE,
        ).then(None, form.widgets["prompt"], js="(problem) => QAlignShell.pose(problem)")
    form.watch(demo)
    on_link(demo, "watch", follow_link, [*widgets, status], **PRIVATE)
    return form
