"""What does beta do? From trusting the LM to trusting the reward, guessed before it is shown."""

from __future__ import annotations

import gradio as gr
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from components.lab_chain import strip, strip_table
from components.lab_section import Section
from components.lab_style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    TICKS,
    VIOLET,
    block,
    facts,
    figure,
    heading,
    note,
    number,
    percent,
    table,
)
from qalign_core.theory.temperature import AtBeta, at_beta, sweep
from qalign_core.theory.world import World

HIDDEN, REVEALED = "Guess first", "Show the acceptance rate"


def sweep_figure(points: tuple[AtBeta, ...], here: AtBeta, guess: float | None) -> go.Figure:
    """Acceptance, KL and steps to 1 % against beta; without acceptance while it is guessed."""
    fig = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.05)
    betas = [p.beta for p in points]

    def add(row: int, name: str, colour: str, values: list[float | None], at: float | None) -> None:
        line = go.Scatter(x=betas, y=values, name=name, line={"color": colour, "width": 2.5},
                          hovertemplate="%{y:.3g}")  # fmt: skip
        dot = go.Scatter(x=[here.beta], y=[at], mode="markers", showlegend=False,
                         hoverinfo="skip",
                         marker={"size": 11, "color": colour,
                                 "line": {"color": "white", "width": 2}})  # fmt: skip
        fig.add_traces([line, dot], rows=[row, row], cols=[1, 1])

    if guess is None:
        add(1, "acceptance", BLUE, [p.acceptance for p in points], here.acceptance)
        changed = [p.acceptance_changed for p in points]
        fig.add_trace(
            go.Scatter(x=betas, y=changed, name="over proposals that differ",
                       hovertemplate="%{y:.3g}",
                       line={"color": BLUE, "width": 1.5, "dash": "dot"}), 1, 1)  # fmt: skip
    else:
        fig.add_trace(
            go.Scatter(x=[betas[0], betas[-1]], y=[guess, guess], name="your guess", mode="lines",
                       line={"color": GREY, "dash": "dash"}, hoverinfo="skip"), 1, 1)  # fmt: skip
    add(2, "KL(target‖base)", ORANGE, [p.kl for p in points], here.kl)
    steps: list[float | None] = [None if p.steps is None else max(p.steps, 1) for p in points]
    add(3, "steps to 1 %", VIOLET, steps, None if here.steps is None else max(here.steps, 1))
    frame = figure([], x="", y="", height=480).layout
    fig.update_layout(
        {k: frame[k] for k in ("template", "height", "margin", "paper_bgcolor", "plot_bgcolor",
                               "font", "legend", "hovermode", "dragmode")}
    )  # fmt: skip
    fig.update_xaxes(type="log", gridcolor="#dfe3ea", range=[-1.33, 1.33], **TICKS)
    fig.update_xaxes(
        tickvals=[0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20],
        ticktext=["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"],
    )
    fig.update_xaxes(title_text="beta (← trust the reward, the LM →)", row=3)
    fig.update_yaxes(gridcolor="#dfe3ea", **TICKS)
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%", title_text="acceptance", row=1)
    fig.update_yaxes(title_text="KL, nats", rangemode="tozero", row=2)
    fig.update_yaxes(
        type="log", title_text="steps to 1 %", exponentformat="power", tickfont_size=11, row=3
    )
    fig.add_vline(x=here.beta, line={"color": GREY, "width": 1, "dash": "dot"})
    fig.update_layout(font_color=INK)
    fig.update_xaxes(title_font_size=13)
    fig.update_yaxes(title_font_size=13)
    return fig


def facts_of(here: AtBeta, guess: float | None) -> str:
    """The numbers at this beta; acceptance only once it has been revealed."""
    steps = "more than 10⁹" if here.steps is None else f"{here.steps:,}"
    rows = [
        ("KL(target‖base)", f"{number(here.kl)} nats"),
        ("Mean reward of the target", f"{here.mean_reward:+.2f} spreads"),
        ("Steps until within 1 %", steps),
        ("Second eigenvalue", f"{here.eigenvalue:.4f}"),
    ]
    if guess is None:
        rows = [
            ("Acceptance", percent(here.acceptance)),
            ("… of proposals that differ", percent(here.acceptance_changed)),
            *rows,
        ]
    return facts(rows)


def verdict(here: AtBeta, guess: float, revealed: bool) -> str:
    """What became of the guess."""
    if not revealed:
        return note(
            f"At beta = {here.beta:g}, in spreads: what share of proposals is accepted? "
            "Set your guess, then show the rate."
        )
    off = abs(guess - here.acceptance)
    word = "Spot on" if off <= 0.05 else "Close" if off <= 0.15 else "Surprised?"
    return note(
        f"{word}: you guessed {guess:.0%}, and {here.acceptance:.1%} of the proposals are "
        f"accepted ({here.acceptance_changed:.1%} of those that differ from the state). "
        "The paper tunes beta until about half are."
    )


def sweep_table(points: tuple[AtBeta, ...], revealed: bool) -> str:
    """The curves as numbers."""
    return table(
        ("beta", "acceptance", "of proposals that differ", "KL, nats", "mean reward",
         "second eigenvalue", "steps to 1 %"),
        [
            (f"{p.beta:.3g}", p.acceptance if revealed else "?",
             p.acceptance_changed if revealed else "?", p.kl, p.mean_reward,
             f"{p.eigenvalue:.6f}", p.steps)
            for p in points
        ],
    )  # fmt: skip


def draw(world: World, beta: float, guess: float, mode: str) -> tuple[object, ...]:
    """Everything that the section shows."""
    revealed = mode == REVEALED
    here, chain, share = at_beta(world, beta), world.chain(beta), guess / 100
    hidden = None if revealed else share
    points = sweep(world)
    return (
        verdict(here, share, revealed) + facts_of(here, hidden),
        strip(chain),
        strip_table(chain),
        sweep_figure(points, here, hidden),
        sweep_table(points, revealed),
    )


def build() -> Section:
    """The section's widgets; beta itself is the shared slider at the top of the page."""
    heading(
        "What does beta do?",
        "Beta is how much the reward is distrusted: large, and the target is the language model "
        "itself; small, and only the best reward is left, which the chain finds ever more slowly. "
        "Move beta at the top, but guess the acceptance rate first.",
    )
    with gr.Row():
        guess = gr.Slider(0, 100, 50, step=1, label="Your guess: accepted proposals, %",
                          elem_id="lab-guess", scale=3, min_width=240)  # fmt: skip
        mode = gr.Radio([HIDDEN, REVEALED], value=HIDDEN, label="Acceptance rate",
                        elem_id="lab-reveal", scale=2, min_width=240)  # fmt: skip
    told = gr.HTML(elem_id="lab-beta-told", padding=False)
    with gr.Row():
        with gr.Column(min_width=340):
            bars = block("The target at this beta", "target")
        with gr.Column(min_width=340):
            curve = block("Acceptance, distance and patience, at every beta", "sweep")
    return Section(draw, [guess, mode], [told, bars.plot, bars.numbers, curve.plot,
                   curve.numbers])  # fmt: skip
