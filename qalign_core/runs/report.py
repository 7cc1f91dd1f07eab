"""Tables: of results, plain values ready for JSON; of a comparison, a row a draw for a spreadsheet.

Everything is computed from the draws.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from qalign_core.analysis.comparisons import Comparison, Cut, full_cut
from qalign_core.analysis.curves import Curve, Difference, Point, curves, paired
from qalign_core.decide.rules import importance_weights
from qalign_core.runs.results import Results
from qalign_core.types import Cost, ScoredResponse

OTHERS: tuple[Curve, ...] = ("wmv", "bon", "mv", "any")
"""What QAlign is compared with; "any" is the ceiling of every rule over n samples."""


def report(sets: Mapping[str, Results]) -> dict[str, list[dict[str, Any]]]:
    """Every method on every set and budget, and QAlign's paired differences at equal FLOPs.

    Args:
        sets: results by the name of their set.

    Returns:
        `rows` {set, method, n, flops, accuracy, low, high} and `paired` {set, a, b, n, flops,
        difference, low, high}, the difference a minus b; shares in 0..1, 95 % intervals by
        bootstrap over problems. `flops` is None where the models' sizes are unknown. A budget at
        which the chain had ended before it spent as much is left out of `paired`.

    Raises:
        InvalidSetting: no problem of a set is done.
    """
    made: dict[str, list[dict[str, Any]]] = {"rows": [], "paired": []}
    for name, results in sets.items():
        points = curves(results)
        compared = [each for other in OTHERS for each in paired(points, "qalign", other)]
        made["rows"] += [
            {"set": name, "method": p.method, "n": p.n, **_measured(p, results, "accuracy")}
            for p in points
        ]
        made["paired"] += [
            {"set": name, "a": d.a, "b": d.b, "n": d.n, **_measured(d, results, "difference")}
            for d in compared
        ]
    return made


def _measured(found: Point | Difference, results: Results, what: str) -> dict[str, Any]:
    """What it cost, as far as that is known in FLOPs, and the measure with its interval."""
    flops = found.spent if results.header.meter.unit == "FLOPs" else None
    return {"flops": flops, what: found.value, "low": found.low, "high": found.high}


COLUMNS = (
    *("source", "chain", "t", "index", "log_alpha", "accepted", "answer", "reward"),
    *("tokens", "finished", "generated", "scored", "weight", "text"),
)


def to_csv(comparison: Comparison) -> str:
    """One row a draw, for a spreadsheet: states of the chains, then the pool.

    `weight` is what a draw weighs in the answer at the largest level cut: 1 / number of states for
    a state, softmax(reward / beta) for a sample; empty where the cut leaves it out.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    cut = full_cut(comparison) if comparison.ready else Cut(-1, 0)
    n_states = len(comparison.chains) * (cut.t + 1)
    extract = comparison.extract

    def write(place: Sequence[object], draw: ScoredResponse, cost: Cost, weight: object) -> None:
        response = draw.response
        answer = extract(response.text) if extract else None
        told = (_cell(answer or ""), draw.reward, len(response), response.finished)
        rows.writerow([*place, *told, cost.generated, cost.scored, weight, _cell(response.text)])

    for step in (step for chain in comparison.chains for step in chain):
        place = ("chain", step.chain, step.t, step.index, step.log_alpha, step.accepted)
        write(place, step.state, step.cost, 1 / n_states if step.t <= cut.t else "")
    pool = comparison.pool
    weights = importance_weights([s.reward for s in pool[: cut.n]], comparison.header.beta)
    for k, sample in enumerate(pool):
        weight = weights[k] if k < cut.n else ""
        write(("pool", "", k, "", "", ""), sample, sample.cost, weight)
    return out.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    negative = text[:1] == "-" and text[1:].replace(".", "", 1).isdecimal()
    formula = text.startswith(("=", "+", "-", "@", "\t", "\r")) and not negative
    return f"'{text}" if formula else text
