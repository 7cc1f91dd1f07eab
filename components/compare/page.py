"""The Compare page: four ways to decide, one budget, side by side."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import gradio as gr
from qalign_core.runs.comparison_file import recorded_comparison, to_csv, to_json
from qalign_core.runs.recording import header_of

from components.common.folding import fold
from components.common.new_problem import KINDS, new_problem
from components.common.reward import mixed, model_list, reward_shown, second_reward, unmixed
from components.common.status import status_line, status_value
from components.compare.figures import compute_curves, reward_histograms
from components.compare.view import view
from components.session.gpu import with_gpu
from components.session.links import ANSWERS, OPEN, Settings, linked, settings_of, to_query
from components.session.offer import Offer
from components.session.runs import Feed, Runs, Status
from qalign_core.analysis.comparisons import (
    Budget,
    Comparison,
    Cut,
    Meter,
    draw_comparison,
    full_cut,
    ladder,
)
from qalign_core.analysis.curves import curves
from qalign_core.analysis.record import draws_of
from qalign_core.errors import InvalidSetting, QAlignError
from qalign_core.types import ScoredResponse, Step

BUDGETS: dict[str, Budget] = {"Equal compute (FLOPs)": "flops", "Equal samples": "samples"}
SHARE_OF_TIME = 0.15
"""The most of a run's time that goes into showing it while it goes on."""

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
SAVER = """
watch("value", () => {
  const file = JSON.parse(props.value);
  window.QAlignCompare.download(file.name, file.text);
});
"""
HEADING = """
<p class="qc-sub">The same language model, the same reward model and the same compute: only the way
to one answer differs. Best-of-n, majority vote and weighted vote share one pool of independent
samples; QAlign follows a chain that rewrites its own answer.</p>
"""


PLAIN: dict[str, Any] = {"padding": False, "apply_default_css": False}
RUNGS = 10
"""Budgets of the curves."""
PLOT: dict[str, Any] = {"show_label": False, "container": False}


class Shown:
    """What one visitor looks at; a session has its own."""

    def __init__(self, comparison: Comparison | None = None, budget: Budget = "flops") -> None:
        self.budget = budget
        self.cut: Cut | None = None
        self._feed = Feed()
        self._feed.result = comparison

    @property
    def comparison(self) -> Comparison | None:
        """The one that is shown; that of a run grows with every step and sample."""
        return cast(Comparison | None, self._feed.result)

    def follow(self, feed: Feed) -> Feed:
        """Show what this feed's run draws."""
        self._feed = feed
        return feed

    def __deepcopy__(self, memo: dict[int, object]) -> Shown:
        return Shown(self.comparison, self.budget)  # the comparison itself never changes

    def histograms(self, mixture: bool) -> Any:
        """The figure of the budget that is looked at; nothing while there is nothing."""
        if self.comparison is None or not self.comparison.ready:
            return gr.skip()
        cut = self.cut or full_cut(self.comparison, self.budget)
        return reward_histograms(self.comparison, cut, mixture=mixture)


def curve_figure(comparison: Comparison, budget: Budget) -> Any:
    """The figure of the methods against compute."""
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, budget, rungs=RUNGS))
    return compute_curves(comparison, points, draws.measure)


def curve_note(comparison: Comparison) -> str:
    """What the bands do not know."""
    if len(comparison.chains) > 1:
        text = (
            f"QAlign’s band resamples {len(comparison.chains)} chains and blocks of their states."
        )
    else:
        text = (
            "QAlign’s band resamples blocks of one chain’s states: it cannot know what another "
            "chain would have found. Run several chains for that."
        )
    return f'<p class="qc-sub">{text}</p>'


def _heading(question: str, sentence: str) -> None:
    gr.HTML(f'<h3 class="qc-h">{question}</h3><p class="qc-sub">{sentence}</p>', **PLAIN)


