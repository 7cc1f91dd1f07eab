"""Figures of the Compare page, drawn from core values: plotly, no Gradio."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from components.common.style import GREY, GRID, band_of, frame, line_of, log_axis, marker_of
from components.compare.view import naming, writing_task
from qalign_core.decide.rules import RULES
from qalign_core.types import Array
from qalign_study.export.dictionary import Idea, colour
from qalign_study.measure.comparisons import Comparison, Cut, Outcome, outcomes
from qalign_study.measure.curves import Point
from qalign_study.measure.mixture import fit_mixture, tilt
from qalign_study.measure.record import Measure
from qalign_study.sets.generated import WritingTask, constraints
from qalign_study.sheet.words import number, quantity

MEASURES: dict[Measure, str] = {
    "right": "probability of the right answer",
    "same": "probability of the final answer",
    "reward": "reward of the chosen response",
}
BINS = 36


def reward_bins(rewards: Sequence[float]) -> Array:
    """Edges of the bins that all histograms share, shape [BINS + 1]."""
    low, high = min(rewards), max(rewards)
    pad = 0.03 * (high - low) or 0.5
    return np.linspace(low - pad, high + pad, BINS + 1)


def shares(rewards: Sequence[float], weights: Sequence[float], edges: Array) -> Array:
    """The share of the weight in each bin, shape [BINS]; they sum to 1."""
    counts, _ = np.histogram(rewards, bins=edges, weights=weights)
    return np.asarray(counts / counts.sum())


_HistogramRow = tuple[str, str, list[float], Sequence[float], list[Outcome]]
"""Title, color, rewards, their weights, and the outcomes that were decided from them."""


def reward_histograms(comparison: Comparison, cut: Cut, *, mixture: bool = False) -> go.Figure:
    """Rewards of base samples, of weighted samples and of chain states (repeats counted).

    Rows on the same axes; a marker stands where each rule's chosen response is. `mixture` adds the
    normal mixture fitted to all base samples, and its tilt by exp(reward / beta) over the rows
    that aim at it.
    """
    rows = _histogram_rows(comparison, cut)
    edges = reward_bins(
        [s.reward for s in comparison.pool] + [s.state.reward for s in comparison.trace.steps]
    )
    figure = make_subplots(
        rows=len(rows),
        cols=1,
        shared_xaxes=True,
        shared_yaxes="all",
        vertical_spacing=0.11,
        subplot_titles=[row[0] for row in rows],
    )
    top = 0.0
    for place, row in enumerate(rows, start=1):
        top = max(top, _draw_row(figure, row, place, edges, naming(comparison)))
    if mixture:
        aims = [place for place, row in enumerate(rows, 1) if any(o.rule.aims for o in row[-1])]
        top = max(top, _overlay(figure, comparison, edges, aims))
    figure.update_layout(
        frame(80 + 130 * len(rows), bargap=0, margin={"l": 52, "r": 12, "t": 74, "b": 44})
    )
    figure.update_layout(legend={"y": 1.12})
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_yaxes(
        gridcolor=GRID,
        zeroline=False,
        tickformat=".0%",
        range=[-0.03 * top, 1.08 * top],
        nticks=4,
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, range=[edges[0], edges[-1]])
    figure.update_xaxes(title_text="reward, in the reward model’s own units", row=len(rows), col=1)
    return figure


def _histogram_rows(comparison: Comparison, cut: Cut) -> list[_HistogramRow]:
    """Return the rows at a cut: the samples, once per weighted rule again, and the states."""
    results = outcomes(comparison, cut)
    states = [step.state.reward for step in comparison.steps_to(cut.t)]
    pool = [sample.reward for sample in comparison.pool[: cut.n]]
    of_chain = [o for o in results if o.rule.draws == "chain"]
    weighted = [o for o in results if o.rule.draws == "pool" and o.rule.is_weighted]
    plain = [o for o in results if o not in of_chain and o not in weighted]
    weighted_title = "The same, weighted: {:.1f} effective samples"
    return [
        (
            f"{quantity(len(pool), 'sample')} of the model alone",
            GREY,
            pool,
            [1.0] * len(pool),
            plain,
        ),
        *(
            (weighted_title.format(o.effective), colour(o.method), pool, o.decision.weights, [o])
            for o in weighted
        ),
        (
            f"{quantity(len(states), 'state')} of the chain, repeats counted",
            colour("chain"),
            states,
            [1.0] * len(states),
            of_chain,
        ),
    ]


def _draw_row(
    figure: go.Figure,
    row: _HistogramRow,
    place: int,
    edges: Array,
    names: dict[str, Idea],
) -> float:
    """Draw a histogram and the chosen responses on it; return the height of the largest bar."""
    title, fill, rewards, weight, decided = row
    share, at = shares(rewards, weight, edges), {"row": place, "col": 1}
    figure.add_bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=share,
        width=edges[1] - edges[0],
        marker={"color": fill, "opacity": 0.75, "line": {"width": 0}},
        name=title,
        showlegend=False,
        hovertemplate="reward %{x:.2f}<br>%{y:.1%}<extra></extra>",
        **at,
    )
    for outcome in decided:
        chosen, name = outcome.decision.chosen, names[outcome.method].word
        if chosen is not None:
            figure.add_scatter(
                x=[chosen.reward],
                y=[0.0],
                mode="markers",
                marker={
                    **marker_of(outcome.method, 15),
                    "line": {"color": "#ffffff", "width": 2},
                },
                name=f"chosen by {name}",
                cliponaxis=False,
                hovertemplate=f"{name}: {number(chosen.reward)}<extra></extra>",
                **at,
            )
    return float(share.max())


def _overlay(figure: go.Figure, comparison: Comparison, edges: Array, aims: Sequence[int]) -> float:
    """Draw the fitted mixture, and its tilt over some rows; returns the highest point's height."""
    fitted = fit_mixture([sample.reward for sample in comparison.pool])
    if fitted is None or comparison.header.run.target.is_sharp:  # that is no tilt of this law
        return 0.0
    aimed = tilt(fitted, comparison.header.run.beta)
    x = np.linspace(edges[0], edges[-1], 400)
    width = edges[1] - edges[0]
    top = 0.0
    tilted_title = "target: the same, tilted by exp(reward / β)"
    for row, law, title in (
        (1, fitted, "normal mixture of the model alone"),
        *((row, aimed, tilted_title if row == aims[0] else "") for row in aims),
    ):
        y = law.density(x) * width
        top = max(top, float(y.max()))
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines",
            line=line_of("base" if row == 1 else "target"),
            name=title,
            showlegend=bool(title),
            hoverinfo="skip",
            row=row,
            col=1,
        )
    return top


