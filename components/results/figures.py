"""Figures and tables of the Results page, from an evaluation's points: plotly and HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from components.common.style import (
    GREY,
    GRID,
    band_of,
    curve_of,
    frame,
    line_of,
    log_axis,
    marker_of,
)
from components.results.problems import cell_of
from qalign_core.decide.compared import RULES
from qalign_core.record.dictionary import Idea, ideas
from qalign_core.types import SetHeader
from qalign_study.measure.curves import (
    Curve,
    Difference,
    Point,
    difference,
    is_level,
    level_n,
    paired,
)
from qalign_study.measure.diagnostics import Acceptance
from qalign_study.measure.tuning import BetaPoint
from qalign_study.sheet.words import (
    MARGIN,
    VERDICTS,
    brief,
    curve_name,
    gap,
    in_a_sentence,
    in_points,
    names_of,
    number,
    percent,
    si,
    standing,
    target_of,
)

PAPER_METHODS = ("BoN", "MV", "WMV", "QAlign", "DPO + MV")
PAPER: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("MATH500", (31.6, 49.4, 53.0, 60.4, 55.8)),
    ("GSM8K", (74.3, 86.3, 85.2, 88.2, 87.9)),
    ("TQA", (45.3, 43.7, 46.1, 48.5, 45.4)),
    ("MMLU-Redux", (57.1, 59.4, 62.2, 62.2, 62.7)),
    ("IFEval", (59.3, 72.6, 49.5, 77.6, 76.2)),
    ("Average", (53.5, 62.3, 59.2, 67.4, 65.6)),
)
"""The paper's general setting: accuracy in % at 1024 samples, Tülu3-8B-SFT with Tülu3-8B-RM."""


def of(points: Iterable[Point], method: Curve) -> list[Point]:
    """The points of one method, by n."""
    return sorted((p for p in points if p.method == method), key=lambda p: p.n)


def error_figure(runs: Mapping[str, Sequence[Point]], settings: SetHeader) -> go.Figure:
    """Error rate against compute, logarithmic, with 95% bands over problems; a panel a run."""
    names = names_of(settings.open_ended)
    titles = list(runs) if len(runs) > 1 else None
    figure = make_subplots(
        rows=len(runs),
        cols=1,
        shared_xaxes=True,
        shared_yaxes="all",
        vertical_spacing=0.08,
        subplot_titles=titles,
    )
    for row, points in enumerate(runs.values(), start=1):
        _add_errors(figure, points, names, row)
    figure.update_layout(frame(440 if len(runs) == 1 else 300 * len(runs), hovermode="closest"))
    if titles:
        figure.update_layout(margin={"t": 84}, legend={"y": 1.08})
        figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    spent = [p.spent for points in runs.values() for p in points]
    figure.update_xaxes(**log_axis(spent, gridcolor=GRID, zeroline=False))
    figure.update_xaxes(
        title_text=f"{settings.meter.unit} per problem, logarithmic", row=len(runs), col=1
    )
    figure.update_yaxes(
        title_text="wrong answers",
        tickformat=".0%",
        rangemode="tozero",
        gridcolor=GRID,
        zeroline=False,
    )
    return figure


def _add_errors(
    figure: go.Figure, points: Sequence[Point], names: Mapping[str, Idea], row: int
) -> None:
    """One run's lines and bands; only the first run's are in the legend."""
    place = {"row": row, "col": 1}
    for method in RULES:
        mine = of(points, method)
        if not mine:
            continue
        x, name = [p.spent for p in mine], names[method].word
        ends = [1 - p.high for p in mine], [1 - p.low for p in mine]
        figure.add_scatter(**band_of(method, x, *ends), legendgroup=method, **place)
        figure.add_scatter(
            x=x,
            y=[1 - p.value for p in mine],
            **curve_of(method, name=name, legendgroup=method, showlegend=row == 1),
            customdata=[[p.used, 1 - p.high, 1 - p.low] for p in mine],
            hovertemplate=(
                f"{name}, %{{customdata[0]:.0f}}: %{{y:.1%}} wrong "
                "(%{customdata[1]:.1%} to %{customdata[2]:.1%})<extra></extra>"
            ),
            **place,
        )
    ceiling = sorted((p for p in points if p.method == "any"), key=lambda p: p.n)
    if ceiling:
        name = curve_name("any")
        figure.add_scatter(
            x=[p.spent for p in ceiling],
            y=[1 - p.value for p in ceiling],
            mode="lines",
            name=f"{name}: no rule over samples can be below",
            legendgroup="any",
            showlegend=row == 1,
            line=line_of("any"),
            customdata=[[p.n] for p in ceiling],
            hovertemplate=(f"{name}, %{{customdata[0]}}: none right in %{{y:.1%}}<extra></extra>"),
            **place,
        )


