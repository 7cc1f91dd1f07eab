"""The figures of the paper's appendix, as one page that opens offline.

Run: python -m benchmarks.figures     (--out appendix.html)

The largest of n = 8 to 1024 normal rewards is compared with the Gumbel distribution and with the
target at beta*(n). The rewards of 256 samples for each of nine problems are shown with the normal
mixture that is fitted to them. The camera on a figure saves it as a PNG.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy.special import ndtri
from scipy.stats import gumbel_r

from components.lab.base_rewards import evaluated
from qalign_core.decide.rules import best_reward
from qalign_core.types import Array
from qalign_study.export.dictionary import colour as colour_of
from qalign_study.measure.mixture import (
    Mixture,
    best_of_n_as_alignment,
    fit_mixture,
    maximum_density,
)

BON, GREY, TARGET = (colour_of(id_) for id_ in (best_reward.id, "base", "target"))
STANDARD = Mixture((1.0,), (0.0,), (1.0,))
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
TRIALS = 10_000  # as in the paper's figures
SEED = 7


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


def normalised_maxima(n: int, *, trials: int, seed: int) -> Array:
    """Largest of n standard normal numbers, `trials` times, by Phi^-1(u^(1/n))."""
    u = np.random.default_rng([seed, n]).random(trials)
    return np.asarray(ndtri(np.power(u, 1.0 / n)))


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
            ("standard Gumbel", z, gumbel_r.pdf(z), GREY, "dash"),
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


def fit_mixtures() -> go.Figure:
    """Rewards of samples of nine problems, each with its fitted normal mixture."""
    fits = [(known, fit_mixture(known.rewards)) for known in evaluated().values()]
    fitted = [(known, mixture) for known, mixture in fits if mixture is not None]
    columns = min(3, len(fitted))
    fig = _panels([known.title(46) for known, _ in fitted], columns)
    fig.update_annotations(font_size=12)
    for k, (known, mixture) in enumerate(fitted):
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


FIGURES = {
    "Largest of n normal rewards against the Gumbel distribution": maximum_against_gumbel,
    "Largest of n normal rewards against the target at β*(n)": maximum_against_normal,
    "Rewards of samples, one prompt per panel, and the fitted normal mixture": fit_mixtures,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("appendix.html"), help="file of the page")
    options = parser.parse_args()
    parts = []
    for title, draw in FIGURES.items():
        figure_html = draw().to_html(full_html=False, include_plotlyjs=not parts)
        parts.append(f"<h2>{title}</h2>\n{figure_html}")
    page = "\n".join(['<!doctype html><meta charset="utf-8"><title>Appendix</title>', *parts])
    options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