def compute_curves(comparison: Comparison, points: Sequence[Point], measure: Measure) -> go.Figure:
    """What each method gives as the budget grows: its measure with a band, and below its answer.

    Filled markers in the lower rows are right answers, crosses wrong ones; of a writing task it is
    how many constraints the chosen text meets.
    """
    names, task = naming(comparison), writing_task(comparison)
    unit = comparison.header.meter.unit
    above, below = ({"row": row, "col": 1} for row in (1, 2))
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.06
    )
    for under, method in enumerate(RULES):
        mine = [point for point in points if point.method == method]
        texts = [
            _short(point.answer) if measure != "reward" else _met(point, task) for point in mine
        ]
        name, place = names[method].word, len(RULES) - 1 - under
        for trace in _curve(method, name, mine, 2.5 + 1.5 * place):
            figure.add_trace(trace, **above)
        figure.add_trace(_answers(method, name, mine, texts, place), **below)
    figure.update_layout(frame(480, hovermode="closest"))
    spent = [point.spent for point in points]
    figure.update_xaxes(**log_axis(spent, gridcolor=GRID, zeroline=False))
    figure.update_xaxes(title_text=f"compute spent ({unit}, logarithmic)", **below)
    figure.update_yaxes(gridcolor=GRID, zeroline=False)
    figure.update_yaxes(title_text=MEASURES[measure], **above)
    if measure != "reward":
        figure.update_yaxes(range=[-0.03, 1.06], tickformat=".0%", **above)
    figure.update_yaxes(
        tickvals=list(range(len(RULES))),
        ticktext=[names[method].word for method in reversed(RULES)],
        range=[-0.5, len(RULES) - 0.2],
        showgrid=False,
        **below,
    )
    return figure


def _curve(
    method: str, name: str, points: Sequence[Point], width: float
) -> tuple[go.Scatter, go.Scatter]:
    """Return a method's band and its curve; a line over it is thinner, so that none hides."""
    x = [point.spent for point in points]
    band = band_of(method, x, [p.low for p in points], [p.high for p in points])
    line = go.Scatter(
        x=x,
        y=[point.value for point in points],
        mode="lines+markers",
        line={**line_of(method), "width": width},
        marker=marker_of(method),
        name=name,
        legendgroup=method,
        customdata=[[point.low, point.high, point.used] for point in points],
        hovertemplate=(
            f"{name}, %{{customdata[2]:,}}: %{{y:.2f}} "
            "(%{customdata[0]:.2f} to %{customdata[1]:.2f})<extra></extra>"
        ),
    )
    return go.Scatter(**band, legendgroup=method), line


def _answers(
    method: str, name: str, points: Sequence[Point], texts: Sequence[str], place: int
) -> go.Scatter:
    """Return a row of a method's answers: a marker per budget, with the answer over it."""
    return go.Scatter(
        x=[point.spent for point in points],
        y=[place] * len(points),
        mode="markers+text",
        text=texts,
        textposition="top center",
        textfont={"size": 11},
        marker={
            "symbol": [_mark(point) for point in points],
            "size": 9,
            "color": colour(method),
            "line": {"width": 1.5, "color": colour(method)},
        },
        showlegend=False,
        legendgroup=method,
        hovertemplate=f"{name}: %{{text}}<extra></extra>",
        cliponaxis=False,
    )


def _mark(point: Point) -> str:
    return "circle-open" if point.correct is None else "circle" if point.correct else "x-thin-open"


def _met(point: Point, task: WritingTask | None) -> str:
    """How many constraints a text meets, if any are known."""
    if task is None or point.answer is None:
        return ""
    met = constraints(task, point.answer)
    return f"{sum(met.values())}/{len(met)}"


def _short(answer: str | None) -> str:
    """An answer that fits above a marker, safe in plotly's own markup."""
    if answer is None:
        return ""
    text = answer if len(answer) <= 7 else answer[:6] + "…"
    return text.replace("<", "‹").replace(">", "›").replace("&", "＆")
