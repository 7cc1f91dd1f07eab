"""Does the chain reach the target? The exact chain, step by step."""

from dataclasses import dataclass

import gradio as gr
import numpy as np
from gradio.components import Component

from components.common.options import PRIVATE
from components.lab import style
from components.lab.section import Section, View
from qalign_core.types import Array
from qalign_study.exact.convergence import (
    acceptance_rate,
    distances,
    kl_divergence,
    noise_floor,
    second_eigenvalue,
    shares,
    simulate,
)
from qalign_study.exact.law import ExactChain, total_variation
from qalign_study.exact.world import World, by_reward, label
from qalign_study.export.dictionary import colour
from qalign_study.sheet.words import signed

STEPS = 256
FIRST_BETA = 1.0
CHAIN_COUNTS = {"Exactly, d₀Tᵗ": 0, "1 chain": 1, "16 chains": 16, "256 chains": 256}
SEED = 7
LETTERED = "strings of a, b, c; worst reward first"
# where Play stops on its way: dense where the chain moves most
STOPS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, STEPS)


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """What the section shows of one chain.

    Attributes:
        selection: a key of `CHAIN_COUNTS`: a number of simulated chains, or the exact distribution.
        exact: total variation of d_0 T^t from the target, shape [STEPS + 1].
        now: the distribution shown at step t, exact or empirical, shape [n].
        empirical: total variation of the shares of the chains, shape [STEPS + 1], if any walk.
        floor: what that many draws of the target itself would show.
        visited: total variation of the time shares of the chains up to each step, [STEPS + 1].
    """

    chain: ExactChain
    t: int
    selection: str
    exact: Array
    now: Array
    empirical: Array | None = None
    floor: float = 0.0
    visited: Array | None = None

    @property
    def here(self) -> float:
        """The distance from the target at step t."""
        return float((self.exact if self.empirical is None else self.empirical)[self.t])


def progress(world: World, beta: float, t: int, selection: str) -> Progress:
    """The chain of a world after t steps, exactly or as a number of chains shows it."""
    chain, n_chains = world.chain(beta), CHAIN_COUNTS[selection]
    exact = distances(chain, STEPS)
    if not n_chains:
        return Progress(chain, t, selection, exact, chain.after(t))
    walked = shares(simulate(chain, n_chains=n_chains, steps=STEPS, seed=SEED), len(chain.states))
    empirical = np.array([total_variation(d, chain.target) for d in walked])
    times = np.cumsum(walked, axis=0) / np.arange(1, len(walked) + 1)[:, None]
    visited = np.array([total_variation(d, chain.target) for d in times])
    floor = noise_floor(chain.target, n_chains)
    return Progress(chain, t, selection, exact, walked[t], empirical, floor, visited)


def strip(chain: ExactChain, distribution: Array | None = None, name: str = "") -> style.Figure:
    """All responses, lowest reward first: the model alone, the exact target, and `distribution`."""
    order = by_reward(chain)
    place = np.arange(len(order))
    labels = [label(chain.states[a]) for a in order]
    ticks = np.unique(np.linspace(0, len(order) - 1, 6).round().astype(int))
    hover = [
        f"{text} · reward {signed(r)}" for text, r in zip(labels, chain.rewards[order], strict=True)
    ]
    traces = [
        style.bar("target", x=place, y=chain.target[order], name="exact target",
            customdata=hover, hovertemplate="%{customdata}<br>target %{y:.4f}"),
        style.scatter(x=place, y=chain.base[order], name="model alone", mode="lines",
                line={"color": colour("base"), "width": 1.5, "shape": "hvh"},
                hovertemplate="%{y:.4f}"),
    ]  # fmt: skip
    if distribution is not None:
        traces.append(
            style.scatter(x=place, y=distribution[order], name=name, mode="markers",
                    marker={"color": colour("chain"), "size": 6, "symbol": "circle"},
                    hovertemplate="%{y:.4f}")
        )  # fmt: skip
    return style.figure(
        traces,
        x=LETTERED,
        y="probability",
        xaxis={
            "tickvals": ticks,
            "ticktext": [f"{labels[k]}<br>{signed(chain.rewards[order[k]], 1)}" for k in ticks],
            "tickangle": 0,
            "hoverformat": " ",
            "title": {**style.title(LETTERED), "standoff": 12},
        },
        margin={"b": 72},
        bargap=0.05,
    )


def distance_figure(p: Progress) -> style.Figure:
    """Total variation against t on a log axis, with the slope and the noise floor."""
    t = np.arange(len(p.exact))
    resolved = np.where(p.exact > 1e-15, p.exact, np.nan)  # below this it is rounding
    # the slope is as_float32 through the last point that is not yet rounding
    anchor = int(np.nonzero(p.exact > 1e-11)[0][-1])
    factor = second_eigenvalue(p.chain)
    slope = p.exact[anchor] * np.power(factor, (t - anchor).astype(float))
    visible_slope = style.as_float32(np.where((slope < 3) & (slope > 1e-15), slope, np.nan))
    eigenvalue = f"in the long run × {factor:.3f} per step (second eigenvalue)"
    thin = {"width": 1.5, "dash": "dash"}
    traces = [
        style.curve("exact chain", t, style.as_float32(resolved), "chain", "number"),
        style.curve(eigenvalue, t, visible_slope, "base", "", **thin),
    ]
    if p.empirical is not None and p.visited is not None:
        noise, ends = noise_name(p), [0, len(t) - 1]
        traces += [
            style.curve(where_name(p), t, style.as_float32(p.empirical), "chain", width=1),
            style.curve(visited_name(p), t, style.as_float32(p.visited), "accepted", width=2.5),
            style.curve(noise, ends, [p.floor, p.floor], "base", width=1.5, dash="dot"),
        ]
    traces.append(style.dot(p.t, max(p.here, 1e-15), "chain", name=f"t = {p.t}"))
    return style.over_steps(traces, [1e-15, 1], range=[-15.2, 0.4])