@with_gpu
async def sample_comparison(feed: Feed, runs: Runs, settings: Settings, budget: Budget) -> None:
    """One live comparison; the feed's result is all of it that was drawn.

    Raises:
        QAlignError: the settings or the models do not allow it.
    """
    settings.check(runs.limits)
    lm, rm = await runs.models(feed, settings.lm, settings.rm, settings.sampling)
    header = header_of(
        lm,
        rm,
        settings.prompt,
        beta=settings.beta,
        seed=settings.seed,
        steps=settings.steps,
        n_chains=settings.chains,
        reference=settings.reference,
        extractor=settings.extractor,
    )
    steps: list[Step] = []
    pool: list[ScoredResponse] = []
    meter = Meter.of(lm, rm)
    async for drawn in draw_comparison(
        lm,
        rm,
        settings.prompt,
        beta=settings.beta,
        steps=settings.steps,
        seed=settings.seed,
        n_chains=settings.chains,
        budget=budget,
        max_samples=runs.limits.samples,
    ):
        if isinstance(drawn, Step):
            steps.append(drawn)
            await feed.step()
        else:
            pool.append(drawn)
        feed.result = Comparison(header, tuple(steps), tuple(pool), meter, settings.burn_in)
        feed.write("\n")


class Pace:
    """Says when the next update is due: at most every 0.25 s, and for a small share of the time."""

    def __init__(self) -> None:
        self._due = 0.0

    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._due

    def took(self, seconds: float) -> None:
        """Remember what the update cost."""
        self._due = time.monotonic() + max(0.25, seconds / SHARE_OF_TIME)


FIELDS = (
    *("prompt", "reference", "extractor", "lm", "rm", "beta", "steps"),
    *("chains", "seed", "temperature", "max_new_tokens", "burn_in", "second", "share"),
)
"""The settings that have a widget, in the order of the form; the last widget is the budget."""


def _read_form(values: Sequence[Any]) -> tuple[Settings, Budget]:
    """Settings and budget from what the widgets sent.

    Raises:
        InvalidSetting: one of them cannot be.
    """
    *settings, budget = values
    given = dict(zip(FIELDS, settings, strict=True))
    rm = mixed(given["rm"], given.pop("second"), given.pop("share"))
    read = Settings.read({**given, "rm": rm})
    return read, "samples" if budget == "samples" else "flops"


def _values(settings: Settings, budget: str, offer: Offer) -> list[Any]:
    """What the widgets show for settings and budget."""
    values = {name: getattr(settings, name, None) for name in FIELDS}
    values |= {"reference": settings.reference or "", "extractor": settings.extractor or OPEN}
    values |= reward_shown(settings.rm, offer)
    return [*values.values(), budget]


def link_of(settings: Settings, budget: Budget) -> str:
    """The query that draws this comparison again."""
    query = to_query(settings)
    return query if budget == "flops" else f"{query}&budget={budget}".lstrip("&")


def file_name(comparison: Comparison, kind: str) -> str:
    """A name that says what it is."""
    header = comparison.header
    return f"qalign-compare-seed{header.seed}-beta{header.beta:g}.{kind}"


