"""The figures of a report's page, each with its heading and what has to be said of it.

Every name is escaped as markup and stands in an element of its own (`<bdi>`), so that it turns
nothing round that stands beside it.
"""

import html
from collections.abc import Iterable, Sequence

import numpy as np

from qalign_core.decide.compared import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.registry import entries
from qalign_study.measure.curves import Curve, Point, averaged, own_curves
from qalign_study.measure.landmarks import gain
from qalign_study.measure.mixture import best_of_n_as_alignment, fit_mixture, tilt
from qalign_study.measure.own_beta import lot_of
from qalign_study.measure.report import Evaluated, Group
from qalign_study.sheet.chart import Axis, Line, as_percent, chart, legend
from qalign_study.sheet.words import curve_name, in_a_sentence, number, percent, si, target_of

PANELS = 9
"""Problems whose rewards are drawn, as many as in the paper's figure."""
OTHER_LMS = ("length", "proposed", "target")
"""Ideas whose looks further language models borrow: this page does not draw them."""


def text(said: str) -> str:
    """A name of somebody's, as markup."""
    return f"<bdi>{html.escape(said)}</bdi>"


def _titled(kind: str, id_: str) -> str:
    entry = entries().get((kind, id_))
    return entry.title if entry is not None else id_


def models_of(group: Group) -> str:
    """A group's models by their titles, as markup."""
    lm, rm = text(_titled("lm", group.lm)), text(_titled("rm", group.rm))
    return f"language model: {lm}; reward model: {rm}"


def _figure(lines: Sequence[Line], x: Axis, y: Axis, says: str, **more: object) -> str:
    """A figure in two widths: text in an SVG shrinks with it, and a phone's would be unreadable."""
    broad = chart(lines, x, y, says=says, width=1000, height=430, **more)  # type: ignore[arg-type]
    narrow = chart(lines, x, y, says=says, width=360, height=320, **more)  # type: ignore[arg-type]
    return (
        f'<figure>{legend(lines)}<div class="broad">{broad}</div>'
        f'<div class="narrow">{narrow}</div></figure>'
    )


def _panel(title: str, lines: Sequence[Line], x: Axis, y: Axis, says: str, note: str = "") -> str:
    """One of several small figures."""
    under = f"<figcaption>{note}</figcaption>" if note else ""
    drawn = chart(lines, x, y, says=says, width=360, height=250)
    return f"<figure><h3>{text(title)}</h3>{drawn}{under}</figure>"


def _of(points: Iterable[Point], method: Curve) -> list[Point]:
    return sorted((p for p in points if p.method == method), key=lambda p: p.n)


def _errors(points: Sequence[Point], unit: str, *, bands: bool = True) -> list[Line]:
    """Wrong answers of the rules, of those at their own beta, and of any of n, against compute."""
    lines, own = [], own_curves()  # drawn as the rule is, without markers and band
    for method in (*RULES, "any", *own):
        mine = _of(points, method)
        if mine:
            band = bands and method != "any" and method not in own
            lines.append(
                Line(
                    own.get(method, method),
                    [p.spent for p in mine],
                    [1 - p.value for p in mine],
                    [1 - p.high for p in mine] if band else (),
                    [1 - p.low for p in mine] if band else (),
                    [_said(p, unit) for p in mine],
                    curve_name(method) if method in own else "",
                    markers=method not in own,
                )
            )
    return lines


def _said(p: Point, unit: str) -> str:
    return (
        f"{curve_name(p.method)}, {si(p.spent, unit)}: {percent(1 - p.value)} wrong "
        f"({percent(1 - p.high)} to {percent(1 - p.low)})"
    )


def _x(unit: str) -> Axis:
    return Axis(f"{unit} per problem, logarithmic", log=True)


_WRONG = Axis("wrong answers", text=as_percent, zero=True)


