"""The Results page: the four methods over whole problem sets, as it came out."""

from __future__ import annotations

import asyncio
import html
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr

from components.common.words import COUNTED
from components.results.figures import (
    beside_table,
    beta_figure,
    differences_html,
    error_figure,
    facts_html,
    findings_html,
    paper_html,
    paper_settings_html,
    points_table,
    proxy_figure,
)
from qalign_core.analysis.curves import Point, curves
from qalign_core.analysis.diagnostics import Acceptance, acceptance_of
from qalign_core.analysis.tuning import BetaPoint, against_beta
from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError
from qalign_core.runs.results import unpack
from qalign_core.types import SetHeader

FOLDER = ASSETS / "results"
BETAS = (1 / 8, 1 / 4, 1 / 2, 1 / 2**0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0)
"""Multiples of the run's beta at which the page shows what another one does."""
TITLES = {
    "in_distribution": "Like the training problems",
    "shifted": "Other wording, more events",
    "long": "Long: right samples are rare",
    "writing": "Short texts with constraints",
}
"""What the embedded sets are called, in the order of the list."""
EMPTY = """
<p class="qc-sub">No results are in <code>assets/results</code> yet. Make them with
<code>python -m qalign_core evaluate --task in_distribution --budget 512 --out runs/in_distribution
--pack assets/results/in_distribution.zip</code>; it goes on where it was stopped.</p>
"""
PLAIN: dict[str, Any] = {"padding": False, "apply_default_css": False}
PLOT: dict[str, Any] = {"show_label": False, "container": False, "elem_classes": "qc-plot"}
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


@dataclass(frozen=True, slots=True)
class Summary:
    """What the page shows of one results file."""

    settings: SetHeader
    acceptance: Acceptance
    done: int
    missing: int
    points: tuple[Point, ...]
    betas: tuple[BetaPoint, ...]


def results_files(folder: Path = FOLDER) -> tuple[Path, ...]:
    """The packed results that are shipped: embedded sets first, the usual reward model first."""
    order = list(TITLES)

    def place(path: Path) -> tuple[int, str]:
        task = path.stem.partition("-")[0]
        return order.index(task) if task in order else len(order), path.stem

    return tuple(sorted(folder.glob("*.zip"), key=place))


def summarise(path: Path) -> Summary:
    """Curves and counts of a results file; computed once a version of the file.

    Raises:
        QAlignError: it cannot be read.
    """
    return _summarise(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=16)
def _summarise(path: Path, version: int) -> Summary:
    results = unpack(path)
    has_weights = results.header.pool > 0
    betas = [results.header.beta * factor for factor in BETAS]
    return Summary(
        settings=results.header,
        acceptance=acceptance_of(results.records),
        done=len(results.records),
        missing=results.n_missing,
        points=tuple(curves(results)),
        betas=tuple(against_beta(results, betas)) if has_weights else (),
    )


def title_of(path: Path) -> str:
    """What a results file is called in the list: its problem set, and its reward model if marked.

    `in_distribution.zip` is the set with the usual reward model, `in_distribution-weak.zip` the
    same with another one.
    """
    task, _, model = path.stem.partition("-")
    title = TITLES.get(task, task.replace("_", " "))
    return f"{title}; {model} reward model" if model else title


def beside(path: Path) -> dict[str, Path]:
    """The runs over the same problem set, by their reward model: the usual one first."""
    task = path.stem.partition("-")[0]
    found = [p for p in results_files(path.parent) if p.stem.partition("-")[0] == task]
    return {f"{p.stem.partition('-')[2] or 'usual'} reward model": p for p in found}


def show(path: Path) -> list[Any]:
    """Everything below the list: findings, figures, tables and facts."""
    try:
        found = summarise(path)
        others = {name: summarise(other).points for name, other in beside(path).items()}
    except QAlignError as error:
        note = f'<p class="qc-sub">{html.escape(str(error))}</p>'
        return [note, None, "", None, None, gr.update(visible=False), None, "", ""]
    points, settings = found.points, found.settings
    missing = (
        f'<p class="qc-sub">{found.missing} problems of this run are not done yet.</p>'
        if found.missing
        else ""
    )
    several = len(others) > 1
    return [
        missing + findings_html(points, settings),
        error_figure({"": points}, settings),
        points_table(points, settings) + differences_html(points, settings),
        proxy_figure(points, settings),
        beta_figure(found.betas, points, settings) if found.betas else None,
        gr.update(visible=several),
        error_figure(others, settings) if several else None,
        beside_table(others, settings) if several else "",
        facts_html(settings, found.acceptance, found.done),
    ]


