"""The Watch page: a chain that anyone can follow, step by step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from qalign_core.runs.recording import record

from components.common.folding import fold
from components.common.new_problem import KINDS, new_problem
from components.common.reward import mixed, model_list, reward_shown, second_reward, unmixed
from components.common.status import status_line, status_value
from components.session.gpu import with_gpu
from components.session.links import (
    ANSWERS,
    OPEN,
    USUAL,
    Settings,
    linked,
    settings_of,
    to_query,
    usual_extractor,
)
from components.session.offer import Offer
from components.session.runs import IDLE, Feed, Runs, Snapshot, Status
from components.watch.diagnostics import beta_facts, diagnose
from components.watch.player import beta_slider, chain_player
from qalign_core.analysis.tuning import tune_beta
from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import LanguageModel
from qalign_core.runs.trace import parse_trace
from qalign_core.types import Response

RECORDED = ASSETS / "runs" / "watch.jsonl"
BASE_SAMPLES = 64
"""Independent samples beside a chain: the ticks of the number line and the histogram."""


@with_gpu
async def sample_run(feed: Feed, runs: Runs, settings: Settings) -> None:
    """One live run: the models, then the chains and the base samples side by side.

    Raises:
        QAlignError: the settings or the models do not allow it.
    """
    settings.check(runs.limits)
    lm, rm = await runs.models(feed, settings.lm, settings.rm, settings.sampling)
    async for recorded in record(
        lm,
        rm,
        settings.prompt,
        beta=settings.beta,
        steps=settings.steps,
        seed=settings.seed,
        n_chains=settings.chains,
        n_base=min(BASE_SAMPLES, runs.limits.samples),
        reference=settings.reference,
        extractor=settings.extractor,
    ):
        feed.write(recorded.line)
        if recorded.step is not None:
            await feed.step()


class Counted:
    """A language model that tells how many responses it has drawn, for a progress line."""

    def __init__(self, lm: LanguageModel, told: Callable[[int], None]) -> None:
        self.id = lm.id
        self.max_new_tokens = lm.max_new_tokens
        self._lm = lm
        self._told = told
        self._n = 0

    def encode(self, prompt: str) -> tuple[int, ...]:
        """As the model does."""
        return self._lm.encode(prompt)

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """As the model does, and count it."""
        response = await self._lm.extend(prompt_ids, prefix, seed=seed)
        self._n += 1
        self._told(self._n)
        return response


@with_gpu
async def tune_run(feed: Feed, runs: Runs, settings: Settings) -> None:
    """Find the beta at which half of the changed proposals are accepted, and write it.

    Raises:
        QAlignError: the settings or the models do not allow it, or no beta does it.
    """
    settings.check(runs.limits)
    lm, rm = await runs.models(feed, settings.lm, settings.rm, settings.sampling)

    def tell(n: int) -> None:
        feed.status = Status("sampling", f"Finding β: {n} proposals tried")

    tuned = await tune_beta(
        Counted(lm, tell), rm, settings.prompt, start=settings.beta, seed=settings.seed
    )
    feed.write(json.dumps([float(f"{tuned.beta:.3g}"), tuned.acceptance, tuned.low, tuned.high]))


@dataclass(frozen=True, slots=True)
class _Form:
    """The widgets of the settings drawer, in the order of the run's arguments."""

    prompt: gr.Textbox
    reference: gr.Textbox
    lm: gr.Dropdown
    rm: gr.Dropdown
    beta: gr.HTML
    steps: gr.Slider
    chains: gr.Slider
    seed: gr.Number
    temperature: gr.Slider
    max_new_tokens: gr.Slider
    burn_in: gr.Slider
    second: gr.Dropdown
    share: gr.Slider
    extractor: gr.Dropdown

    def widgets(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    def read(self, values: tuple[Any, ...]) -> Settings:
        given = dict(zip(self.__slots__, values, strict=True))
        rm = mixed(given["rm"], given.pop("second"), given.pop("share"))
        return Settings.read({**given, "rm": rm})

    def show(self, settings: Settings, offer: Offer) -> list[Any]:
        values = {name: getattr(settings, name, None) for name in self.__slots__}
        asked = settings.extractor or OPEN
        values["extractor"] = USUAL if asked == usual_extractor(settings.prompt) else asked
        values |= {"reference": settings.reference or "", **reward_shown(settings.rm, offer)}
        return list(values.values())


def recorded_run(path: Path = RECORDED) -> tuple[str, Settings]:
    """The recorded run that plays before any click, and the settings that would draw it again."""
    text = path.read_text(encoding="utf-8")
    return text, settings_of(parse_trace(text).header)


def _drawer(start: Settings, runs: Runs) -> tuple[_Form, gr.Dropdown, gr.Button, gr.Button]:
    limits, offer = runs.limits, runs.offer
    with gr.Column(elem_id="watch-drawer"):
        gr.HTML('<h2 class="q-drawer-title">Settings of the next run</h2>')
        kind = gr.Dropdown(
            list(KINDS.items()), value="in_distribution", label="Kind of problem", filterable=False
        )
        new = gr.Button("New problem")
        prompt = gr.Textbox(
            start.prompt,
            label="Problem",
            info="The embedded model knows story problems and short writing tasks of these kinds.",
            lines=4,
            max_lines=8,
            max_length=limits.prompt,
        )
        reference = gr.Textbox(
            start.reference or "", label="Known answer, if any", max_length=60, lines=1
        )
        extractor = gr.Dropdown(
            [("As the problem asks", USUAL), *ANSWERS.items()],
            value=USUAL,
            label="Answers to vote on",
            filterable=False,
            elem_id="watch-extractor",
        )
        lm = model_list(offer, "lm", start.lm, label="Language model")
        rm = model_list(offer, "rm", unmixed(start.rm, offer)[0], label="Reward model")
        second, share = second_reward(offer, start.rm)
        beta = beta_slider(beta_facts, start.beta)
        tune = gr.Button("Find the β that accepts about half", elem_id="watch-tune")
        with fold("More", "watch-more"):
            steps = gr.Slider(
                8, limits.steps, value=start.steps, step=1, label="Steps", info="proposals a chain"
            )
            chains = gr.Slider(1, limits.chains, value=start.chains, step=1, label="Chains")
            seed = gr.Number(
                start.seed,
                label="Seed",
                info="the same seed draws the same run",
                precision=0,
                minimum=0,
                maximum=2**31 - 1,
            )
            temperature = gr.Slider(
                0.1, 2.0, value=1.0, step=0.05, label="Temperature of the language model"
            )
            max_new_tokens = gr.Slider(
                8,
                limits.tokens,
                value=start.max_new_tokens,
                step=1,
                label="Length limit",
                info="tokens, EOS counted",
            )
            burn_in = gr.Slider(
                0, 200, value=0, step=1, label="Burn-in", info="first states that are not counted"
            )
        close = gr.Button("Close")
        close.click(None, js="() => QAlignShell.drawer(false)")
    form = _Form(
        prompt=prompt,
        reference=reference,
        lm=lm,
        rm=rm,
        beta=beta,
        steps=steps,
        chains=chains,
        seed=seed,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        burn_in=burn_in,
        second=second,
        share=share,
        extractor=extractor,
    )
    return form, kind, new, tune


def build_watch_page(runs: Runs, demo: gr.Blocks) -> None:
    """Build the page's widgets in the current context and register its events."""
    text, start = recorded_run()
    with gr.Column(elem_id="watch"):
        with gr.Row(elem_id="watch-bar"):
            run = gr.Button("Run it live", variant="primary", elem_id="watch-run")
            stop = gr.Button("Stop", elem_id="watch-stop")
            new = gr.Button("New problem", elem_id="watch-new")
            settings = gr.Button("Settings", elem_id="watch-settings")
            status = status_line(status_value(IDLE))
        gr.HTML("Settings changed: run again to see them.", elem_id="watch-stale")
        player = chain_player(text, diagnose=diagnose)
    form, kind, new_in_drawer, tune = _drawer(start, runs)
    widgets, names = form.widgets(), json.dumps(form.__slots__)

    async def on_run(request: gr.Request, *values: Any) -> AsyncIterator[tuple[str, str]]:
        try:
            wanted = form.read(values)
        except InvalidSetting as error:
            yield gr.skip(), status_value(Status("failed", f"Failed: {error}."))
            return
        more = {"query": to_query(wanted)}
        visitor = str(request.session_hash)
        async for now in runs.stream(visitor, lambda feed: sample_run(feed, runs, wanted)):
            yield _update(now, more)

    def _update(now: Snapshot, more: dict[str, str]) -> tuple[str, str]:
        return now.text or gr.skip(), status_value(now.status, **more)

    async def on_tune(request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, str]]:
        try:
            wanted = form.read(values)
        except InvalidSetting as error:
            yield gr.skip(), status_value(Status("failed", f"Failed: {error}."))
            return
        work = runs.stream(str(request.session_hash), lambda feed: tune_run(feed, runs, wanted))
        async for now in work:
            if now.text:
                beta, rate, low, high = json.loads(now.text)
                said = f"β = {beta:g} accepts {rate:.0%} (95 % band of β: {low:.2g} to {high:.2g})"
                yield beta, status_value(Status("finished", said))
            else:
                yield gr.skip(), status_value(now.status)

    async def on_stop(request: gr.Request) -> str:
        await runs.stop(str(request.session_hash))
        return status_value(Status("stopped", "Stopped. What was sampled stays."))

    def on_new(kind: str) -> tuple[str, str, str, str]:
        prompt, answer = new_problem(kind)
        return prompt, answer, USUAL, status_value(Status("idle", f"Next run: {prompt}"))

    def on_load(request: gr.Request) -> list[Any]:
        found = linked(request.query_params, runs.limits, runs.offer, start)
        if found is None:
            return [gr.skip()] * (len(widgets) + 1)
        wanted, said = found
        return [
            *form.show(wanted, runs.offer),
            status_value(IDLE, notice=f"{said} Press “Run it live” to draw that run again."),
        ]

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    running = run.click(
        on_run,
        widgets,
        [player, status],
        js=f"(...values) => QAlignShell.run({names}, values)",
        concurrency_limit=None,
        **private,
    )
    tuning = tune.click(on_tune, widgets, [form.beta, status], concurrency_limit=None, **private)
    stop.click(
        on_stop,
        None,
        status,
        js="() => QAlignShell.stop()",
        cancels=[running, tuning],
        queue=False,
        **private,
    )
    settings.click(None, js="() => QAlignShell.drawer()")
    for button in (new, new_in_drawer):
        button.click(on_new, kind, [form.prompt, form.reference, form.extractor, status], **private)
    form.prompt.input(None, None, form.reference, js="() => ''")
    gr.on(
        [widget.change for widget in widgets],
        None,
        widgets,
        js=f"(...values) => QAlignShell.settings({names}, values)",
    )
    demo.load(on_load, None, [*widgets, status], **private)
