"""Tables of results: plain values only, ready for JSON; everything is computed from the draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from qalign_core.analysis.curves import Curve, Point, curves
from qalign_core.analysis.diagnostics import acceptance_of
from qalign_core.analysis.paired import Difference, paired
from qalign_core.runs.results import Results

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
        points = curves(results.draws)
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


def summary(results: Results, *, seed: int = 0) -> dict[str, Any]:
    """Make the tables of one run.

    Returns:
        `settings`; `done` and `missing` (problems); `acceptance` (overall, changed, counts);
        `unit` of `spent`; `points`, the rows of `curves` at equal FLOPs; `table`, the largest
        budget's rows.
    """
    points = curves(results.draws, seed=seed)
    acceptance = acceptance_of(results.records)
    largest = max(p.n for p in points)
    return {
        "settings": asdict(results.header),
        "done": len(results.records),
        "missing": results.n_missing,
        "unit": results.header.meter.unit,
        "acceptance": {
            "overall": acceptance.overall.value,
            "changed": acceptance.changed.value,
            "n": acceptance.overall.trials,
            "n_changed": acceptance.changed.trials,
        },
        "points": [_row(p) for p in points],
        "table": [_row(p) for p in points if p.n == largest],
    }


def _measured(found: Point | Difference, results: Results, what: str) -> dict[str, Any]:
    """What it cost, as far as that is known in FLOPs, and the measure with its interval."""
    flops = found.spent if results.header.meter.unit == "FLOPs" else None
    return {"flops": flops, what: found.value, "low": found.low, "high": found.high}


def _row(point: Point) -> dict[str, Any]:
    """A set's point: without what there is of a single prompt only, or of each problem."""
    row = asdict(point)
    row["accuracy"] = row.pop("value")
    return {name: value for name, value in row.items() if name not in _NOT_IN_TABLES}


_NOT_IN_TABLES = ("each", "answer", "correct")