def proxy_figure(points: Sequence[Point], settings: SetHeader) -> go.Figure:
    """Accuracy against the proxy reward: a curve that turns down has over-optimised."""
    figure, names = go.Figure(), names_of(settings.open_ended)
    for method in RULES:
        mine = of(points, method)
        if not mine:
            continue
        figure.add_scatter(
            x=[p.reward for p in mine],
            y=[p.value for p in mine],
            **curve_of(method, name=names[method].word),
            customdata=[[p.n] for p in mine],
            hovertemplate=(
                f"{names[method].word} at the price of %{{customdata[0]}} samples: "
                "reward %{x:.2f}, %{y:.1%} right<extra></extra>"
            ),
        )
    figure.update_layout(frame(400, hovermode="closest"))
    figure.update_xaxes(title_text="mean reward of the answers", gridcolor=GRID)
    figure.update_yaxes(title_text="share of right answers", tickformat=".0%", gridcolor=GRID)
    return figure


def beta_figure(
    betas: Sequence[BetaPoint], points: Sequence[Point], settings: SetHeader
) -> go.Figure:
    """What other betas do, from the same samples: accuracy, acceptance, distance from the base."""
    names = names_of(settings.open_ended)
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.05)
    x = [p.beta for p in betas]
    band = band_of("wmv", x, [p.low for p in betas], [p.high for p in betas])
    figure.add_scatter(**band, row=1, col=1)
    told = [p for p in betas if p.acceptance is not None]
    lines = (
        (names["wmv"].word, x, [p.accuracy for p in betas], marker_of("wmv"), "%{y:.1%} right"),
        ("accepted", [p.beta for p in told], [p.acceptance for p in told], marker_of("qalign"),
         "%{y:.0%} accepted"),
        ("KL", x, [p.kl for p in betas], {"color": GREY, "symbol": "square", "size": 8},
         "%{y:.2f} nats from the model"),
    )  # fmt: skip
    for row, (name, at, y, marker, said) in enumerate(lines, start=1):
        figure.add_scatter(
            x=at,
            y=y,
            mode="lines+markers",
            name=name,
            showlegend=row == 1,
            line={"color": marker["color"], "width": 2.5},
            marker=marker,
            hovertemplate=f"β %{{x:.3g}}: {said}<extra></extra>",
            row=row,
            col=1,
        )
    for chain in of(points, "qalign")[-1:]:
        figure.add_scatter(
            x=[settings.beta],
            y=[chain.value],
            mode="markers",
            name=names["qalign"].word,
            marker=marker_of("qalign", 11),
            hovertemplate=f"{names['qalign'].word}, this run: %{{y:.1%}} right<extra></extra>",
            row=1,
            col=1,
        )
    figure.add_hline(y=math.log(settings.pool), line={"color": GREY, "dash": "dot"}, row=3, col=1)
    figure.add_vline(x=settings.beta, line={"color": GREY, "dash": "dash"})
    figure.update_layout(frame(580))
    ends = [math.log10(x[0] / 1.1), math.log10(x[-1] * 1.1)]
    figure.update_xaxes(**log_axis(x, gridcolor=GRID, range=ends))
    figure.update_xaxes(title_text="β, logarithmic; dashed: the β of this run", row=3, col=1)
    figure.update_yaxes(gridcolor=GRID, zeroline=False)
    figure.update_yaxes(title_text="right answers", tickformat=".0%", row=1, col=1)
    figure.update_yaxes(title_text="changes accepted", tickformat=".0%", range=[0, 1], row=2, col=1)
    figure.update_yaxes(title_text="distance, nats", rangemode="tozero", row=3, col=1)
    return figure


def others() -> list[str]:
    """The rules that QAlign is compared with."""
    return [id_ for id_ in RULES if id_ != "qalign"]


def findings(points: Sequence[Point], names: Mapping[str, Idea] | None = None) -> list[str]:
    """What came out, in sentences that follow from the numbers alone."""
    names = names or names_of()
    bon, ours = of(points, "bon"), of(points, "qalign")
    said = [*_out_of_reach(points), *([_best_of_n(bon)] if bon else [])]
    for method in others():
        found = list(paired(points, "qalign", method))
        if found:
            last = found[-1]
            chain = next(p for p in ours if p.n == last.n)
            said.append(
                f"At the compute of {last.n} samples QAlign ({percent(chain.value)}) "
                f"{standing(last)} {in_a_sentence(names[method].word)} "
                f"({percent(chain.value - last.value)}): {gap(last)}."
            )
    return said