def build_results_page(demo: gr.Blocks, folder: Path = FOLDER) -> None:
    """Build the page's widgets in the current context; curves are computed when first looked at."""
    files = results_files(folder)
    with gr.Column(elem_id="results"):
        gr.HTML(
            '<p class="qc-sub">Whole problem sets that no model was trained on, every method at '
            "the same compute. What came out is shown as it is; bands are 95 % over problems.</p>",
            **PLAIN,
        )
        if files:
            _build_sets(demo, files)
        else:
            gr.HTML(EMPTY, **PLAIN)
        _heading(
            "And in the paper?",
            "The paper’s own numbers, not measured here: accuracy in % at 1,024 samples in its "
            "general experiments, and the settings of both kinds of experiment.",
        )
        gr.HTML(paper_html(), elem_id="results-paper", **PLAIN)
        gr.HTML(paper_settings_html(), elem_id="results-settings", **PLAIN)


def _build_sets(demo: gr.Blocks, files: tuple[Path, ...]) -> None:
    by_name = {path.stem: path for path in files}
    chosen = gr.Dropdown(
        [(title_of(path), path.stem) for path in files],
        value=files[0].stem,
        label="Problem set",
        filterable=False,
        elem_id="results-set",
    )
    said = gr.HTML('<p class="qc-sub">Reading the results…</p>', elem_id="results-said", **PLAIN)
    _heading("How many answers are wrong, for how much compute?", f"Lower is better. {COUNTED}")
    error = gr.Plot(elem_id="results-error", **PLOT)
    numbers = gr.HTML("", elem_id="results-table", **PLAIN)
    _heading(
        "Does more reward mean more right answers?",
        "Each point is a budget. A curve that goes right and down follows the reward model into "
        "its mistakes: over-optimisation.",
    )
    proxy = gr.Plot(elem_id="results-proxy", **PLOT)
    _heading(
        "What does β decide?",
        "At other β, from the same draws: how often the weighted vote is right (the chain aims at "
        "the same distribution), how many changes a chain would accept, and how far the target is "
        "from the language model. n samples cannot show a distance above log n, the dotted line.",
    )
    beta = gr.Plot(elem_id="results-beta", **PLOT)
    with gr.Column(visible=False) as others:
        _heading(
            "What does a worse reward model do?",
            "The same problems and the same language model, with another reward model.",
        )
        beside_error = gr.Plot(elem_id="results-beside", **PLOT)
        beside_numbers = gr.HTML("", elem_id="results-beside-table", **PLAIN)
    _heading("What was run?", "The command draws the same numbers again, and goes on if stopped.")
    facts = gr.HTML("", elem_id="results-facts", **PLAIN)

    async def on_choose(name: str) -> list[Any]:
        # the browser's word: only files of this folder are read
        path = by_name.get(str(name), files[0])
        return await asyncio.to_thread(show, path)

    async def on_load(request: gr.Request) -> list[Any]:
        name = str(request.query_params.get("set", ""))
        return [name if name in by_name else files[0].stem, *await on_choose(name)]

    outputs = [
        *(said, error, numbers, proxy, beta),
        *(others, beside_error, beside_numbers, facts),
    ]
    chosen.input(on_choose, chosen, outputs, concurrency_limit=2, **PRIVATE)
    chosen.change(None, chosen, None, js="(name) => QAlignShell.set(name)")
    demo.load(on_load, None, [chosen, *outputs], concurrency_limit=2, **PRIVATE)


def _heading(question: str, sentence: str) -> None:
    gr.HTML(f'<h2 class="qc-h">{question}</h2><p class="qc-sub">{sentence}</p>', **PLAIN)
