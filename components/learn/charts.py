"""The curves and columns of an exhibit, as data that `assets/web/exhibit/chart.js` draws.

A chart: {"name", "x": axis, "y": axis, "lines": [{"name", "color", "points"}], "columns": {"name",
"points"} or None}. An axis: {"name", "log", "percent"}. Before its question is answered, a chart
ends where the answer would begin.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from qalign_core.decide.methods import importance_weights
from qalign_core.decide.rules import best_reward, chain_vote, plain_vote
from qalign_study.exact.convergence import distances, sweep
from qalign_study.exact.world import by_reward
from qalign_study.exact.wrong_reward import SAMPLES
from qalign_study.lessons.facts import SAMPLES as MODEL_SAMPLES
from qalign_study.lessons.facts import LabFacts, Place, ResultFacts, run_of
from qalign_study.lessons.files import SLOT, Ask
from qalign_study.sheet.words import names_of

Points = Sequence[tuple[float, float]]
OVER_BETA = {
    "rate": ("Proposals accepted at each β", "acceptance", "chain"),
    "distance": ("Distance of the target from the model", "kl", "base"),
    "patience": ("Steps to within 1% of the target", "steps", "target"),
    "reward": ("Mean reward of the target, in SD", "mean_reward", "chain"),
}
"""What the Lab computes for each β: a fact's title, its field in `AtBeta`, and its color."""
HACK = {"best_of_n": (best_reward.id, "accuracy"), "majority": (plain_vote.id, "accuracy"),
        "chain": (chain_vote.id, "accuracy"), "hack_reward": (best_reward.id, "proxy")}  # fmt: skip
"""What the example of a wrong reward computes for each n: a fact's method and its measure."""
TEXTS = "texts, from the lowest reward to the highest"
KNOWN = 16
"""The part of the largest budget up to which curves are shown before a question is answered."""
LEAST = 0.005
"""Distance from the target at which a curve ends."""
BINS = 24
"""Columns over the rewards of the model's own samples."""
FIRST_STEPS = 12
"""Steps of a curve of distances that are shown before its question is answered."""


def _axis(name: str, *, log: bool = False, percent: bool = False) -> dict[str, Any]:
    return {"name": name, "log": log, "percent": percent}


def _line(name: str, color: str, points: Points) -> dict[str, Any]:
    return {"name": name, "color": color, "points": [(float(x), float(y)) for x, y in points]}


def chart(name: str, x: dict[str, Any], y: dict[str, Any], lines: Sequence[dict[str, Any]] = (),
          columns: tuple[str, Points] | None = None) -> dict[str, Any]:  # fmt: skip
    """Return a chart with its lines over its columns."""
    bars = columns and {"name": columns[0], "points": [(float(a), float(b)) for a, b in columns[1]]}
    return {"name": name, "x": x, "y": y, "lines": list(lines), "columns": bars}


def lab_charts(at: Place, ask: Ask | None, *, answered: bool) -> list[dict[str, Any]]:
    """Return the charts of a stop in the Lab's small world."""
    then = ask.then if ask and ask.then.page == "lab" else at
    section = dict(then.lab).get("opened", "Beta")
    if section == "A wrong reward":
        return _wrong_reward(then if answered else at, ask, answered=answered)
    if draw := {"Convergence": _convergence, "Break it": _broken}.get(section):
        return [draw(at, then, ask, answered=answered)]
    fact = ask.fact.partition(":")[0] if ask else "patience"
    one_beta = LabFacts(at).beta == LabFacts(then).beta
    if fact not in OVER_BETA or (one_beta and (not answered or at.lab != then.lab)):
        return [_target(then if answered else at)]
    return [_over_beta(fact, at, then, answered=answered or ask is None)]


def _target(place: Place) -> dict[str, Any]:
    """Return how often the model and the target give each text, worst reward first."""
    of = LabFacts(place)
    world = of._world.chain(of.beta)
    order = by_reward(world)
    pairs = [(k, world.base[n]) for k, n in enumerate(order)]
    return chart(
        f"Each of the 121 texts at β = {of.beta:g}, sharpness {of._world.sharpness:g}",
        _axis(TEXTS),
        _axis("", percent=True),
        [_line("model alone", "base", pairs)],
        ("target", [(k, world.target[n]) for k, n in enumerate(order)]),
    )


def _over_beta(fact: str, at: Place, then: Place, *, answered: bool) -> dict[str, Any]:
    """Return a fact over β; before the answer no further than halfway to the β in question."""
    title, field, color = OVER_BETA[fact]
    old, new = LabFacts(at).beta, LabFacts(then).beta
    of = LabFacts(then)
    half = math.sqrt(old * new)
    points = {p.beta: p for p in (*sweep(of._world), of._at(f"{old}"), of._at(f"{new}"))
              if answered or (p.beta > half) == (new < half)}  # fmt: skip
    known = [(beta, getattr(points[beta], field)) for beta in sorted(points)]
    values = [(beta, max(1, y)) if fact == "patience" else (beta, y)
             for beta, y in known if y is not None]  # fmt: skip
    beta = new if answered else old
    mark = _line(f"β = {beta:g}", "wrong", [each for each in values if each[0] == beta])
    return chart(title, _axis("β, small to large", log=True),
                 _axis("", log=fact == "patience", percent=fact == "rate"),
                 [_line("", color, values), mark])  # fmt: skip


