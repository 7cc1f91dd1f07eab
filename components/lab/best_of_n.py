"""What has best-of-n to do with beta? The distribution of the maximum beside the tilted mixture."""

import re
from functools import lru_cache

import gradio as gr
import numpy as np
from gradio.components import Component

from components.common.options import PRIVATE
from components.lab import style
from components.lab.base_rewards import base_rewards
from components.lab.section import Section, View
from qalign_core.decide.rules import best_reward
from qalign_core.errors import InvalidSetting
from qalign_study.measure.mixture import MIN_REWARDS, SIZES, Matched, Mixture, fit_mixture, match

SLIDERS, PASTED = "sliders", "own"
MAX_REWARDS = 4096


def rewards_in(text: str) -> tuple[float, ...]:
    """The numbers in a pasted text, separated by spaces, commas or line ends.

    Raises:
        InvalidSetting: a word that is no finite number, or too many or too few numbers.
    """
    words = [word for word in re.split(r"[\s,;]+", text or "") if word]
    values = []
    for word in words[: MAX_REWARDS + 1]:
        try:
            values.append(float(word))
        except ValueError:
            raise InvalidSetting(
                f"{word[:40]!r} is not a number; paste rewards separated by spaces, commas or lines"
            ) from None
    if not MIN_REWARDS <= len(values) <= MAX_REWARDS:
        raise InvalidSetting(
            f"a mixture needs {MIN_REWARDS} to {MAX_REWARDS:,} rewards, got "
            f"{len(values):,}{'' if len(values) <= MAX_REWARDS else ' or more'}; "
            "paste the rewards of base samples of one prompt"
        )
    return tuple(values)


@lru_cache(maxsize=32)
def fitted(rewards: tuple[float, ...]) -> Mixture:
    """The mixture of these rewards (cached).

    Raises:
        InvalidSetting: they are all the same.
        InvalidReward: one is not finite.
    """
    mixture = fit_mixture(rewards)
    if mixture is None:
        raise InvalidSetting("all rewards are the same; paste rewards that differ")
    return mixture


def fit_shipped() -> None:
    """Fit what is shipped: scikit-learn takes a second to import, and each fit some time."""
    for known in base_rewards().values():
        if len(set(known.rewards)) > 1:
            fitted(known.rewards)


def mixture_of(
    source: str, pasted: str, share: float, means: tuple[float, float], sds: tuple[float, float]
) -> tuple[Mixture, tuple[float, ...]]:
    """The mixture that the controls describe, and the rewards behind it if it was fitted."""
    if source == SLIDERS:
        weight = share / 100
        if weight in (0.0, 1.0):  # one component alone
            k = int(weight)
            return Mixture((1.0,), (means[k],), (sds[k],)), ()
        return Mixture((1.0 - weight, weight), means, sds), ()
    known = base_rewards()
    rewards = known[source].rewards if source in known else rewards_in(pasted)
    return fitted(rewards), rewards