def first(main: Group, rest: Sequence[Group], tuning: float | None) -> list[str]:
    """The figure that the paper begins with: error against compute, averaged over sets."""
    unit, points = main.unit, main.points
    lines, notes = _errors(points, unit), []
    looks = iter(OTHER_LMS)
    for group in (each for each in rest if each.lm != main.lm):
        theirs = {each.problems: each.points for each in group.different}
        wanted = [each.problems for each in main.different]
        look = next(looks, None)
        if look is None or not theirs.keys() >= set(wanted):
            notes.append(f"{text(group.lm)} was not run on all of these sets, and is not drawn.")
            continue
        of_each = [theirs[problems] for problems in wanted]
        votes = _of(averaged(of_each) if len(of_each) > 1 else of_each[0], "mv")
        lines.append(
            Line(
                look,
                [p.spent for p in votes],
                [1 - p.value for p in votes],
                [1 - p.high for p in votes],
                [1 - p.low for p in votes],
                [_said(p, unit) for p in votes],
                f"{curve_name('mv')} of {_titled('lm', group.lm)}",
            )
        )
    mark = None
    if tuning is not None and main.flops:
        n = sum(len(each.results.records) for each in main.different)
        mark = (tuning / n, f"finding β: {si(tuning / n, unit)} each")
        notes.append(
            f"Finding β cost {si(tuning, unit)} once; the dashed line is its share of each of the "
            f"{n:,} problems."
        )
    over = f"averaged over {len(main.different)} sets" if main.average else text(main.sets[0].name)
    notes.insert(
        0,
        "Lower is better. Bands are 95% over problems. No rule that chooses among samples can be "
        f"below the dotted line, {in_a_sentence(curve_name('any'))}.",
    )
    return [
        f"<h2>How many answers are wrong, for how much compute: {over}</h2>",
        f'<p class="soft">{" ".join(notes)}</p>',
        _figure(lines, _x(unit), _WRONG, "Wrong answers against compute", mark=mark),
    ]


def multiples(groups: Sequence[Group]) -> list[str]:
    """A small figure for each set."""
    panels = [
        _panel(
            each.name,
            _errors(each.points, group.unit),
            _x(group.unit),
            _WRONG,
            f"Wrong answers against compute on {each.name}",
            _ran(each) + (f"; {models_of(group)}" if group is not groups[0] else ""),
        )
        for group in groups
        for each in group.sets
    ]
    return [
        "<h2>Set by set</h2>",
        legend(_errors(groups[0].sets[0].points, "FLOPs")),
        f'<div class="grid-of">{"".join(panels)}</div>',
    ]


def _ran(each: Evaluated) -> str:
    n_chains = each.results.header.chains
    return target_of(each.results.header) + f", {n_chains} chains" * (n_chains > 1)


def gains(main: Group) -> list[str]:
    """How many times as often as one sample each method is right."""
    points, unit = main.points, main.unit
    one = next((p for p in points if p.method == "one"), None)
    if one is None or one.value == 0:
        return []
    lines = []
    for method in RULES:
        mine = [(p, *gain(p, one)) for p in _of(points, method)]
        if mine:
            lines.append(
                Line(
                    method,
                    [p.spent for p, *_ in mine],
                    [value for _, value, _, _ in mine],
                    [low for _, _, low, _ in mine],
                    [high for *_, high in mine],
                    [
                        f"{curve_name(method)}, {si(p.spent, unit)}: {value:.2f} times "
                        f"({low:.2f} to {high:.2f})"
                        for p, value, low, high in mine
                    ],
                )
            )
    axis = Axis("times as often right as one sample", text=lambda value: f"{value:g}", zero=True)
    return [
        "<h2>What compute gains over one sample</h2>",
        f'<p class="soft">One sample is right in {percent(one.value)} '
        f"({percent(one.low)} to {percent(one.high)}).</p>",
        _figure(lines, _x(unit), axis, "Gain over one sample against compute"),
    ]