def _convergence(at: Place, then: Place, ask: Ask | None, *, answered: bool) -> dict[str, Any]:
    """Return the distance from the target after each step, at one β or two."""
    places = [at] if at.lab == then.lab or not answered else [at, then]
    longest = max(LabFacts(place).patience() for place in places)
    steps = FIRST_STEPS if ask and not answered and at.lab == then.lab else longest
    lines = []
    for color, place in zip(("base", "chain"), places, strict=False):
        of = LabFacts(place)
        values = distances(of._world.chain(of.beta), steps)
        seen = takewhile(lambda point: point[1] > LEAST, enumerate(values))
        lines.append(_line(f"β = {of.beta:g}", color, list(seen)))
    lines.append(_line("1%", "wrong", [(0, 0.01), (steps, 0.01)]))
    return chart("Distance from the target after each step", _axis("step"),
                 _axis("", log=True, percent=True), lines)  # fmt: skip


def _broken(at: Place, then: Place, ask: Ask | None, *, answered: bool) -> dict[str, Any]:
    """Return where a rule leads, over the target; the target alone before it is known."""
    mistake, before = (dict(place.lab).get("mistake", "") for place in (then, at))
    of = LabFacts(then if answered or mistake != before else at)
    broken = of._broken()
    order = by_reward(broken.chain)
    is_length = bool(ask and "wrong_length" in ask.options)
    if is_length:
        lengths = [len(y) for y in broken.chain.states]
        groups = [[n for n in order if lengths[n] == k] for k in sorted(set(lengths))]
        names = sorted(set(lengths))
    else:
        groups, names = [[n] for n in order], list(range(len(order)))
    masses = [[(x, float(sum(p[n] for n in group))) for x, group in zip(names, groups, strict=True)]
              for p in (broken.limit, broken.chain.target)]  # fmt: skip
    shows = answered or ask is None or mistake == before
    return chart(
        "How often an endless chain is at each " + ("length" if is_length else "text"),
        _axis("tokens" if is_length else TEXTS),
        _axis("", percent=True),
        [_line(f"this rule: {mistake.lower()}", "wrong", masses[0])] if shows else [],
        ("right rule", masses[1]),
    )


def _wrong_reward(place: Place, ask: Ask | None, *, answered: bool) -> list[dict[str, Any]]:
    """Return how often methods are right, or the reward of their choices, against n."""
    hidden = {name.partition(":")[0] for name in [ask.fact, *ask.options] if name} if ask else set()
    named = {name for _, name, _ in SLOT.findall(f"{ask.right} {ask.wrong}")} if ask else set()
    facts = {"best_of_n"} | named if answered else {"best_of_n"} - hidden
    of = LabFacts(place)
    measures = dict.fromkeys(HACK[fact][1] for fact in HACK if fact in facts)
    charts = []
    for measure in measures:
        lines = [
            _line(names_of()[HACK[fact][0]].word, HACK[fact][0],
                  [(n, getattr(of._way(HACK[fact][0], n), measure)) for n in SAMPLES])
            for fact in HACK if fact in facts and HACK[fact][1] == measure
        ]  # fmt: skip
        is_share = measure == "accuracy"
        name = "How often the answer is right" if is_share else "Mean reward of the chosen answers"
        charts.append(chart(name, _axis("n: samples or states", log=True),
                            _axis("", percent=is_share), lines))  # fmt: skip
    return charts


def result_charts(of: ResultFacts, *, answered: bool) -> list[dict[str, Any]]:
    """Return how often each method is right against compute, in samples."""
    most = of.budget() if answered else of.budget() // KNOWN
    lines = [
        _line(idea.word, method, [(n, share) for n, share in of._of(method) if n <= most])
        for method, idea in names_of().items()
    ]
    name = "Right answers" if answered else f"Right answers, up to {most} samples"
    x = _axis("compute, in samples", log=True) | {"to": of.budget()}
    return [chart(name, x, _axis("", percent=True), lines)]


def reward_chart(rewards: Sequence[float]) -> dict[str, Any]:
    """Return how often the model's own samples have each reward."""
    low, high = min(rewards), max(rewards)
    wide = (high - low) / BINS or 1.0
    counts = Counter(min(BINS - 1, int((reward - low) / wide)) for reward in rewards)
    points = [(low + (k + 0.5) * wide, counts[k] / len(rewards)) for k in range(BINS)]
    return chart("The model’s own samples", _axis("reward"), _axis("", percent=True), (),
                 ("", points))  # fmt: skip


def weight_chart(place: Place) -> dict[str, Any]:
    """Return the weights of the weighted vote, largest first."""
    trace = run_of(place.run)
    rewards = trace.rewards[:MODEL_SAMPLES]
    weights = sorted(importance_weights(rewards, trace.header.run.target), reverse=True)
    top = weights[0]
    return chart("The weight of each sample, largest first", _axis("samples"),
                 _axis("of the largest weight", percent=True), (),
                 ("weight", [(k, w / top) for k, w in enumerate(weights, 1)]))  # fmt: skip
