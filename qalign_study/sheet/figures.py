"""The figures of a sheet as values, each with its heading and what has to be said of it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from qalign_core.decide.rules import RULES, chain_vote, plain_vote, weighted_vote
from qalign_core.errors import InvalidSetting
from qalign_study.measure.cross_validated_beta import fold_of
from qalign_study.measure.curves import Curve, Point, averaged, own_curves
from qalign_study.measure.landmarks import gain
from qalign_study.measure.mixture import best_of_n_as_alignment, fit_mixture, tilt
from qalign_study.measure.report import Evaluated, Group
from qalign_study.measure.tuning import BetaPoint
from qalign_study.sheet.chart import Axis, Figure, Line, as_percent
from qalign_study.sheet.values import Section, text
from qalign_study.sheet.words import (
    curve_name,
    fixed,
    in_a_sentence,
    model_title,
    models_of,
    number,
    percent,
    si,
    target_of,
)

PANELS = 9
"""Problems whose rewards are drawn, as many as in the paper's figure."""
OTHER_LMS = ("length", "proposed", "target")
"""Ideas whose looks further language models borrow: this page does not draw them."""
ANY = ": at least one sample is right"
"""What the ceiling of all rules over samples is, behind its name in a legend."""
_RIGHT = Axis("right answers", text=as_percent)
_BETA = Axis("β, logarithmic", log=True)


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def of(points: Iterable[Point], method: Curve) -> list[Point]:
    """The points of one method, by n."""
    return sorted((p for p in points if p.method == method), key=lambda p: p.n)


def _rules(group: Group) -> list[tuple[str, str, list[Point]]]:
    """The rules that a group was decided by: the id, the name and the points of each."""
    is_open = group.header.run.open_ended
    rules = [(id_, curve_name(id_, is_open), of(group.points, id_)) for id_ in RULES]
    return [rule for rule in rules if rule[2]]


def _wrong(mine: Sequence[Point], unit: str, look: str, name: str, *, plain: bool) -> Line:
    """Wrong answers against compute; `plain` without a band."""
    labels = [
        f"{name}, {si(p.spent, unit)}: {percent(1 - p.value)} wrong "
        f"({percent(1 - p.high)} to {percent(1 - p.low)})"
        for p in mine
    ]
    band = [[1 - p.high for p in mine], [1 - p.low for p in mine]]
    low, high = ([], []) if plain else band
    return Line(look, [p.spent for p in mine], [1 - p.value for p in mine], low, high, labels, name)


def errors(
    points: Sequence[Point],
    group: Group,
    title: str = "",
    note: str = "",
    more: Sequence[Line] = (),
) -> Figure:
    """Wrong answers of the rules, of those at their own beta, and of any of n, against compute."""
    is_open, lines = group.header.run.open_ended, list(more)
    for method in (*RULES, "any", *own_curves()):
        if mine := of(points, method):
            plain = method == "any" or method in own_curves()
            id_, own, _ = method.partition("_own")
            name = curve_name(method, is_open) + ANY * (method == "any")
            line = _wrong(mine, group.unit, id_, name, plain=plain)
            lines.append(replace(line, markers=not own))
    description = "Wrong answers against compute" + f" on {title}" * bool(title)
    return Figure(description, lines, _x(group.unit), _WRONG, title, note)


def _x(unit: str) -> Axis:
    return Axis(f"{unit} per problem, logarithmic", log=True)


_WRONG = Axis("wrong answers", text=as_percent, zero=True)


def first(main: Group, rest: Sequence[Group], tuning: float | None) -> Section:
    """The figure that the paper begins with: error against compute, averaged over sets."""
    unit, is_open = main.unit, main.header.run.open_ended
    notes = [
        "Lower is better. Bands are 95% over problems. No rule that chooses among samples can be "
        f"below the dotted line, {in_a_sentence(curve_name('any', is_open))}; a chain writes new "
        "answers, and can."
    ]
    more, looks = [], iter(OTHER_LMS)
    for group in (each for each in rest if each.header.run.lm != main.header.run.lm):
        lm = group.header.run.lm
        theirs = {each.problems: each.points for each in group.different}
        wanted = [each.problems for each in main.different]
        look = next(looks, None)
        if look is None or not theirs.keys() >= set(wanted):
            notes.append(f"{text(lm)} was not run on all of these sets, and is not drawn.")
            continue
        of_each = [theirs[problems] for problems in wanted]
        votes = of(averaged(of_each), plain_vote.id)
        name = f"{curve_name(plain_vote.id, is_open)} of {model_title('lm', lm)}"
        more.append(_wrong(votes, unit, look, name, plain=False))
    figure = errors(main.points, main, more=more)
    if tuning is not None and main.unit == "FLOPs":
        n = sum(len(each.results.records) for each in main.different)
        figure = replace(figure, mark=(tuning / n, f"finding β: {si(tuning / n, unit)} each"))
        notes.append(
            f"Finding β cost {si(tuning, unit)} once; the dashed line is the share of each of the "
            f"{n:,} problems."
        )
    over = f"averaged over {len(main.different)} sets" if main.average else text(main.sets[0].name)
    title = f"How many answers are wrong, for how much compute: {over}"
    return Section(title, " ".join(notes), [figure])


