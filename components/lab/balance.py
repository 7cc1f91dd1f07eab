"""Why does it stay there? Detailed balance of one pair, with every factor."""

import gradio as gr
from gradio.components import Component

from components.lab.section import Section, View
from components.lab.style import LEGEND, Figure, Words, bar, cell_text, element, figure, table
from qalign_core.errors import InvalidSetting
from qalign_study.exact.law import EXACT, Flow, Rule
from qalign_study.exact.mistakes import MISTAKES, SHARP_MISTAKES
from qalign_study.exact.world import LANGUAGE_MODELS, World, label, preset
from qalign_study.sheet.words import number

FLOW_HEIGHT = 280
RIGHT = EXACT.name
RULES = {
    rule.name: rule
    for rule in (EXACT, *MISTAKES.values(), *SHARP_MISTAKES.values())
    if rule.factors
}


def pair(world: World, beta: float, y: str, z: str, rule: Rule) -> tuple[Flow, Flow]:
    """Both flows between two responses, by their labels.

    Raises:
        InvalidSetting: a label is not a response of this LM, or both are the same.
    """
    chain = world.chain(beta, rule)
    number_of = {label(state): a for a, state in enumerate(chain.states)}
    for name in (y, z):
        if name not in number_of:
            raise InvalidSetting(
                f"{name!r} is not a response of this language model; choose one from the list"
            )
    a, b = number_of[y], number_of[z]
    return chain.flow(a, b), chain.flow(b, a)


def residual(forth: Flow, back: Flow) -> float:
    """How unequal the flows are, as a share of the larger: 0 if they balance."""
    larger = max(forth.total, back.total)
    return abs(forth.total - back.total) / larger if larger > 0 else 0.0


def flow_figure(forth: Flow, back: Flow) -> Figure:
    """Both flows, index by index: to the right y to y', to the left y' to y."""
    n = max(len(forth.p_index), len(back.p_index))
    places = [f"i = {i}" for i in range(n)]
    right = [forth.through(i) for i in range(n)]
    left = [back.through(i) for i in range(n)]
    widest = max(*right, *left, 1e-300) * 1.1
    traces = [
        bar("base", y=places, x=[-v for v in left], orientation="h", name="y′ → y", hatched=6,
            customdata=[cell_text(v) for v in left],
            hovertemplate="y′ → y: %{customdata}<extra></extra>"),
        bar("chain", y=places, x=right, orientation="h", name="y → y′",
            customdata=[cell_text(v) for v in right],
            hovertemplate="y → y′: %{customdata}<extra></extra>"),
    ]  # fmt: skip
    return figure(
        traces,
        x="flow (left: y′ → y, right: y → y′)",
        y="",
        height=FLOW_HEIGHT,
        barmode="relative",
        hovermode="closest",
        xaxis={
            "range": [-widest, widest],
            "tickvals": [-widest / 1.1, 0, widest / 1.1],
            "ticktext": [cell_text(widest / 1.1), "0", cell_text(widest / 1.1)],
        },
        yaxis={"autorange": "reversed"},
        legend={**LEGEND, "traceorder": "normal"},
    )


def format_flow(total: float) -> str:
    """A flow in three digits: one less than its factors, so that they multiply to it."""
    return number(total, padded=True)


def factors(
    old: str, new: str, f: Flow, reward_gain: float, beta: float, power: float = 1.0
) -> Words:
    """One flow as a product, one line per factor; `power` is the target's sharpness."""
    base = (element("sub", "LM"), "(old)")
    sharp = "" if power == 1 else f" · (p(new) / p(old))^{power - 1:g}"
    gain = f"{'+' * (reward_gain >= 0)}{cell_text(reward_gain)} / {cell_text(beta)}"
    alpha = f"min(1, exp({gain}){sharp} · {len(f.old)} / {len(f.new)})"
    raised = "" if power == 1 else element("sup", f"{power:g}")
    target = ("the exact target: p", element("sub", "LM"), raised, " · exp(r/β) / Z")
    rows: tuple[tuple[tuple[Words, ...], tuple[Words, ...], float], ...] = (
        (("p", *base), ("how often the language model writes it",), f.base),
        (("π(old)",), target, f.target),
        (("q(new | old)",), ("probability of proposing it, summed over the cuts",), f.proposal),
        (("α(old → new)",), (alpha,), f.alpha),
    )
    body = [
        element(
            "tr",
            element("td", *name, element("br"), element("small", *what)),
            element("td", cell_text(value)),
        )
        for name, what, value in rows
    ]
    total = element(
        "tr.total", element("td", "flow = π · q · α"), element("td", format_flow(f.total))
    )
    return element("div.flow", element("h3", f"{old} → {new}"), element("table", *body, total))


