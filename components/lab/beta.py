"""What does beta do? From trusting the LM to trusting the reward, guessed before it is shown."""

from collections.abc import Sequence

import gradio as gr
from gradio.components import Component

from components.common.style import log_axis
from components.lab import style
from components.lab.chain import strip, strip_table
from components.lab.section import Section, View
from qalign_study.exact.convergence import AtBeta, at_beta, sweep
from qalign_study.exact.world import World
from qalign_study.sheet.words import number, signed

HIDDEN, REVEALED = "Guess first", "Show the acceptance rate"
NEAR = "steps to within 1% of the target"
SWEEP_HEIGHT = 480
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def sweep_figure(points: tuple[AtBeta, ...], now: AtBeta, guess: float | None) -> style.Figure:
    """Acceptance, KL and steps to 1% against beta; without acceptance while it is guessed."""
    betas = [p.beta for p in points]
    traces: list[style.Trace] = []

    def add(values: Sequence[float | None], at: float | None, yaxis: str, name: str,
            id_: str) -> None:  # fmt: skip
        traces.append(style.curve(name, betas, values, id_, ".3g", yaxis=yaxis))
        traces.append(style.dot(now.beta, at, id_, yaxis=yaxis, showlegend=False))

    if guess is None:
        add([p.acceptance for p in points], now.acceptance, "y", "acceptance", "chain")
        changed = [p.acceptance_changed for p in points]
        label = "of those that change the text"
        traces.append(style.curve(label, betas, changed, "chain", ".3g", width=1.5, dash="dot"))
    else:
        ends = betas[0], betas[-1]
        traces.append(
            style.curve("your guess", ends, [guess] * 2, "base", "", width=2, dash="dash")
        )
    add([p.kl for p in points], now.kl, "y2", "distance from the model", "base")
    *steps, at = (None if p.steps is None else max(p.steps, 1) for p in (*points, now))
    add(steps, at, "y3", NEAR, "target")
    return style.figure(
        traces,
        x="β: small follows the reward",
        y="acceptance",
        height=SWEEP_HEIGHT,
        # one axis of beta under three stacked ones
        xaxis={"type": "log", "range": [-1.33, 1.33], "tickvals": TICKS, "ticktext": TICKS,
               "anchor": "y3"},
        yaxis={"range": [0, 1.02], "tickformat": ".0%", "domain": [0.7, 1]},
        yaxis2={**style.AXIS, "title": style.title("KL, nats"), "rangemode": "tozero",
                "domain": [0.35, 0.65]},
        yaxis3={**style.AXIS, **log_axis([step or 1 for step in steps], most=5),
                "title": style.title("steps"), "domain": [0, 0.3]},
        shapes=[style.line_at(now.beta)],
    )  # fmt: skip


def facts_of(here: AtBeta, guess: float | None) -> style.Words:
    """The numbers at this beta; acceptance only once it has been revealed."""
    steps = "more than 10⁹" if here.steps is None else f"{here.steps:,}"
    rows = [
        ("Distance from the model", f"{style.cell_text(here.kl)} nats"),
        ("Mean reward of the target", f"{signed(here.mean_reward)} SD"),
        (NEAR.capitalize(), steps),
        (
            "Share of the distance that each late step leaves (second eigenvalue)",
            f"{here.eigenvalue:.4f}",
        ),
    ]
    accepted = [
        ("Acceptance", style.percent(here.acceptance)),
        ("… of those that change the text", style.percent(here.acceptance_changed)),
    ]
    return style.facts(accepted * (guess is None) + rows)


def verdict(here: AtBeta, guess: float, revealed: bool) -> style.Words:
    """What became of the guess."""
    if not revealed:
        return style.note(
            f"What share of the proposals is accepted at β = {here.beta:g}? "
            "Set your guess, then show the rate."
        )
    off = abs(guess - here.acceptance)
    word = "Spot on" if off <= 0.05 else "Close" if off <= 0.15 else "Far off"
    return style.note(
        f"{word}: you guessed {guess:.0%}, and {here.acceptance:.1%} of the proposals are "
        f"accepted ({here.acceptance_changed:.1%} of those that change the text). "
        "The paper tunes β until about half are accepted."
    )


def sweep_table(points: tuple[AtBeta, ...], revealed: bool) -> style.Words:
    """The curves as numbers."""
    return style.table(
        ("β", "acceptance", "of those that change the text", "KL, nats", "mean reward",
         "second eigenvalue", NEAR),
        [
            (number(p.beta), p.acceptance if revealed else "?",
             p.acceptance_changed if revealed else "?", p.kl, p.mean_reward,
             f"{p.eigenvalue:.6f}", p.steps)
            for p in points
        ],
    )  # fmt: skip


def draw(world: World, beta: float, guess: float, mode: str) -> View:
    """Everything that the section shows."""
    revealed = mode == REVEALED
    here, chain, share = at_beta(world, beta), world.chain(beta), guess / 100
    hidden = None if revealed else share
    points = sweep(world)
    curves = sweep_figure(points, here, hidden), sweep_table(points, revealed)
    return View(
        (verdict(here, share, revealed), facts_of(here, hidden)),
        ((strip(chain), strip_table(chain)), curves),
    )


def controls() -> list[Component]:
    """The guess; beta itself is the shared slider at the top of the page."""
    label, wide = "Your guess: accepted proposals, %", {"scale": 3, "min_width": 240}
    return [
        style.slider("guess", label, 0, 100, 50, 1, **wide),
        gr.Radio([HIDDEN, REVEALED], value=HIDDEN, label="Acceptance rate", elem_id="lab-reveal",
                 scale=2, min_width=240),
    ]  # fmt: skip


SECTION = Section(
    "Beta",
    "beta",
    "What does β do?",
    "A text here is a string of the letters a, b and c. With a large [β (beta)](beta), the "
    "[target](target) is close to the language model. With a small β, only the highest rewards "
    "keep their weight. The smaller β is, the more steps the chain needs to come within 1% of the "
    "target, in [total variation](variation). Guess the [acceptance](acceptance), then move β.",
    controls,
    draw,
    {
        "target": "The target at this β",
        "sweep": "Acceptance, distance and patience, at every β",
    },
    heights={"sweep": SWEEP_HEIGHT},
)