def multiples(groups: Sequence[Group]) -> Section:
    """A small figure for each set."""

    def models_line(each: Evaluated, group: Group) -> str:
        header = each.results.header
        words = target_of(header.run) + f", {header.run.chains} chains" * (header.run.chains > 1)
        return words + (f"; {models_of(header.run)}" if group is not groups[0] else "")

    panels = [
        errors(each.points, group, each.name, models_line(each, group))
        for group in groups
        for each in group.sets
    ]
    return Section("Set by set", "", [tuple(panels)])


def gains(main: Group) -> Section | None:
    """How many times as often as one sample each method is right."""
    one = next(iter(of(main.points, "one")), None)
    if one is None or one.value == 0:
        return None
    lines = []
    for id_, name, mine in _rules(main):
        ends = [gain(p, one) for p in mine]
        labels = [
            f"{name}, {si(p.spent, main.unit)}: {value:.2f} times ({low:.2f} to {high:.2f})"
            for p, (value, low, high) in zip(mine, ends, strict=True)
        ]
        value, low, high = zip(*ends, strict=True)
        lines.append(Line(id_, [p.spent for p in mine], value, low, high, labels, name))
    axis = Axis("times as often right as one sample", text=_plain, zero=True)
    interval = f"{percent(one.value)} ({percent(one.low)} to {percent(one.high)})"
    figure = Figure("Gain over one sample against compute", lines, _x(main.unit), axis)
    return Section(
        "What compute gains over one sample", f"One sample is right in {interval}.", [figure]
    )


def waits(main: Group) -> Section | None:
    """How long one waits: tokens that are written one after another."""
    by_chains: dict[int, list[Sequence[Point]]] = {}
    for each in (each for each in main.sets if each.stated):
        by_chains.setdefault(each.results.header.run.chains, []).append(each.points)
    chains = zip(sorted(by_chains.items()), ("chain", *OTHER_LMS), strict=False)
    candidates = [
        (look, "one chain" if n == 1 else f"{n} chains", of(averaged(of_each), chain_vote.id))
        for (n, of_each), look in chains
    ]
    candidates.append(("base", "independent samples", of(main.points, plain_vote.id)))
    lines = []
    for look, name, mine in (each for each in candidates if each[2]):
        labels = [f"{name}, {si(p.spent, main.unit)}: {p.waited:,.0f} in a row" for p in mine]
        x, y = [p.spent for p in mine], [p.waited for p in mine]
        lines.append(Line(look, x, y, labels=labels, name=name))
    axis = Axis("tokens in a row, logarithmic", log=True)
    figure = Figure("Tokens in a row", lines, _x(main.unit), axis)
    intro = (
        "Tokens that must be written one after another: all tokens of a chain (of the longest, if "
        "there are several), but only those of the longest independent sample, on hardware that "
        "writes all samples in parallel. These counts are the same on every machine; times are not."
    )
    return Section("How long one waits", intro, [figure]) if lines else None