def _out_of_reach(points: Sequence[Point]) -> list[str]:
    """That the chain is above what any rule over as many samples could be, if it is."""
    found = list(paired(points, "qalign", "any"))
    if not found or found[-1].verdict != "ahead":
        return []
    last = found[-1]
    ceiling = next(p for p in of(points, "any") if p.n == last.n).value
    return [
        f"Only {percent(ceiling)} of the problems have a right answer among {last.n} samples, so "
        "no rule over them can do better; at the same compute QAlign reaches "
        f"{percent(ceiling + last.value)}: {gap(last)}. It keeps what is right and draws the rest "
        "again."
    ]


def _best_of_n(bon: Sequence[Point]) -> str:
    """Whether taking the best of more samples went on to pay."""
    best, last = max(bon, key=lambda p: p.value), bon[-1]
    if best.n == last.n:
        return f"Best-of-n does not degrade here: {percent(last.value)} at n = {last.n}."
    lost = difference(best, last)
    if lost.verdict == "ahead":
        return (
            f"Best-of-n is right in {percent(best.value)} at n = {best.n} and in "
            f"{percent(last.value)} at n = {last.n}; the first minus the second is {gap(lost)}: it "
            "over-optimises this reward."
        )
    return (
        f"Best-of-n is best at n = {best.n} ({percent(best.value)}), which "
        f"{standing(lost)} its {percent(last.value)} at n = {last.n}: {gap(lost)}."
    )


PAIRED = (
    "Differences are paired over problems, with 95% bootstrap intervals. Methods are equivalent "
    f"where the whole interval lies within {MARGIN}. Where fewer than ten problems are discordant, "
    "the exact test of these problems decides."
)


def differences_html(points: Sequence[Point], settings: SetHeader) -> str:
    """What QAlign has more than each other method and than their ceiling, at equal compute."""
    names = {**names_of(settings.open_ended), "any": ideas()["any"]}
    compared = [*others(), "any"]
    found = {(d.n, d.b): d for method in compared for d in paired(points, "qalign", method)}
    if not found:
        return ""
    compared = [method for method in compared if any(b == method for _, b in found)]
    rows = []
    for n in sorted({n for n, _ in found}):
        at = [found.get((n, method)) for method in compared]
        spent = next(d.spent for d in at if d is not None)
        cells = [Cell(_cell(d), cell_of(d.a, n, d.b)) if d is not None else "–" for d in at]
        rows.append([f"{n:,}", si(spent, settings.meter.unit), *cells])
    heads = ["samples", "compute per problem", *(f"QAlign − {names[m].word}" for m in compared)]
    return f'<p class="qc-sub">{PAIRED}</p>' + table(heads, rows)


def _cell(found: Difference | None) -> str:
    if found is None:
        return "–"
    return f"{brief(found)}, {VERDICTS[found.verdict]}"


def findings_html(
    points: Sequence[Point], settings: SetHeader, sharper: Difference | None = None
) -> str:
    """The findings as a list; `sharper` is QAlign minus QAlign of sharpness 1."""
    said = findings(points, names_of(settings.open_ended))
    if settings.sharpness != 1:
        without = "" if settings.rewarded else "There is no reward here, so no best of n. "
        said.insert(
            0,
            f"{without}QAlign and the weighted vote aim at sharpness "
            f"{number(settings.sharpness)}; the "
            "majority vote is over samples of the model as it is, sharpness 1.",
        )
    if sharper is not None:
        said.append(
            f"On the same problems at the compute of {sharper.n} samples QAlign of sharpness "
            f"{number(settings.sharpness)} {standing(sharper)} QAlign of sharpness 1: "
            f"{gap(sharper)}."
        )
    items = "".join(f"<li>{html.escape(text)}</li>" for text in said)
    return f'<ul class="qr-said">{items}</ul>'


def points_table(points: Sequence[Point], settings: SetHeader) -> str:
    """All methods at every budget, with bands; accuracy in per cent, at equal compute or said."""
    names, unit = names_of(settings.open_ended), settings.meter.unit
    rows = []
    for n in sorted({p.n for p in points}):
        at = {p.method: p for p in points if p.n == n}
        pool = next((at[m] for m in others() if m in at), at.get("qalign"))
        if pool is None:
            continue
        cells: list[str | Cell] = [f"{n:,}", si(pool.spent, unit)]
        for method in RULES:
            p = at.get(method)
            said = "–" if p is None else _accuracy(p, pool, unit)
            cells.append("–" if p is None else Cell(said, cell_of(method, n)))
        rows.append(cells)
    heads = ["samples", "compute per problem", *(names[m].word for m in RULES)]
    return table(heads, rows)


