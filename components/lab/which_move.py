"""Which move? Suffix moves alone against suffix and block moves, and what decides between them."""

from functools import lru_cache

import numpy as np
from gradio.components import Component

from components.lab import style
from components.lab.section import Section, View
from qalign_study.exact.bench import chain_of_fields as chain
from qalign_study.exact.convergence import distances, second_eigenvalue, steps_within
from qalign_study.exact.law import ExactChain
from qalign_study.sheet.words import number

STEPS = 400
STOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, STEPS)
COPIES = tuple(range(0, 101, 5))
"""How often a field copies the one before it, in %: the places of the map."""
CHANGE = 0.1
"""A gap that differs by less than this share is called the same."""
ALONE, MIXED = "suffix moves alone", "with block moves"


def both(copies: int, share: int) -> tuple[ExactChain, ExactChain]:
    """The chain of suffix moves alone and the mixture."""
    return chain(copies / 100, 0.0), chain(copies / 100, share / 100)


@lru_cache(maxsize=512)
def gaps(copies: int, share: int) -> tuple[float, float]:
    """Spectral gap of suffix moves alone and of the mixture."""
    alone, mixed = (1 - second_eigenvalue(each) for each in both(copies, share))
    return alone, mixed


def map_figure(copies: int, share: int) -> style.Figure:
    """How many times as fast the mixture is, by how much the fields depend on each other."""
    ratios = [mixed / alone for alone, mixed in (gaps(each, share) for each in COPIES)]
    alone, mixed = gaps(copies, share)
    traces = [
        style.curve(f"{share}% block moves", COPIES, ratios, "chain", ".2f", showlegend=False),
        style.curve(f"{ALONE}: 1", [0, 100], [1, 1], "base", "", dash="dash"),
        style.dot(copies, mixed / alone, "chain", name="your settings"),
    ]
    return style.figure(
        traces,
        x="fields that copy the one before, %",
        y="times as fast as suffix moves",
        xaxis={"range": [-3, 103]},
        yaxis={"rangemode": "tozero"},
        shapes=[style.line_at(copies)],
    )


def describe(copies: int, share: int) -> tuple[style.Words, ...]:
    """The verdict and its numbers."""
    alone, mixed = gaps(copies, share)
    ratio, speed = mixed / alone, f"{number(mixed / alone, 2)} times as fast in the long run"
    if ratio > 1 + CHANGE:
        verdict = (
            f"Here block moves help: the chain is {speed}. "
            "A block move improves one field and leaves the others as they are. A suffix move "
            "draws every later field again, so a good field after the cut is often lost."
        )
    elif ratio < 1 - CHANGE:
        verdict = (
            f"Here block moves slow the chain: it is only {speed}. A field that differs from the "
            "fields around it is improbable, so block moves change the text even less often than "
            "suffix moves do."
        )
    else:
        verdict = f"Here block moves change little: {speed}."
    better = ("good",) if ratio > 1 else ()
    steps = [steps_within(each) for each in both(copies, share)]
    rows = [
        (f"Steps to within 1% of the target, {ALONE}", style.cell_text(steps[0])),
        (f"Steps to within 1% of the target, {MIXED}", style.cell_text(steps[1]), *better),
        (f"Distance lost per step (spectral gap), {ALONE}", f"{100 * alone:.2f}%"),
        (f"Distance lost per step (spectral gap), {MIXED}", f"{100 * mixed:.2f}%", *better),
    ]
    return style.note(verdict), style.facts(rows)


def map_table(share: int) -> style.Words:
    """Both gaps at every place of the map."""
    rows = [(f"{each}%", alone, mixed, mixed / alone)
            for each in COPIES for alone, mixed in [gaps(each, share)]]  # fmt: skip
    heads = ("copies", f"spectral gap, {ALONE}", f"spectral gap, {MIXED}", "times as fast")
    return style.table(heads, rows)


def draw(copies: float, share: float) -> View:
    """Everything that the section shows."""
    at = int(copies), int(share)
    alone, mixed = (distances(each, STEPS) for each in both(*at))
    t = np.arange(len(alone))
    traces = [
        style.curve(ALONE, t, alone, "base", "number", dash="dash"),
        style.curve(MIXED, t, mixed, "chain", "number"),
    ]
    distance = style.over_steps(traces, [*alone, *mixed])
    numbers = style.table_at(STOPS, {ALONE: alone, MIXED: mixed})
    return View(describe(*at), ((distance, numbers), (map_figure(*at), map_table(at[1]))))


def controls() -> list[Component]:
    """How the fields depend on each other, and how many moves are block moves."""
    label = "A field copies the one before it, % of the time"
    return [
        style.slider("copies", label, 0, 100, 0, COPIES[1], min_width=260),
        style.slider(
            "share-blocks", "Steps that are block moves, %", 10, 90, 50, 10, min_width=260
        ),
    ]


SECTION = Section(
    "Which move?",
    "move",
    "Which move reaches the target sooner?",
    "A [move](move) is a way to make a [proposal](proposed). The texts here have four fields, as "
    "in b:a:a:b:, and the reward prefers b. A suffix move rewrites everything after a random "
    "place. A block move rewrites one field and keeps the fields after it. Block moves help as "
    "long as the fields depend little on each other. Move the first slider to the right: the "
    "fields copy each other, and block moves become slower than suffix moves.",
    controls,
    draw,
    {"moves": "How far from the target?", "moves-map": "When do block moves help?"},
    uses_world=False,
)