def match_figure(m: Matched, rewards: tuple[float, ...]) -> style.Figure:
    """One base reward, the largest of n with the Gumbel over it, and the target at beta*(n)."""
    traces: list[style.Trace] = []
    if rewards:
        heights, edges = np.histogram(rewards, bins=min(40, 6 + len(rewards) // 8), density=True)
        traces.append(
            style.bar("base", x=(edges[1:] + edges[:-1]) / 2, y=heights, width=np.diff(edges),
                name="samples", opacity=0.45, hoverinfo="skip")
        )  # fmt: skip
    lines = [
        ("model alone", m.base, "base", "solid"),
        (f"best of {m.n}", m.maximum, best_reward.id, "solid"),
    ]
    if m.gumbel is not None and m.tilted is not None:
        lines += [
            ("Gumbel approximation", m.gumbel, best_reward.id, "dot"),
            ("target at β*(n)", m.tilted.density(m.reward), "target", "dash"),
        ]
    traces += [
        style.curve(name, style.as_float32(m.reward[::3]), style.as_float32(y[::3]), id_, dash=dash)
        for name, y, id_, dash in lines
    ]
    mode = [] if m.alignment is None else [style.line_at(m.alignment.a)]
    return style.figure(traces, x="reward", y="density", shapes=mode)


def beta_figure(mixture: Mixture, here: Matched) -> style.Figure:
    """beta*(n) in units of the dominant component's sd against n."""
    sd = mixture.sds[mixture.dominant]
    matches = [match(mixture, n) for n in SIZES]
    known = [m for m in matches if m.alignment is not None]
    ns, points = [m.n for m in known], "lines+markers"
    beta = [m.alignment.beta / sd for m in known if m.alignment]
    spread, of_target = [m.sd / sd for m in known], [m.tilted.sd / sd for m in known if m.tilted]
    traces = [
        style.curve("β*(n) / σ", ns, beta, "target", mode=points),
        style.curve(
            "sd of best-of-n / σ", ns, spread, best_reward.id, mode=points, width=2, dash="dash"
        ),
        style.curve("sd of the target / σ", ns, of_target, "target", width=1.5, dash="dot"),
    ]
    return style.figure(
        traces,
        x="n",
        y="in units of σ of the upper component",
        xaxis={"type": "log", "tickvals": SIZES},
        yaxis={"rangemode": "tozero"},
        shapes=[] if here.alignment is None else [style.line_at(here.n)],
    )


def describe(mixture: Mixture, m: Matched, rewards: tuple[float, ...]) -> tuple[style.Words, ...]:
    """The numbers that match and the one that does not, and both mixtures as a table."""
    words: list[style.Words] = []
    if rewards and mixture.bic is not None and mixture.bic_other is not None:
        k = len(mixture.weights)
        fitted = (
            f"Fitted to {len(rewards):,} base rewards: {k} component{'s' * (k > 1)} "
            f"(BIC {mixture.bic:.1f}; with {3 - k} it is {mixture.bic_other:.1f}, and lower is "
            "better)."
        )
        words.append(style.note(fitted))
    d = mixture.dominant
    if m.alignment is None or m.tilted is None or m.gap is None:
        return (*words, style.note(m.reason))
    from_tail = mixture.weights[d] * m.n
    if from_tail < 32:
        small = (
            f"The formula is asymptotic: about {from_tail:.1f} of the {m.n} samples come from the "
            "upper-tail component, and the paper finds a good fit from about 32 on."
        )
        words.append(style.note(small))
    matched = style.facts(
        [
            (f"β*({m.n})", style.cell_text(m.alignment.beta), "good"),
            ("… in units of σ", style.cell_text(m.alignment.beta / mixture.sds[d])),
            ("Mode of best-of-n: formula", style.cell_text(m.alignment.a), "good"),
            ("Mode of best-of-n: exact", style.cell_text(m.mode), "good"),
            ("Gumbel: largest error in probability", f"{m.gap:.3f}"),
            ("sd of best-of-n", style.cell_text(m.sd), "bad"),
            ("sd of the target", style.cell_text(m.tilted.sd), "bad"),
        ]
    )
    rows: list[list[style.Cell]] = []
    for k in range(len(mixture.weights)):
        name = f"component {k + 1}" + (" (upper tail)" if k == d else "")
        rows.append(
            [name, mixture.weights[k], m.tilted.weights[k], mixture.means[k], m.tilted.means[k],
             mixture.sds[k]]
        )  # fmt: skip
    headers = ("", "weight", "tilted weight", "mean", "tilted mean", "sd, unchanged")
    return (*words, matched, style.table(headers, rows))


def match_table(m: Matched) -> style.Words:
    """The densities at every thirtieth point of the grid."""
    columns = [m.reward, m.base, m.maximum]
    headers = ["reward", "model alone", f"best of {m.n}"]
    if m.gumbel is not None and m.tilted is not None:
        columns += [m.gumbel, m.tilted.density(m.reward)]
        headers += ["Gumbel", "target at β*"]
    points = range(0, len(m.reward), 30)
    return style.table(headers, [[float(column[i]) for column in columns] for i in points])


def size_table(mixture: Mixture) -> style.Words:
    """N against beta*/sigma and what it rests on; a dash where the formula means nothing."""
    sd = mixture.sds[mixture.dominant]
    rows: list[list[style.Cell]] = []
    for n in SIZES:
        m = match(mixture, n)
        a = m.alignment
        beta, c, mode, b = (a.beta / sd, a.c, a.a, a.b) if a else (None,) * 4
        rows.append([str(n), beta, c, mode, m.mode, b, m.sd, m.gap])
    headers = ("n", "β*/σ", "c_n", "mode a_n", "exact mode", "b_n", "sd of the maximum",
               "Gumbel's largest error")  # fmt: skip
    return style.table(headers, rows)


def draw(
    source: str,
    pasted: str,
    share: float,
    mean_1: float,
    sd_1: float,
    mean_2: float,
    sd_2: float,
    n: str,
) -> View:
    """Everything that the section shows."""
    mixture, rewards = mixture_of(source, pasted, share, (mean_1, mean_2), (sd_1, sd_2))
    m = match(mixture, int(n))
    densities = match_figure(m, rewards), match_table(m)
    betas = beta_figure(mixture, m), size_table(mixture)
    return View(describe(mixture, m, rewards), (densities, betas))


def controls() -> list[Component]:
    """Where the rewards come from, n, and the two components of a mixture of one's own."""
    shipped = [
        (f"{len(known.rewards)} samples for “{known.title(60)}”", name)
        for name, known in base_rewards().items()
    ]
    sources = [("The sliders", SLIDERS), *shipped, ("Your own rewards", PASTED)]
    source = gr.Dropdown(
        sources, value=SLIDERS, label="Rewards from", elem_id="lab-source", min_width=260
    )
    n = gr.Radio([str(n) for n in SIZES], value="32", label="n", elem_id="lab-n", min_width=260)
    with gr.Column() as column:
        sliders = [
            style.slider("share", "Weight 2, %", 0, 100, 40, 1),
            style.slider("mean1", "Mean 1", -4, 4, -1.5, 0.1),
            style.slider("sd1", "sd 1", 0.2, 3, 0.8, 0.1),
            style.slider("mean2", "Mean 2", -4, 4, 1.0, 0.1),
            style.slider("sd2", "sd 2", 0.2, 3, 1.0, 0.1),
        ]
    pasted = gr.Textbox(visible=False, label="Rewards of samples for one prompt", lines=3,
                        placeholder="-1.2, 0.4, 2.31 …", elem_id="lab-pasted")  # fmt: skip
    source.change(
        lambda name: (gr.Column(visible=name == SLIDERS), gr.Textbox(visible=name == PASTED)),
        source, [column, pasted], **PRIVATE,
    )  # fmt: skip
    return [source, pasted, *sliders, n]


SECTION = Section(
    "Best-of-n",
    "best-of-n",
    "What does best-of-n have to do with β?",
    "Taking the [best of n](bon) samples resembles sampling a [target](target) whose [β](beta) "
    "falls as n grows: at β*(n) its upper component peaks where best-of-n does. The spread "
    "of best-of-n shrinks as n grows; the spread of the target does not.",
    controls,
    draw,
    {"densities": "Where do the rewards lie?", "betas": "Which β does best-of-n resemble?"},
    uses_world=False,
    prepare=fit_shipped,
)
