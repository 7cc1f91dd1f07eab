"""Frames as files. Names and texts in them are text and nothing else: no formula, no command."""

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from qalign_core.decide.methods import importance_weights
from qalign_core.errors import InvalidSetting
from qalign_core.record.store import write_whole
from qalign_study.export.dataframes import to_frame
from qalign_study.measure.comparisons import Comparison, Cut, full_cut
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import Report
from qalign_study.sheet.values import Cell, Table, tables
from qalign_study.sheet.words import contrary_verdict, number, target_of

if TYPE_CHECKING:
    import pandas as pd


def csv_of(frame: "pd.DataFrame") -> str:
    """A frame as CSV, in which a spreadsheet takes no text for a formula."""
    guarded = frame.map(cell)
    return str(guarded.to_csv(index=False, lineterminator="\r\n"))


def check_table(path: Path) -> None:
    """Check that a table can be written to a file of this name.

    Raises:
        InvalidSetting: it ends in neither .csv nor .parquet.
    """
    if path.suffix not in {".csv", ".parquet"}:
        raise InvalidSetting(f"{path} ends in neither .csv nor .parquet; name one of these")


def write_table(frame: "pd.DataFrame", path: Path) -> None:
    """Write a frame as Parquet if the file is called so, else as CSV.

    Raises:
        InvalidSetting: it cannot be written, or Parquet needs a package that is not installed.
    """
    if path.suffix != ".parquet":
        write_whole(path, csv_of(frame).encode(errors="replace"))
        return
    try:
        content = frame.to_parquet(index=False)
    except ImportError as error:
        raise InvalidSetting(
            f"{path} needs a package for Parquet that is not installed; pip install pyarrow, or "
            "name a .csv file"
        ) from error
    write_whole(path, content)


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
    run, kept = comparison.header.run, comparison.pool[: cut.n]
    weights = importance_weights([s.reward for s in kept], run.target, kept)
    n_states = len(comparison.chains) * (cut.t + 1)
    states = frame["t"].where(frame["source"] == "chain") <= cut.t
    frame["weight"] = states.map({True: 1 / max(1, n_states)})
    frame.loc[frame["t"].where(frame["source"] == "pool") < cut.n, "weight"] = weights
    frame["answer"] = frame["text"].map(comparison.extract) if comparison.extract else None
    return csv_of(frame)


def to_csv(report: Report) -> str:
    """Every measurement of a report: its frame."""
    return csv_of(report.to_frame())


def to_latex(report: Report) -> str:
    """Two tables per group of models, accuracy and differences, for `booktabs`."""
    parts = [
        "% \\usepackage{booktabs}; accuracy in %, differences in points, with 95% intervals:",
        "% Wilson for outcomes 0 or 1, else bootstrap over problems; p of the exact test where",
        "% fewer than ten problems are discordant, where it decides and not the interval; bold:",
        "% ahead of each other rule, paired.",
    ]
    for group in report.groups:
        run = group.header.run
        caption = (
            f"{run.lm} with {run.rm}, {target_of(run)}, at the compute of {group.n:,} samples: "
        )
        kinds = "right answers in %", "paired differences in points"
        for own, end in ((False, "."), (True, ", each method at its own β.")):
            pair = tables(group.rows, own=own, open_ended=run.open_ended)
            captioned = zip(pair, kinds, strict=False)
            parts += [_latex(each, caption + what + end) for each, what in captioned]
    return "\n".join(parts)


def _latex(table: Table, caption: str) -> str:
    frame = table.frame.map(_format_cell)
    frame.index, frame.columns = frame.index.map(escape_latex), frame.columns.map(escape_latex)
    frame.columns.name = "Set"
    columns = "l" + "c" * len(frame.columns)
    return str(frame.to_latex(escape=False, column_format=columns, caption=escape_latex(caption)))


def _format_cell(cell: Cell | str) -> str:
    if not isinstance(cell, Cell):
        return escape_latex(cell).replace("–", "--")
    value, *notes = cell.texts
    if isinstance(gap := cell.measurement, Difference):
        # Only a page has room for the rest: it is as wide as it needs to be.
        ends, p = notes[0].partition(",")[0], f"p = {number(gap.p, 2)}" if gap.p is not None else ""
        notes = [ends, p, contrary_verdict(gap)]
    value, *notes = map(escape_latex, (value, *notes))
    bold = f"\\textbf{{{value}}}" if cell.bold else value
    return f"{bold} {{\\scriptsize ({'; '.join(filter(None, notes))})}}"


_SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"−": "$-$", "β": r"$\beta$", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}"},
    **{"`": r"\textasciigrave{}", '"': r"\textquotedbl{}", "|": r"\textbar{}"},
}


def escape_latex(text: str) -> str:
    """A text as LaTeX shows it: its signs escaped, line breaks and control characters left out."""
    plain = "".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in text)
    return "".join(_SIGNS.get(sign, sign) for sign in plain)
