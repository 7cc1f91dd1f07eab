"""What if one piece is missing? Mistakes, each with the wrong distribution that it samples."""

import gradio as gr
import numpy as np
from gradio.components import Component

from components.lab import style
from components.lab.chain import strip_table
from components.lab.section import Section, View
from qalign_study.exact.convergence import distances
from qalign_study.exact.mistakes import MISTAKES, SHARP_MISTAKES, Broken, broken
from qalign_study.exact.world import World, by_reward, label
from qalign_study.sheet.words import signed

ALL = {**MISTAKES, **SHARP_MISTAKES}
STEPS = 128
MISTAKE_OPTIONS = 40


def wrong_figure(b: Broken, title: str) -> style.Figure:
    """The responses that differ most: the exact target beside what the wrong rule samples."""
    gap = np.abs(b.limit - b.chain.target)
    largest = set(np.argsort(-gap, kind="stable")[:MISTAKE_OPTIONS].tolist())
    order = [a for a in by_reward(b.chain) if int(a) in largest]
    names = [label(b.chain.states[a]) for a in order]
    place = list(range(len(order)))
    traces = [
        style.bar("target", x=place, y=b.chain.target[order], name="exact target",
            customdata=names, hovertemplate="%{customdata}: %{y:.4f}"),
        style.bar("wrong", x=place, y=b.limit[order], name=title.lower(), hatched=5,
            hovertemplate="%{y:.4f}"),
    ]  # fmt: skip
    every = max(1, len(order) // 4)  # so few that a phone need not turn them
    return style.figure(
        traces,
        x=f"the {len(order)} responses that differ most",
        y="probability",
        barmode="group",
        bargap=0.2,
        xaxis={
            "tickvals": place[::every],
            "ticktext": names[::every],
            "hoverformat": " ",
        },
    )


def wrong_distance_figure(right: np.ndarray, wrong: np.ndarray, b: Broken) -> style.Figure:
    """The right rule goes on falling; the wrong one levels off at its distance."""
    t = np.arange(len(right))
    traces = [
        style.curve("right rule", t, np.where(right > 1e-15, right, np.nan), "chain", "number"),
        style.curve("this mistake", t, wrong, "wrong", "number"),
        style.curve(
            "where it ends", t[[0, -1]], [b.distance] * 2, "base", "", width=1.5, dash="dash"
        ),
    ]
    return style.over_steps(traces, [*wrong, *right[right > 1e-15]])


def facts_of(b: Broken, idle: bool) -> tuple[style.Words, ...]:
    """How wrong, in three numbers, and a word where nothing is lost here."""
    cards = style.facts(
        [
            ("Distance from the target that remains", style.cell_text(b.distance), "bad"),
            ("Mean |y|: right rule", style.cell_text(b.mean_length[1]), "good"),
            ("Mean |y|: this mistake", style.cell_text(b.mean_length[0]), "bad"),
            ("Mean reward: right rule", f"{signed(b.mean_reward[1])} SD", "good"),
            ("Mean reward: this mistake", f"{signed(b.mean_reward[0])} SD", "bad"),
        ]
    )
    if idle:
        needed = "At sharpness 1 the rule does not use these probabilities: raise the sharpness."
        return cards, style.note(needed)
    if b.distance < 1e-3:
        harmless = (
            "With this language model, reward and β the mistake does little harm. Try another "
            "language model, another reward or a larger β."
        )
        return cards, style.note(harmless)
    return (cards,)


def draw(world: World, beta: float, title: str) -> View:
    """Everything that the section shows."""
    rule = ALL[title]
    b = broken(world, beta, rule)
    right, wrong = distances(world.chain(beta), STEPS), distances(b.chain, STEPS)
    stops = (0, 1, 2, 4, 8, 16, 32, 64, STEPS)
    bars = wrong_figure(b, title), strip_table(b.chain, b.limit, "this mistake")
    numbers = style.table_at(stops, {"right rule": right, "this mistake": wrong})
    distance = wrong_distance_figure(right, wrong, b), numbers
    idle = title in SHARP_MISTAKES and world.sharpness == 1.0
    return View((style.element("p.say", rule.why), *facts_of(b, idle)), (bars, distance))


def controls() -> list[Component]:
    """Which mistake."""
    return [gr.Radio(list(ALL), value=next(iter(ALL)), label="Break it", elem_id="lab-mistake")]


SECTION = Section(
    "Break it",
    "break",
    "What if one piece of the rule is missing?",
    "Break the rule on purpose. Each broken chain also settles, but usually not on the "
    "[target](target). The last two mistakes do harm only at a higher [sharpness](sharpness). This "
    "project’s tests must catch all of them.",
    controls,
    draw,
    {"wrong": "What it samples instead", "wrong-distance": "It never gets there"},
)