def mixtures(main: Group) -> Section | None:
    """Rewards of samples, problem by problem, with the mixture that the paper fits to them."""
    first = main.different[0]
    header = first.results.header
    # a sharper target is no tilt of the rewards' law
    if not header.run.has_reward or header.run.target.is_sharp:
        return None
    fitted = "mixture fitted to the rewards of samples"
    under = f"under β = {number(header.run.beta)}"
    panels: list[Figure] = []
    for record in sorted(first.results.records, key=lambda record: fold_of(record.id)):
        if len(panels) == PANELS:
            break
        rewards = record.pool_reward.astype(float)
        mixture = fit_mixture(rewards.tolist())
        if mixture is None:
            continue
        heights, edges = np.histogram(rewards, bins=24, density=True)
        beyond = (edges[-1] - edges[0]) / 4  # the target goes where samples are rare
        grid = np.linspace(edges[0] - beyond / 2, edges[-1] + beyond, 141)
        steps, top = np.repeat(edges, 2)[1:-1].tolist(), np.repeat(heights, 2).tolist()
        density = mixture.density(grid).tolist()
        lines = [
            Line("base", steps, top, [0.0] * len(steps), top, stroke=False),
            Line("base", grid.tolist(), density, name=fitted, markers=False),
        ]
        note = f"{len(mixture.weights)} component{'s' * (len(mixture.weights) > 1)}"
        try:
            tilted, n = tilt(mixture, header.run.beta).density(grid).tolist(), len(rewards)
            beta = best_of_n_as_alignment(mixture, n).beta
            note += f"; best-of-{n} is like β = {number(beta)}"
            lines.append(Line("target", grid.tolist(), tilted, name=under, markers=False))
        except InvalidSetting:  # the formula means nothing for so few, or so small a beta
            pass
        axes = Axis("reward", text=_plain), Axis("density", text=_plain, zero=True)
        description = f"Rewards of samples of {record.id}"
        panels.append(Figure(description, lines, *axes, record.id, note))
    intro = (
        f"{len(panels)} problems of {text(first.name)}, chosen by a hash of their ids: one or two "
        "normal components, whichever has the lower BIC (paper, appendix)."
    )
    return Section("Rewards of samples are a mixture", intro, [tuple(panels)]) if panels else None


def proxy(group: Group) -> Figure:
    """Accuracy against the proxy reward: a curve that turns down has over-optimised."""
    lines = []
    for id_, name, mine in _rules(group):
        labels = [
            f"{name} at the compute of {p.n} samples: reward {fixed(p.reward)}, "
            f"{percent(p.value)} right"
            for p in mine
        ]
        x, y = [p.reward for p in mine], [p.value for p in mine]
        lines.append(Line(id_, x, y, labels=labels, name=name))
    axis = Axis("mean reward of the answers", text=_plain)
    return Figure("Right answers against mean reward", lines, axis, _RIGHT)


def betas(points: Sequence[BetaPoint], group: Group) -> tuple[Figure, ...]:
    """Draw other betas' results on the same samples: accuracy, acceptance, distance to the base."""
    is_open, header = group.header.run.open_ended, group.header
    x, tuned = [p.beta for p in points], [p for p in points if p.acceptance is not None]
    right = [p.accuracy for p in points]
    ends = [p.low for p in points], [p.high for p in points]
    labels = [f"β {number(p.beta)}: {percent(p.accuracy)} right" for p in points]
    lines = [Line(weighted_vote.id, x, right, *ends, labels, curve_name(weighted_vote.id, is_open))]
    for chain in of(group.points, chain_vote.id)[-1:]:
        at = [f"this run: {percent(chain.value)} right"]
        name = curve_name(chain_vote.id, is_open)
        lines.append(Line(chain_vote.id, [header.run.beta], [chain.value], labels=at, name=name))
    accepted = [p.acceptance or 0.0 for p in tuned]
    labels = [f"β {number(p.beta)}: {percent(p.acceptance or 0.0)} accepted" for p in tuned]
    changes = Line(
        chain_vote.id, [p.beta for p in tuned], accepted, labels=labels, name="changes accepted"
    )
    labels = [f"β {number(p.beta)}: {p.kl:.2f} nats" for p in points]
    distance = Line("base", x, [p.kl for p in points], labels=labels, name="distance")
    most = f"log {header.run.pool}, the most that {header.run.pool} samples can show"
    limit = Line("any", [x[0], x[-1]], [math.log(header.run.pool)] * 2, name=most, markers=False)
    here = (header.run.beta, "β of this run")
    share = Axis("changes accepted", text=as_percent, zero=True)
    nats = Axis("nats", text=_plain, zero=True)
    return (
        Figure("Right answers by β", lines, _BETA, _RIGHT, "Right answers", mark=here),
        Figure("Acceptance by β", [changes], _BETA, share, "Changes accepted", mark=here),
        Figure("Distance by β", [distance, limit], _BETA, nats, "Distance, nats", mark=here),
    )
