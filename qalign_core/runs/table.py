"""A comparison as a table, a row a draw, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from qalign_core.analysis.comparisons import Comparison, Cut, full_cut
from qalign_core.decide.rules import importance_weights
from qalign_core.types import Cost, ScoredResponse

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
    return f"'{text}" if text[:1] in ("=", "+", "@", "\t", "\r") or _starts_formula(text) else text


def _starts_formula(text: str) -> bool:
    return text[:1] == "-" and not text[1:].replace(".", "", 1).isdecimal()