def _form(start: Settings, runs: Runs) -> tuple[list[Any], gr.Dropdown]:
    limits, offer = runs.limits, runs.offer
    with fold("Change the problem or the settings", "compare-settings"):
        with gr.Row(elem_id="compare-problem"):
            prompt = gr.Textbox(
                start.prompt,
                label="Problem",
                lines=2,
                max_lines=5,
                max_length=limits.prompt,
                scale=4,
                elem_id="compare-prompt",
            )
            reference = gr.Textbox(
                start.reference or "", label="Known answer, if any", max_length=60, scale=1
            )
        with gr.Row():
            kind = gr.Dropdown(
                list(KINDS.items()),
                value="in_distribution",
                label="Kind of new problem",
                info="what the button New problem writes",
                filterable=False,
            )
            extractor = gr.Dropdown(
                list(ANSWERS.items()),
                value=start.extractor or OPEN,
                label="Answers to vote on",
                info="without any, the most typical text is chosen (minimum Bayes risk)",
                filterable=False,
                elem_id="compare-extractor",
            )
        with gr.Row():
            lm = model_list(offer, "lm", start.lm, label="Language model")
            rm = model_list(
                offer,
                "rm",
                unmixed(start.rm, offer)[0],
                label="Reward model",
                elem_id="compare-rm",
            )
            beta = gr.Number(
                start.beta,
                label="β (beta)",
                info="smaller: the reward bends the model more; chain and weights use the same",
                minimum=0.001,
                maximum=1000,
            )
        with gr.Row():
            second, share = second_reward(offer, start.rm, elem_id="compare-second")
        with gr.Row():
            steps = gr.Slider(
                8,
                limits.steps,
                value=start.steps,
                step=1,
                label="Steps",
                info="proposals a chain",
                elem_id="compare-steps",
            )
            chains = gr.Slider(1, limits.chains, value=start.chains, step=1, label="Chains")
            budget = gr.Radio(list(BUDGETS.items()), value="flops", label="The pool is drawn to")
        with gr.Row():
            seed = gr.Number(start.seed, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
            temperature = gr.Slider(
                0.1, 2.0, value=start.temperature, step=0.05, label="Temperature"
            )
            limit = gr.Slider(
                8, limits.tokens, value=start.max_new_tokens, step=1, label="Length limit in tokens"
            )
            burn_in = gr.Slider(0, 200, value=0, step=1, label="Burn-in: first states left out")
    fields = [
        *(prompt, reference, extractor, lm, rm, beta, steps),
        *(chains, seed, temperature, limit, burn_in, second, share, budget),
    ]
    return fields, kind


def build_compare_page(runs: Runs, demo: gr.Blocks) -> None:
    """Build the page's widgets in the current context and register its events."""
    recorded = recorded_comparison()
    start = settings_of(recorded.header)
    with gr.Column(elem_id="compare"):
        gr.HTML(HEADING, **PLAIN)
        with gr.Row(elem_id="compare-bar"):
            run = gr.Button("Compare", variant="primary", elem_id="compare-run")
            stop = gr.Button("Stop", elem_id="compare-stop")
            new = gr.Button("New problem", elem_id="compare-new")
            status = status_line(status_value(IDLE))
        form, kind = _form(start, runs)
        panel = gr.HTML(
            value=view(recorded, state="recorded", note=""),
            html_template='<div class="qc-host"></div>',
            apply_default_css=False,
            padding=False,
            js_on_load=PANEL,
            elem_id="compare-panel",
        )
        _heading(
            "What would more compute buy?",
            "At every budget: how often each method would be right if the draws were made again, "
            "with 95 % bands, and below what it says with these draws (a cross is a wrong answer).",
        )
        compute = gr.Plot(
            curve_figure(recorded, "flops"),
            elem_id="compare-curves",
            elem_classes="qc-plot",
            **PLOT,
        )
        about = gr.HTML(curve_note(recorded), elem_id="compare-note", **PLAIN)
        _heading(
            "Which rewards did they see?",
            "The base samples are where both start; the weights and the chain aim at the same "
            "distribution, each in its own way.",
        )
        mixture = gr.Checkbox(
            label="Show the normal mixture of the base rewards, and where exp(reward / β) tilts it",
            container=False,
            elem_id="compare-mixture",
        )
        histograms = gr.Plot(
            reward_histograms(recorded, full_cut(recorded)),
            elem_id="compare-histograms",
            elem_classes="qc-plot",
            **PLOT,
        )
    saver = gr.HTML(value="", html_template="<i hidden></i>", js_on_load=SAVER)
    shown = gr.State(Shown(recorded))

    nothing = [gr.skip()] * 4

    def finished(shown: Shown, state: str, mixture: bool) -> list[Any]:
        """Panel, curves, their note and histograms, once nothing more is drawn."""
        comparison = shown.comparison
        if comparison is None or not comparison.ready:
            return nothing
        return [
            view(comparison, state=state, budget=shown.budget),
            curve_figure(comparison, shown.budget),
            curve_note(comparison),
            shown.histograms(mixture),
        ]

    async def on_run(
        request: gr.Request, shown: Shown, mixture: bool, *values: Any
    ) -> AsyncIterator[list[Any]]:
        try:
            settings, budget = _read_form(values)
        except InvalidSetting as error:
            yield [*nothing, status_value(Status("failed", f"Failed: {error}."))]
            return
        shown.follow(Feed())
        shown.budget, shown.cut = budget, None
        more = {"query": link_of(settings, budget)}
        pace = Pace()
        status = IDLE
        async for now in runs.stream(
            str(request.session_hash),
            lambda feed: sample_comparison(shown.follow(feed), runs, settings, budget),
        ):
            status = now.status
            panel_now: Any = gr.skip()
            if shown.comparison is not None and pace.due():
                began = time.monotonic()
                panel_now = await asyncio.to_thread(
                    view, shown.comparison, state="live", budget=budget, every_rung=False
                )
                pace.took(time.monotonic() - began)
            yield [panel_now, *nothing[1:], status_value(status, **more)]
        all_of_it = await asyncio.to_thread(finished, shown, "done", mixture)
        yield [*all_of_it, status_value(status, **more)]

    async def on_stop(shown: Shown, mixture: bool, request: gr.Request) -> list[Any]:
        await runs.stop(str(request.session_hash))
        stopped = Status("stopped", "Stopped. What was sampled stays.")
        all_of_it = await asyncio.to_thread(finished, shown, "stopped", mixture)
        return [*all_of_it, status_value(stopped)]

    def on_cut(shown: Shown, mixture: bool, event: gr.EventData) -> Any:
        try:
            shown.cut = Cut(int(event.t), int(event.n))
            return shown.histograms(mixture)
        except (QAlignError, AttributeError, TypeError, ValueError):
            shown.cut = None  # a browser sent what this page never sends
            return gr.skip()

    def on_save(shown: Shown, event: gr.EventData) -> Any:
        comparison = shown.comparison
        if comparison is None:
            return gr.skip()
        kind = "csv" if getattr(event, "kind", "") == "csv" else "json"
        text = to_csv(comparison) if kind == "csv" else to_json(comparison)
        return json.dumps({"name": file_name(comparison, kind), "text": text})

    def on_new(kind: str) -> tuple[str, str, str, str]:
        prompt, answer = new_problem(kind)
        said = status_value(Status("idle", f"Next: {prompt}"))
        return prompt, answer, OPEN if kind == "writing" else "number", said

    def on_load(request: gr.Request) -> list[Any]:
        query = request.query_params
        found = linked(query, runs.limits, runs.offer, start)
        if found is None:
            return [gr.skip()] * (len(form) + 1)
        settings, said = found
        budget = "samples" if query.get("budget") == "samples" else "flops"
        status = Status("idle", f"{said} Press Compare to draw it.")
        return [*_values(settings, budget, runs.offer), status_value(status)]

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    running = run.click(
        on_run,
        [shown, mixture, *form],
        [panel, compute, about, histograms, status],
        js="(...v) => { window.QAlignCompare.panel()?.start(); return v; }",
        concurrency_limit=None,
        **private,
    )
    stop.click(
        on_stop,
        [shown, mixture],
        [panel, compute, about, histograms, status],
        js="(...v) => { window.QAlignCompare.panel()?.stop(); return v; }",
        cancels=[running],
        queue=False,
        **private,
    )
    new.click(on_new, kind, [*form[:3], status], **private)
    form[0].input(None, None, form[1], js="() => ''")
    events = cast(Any, panel)
    events.cut(on_cut, [shown, mixture], histograms, **private)
    mixture.change(lambda shown, on: shown.histograms(on), [shown, mixture], histograms, **private)
    events.save(on_save, shown, saver, **private)
    demo.load(on_load, None, [*form, status], **private)
