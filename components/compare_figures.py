"""Figures of the Compare page, drawn from core values: plotly, no Gradio."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from components.compare_view import naming, number
from qalign_core.compare import Comparison, Cut, Method, outcomes

BLUE, ORANGE, TEAL, GREY = "#2f73d2", "#d97a1d", "#0f8a7e", "#7c8696"
INK = "#1d2430"
COLOURS: dict[Method, str] = {"qalign": BLUE, "bon": ORANGE, "mv": GREY, "wmv": TEAL}
SYMBOLS: dict[Method, str] = {
    "qalign": "circle",
    "bon": "triangle-up",
    "mv": "square",
    "wmv": "diamond",
}
BINS = 36


def frame(height: int, **layout: object) -> dict[str, object]:
    """The layout that all figures share: no title, no background, quiet grid, legend above."""
    return {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 34, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13, "color": INK},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.04, "x": 0, "xanchor": "left"},
        "dragmode": False,
        **layout,
    }


def reward_bins(rewards: Sequence[float]) -> npt.NDArray[np.float64]:
    """Edges of the bins that all histograms share, shape [BINS + 1]."""
    low, high = min(rewards), max(rewards)
    pad = 0.03 * (high - low) or 0.5
    return np.linspace(low - pad, high + pad, BINS + 1)


def shares(
    rewards: Sequence[float], weights: Sequence[float], edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The share of the weight in each bin, shape [BINS]; they sum to 1."""
    counts, _ = np.histogram(rewards, bins=edges, weights=weights)
    found: npt.NDArray[np.float64] = counts / counts.sum()
    return found


def reward_histograms(comparison: Comparison, cut: Cut) -> go.Figure:
    """Rewards of base samples, of chain states (repeats counted) and of weighted samples.

    Three rows on the same axes; a marker stands where each method's chosen response is.
    """
    found = {outcome.method: outcome for outcome in outcomes(comparison, cut)}
    states = [step.state.reward for step in comparison.steps_to(cut.t)]
    pool = [sample.reward for sample in comparison.pool[: cut.n]]
    weights = found["wmv"].decision.weights
    names = naming(comparison)
    rows: tuple[tuple[str, str, list[float], Sequence[float], tuple[Method, ...]], ...] = (
        (f"{len(pool):,} base samples", ORANGE, pool, [1.0] * len(pool), ("bon", "mv")),
        (
            f"The same samples, weighted by exp(reward / β): "
            f"as good as {found['wmv'].effective or 0:.1f}",
            TEAL,
            pool,
            weights,
            ("wmv",),
        ),
        (
            f"{len(states):,} chain states, repeats counted",
            BLUE,
            states,
            [1.0] * len(states),
            ("qalign",),
        ),
    )
    edges = reward_bins(
        [s.reward for s in comparison.pool] + [s.state.reward for s in comparison.steps]
    )
    centres = (edges[:-1] + edges[1:]) / 2
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        shared_yaxes="all",
        vertical_spacing=0.11,
        subplot_titles=[row[0] for row in rows],
    )
    top = 0.0
    for place, (title, colour, rewards, weight, methods) in enumerate(rows, start=1):
        share = shares(rewards, weight, edges)
        top = max(top, float(share.max()))
        figure.add_bar(
            x=centres,
            y=share,
            width=edges[1] - edges[0],
            marker={"color": colour, "opacity": 0.75, "line": {"width": 0}},
            name=title,
            showlegend=False,
            hovertemplate="reward %{x:.2f}<br>%{y:.1%}<extra></extra>",
            row=place,
            col=1,
        )
        for method in methods:
            chosen = found[method].decision.chosen
            if chosen is not None:
                figure.add_scatter(
                    x=[chosen.reward],
                    y=[0.0],
                    mode="markers",
                    marker={
                        "symbol": SYMBOLS[method],
                        "size": 15,
                        "color": COLOURS[method],
                        "line": {"color": "#ffffff", "width": 2},
                    },
                    name=f"chosen by {names[method].name}",
                    cliponaxis=False,
                    hovertemplate=f"{names[method].name}: {number(chosen.reward)}<extra></extra>",
                    row=place,
                    col=1,
                )
    figure.update_layout(frame(470, bargap=0, margin={"l": 52, "r": 12, "t": 74, "b": 44}))
    figure.update_layout(legend={"y": 1.12})
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_yaxes(
        gridcolor="#dfe3ea",
        zeroline=False,
        tickformat=".0%",
        range=[-0.03 * top, 1.08 * top],
        nticks=4,
    )
    figure.update_xaxes(gridcolor="#dfe3ea", zeroline=False, range=[edges[0], edges[-1]])
    figure.update_xaxes(title_text="reward (raw units of the reward model)", row=3, col=1)
    return figure
