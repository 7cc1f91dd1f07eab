"""The figures of the lab and of the paper's appendix: `python -m components.lab.figures NAME`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from components.lab import balance, best_of_n, beta, break_it, chain, wrong
from components.lab.base_rewards import N_EVALUATED, BaseRewards, base_rewards, evaluated
from components.lab.style import BON, GREY, TARGET, Figure
from qalign_core.errors import InvalidSetting, QAlignError
from qalign_core.record.trace import load_trace
from qalign_core.types import Array
from qalign_study.exact.convergence import at_beta, sweep
from qalign_study.exact.law import EXACT
from qalign_study.exact.mistakes import MISTAKES, broken
from qalign_study.exact.world import preset
from qalign_study.exact.wrong_reward import Example, outcomes
from qalign_study.measure.mixture import (
    MIN_REWARDS,
    Mixture,
    best_of_n_as_alignment,
    fit_mixture,
    gumbel_density,
    match,
    maximum_density,
    normalised_maxima,
)

STANDARD = Mixture((1.0,), (0.0,), (1.0,))
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
TRIALS = 10_000  # as in the paper's figures
SEED = 7
BETA = 1.0


def _panels(titles: Sequence[str], columns: int) -> go.Figure:
    rows = math.ceil(len(titles) / columns)
    fig = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.5 / (rows + 2))
    fig.update_layout(height=90 + 230 * rows, margin={"l": 50, "r": 15, "t": 50, "b": 50})
    return fig


def _panel(
    fig: go.Figure, k: int, columns: int, samples: Array, lines: Sequence[tuple[str, Array, Array,
    str, str]],
) -> None:  # fmt: skip
    """One panel: samples as a histogram, lines (name, x, y, colour, dash) over it."""
    row, col = k // columns + 1, k % columns + 1
    heights, edges = np.histogram(samples, bins=min(50, 8 + len(samples) // 10), density=True)
    fig.add_trace(
        go.Bar(x=(edges[1:] + edges[:-1]) / 2, y=heights, width=np.diff(edges), opacity=0.5,
               marker_color=GREY, name="samples", legendgroup="samples", showlegend=k == 0),
        row, col,
    )  # fmt: skip
    for name, x, y, colour, dash in lines:
        new = name not in {trace.name for trace in fig.data}
        fig.add_trace(
            go.Scatter(x=x, y=y, mode="lines", name=name, legendgroup=name, showlegend=new,
                       line={"color": colour, "dash": dash, "width": 2}),
            row, col,
        )  # fmt: skip


def maximum_against_gumbel() -> go.Figure:
    """(max - a_n) / b_n of n normal rewards, n = 8 .. 1024, against the standard Gumbel."""
    fig = _panels([f"n = {n}" for n in SIZES], 4)
    z = np.linspace(-4, 8, 300)
    for k, n in enumerate(SIZES):
        best = best_of_n_as_alignment(STANDARD, n)
        samples = (normalised_maxima(n, trials=TRIALS, seed=SEED) - best.a) / best.b
        exact = maximum_density(STANDARD, n, best.a + best.b * z) * best.b
        _panel(fig, k, 4, samples, [
            ("exact", z, exact, BON, "solid"),
            ("standard Gumbel", z, gumbel_density(0.0, 1.0, z), GREY, "dash"),
        ])  # fmt: skip
    return fig


def maximum_against_normal() -> go.Figure:
    """(max - mode of the target at beta*) / sigma, n = 8 .. 1024, against the standard normal."""
    fig = _panels([f"n = {n}" for n in SIZES], 4)
    z = np.linspace(-4, 4, 300)
    for k, n in enumerate(SIZES):
        best = best_of_n_as_alignment(STANDARD, n)
        mode = 1.0 / best.beta  # of the target: mu + sigma^2 / beta, with mu = 0 and sigma = 1
        samples = normalised_maxima(n, trials=TRIALS, seed=SEED) - mode
        _panel(fig, k, 4, samples, [
            ("exact", z, maximum_density(STANDARD, n, z + mode), BON, "solid"),
            ("target at β*(n)", z, STANDARD.density(z), TARGET, "dash"),
        ])  # fmt: skip
    return fig


def fitted_mixtures(paths: Sequence[Path] = ()) -> go.Figure:
    """Rewards of base samples of up to nine prompts, each with its fitted normal mixture.

    Args:
        paths: traces with base rewards; by default the shipped evaluation of the embedded models.

    Raises:
        InvalidSetting: no trace holds enough base rewards that differ.
    """
    prompts = [_base_rewards(path) for path in paths] or [*(evaluated() or base_rewards()).values()]
    fits = [(known, fit_mixture(known.rewards)) for known in prompts]
    found = [(known, mixture) for known, mixture in fits if mixture is not None][:N_EVALUATED]
    if not found:
        raise InvalidSetting(
            f"no trace with at least {MIN_REWARDS} different base rewards; record one with base "
            "samples, or name other files with --traces"
        )
    columns = min(3, len(found))
    fig = _panels([known.title(46) for known, _ in found], columns)
    fig.update_annotations(font_size=12)
    for k, (known, mixture) in enumerate(found):
        rewards = np.array(known.rewards)
        pad = 0.25 * float(np.ptp(rewards))
        r = np.linspace(rewards.min() - pad, rewards.max() + pad, 300)
        parts = zip(mixture.weights, mixture.means, mixture.sds, strict=True)
        _panel(fig, k, columns, rewards, [
            ("fitted mixture", r, mixture.density(r), TARGET, "solid"),
            *(("its components", r, Mixture((w,), (mu,), (sd,)).density(r), TARGET, "dot")
              for w, mu, sd in parts),
        ])  # fmt: skip
    return fig


def _base_rewards(path: Path) -> BaseRewards:
    trace = load_trace(path)
    return BaseRewards(trace.header.prompt, trace.rewards)


def _chain() -> chain.Progress:
    return chain.progress(preset(), BETA, 16, 256)


def _balance() -> Figure:
    return balance.flow_figure(*balance.pair(preset(), BETA, "ab·", "abca…", EXACT))


def _mistake() -> Figure:
    name, rule = next(iter(MISTAKES.items()))
    return break_it.wrong_figure(broken(preset(), BETA, rule), name)


def _best_of_n() -> Figure:
    mixture = Mixture((0.6, 0.4), (-1.5, 1.0), (0.8, 1.0))
    return best_of_n.match_figure(match(mixture, 32), ())


FIGURES: dict[str, tuple[str, Callable[[], go.Figure | Figure]]] = {
    "gumbel": ("Largest of n normal rewards against the Gumbel distribution",
               maximum_against_gumbel),
    "normal": ("Largest of n normal rewards against the target at β*(n)",
               maximum_against_normal),
    "mixture": ("Rewards of base samples, a prompt a panel, and the fitted normal mixture",
                fitted_mixtures),
    "best-of-n": ("Best-of-32 of a mixture and the target at β*(32)", _best_of_n),
    "responses": ("All responses after 16 steps of 256 chains",
                  lambda: chain.strip(_chain().chain, _chain().now, "256 chains")),
    "distance": ("Total variation to the target", lambda: chain.distance_figure(_chain())),
    "balance": ("Detailed balance, index by index", _balance),
    "mistake": ("No length ratio: what it samples instead", _mistake),
    "beta": ("Acceptance, KL and steps against β",
             lambda: beta.sweep_figure(sweep(preset()), at_beta(preset(), BETA), None)),
    "accuracy": ("A reward that can be hacked: accuracy",
                 lambda: wrong.method_figure(outcomes(Example()), "accuracy")),
    "proxy": ("A reward that can be hacked: proxy reward",
              lambda: wrong.method_figure(outcomes(Example()), "proxy")),
}  # fmt: skip
APPENDIX = ("gumbel", "normal", "mixture")


def make(name: str, traces: Sequence[Path] = ()) -> go.Figure:
    """A figure by its name, with its title, on white.

    Raises:
        InvalidSetting: no such figure.
    """
    if name not in FIGURES:
        raise InvalidSetting(f"no figure {name!r}; there are {', '.join(FIGURES)} and 'all'")
    title, draw = FIGURES[name]
    fig = go.Figure(fitted_mixtures(traces) if name == "mixture" else draw())
    height = (fig.layout.height or 340) + 60
    fig.update_layout(
        title={"text": title, "x": 0.02, "y": 1 - 12 / height, "yanchor": "top"},
        margin_t=(fig.layout.margin.t or 36) + 50,
        height=height,
        width=1000,
        paper_bgcolor="white",
        plot_bgcolor="white",
        font_color=TARGET,
        legend={"orientation": "h", "yref": "container", "y": 1 - 44 / height, "yanchor": "top",
                "x": 0},
    )  # fmt: skip
    return fig


def figures(
    names: Sequence[str], out: Path, format: str = "html", traces: Sequence[Path] = ()
) -> list[Path]:
    """Write figures by name and return their paths.

    Args:
        names: from `FIGURES`; "all" is every one, "appendix" those of the paper's appendix.
        out: folder, made if it is not there. HTML files share one `plotly.min.js` in it, so they
            open without a network.
        format: "html" or "png"; a PNG is drawn by an installed Chrome or Chromium.
        traces: traces whose base rewards "mixture" fits; by default the shipped evaluation.

    Raises:
        InvalidSetting: no such name or format, or no browser for a PNG.
        InvalidTrace: a trace cannot be read.
    """
    if format not in ("html", "png"):
        raise InvalidSetting(f"the format is 'html' or 'png', got {format!r}")
    wanted: list[str] = []
    for name in names:
        wanted += FIGURES if name == "all" else APPENDIX if name == "appendix" else (name,)
    drawn = [(name, make(name, traces)) for name in dict.fromkeys(wanted)]
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.{format}" for name, _ in drawn]
    if format == "html":
        for path, (_, fig) in zip(paths, drawn, strict=True):
            fig.write_html(path, include_plotlyjs="directory", config={"displaylogo": False})
        return paths
    import plotly.io as pio

    try:
        drawings = [fig for _, fig in drawn]
        sizes = [(fig.layout.width, fig.layout.height) for fig in drawings]  # else 700 x 500
        widths, heights = zip(*sizes, strict=True)
        pio.write_images(drawings, paths, width=list(widths), height=list(heights), scale=2)
    except (RuntimeError, OSError, ValueError, ImportError) as error:
        raise InvalidSetting(
            "a PNG needs the package kaleido and a Chrome or Chromium on this machine; "
            f"install them, or write HTML ({type(error).__name__})"
        ) from error
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: 0 if the figures were written, 2 with one sentence on stderr if not."""
    parser = argparse.ArgumentParser(
        prog="python -m components.lab.figures", description="Write figures of the Theory lab."
    )
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help=f"{', '.join(FIGURES)}, appendix or all"
    )
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder (figures)")
    parser.add_argument("--format", choices=("html", "png"), default="html")
    parser.add_argument(
        "--traces",
        type=Path,
        nargs="*",
        default=[],
        help="traces with base rewards, for mixture (nine problems of the shipped results)",
    )
    options = parser.parse_args(arguments)
    try:
        for path in figures(options.names, options.out, options.format, options.traces):
            print(path)
    except QAlignError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
