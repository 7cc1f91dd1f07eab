"""The values of a sheet: tables of measurements, and sections of tables and figures."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qalign_core.decide.rules import RULES
from qalign_study.measure.curves import Curve, Point, is_level, own_curves
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import Row
from qalign_study.sheet.chart import Figure
from qalign_study.sheet.words import VERDICTS, curve_name, few, in_points, percent

if TYPE_CHECKING:
    import pandas as pd


def table_columns() -> list[Curve]:
    """The columns of a table, in the order in which it is read: the chain after the samples."""
    rules = sorted(RULES, key=lambda id_: RULES[id_].draws == "chain")
    return ["one", *rules, "any", *reversed(own_curves())]


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(name: str) -> str:
    """Escape a user's name, and put it into its own element."""
    return f"<bdi>{html.escape(name)}</bdi>"


@dataclass(frozen=True, slots=True)
class Cell:
    """A measurement in a table.

    Attributes:
        measurement: the measurement.
        bold: whether the method is ahead of each other rule.
        opens: what a page opens at it: "#" and an element's id, or a key of the page's own.
        note: what else is said of it.
    """

    measurement: Point | Difference
    bold: bool = False
    opens: str = ""
    note: str = ""

    @property
    def texts(self) -> tuple[str, str, str]:
        """The value, its interval with the verdict, and what is added; in points or percent."""
        if isinstance(self.measurement, Point):
            value, ends = in_points(self.measurement).split(" ", 1)
            return value, ends[1:-1], self.note
        value, ends = in_points(self.measurement, "+.1f").split(" ", 1)
        notes = filter(None, (few(self.measurement), self.note))
        return value, f"{ends[1:-1]}, {VERDICTS[self.measurement.verdict]}", ", ".join(notes)


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A DataFrame of `Cell`s and texts, whose index names the rows.

    Attributes:
        frame: the cells.
        heads: whether the columns have names.
        sorts: whether a page with a script sorts and filters its rows.
    """

    frame: "pd.DataFrame"
    heads: bool = True
    sorts: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what is under it; a tuple of figures is a row of small ones.

    Attributes:
        title: plain text, or markup.
        intro: a paragraph of markup under it.
        items: in order.
        fold: whether it is closed at first, as a smaller part of the one before.
        id: of the element.
    """

    title: str
    intro: str
    items: Sequence[Table | Figure | tuple[Figure, ...]]
    fold: bool = False
    id: str = ""


def tables(
    rows: Sequence[Row],
    *,
    own: bool = False,
    open_ended: bool = False,
    opens: Callable[[Row, str], str] = lambda row, key: "",
) -> list[Table]:
    """The accuracy of each method, a row per set or budget, and what QAlign has more; if any.

    Args:
        rows: the rows.
        own: the methods at their own beta, or the others.
        open_ended: whether votes are minimum Bayes risk.
        opens: what a cell of a row opens, by its method or its methods, joined by a colon.
    """
    import pandas as pd

    columns: dict[str, list[Cell | str]] = {}
    for method in table_columns():
        if own == method.endswith("_own") and any(method in row.points for row in rows):
            columns[curve_name(method, open_ended)] = [_share(row, method, opens) for row in rows]
    gaps: dict[str, list[Cell | str]] = {}
    for a, b in dict.fromkeys((d.a, d.b) for row in rows for d in row.differences):
        if own == any(method.endswith("_own") for method in (a, b)):
            name = " − ".join(curve_name(each, open_ended) for each in (a, b))
            at = [{(d.a, d.b): d for d in row.differences}.get((a, b)) for row in rows]
            gaps[name] = [
                Cell(d, opens=opens(row, f"{a}:{b}"), note=_below(d, row)) if d else "–"
                for row, d in zip(rows, at, strict=True)
            ]
    index = [row.label for row in rows]
    return [Table(pd.DataFrame(cells, index=index)) for cells in (columns, gaps) if cells]


def _below(difference: Difference, row: Row) -> str:
    """The budget of a difference, where it is not that of its row."""
    return "" if difference.n == row.n else f"at {difference.n:,} samples"


def _share(row: Row, method: Curve, opens: Callable[[Row, str], str]) -> Cell | str:
    point, samples = row.points.get(method), row.points.get("any")
    if point is None:
        return "–"
    note = ""
    if samples is not None and method != "one" and not is_level(point, samples):
        note = "its chain stopped below this budget"
        if method in RULES and RULES[method].draws == "pool":
            part = percent(point.spent / samples.spent)
            note = f"all {point.used:,.0f} samples, {part} of the compute"
    return Cell(point, method == row.best, opens(row, method), note)
