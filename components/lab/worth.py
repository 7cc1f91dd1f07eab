"""When is a chain worth it? A model of solving problems, simulated as its settings are moved."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import gradio as gr
from gradio.components import Component

from components.common.style import band_of, curve_of
from components.lab import style
from components.lab.section import Section, View
from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES, chain_vote, weighted_vote
from qalign_core.errors import QAlignError
from qalign_core.validation import from_json
from qalign_study.exact.decisions import Exploration, Situation, explore
from qalign_study.export.dictionary import colour
from qalign_study.measure.diagnostics import near_misses
from qalign_study.measure.results import unpack
from qalign_study.sheet.evaluated import results_files, title_of
from qalign_study.sheet.words import curve_name, gap, in_a_sentence

MAP = ASSETS / "results" / "worth.json"
"""The worlds that `python -m benchmarks.worth` simulated."""
BUDGETS = ("64", "128", "256", "512")
RARITIES = {2: "2", 10: "10", 30: "30", 100: "100", 300: "300", 1000: "1k", 3000: "3k"}
NEAR_MISS_TICKS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.998)
LEAST, MOST = 0.35, 0.9992
"""The range of the map's vertical axis."""
RAREST = 1 / 4000
"""The place on the horizontal axis of what is rarer still, so that its mark is whole."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A shipped set on the map: both places are measured on its own draws."""

    name: str
    one: float
    near_miss: float
    pairs: int


@lru_cache(maxsize=1)
def shipped() -> tuple[Measured, ...]:
    """The shipped sets for which both can be measured."""
    sets = []
    for path in results_files():
        try:
            results = unpack(path)
        except QAlignError:  # Results says so
            continue
        rate = near_misses(results.records)
        if results.header.run.pool and rate.value is not None and not results.header.run.open_ended:
            one = sum(float(r.is_right(r.pool_answer).mean()) for r in results.records)
            title = title_of(path)
            sets.append(Measured(title, one / len(results.records), rate.value, rate.trials))
    return tuple(sets)


@lru_cache(maxsize=1)
def simulated() -> dict[str, list[float]]:
    """The map's worlds: `one`, `near_miss` as the chain met them, and the `difference`."""
    worlds: dict[str, list[float]] = from_json(Path(MAP).read_text(encoding="utf-8"))["worlds"]
    return worlds


def curve_figure(study: Exploration) -> style.Figure:
    """How often each method is right against compute, with any of n, which no rule can exceed."""
    traces: list[style.Trace] = []
    for method in RULES:
        rates = [study.rate(method, place) for place in range(len(study.ns))]
        low, high = zip(*(rate.band or (0.0, 1.0) for rate in rates), strict=True)
        look = curve_of(method, name=curve_name(method), hovertemplate="%{y:.1%}")
        traces += [
            style.scatter(**band_of(method, study.ns, low, high), legendgroup=method),
            style.scatter(x=study.ns, y=[r.value for r in rates], **look, legendgroup=method),
        ]
    ends, ceiling = (
        [study.ns[0], study.ns[-1]],
        "at least one of n is right: the ceiling",
    )
    thin = {"width": 1, "showlegend": False}
    traces += [
        style.curve(ceiling, study.ns, study.any_of, "base", ".1%", width=2, dash="dot"),
        style.curve("one sample", ends, [study.one] * 2, "base", ".2%", **thin),
    ]
    return style.figure(
        traces,
        x="compute, in samples",
        y="right",
        xaxis={
            "type": "log",
            "tickvals": study.ns,
            "ticktext": [str(n) for n in study.ns],
        },
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
    )


def map_figure(study: Exploration) -> style.Figure:
    """QAlign minus weighted vote in many worlds, where shipped sets lie, and this world."""
    worlds, here = simulated(), study.near_misses.value
    colours = [
        [0, colour(weighted_vote.id)],
        [0.5, "rgba(128, 138, 150, 0.25)"],
        [1, colour(chain_vote.id)],
    ]
    points = [100 * d for d in worlds["difference"]]
    sets = shipped()
    traces = [
        style.scatter(x=worlds["one"], y=[1 - y for y in worlds["near_miss"]], mode="markers",
                name="a world of the model", showlegend=False,
                marker={"symbol": "square", "size": 17, "color": points, "colorscale": colours,
                        "cmin": -25, "cmax": 25, "line": {"width": 0},
                        "colorbar": {"title": {"text": "QAlign − weighted vote, points",
                                               "side": "right"},
                                     "thickness": 10, "tickformat": "+d", "len": 1}},
                customdata=points,
                hovertemplate="QAlign − weighted vote: %{customdata:+.1f} points<extra></extra>"),
        style.scatter(x=[s.one for s in sets], y=[1 - s.near_miss for s in sets], mode="markers",
                name="shipped sets, measured",
                marker={"symbol": "star", "size": 13, "color": "#1d2430",
                        "line": {"color": "white", "width": 1.5}},
                customdata=[[s.name, s.pairs] for s in sets],
                hovertemplate="%{customdata[0]}: %{customdata[1]:,} pairs<extra></extra>"),
    ]  # fmt: skip
    if here is not None and study.one > 0:
        traces.append(
            style.scatter(x=[max(study.one, RAREST)], y=[1 - min(here, MOST)], mode="markers",
                    name="your settings",
                    marker={"symbol": "circle-open", "size": 18, "color": "#1d2430",
                            "line": {"width": 3}}, hoverinfo="skip")
        )  # fmt: skip
    return style.figure(
        traces,
        x="one sample in … is right",
        y="the reward prefers the right one",
        hovermode="closest",
        margin={"r": 4},
        xaxis={"type": "log", "tickvals": [1 / n for n in RARITIES],
               "ticktext": list(RARITIES.values()), "tickangle": 0,
               "range": [math.log10(0.6), math.log10(0.0002)]},
        # by how often it is wrong: what matters is between 90 and 99.8%
        yaxis={"type": "log", "tickvals": [1 - share for share in NEAR_MISS_TICKS],
               "ticktext": [f"{100 * share:g}%" for share in NEAR_MISS_TICKS],
               "range": [math.log10(1 - LEAST), math.log10(1 - MOST)]},
        shapes=[style.line_at(1 / 300)],
    )  # fmt: skip