def _accuracy(p: Point, pool: Point, unit: str) -> str:
    """Accuracy in per cent with its band; where the price is another one, that is said."""
    return _band(p) if is_level(p, pool) else f"{_band(p)} at {si(p.spent, unit)}"


def _band(p: Point) -> str:
    return in_points(p)


def beside_table(runs: Mapping[str, Sequence[Point]], settings: SetHeader) -> str:
    """Every method under each of the runs' reward models, at the largest budget they all have."""
    names = names_of(settings.open_ended)
    level = min(level_n(points) or max(p.n for p in points) for points in runs.values())
    rows = []
    for method in RULES:
        at = [
            next((p for p in of(points, method) if p.n == level), None) for points in runs.values()
        ]
        cells = ["–" if p is None else _band(p) for p in at]
        rows.append([names[method].word, *cells])
    for method in others():
        gaps = [
            next((d for d in paired(points, "qalign", method) if d.n == level), None)
            for points in runs.values()
        ]
        if any(gaps):
            rows.append([f"QAlign − {names[method].word}", *(_cell(d) for d in gaps)])
    said = f"Right in %, with 95% bands, at the compute of {level:,} samples."
    return f'<p class="qc-sub">{said} {PAIRED}</p>' + table(["", *runs], rows)


def _chain_length(settings: SetHeader) -> str:
    """How long the chain was: as much compute as the samples, or less if its states were capped."""
    return f"at most {settings.steps + 1:,} states"


def facts_html(settings: SetHeader, acceptance: Acceptance, done: int) -> str:
    """What was run, so that anyone can run it again."""
    overall, changed = acceptance.overall.value, acceptance.changed.value
    rows = [
        ["Problem set", f"{settings.task or 'unnamed'}, {done:,} problems"],
        [
            "What is right",
            "a text that meets all constraints, which the program checks"
            if settings.open_ended
            else "an answer that means the same as the known one",
        ],
        ["Language model", _revision(settings.lm, settings.lm_revision)],
        ["Reward model", _revision(settings.rm, settings.rm_revision)],
        ["Target, temperature", f"{target_of(settings)}; {number(settings.sampling.temperature)}"],
        [
            "Accepted proposals",
            "–"
            if overall is None or changed is None
            else f"{percent(overall)} of all, {percent(changed)} of those that change the state",
        ],
        ["Samples per problem", f"{settings.pool:,}; one chain of {_chain_length(settings)}"],
        ["Seed, date", f"{settings.seed}, {settings.created}"],
        ["Command", settings.command],
    ]
    return table([], rows)


def paper_html() -> str:
    """The paper's own table, labelled as the paper's."""
    rows = [
        [name, *(f"{values[k]:.1f}" for _, values in PAPER)] for k, name in enumerate(PAPER_METHODS)
    ]
    return table(["", *(name for name, _ in PAPER)], rows)


def paper_settings_html() -> str:
    """How the paper ran its two experiments."""
    rows = [
        ["Language model", "Llama-3.1-8B-Instruct", "Tülu3-8B-SFT"],
        [
            "Reward model",
            "their own, Bradley–Terry, from the same model: 64 responses a prompt, one pair each",
            "Tülu3-8B-RM",
        ],
        ["Temperature, β", "1.0, 1", "1.0, 0.5"],
        ["Samples per problem", "1,024", "1,024"],
        [
            "Problem sets",
            "GSM8K, GSM-Symbolic",
            "MATH500, GSM8K, TruthfulQA (TQA), MMLU-Redux, IFEval",
        ],
    ]
    return table(["", "Task-specific experiments", "General experiments (the table above)"], rows)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number that leads to the problems behind it."""

    text: str
    opens: str


def _td(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{html.escape(cell)}</td>"
    button = f'<button type="button" class="qr-cell" data-opens="{html.escape(cell.opens)}">'
    return f"<td>{button}{html.escape(cell.text)}</button></td>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """An HTML table; every cell is escaped, and the first of a row is its head."""
    head = "".join(
        f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>" for name in heads
    )
    body = "".join(
        f'<tr><th scope="row">{html.escape(str(row[0]))}</th>{"".join(map(_td, row[1:]))}</tr>'
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return (
        '<div class="qr-table" tabindex="0" role="group" aria-label="numbers">'
        f"<table>{top}<tbody>{body}</tbody></table></div>"
    )


def _revision(id_: str, revision: str) -> str:
    return f"{id_} ({revision[:12]})" if revision else id_