def where_name(p: Progress) -> str:
    """Name the distance of the texts at which the chains are."""
    return f"where {p.selection} {'is' if CHAIN_COUNTS[p.selection] == 1 else 'are'}"


def visited_name(p: Progress) -> str:
    """Name the distance of the time shares, which vote."""
    return f"what {p.selection} {'has' if CHAIN_COUNTS[p.selection] == 1 else 'have'} visited"


def noise_name(p: Progress) -> str:
    """Name the distance that as many draws from the target itself would show."""
    n = CHAIN_COUNTS[p.selection]
    return f"noise of {n} {'draw' if n == 1 else 'draws'} from the target"


def facts_of(p: Progress) -> style.Words:
    """The numbers that matter at step t."""
    below = np.nonzero(p.exact < 1e-10)[0]
    rows = [
        (f"Distance to the target at t = {p.t}", style.cell_text(p.here)),
        ("Falls below 10⁻¹⁰", f"at t = {below[0]}" if len(below) else f"after t = {STEPS}"),
        ("Expected acceptance", style.percent(acceptance_rate(p.chain))),
        (
            "Target’s distance from the model",
            f"{kl_divergence(p.chain.target, p.chain.base):.3f} nats",
        ),
    ]
    if p.visited is not None:
        rows[0] = (f"Distance of where the chains are at t = {p.t}", style.cell_text(p.here))
        rows[1] = (noise_name(p).capitalize(), style.cell_text(p.floor))
        visited = style.cell_text(float(p.visited[p.t]))
        rows.insert(1, ("Distance of their time shares so far, which vote", visited))
    return style.facts(rows)


def strip_table(
    chain: ExactChain, distribution: Array | None = None, name: str = ""
) -> style.Words:
    """Every response, best reward first: reward, model alone, target, and what is shown."""
    headers = ["response", "reward", "|y|", "model alone", "exact target"]
    columns = [chain.rewards, chain.base, chain.target]
    if distribution is not None:
        headers.append(name)
        columns.append(distribution)
    rows: list[list[style.Cell]] = []
    for a in by_reward(chain)[::-1]:
        reward, *rest = (float(column[a]) for column in columns)
        rows.append([label(chain.states[a]), reward, len(chain.states[a]), *rest])
    return style.table(headers, rows)


def distance_table(p: Progress) -> style.Words:
    """Total variation at every step that Play stops at."""
    curves = {"exact chain": p.exact}
    if p.empirical is not None and p.visited is not None:
        curves |= {
            where_name(p): p.empirical,
            visited_name(p): p.visited,
            "noise floor": np.full(len(p.exact), p.floor),
        }
    return style.table_at(STOPS, curves)


def draw(world: World, beta: float, t: float, selection: str) -> View:
    """Everything that the section shows."""
    p = progress(world, beta, int(t), selection)
    name = f"{f'{selection} ' * bool(CHAIN_COUNTS[selection])}after {p.t} steps"
    bars = strip(p.chain, p.now, name), strip_table(p.chain, p.now, name)
    return View((facts_of(p),), (bars, (distance_figure(p), distance_table(p))))


def controls() -> list[Component]:
    """The step, and what is shown of it; Play moves the step."""
    t = style.slider("t", "Step t", 0, STEPS, 0, 1, scale=3, min_width=240)
    play = gr.Button("▶ Play", elem_id="lab-play", scale=1, min_width=110)
    selection = gr.Radio(
        [(name.partition(",")[0], name) for name in CHAIN_COUNTS],
        value=next(iter(CHAIN_COUNTS)), label="Distribution shown", scale=3,
        elem_id="lab-shown", min_width=280,
    )  # fmt: skip
    timer = gr.Timer(0.4, active=False)

    # In the browser: a reply of the server could come after Pause, and play on.
    at_step = (
        "(t, plays) => [t, {__type__: 'update', active: plays}, plays ? '❚❚ Pause' : '▶ Play']"
    )
    toggle = f"""(label, t) => {{
        const plays = label.includes("Play");
        return ({at_step})(plays && t >= {STEPS} ? 0 : t, plays);
    }}"""
    tick = f"""(t) => {{
        const stop = {list(STOPS)}.find((stop) => stop > t) ?? {STEPS};
        return ({at_step})(stop, stop < {STEPS});
    }}"""
    play.click(None, [play, t], [t, timer, play], js=toggle, **PRIVATE)
    timer.tick(None, t, [t, timer, play], js=tick, **PRIVATE)
    return [t, selection]


SECTION = Section(
    "Convergence",
    "convergence",
    "Does the chain reach the target?",
    "Each bar is one of at most 121 responses of this tiny language model. The lowest "
    "[reward](reward) is on the left. Move t, or press Play: the [chain](chain) (points) leaves "
    "the [model alone](base) (gray line) and settles on the exact [target](target) (bars).",
    controls,
    draw,
    {"strip": "Which responses, how often?", "distance": "How far from the target?"},
)
