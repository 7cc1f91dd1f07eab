"""Frames as files. Names and texts in them are text and nothing else: no formula, no command."""

import re
from typing import TYPE_CHECKING

from qalign_core.decide.rules import importance_weights
from qalign_core.record.frames import to_frame
from qalign_study.measure.comparisons import Comparison, Cut, full_cut

if TYPE_CHECKING:
    import pandas as pd


def csv_of(frame: "pd.DataFrame") -> str:
    """A frame as CSV, in which a spreadsheet takes no text for a formula."""
    guarded = frame.map(cell)
    return str(guarded.to_csv(index=False, lineterminator="\r\n"))


_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # the last four: full width
_NEGATIVE = re.compile(r"-\d+(\.\d*)?")


def cell(value: object) -> object:
    """A value of a CSV; a text that a spreadsheet would take for a formula begins with '."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NEGATIVE.fullmatch(value):
        return value
    return f"'{value}"


def draws_csv(comparison: Comparison) -> str:
    """One row per draw: steps of the chains, then the pool.

    `weight` is the draw's weight in the answer at the largest level cut: 1 / number of states for
    a state, its importance weight for a sample; empty where the cut leaves the draw out.
    """
    frame = to_frame(comparison.trace)
    cut = full_cut(comparison) if comparison.ready else Cut(-1, 0)
    run, kept = comparison.header, comparison.pool[: cut.n]
    weights = importance_weights([s.reward for s in kept], run.target, kept)
    n_states = len(comparison.chains) * (cut.t + 1)
    states = frame["t"].where(frame["source"] == "chain") <= cut.t
    frame["weight"] = states.map({True: 1 / max(1, n_states)})
    frame.loc[frame["t"].where(frame["source"] == "pool") < cut.n, "weight"] = weights
    frame["answer"] = frame["text"].map(comparison.extract) if comparison.extract else None
    return csv_of(frame)
