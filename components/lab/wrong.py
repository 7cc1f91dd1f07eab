"""What if the reward is wrong? A constructed example, computed exactly with the real kernel."""

import numpy as np
from gradio.components import Component

from components.common.style import curve_of
from components.lab import style
from components.lab.section import Section, View
from qalign_core.decide.rules import RULES, best_reward, chain_vote
from qalign_study.exact.wrong_reward import (
    ANSWERS,
    MEANINGS,
    SAMPLES,
    Example,
    Outcome,
    outcomes,
    target_over_beta,
)
from qalign_study.export.dictionary import colour
from qalign_study.sheet.words import curve_name, number

SHARES = {"tickformat": ".0%", "range": [0, 1.03]}
BETAS = tuple(float(b) for b in np.geomspace(0.1, 10.0, 80))


def method_figure(results: tuple[Outcome, ...], what: str) -> style.Figure:
    """Expected accuracy or proxy reward of every method against n ("accuracy" or "proxy")."""
    traces = []
    for id_ in RULES:
        mine = [o for o in results if o.method == id_]
        look = curve_of(id_, name=curve_name(id_), hovertemplate="%{y:.3f}")
        traces.append(
            style.scatter(x=[o.n for o in mine], y=[getattr(o, what) for o in mine], **look)
        )
    accuracy = what == "accuracy"
    return style.figure(
        traces,
        x="n: samples, or states of one chain",
        y="share of right answers: P(A)" if accuracy else "proxy reward of the answer",
        xaxis={"type": "log", "tickvals": SAMPLES, "ticktext": [str(n) for n in SAMPLES]},
        yaxis=SHARES if accuracy else None,
    )


def target_figure(example: Example) -> style.Figure:
    """Share of A, B and C under the target against beta, with this beta and where C takes over."""
    shares = target_over_beta(example, BETAS)
    looks = (("chain", "solid"), ("base", "dot"), ("wrong", "dash"))
    traces = [
        style.curve(f"{ANSWERS[k]}: {MEANINGS[k]}", BETAS, shares[:, k], id_, dash=dash)
        for k, (id_, dash) in enumerate(looks)
    ]
    shapes = [style.line_at(example.beta, color=colour("target"), width=2)]
    if BETAS[0] < example.hack_beta < BETAS[-1]:
        shapes.append({"type": "rect", "x0": BETAS[0], "x1": example.hack_beta, "yref": "paper",
                       "y0": 0, "y1": 1, "fillcolor": colour("wrong"), "opacity": 0.12,
                       "line": {"width": 0}})  # fmt: skip
    return style.figure(
        traces,
        x="β: small follows the reward",
        y="share of the target",
        xaxis={"type": "log", "tickvals": [0.1, 0.2, 0.5, 1, 2, 5, 10]},
        yaxis=SHARES,
        shapes=shapes,
    )


def story(example: Example, results: tuple[Outcome, ...]) -> tuple[style.Words, ...]:
    """Both halves of it, in words and numbers of this setting."""
    last = {o.method: o for o in results if o.n == SAMPLES[-1]}
    best = max((o for o in results if o.method == best_reward.id), key=lambda o: o.accuracy)
    target = example.target()
    right, _, hack = (float(p) for p in target)
    preferred = "ABC"[int(target.argmax())]
    cards = style.facts(
        [
            (
                f"Best-of-n at n = {SAMPLES[-1]}",
                style.percent(last[best_reward.id].accuracy),
                "bad",
            ),
            ("… its best", f"{style.percent(best.accuracy)} at n = {best.n}"),
            (
                f"QAlign chain at n = {SAMPLES[-1]}",
                style.percent(last[chain_vote.id].accuracy),
                "good",
            ),
            ("Target: share of A, the right one", style.percent(right)),
            ("Target: share of C, the hack", style.percent(hack)),
        ]
    )
    if preferred == "C":
        limit = number(example.hack_beta)
        words = (
            f"At β = {number(example.beta)}, below {limit}, the target itself prefers the hack. No "
            "sampler can fix that: QAlign and the weighted vote both return C, as they should."
        )
    elif preferred == "B":
        words = (
            f"At β = {number(example.beta)}, above {number(example.right_beta)}, the reward counts "
            "too little to overturn the popular wrong answer: the target prefers B."
        )
    else:
        words = (
            f"Between β = {number(example.hack_beta)} and {number(example.right_beta)} the target "
            "prefers A. Best-of-n takes the highest reward at any β, so with enough "
            "samples it always finds the hack: its proxy reward climbs while its accuracy "
            "collapses."
        )
    return cards, style.note(words)


def outcome_table(results: tuple[Outcome, ...]) -> style.Words:
    """Every method at every n."""
    return style.table(
        ("method", "n", "P(A), accuracy", "P(B)", "P(C)", "proxy reward"),
        [(curve_name(o.method), str(o.n), *o.answers, o.proxy) for o in results],
    )


def target_table(example: Example) -> style.Words:
    """The three shares at a few betas."""
    betas = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, example.beta)
    shares = target_over_beta(example, betas)
    return style.table(
        ("β", "A", "B", "C"),
        [(style.cell_text(b), *map(float, row)) for b, row in zip(betas, shares, strict=True)],
    )


def draw(hack_percent: float, hack_reward: float, beta: float) -> View:
    """Everything that the section shows."""
    example = Example(hack_percent / 100, hack_reward, beta)
    results = outcomes(example)
    rows = outcome_table(results)
    methods = [(method_figure(results, what), rows) for what in ("accuracy", "proxy")]
    return View(
        story(example, results), (*methods, (target_figure(example), target_table(example)))
    )


def controls() -> list[Component]:
    """The hack's share and reward, and beta."""
    return [
        style.slider("hack-mass", "Hack C: share of the LM, %", 0.1, 20, 1, 0.1),
        style.slider("hack-reward", "Hack C: its reward", 1.5, 8, 3, 0.1),
        style.slider("hack-beta", "β, in units of this reward", 0.1, 5, 1, 0.05),
    ]


SECTION = Section(
    "A wrong reward",
    "wrong",
    "What if the reward is wrong?",
    "In this constructed example, answer A is right and has reward 1. Answer B is popular, wrong, "
    "and has reward 0. Answer C is rare, and the [reward model](reward) overrates it. Every curve "
    "is an exact sum over all possible draws.",
    controls,
    draw,
    {
        "accuracy": "How often is the answer right?",
        "proxy": "Proxy reward: what the reward model sees",
        "hack-target": "What the target itself prefers (line: this β)",
    },
    uses_world=False,
)