def describe(
    forth: Flow, back: Flow, gain: float, beta: float, rule: Rule, power: float = 1.0
) -> tuple[Words, ...]:
    """Describe both flows as products, with a verdict."""
    y, z = label(forth.old), label(forth.new)
    unequal = residual(forth, back)
    if forth.total == back.total == 0.0:
        verdict = "Neither flow exists: this rule never moves between these two."
    elif unequal < 1e-10:
        verdict = (
            "The two flows are equal up to rounding: as much returns to y as leaves it, so the "
            "target stays the same."
        )
    else:
        verdict = (
            f"The flows differ by {100 * unequal:.1f}% of the larger one: this rule "
            f"({rule.name}) moves the chain away from the target."
        )
    kept = sum(1 for p in forth.p_suffix if p > 0)
    shared = (
        f"Both texts start with the same {kept - 1} token{'s' * (kept != 2)}, so "
        f"a rewrite from {'any of ' * (kept != 1)}{kept} place{'s' * (kept != 1)} can turn one "
        "into the other."
        if kept
        else ""
    )
    return (
        element(
            "div.flows",
            factors(y, z, forth, gain, beta, power),
            factors(z, y, back, -gain, beta, power),
        ),
        element("p.verdict", verdict, role="status"),
        element("p", shared),
    )


def flow_table(forth: Flow, back: Flow) -> Words:
    """Both flows, factor by factor, one row per index."""
    rows = []
    for i in range(max(len(forth.p_index), len(back.p_index))):
        row: list[str | float] = [str(i)]
        for f in (forth, back):
            inside = i < len(f.p_index)
            row += [f.p_index[i] if inside else 0.0, f.p_suffix[i] if inside else 0.0,
                    f.through(i)]  # fmt: skip
        rows.append(row)
    return table(
        ("index i", "P(i | y)", "p(rest of y′)", "flow y → y′", "P(i | y′)", "p(rest of y)",
         "flow y′ → y"),
        rows,
    )  # fmt: skip


def draw(world: World, beta: float, y: str, z: str, title: str) -> View:
    """Everything that the section shows."""
    rule = RULES[title]
    forth, back = pair(world, beta, y, z, rule)
    gain = world.score(forth.new) - world.score(forth.old)
    bars = flow_figure(forth, back), flow_table(forth, back)
    return View(describe(forth, back, gain, beta, rule, world.sharpness), (bars,))


def controls() -> list[Component]:
    """Two responses, of an LM that can write every text, and the rule between them."""
    everything = preset(next(iter(LANGUAGE_MODELS)))
    names = [label(y) for y in everything.lm().support]
    return [
        gr.Dropdown(names, value="ab·", label="y", elem_id="lab-y", min_width=120),
        gr.Dropdown(names, value="abca…", label="y′", elem_id="lab-z", min_width=120),
        gr.Dropdown(list(RULES), value=RIGHT, label="Rule", elem_id="lab-rule", min_width=200),
    ]


SECTION = Section(
    "Detailed balance",
    "balance",
    "Why does it stay there?",
    "Suppose that the [target](target) gives text y three times the weight of y′, and that each "
    "step proposes the other text. The chain accepts y always and y′ one time in three. Of 400 "
    "counts, let 300 be y and 100 be y′: then 300 × 1/3 = 100 steps lead from y to y′, and 100 × 1 "
    "= 100 lead back. As many leave as return, so the counts stay 3 to 1. This is [detailed "
    "balance](balance). Other counts come closer step by step: 400 and 0 become 267 and 133, then "
    "311 and 89, then 296 and 104. Pick two responses to see both flows, cut by cut.",
    controls,
    draw,
    {"flow": "Flow through each place to rewrite from"},
    heights={"flow": FLOW_HEIGHT},
)