def describe(study: Exploration) -> tuple[style.Words, ...]:
    """Describe the result in this world, with its uncertainty."""
    n, ceiling = study.ns[-1], float(study.any_of[-1])
    ahead = study.difference(chain_vote.id, weighted_vote.id)
    right, least, _ = _rate(study, chain_vote.id)
    if ahead.verdict == "ahead":
        verdict = "Here a chain is worth it"
    elif ahead.verdict == "behind":
        verdict = "Here the weighted vote is ahead, without the wait"
    else:
        verdict = "Here the difference is not significant, and the vote comes without the wait"
    more = (
        f" No rule that chooses among those samples can be right more often than "
        f"{style.percent(ceiling)}; the chain has {style.percent(right)}."
        if least > ceiling
        else ""
    )
    cards: list[tuple[str, str] | tuple[str, str, str]] = [
        ("One sample is right", f"1 time in {style.cell_text(round(1 / study.one))}"),
        (f"At least one of {n} is right", style.percent(ceiling)),
        ("QAlign", _band(study, chain_vote.id), "good"),
        *((curve_name(each), _band(study, each)) for each in RULES if each != chain_vote.id),
    ]
    sentence = (
        f"{verdict}: at the compute of {n} samples QAlign minus "
        f"{in_a_sentence(curve_name(weighted_vote.id))} is {gap(ahead)}.{more} Every method was "
        f"simulated on the same {study.right[chain_vote.id].shape[1]} problems. “One sample is "
        f"right” and “At least one of {n} is right” are exact for these problems. They differ, "
        "since the probability of each decision varies around its mean: easy ones have most right "
        "samples."
    )
    return style.note(sentence), style.facts(cards)


def _rate(study: Exploration, method: str) -> tuple[float, float, float]:
    """How often a method is right, and the band of that."""
    rate = study.rate(method)
    assert rate.value is not None
    assert rate.band is not None
    return rate.value, *rate.band


def _band(study: Exploration, method: str) -> str:
    value, low, high = _rate(study, method)
    return f"{style.percent(value)} ({100 * low:.0f} to {100 * high:.0f})"


def curve_table(study: Exploration) -> style.Words:
    """Every method at every budget."""
    rows = [
        (
            str(n),
            *(study.rate(method, k).value for method in RULES),
            float(study.any_of[k]),
        )
        for k, n in enumerate(study.ns)
    ]
    return style.table(("samples", *(curve_name(method) for method in RULES), "any of n"), rows)


def map_table() -> style.Words:
    """The shipped sets, then the worlds of the map."""
    worlds = simulated()
    rows: list[tuple[str | float | None, ...]] = [
        (s.name, s.one, s.near_miss, s.pairs, None) for s in shipped()
    ]
    rows += [
        ("simulated", one, near, None, 100 * gap)
        for one, near, gap in zip(
            worlds["one"], worlds["near_miss"], worlds["difference"], strict=True
        )
    ]
    heads = ("", "one sample", "prefers the right one", "pairs", "QAlign − weighted vote, points")
    return style.table(heads, rows)


def draw(
    decisions: float, chance: float, near_miss: float, beta: float, agree: float, budget: str
) -> View:
    """Everything that the section shows."""
    situation = Situation(int(decisions), chance / 100, near_miss / 100, beta, agree / 100)
    study = explore(situation, most=int(budget))
    curves = curve_figure(study), curve_table(study)
    return View(describe(study), (curves, (map_figure(study), map_table())))


def controls() -> list[Component]:
    """The settings of the problems, the models and the budget."""
    label, info = "Near misses ranked correctly, %", "two solutions that differ in one decision"
    return [
        style.slider("decisions", "Decisions in a solution", 2, 20, 12, 1),
        style.slider("chance", "Mean probability that each is right, %", 30, 95, 60, 1),
        style.slider("near-miss", label, 55, 100, 98, 1, info=info),
        style.slider("worth-beta", "β (a right decision is worth 1)", 0.05, 2, 0.3, 0.05),
        style.slider("agree", "Wrong answers that agree, %", 0, 100, 0, 1),
        gr.Radio(list(BUDGETS), value="256", label="Compute, in samples", elem_id="lab-budget",
                 min_width=200),
    ]  # fmt: skip


SECTION = Section(
    "When is a chain worth it?",
    "worth",
    "When is a chain worth it?",
    "A [chain](chain) is worth it when a pool of samples seldom contains a right answer and the "
    "[reward](reward) ranks near misses correctly. In this simulation, a solution is a series of "
    "decisions that must all be right. A step of the chain keeps the decisions before its cut and "
    "draws the rest again.",
    controls,
    draw,
    {"worth": "Right answers for compute", "worth-map": "Where does a chain win?"},
    uses_world=False,
)