def waits(main: Group) -> list[str]:
    """How long one waits: tokens that are written one after another."""
    by_chains: dict[int, list[Evaluated]] = {}
    for each in main.sets:
        by_chains.setdefault(each.results.header.chains, []).append(each)
    unit, lines = main.unit, []
    for (n_chains, sets), look in zip(
        sorted(by_chains.items()), ("chain", *OTHER_LMS), strict=False
    ):
        of_each = [each.points for each in sets if each.stated]
        points = averaged(of_each) if len(of_each) > 1 else of_each[0]
        name = "one chain" if n_chains == 1 else f"{n_chains} chains"
        lines += _waiting(points, "qalign", look, name, unit)
    lines += _waiting(main.points, "mv", "base", "independent samples", unit)
    if not lines:
        return []
    return [
        "<h2>How long one waits</h2>",
        '<p class="soft">Tokens that have to be written one after another: all of a chain’s (the '
        "longest of several), but only the longest of independent samples, on hardware that can "
        "write all of them side by side. No clock is in results, which are the same on every "
        "machine.</p>",
        _figure(lines, _x(unit), Axis("tokens in a row, logarithmic", log=True), "Tokens in a row"),
    ]


def _waiting(points: Sequence[Point], method: Curve, look: str, name: str, unit: str) -> list[Line]:
    mine = _of(points, method)
    says = [f"{name}, {si(p.spent, unit)}: {p.waited:,.0f} tokens in a row" for p in mine]
    x, y = [p.spent for p in mine], [p.waited for p in mine]
    return [Line(look, x, y, says=says, name=name)] if mine else []


def mixtures(main: Group) -> list[str]:
    """Rewards of samples, problem by problem, with the mixture that the paper fits to them."""
    first = main.different[0]
    header = first.results.header
    if not header.rewarded or header.target.is_sharp:  # that is no tilt of the rewards' law
        return []
    records = sorted(first.results.records, key=lambda record: lot_of(record.id))
    panels = []
    for record in records:
        rewards = record.pool_reward.astype(float)
        mixture = fit_mixture(rewards.tolist())
        if mixture is None:
            continue
        heights, edges = np.histogram(rewards, bins=24, density=True)
        beyond = (edges[-1] - edges[0]) / 4  # the target goes where samples are rare
        grid = np.linspace(edges[0] - beyond / 2, edges[-1] + beyond, 141)
        steps, top = np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)
        none = [0.0] * len(steps)
        lines = [
            Line("base", steps.tolist(), top.tolist(), none, top.tolist(), stroke=False),
            Line("base", grid.tolist(), mixture.density(grid).tolist(), markers=False),
        ]
        note = f"{len(mixture.weights)} component{'s' * (len(mixture.weights) > 1)}"
        try:
            tilted = tilt(mixture, header.beta)
            n = len(rewards)
            alike = best_of_n_as_alignment(mixture, n)
            note += f"; best-of-{n} is like β = {number(alike.beta)}"
            under = tilted.density(grid).tolist()
            lines.append(Line("target", grid.tolist(), under, markers=False))
        except InvalidSetting:  # the formula means nothing for so few, or so small a beta
            pass
        axis = Axis("reward", text=lambda value: f"{value:g}")
        density = Axis("density", text=lambda value: f"{value:g}", zero=True)
        panels.append(
            _panel(record.id, lines, axis, density, f"Rewards of samples of {record.id}", note)
        )
        if len(panels) == PANELS:
            break
    if not panels:
        return []
    under = f"the same under the target, β = {number(header.beta)}"
    key = [
        Line("base", (), (), name="mixture fitted to the rewards of samples", markers=False),
        Line("target", (), (), name=under, markers=False),
    ]
    return [
        "<h2>Rewards of samples are a mixture</h2>",
        f'<p class="soft">{len(panels)} problems of {text(first.name)}, chosen by a hash of their '
        "ids: one or two normal components, whichever has the lower BIC (paper, appendix).</p>",
        legend(key),
        f'<div class="grid-of">{"".join(panels)}</div>',
    ]
