"""What a sheet holds, as values: tables of measurements, and sections of tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qalign_core.decide.compared import RULES
from qalign_study.measure.curves import Curve, Point, is_level, own_curves
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import Row
from qalign_study.sheet.chart import Figure
from qalign_study.sheet.words import VERDICTS, curve_name, few, in_points

if TYPE_CHECKING:
    import pandas as pd

Pair = tuple[Curve, Curve]


def shown() -> list[Curve]:
    """The columns of a table, in the order in which it is read: the chain after the samples."""
    rules = sorted(RULES, key=lambda id_: RULES[id_].draws == "chain")
    return ["one", *rules, "any", *reversed(own_curves())]


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """A measurement in a table.

    Attributes:
        found: the measurement.
        bold: whether the method is ahead of each other rule.
        opens: what a page opens at it: "#" and an element's id, or a key of the page's own.
        note: what else is said of it.
    """

    found: Point | Difference
    bold: bool = False
    opens: str = ""
    note: str = ""

    @property
    def told(self) -> tuple[str, str, str]:
        """The value, its interval with the verdict, and what is added; in points or percent."""
        if isinstance(self.found, Point):
            value, ends = in_points(self.found.measured).split(" ", 1)
            return value, ends[1:-1], self.note
        value, ends = in_points(self.found.measured, "+.1f").split(" ", 1)
        return value, f"{ends[1:-1]}, {VERDICTS[self.found.verdict]}", few(self.found)


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A DataFrame of `Cell`s and texts, whose index names the rows.

    Attributes:
        frame: the cells.
        caption: what they are, in plain text.
        heads: whether the columns have names.
        sorts: whether a page with a script sorts and filters its rows.
    """

    frame: "pd.DataFrame"
    caption: str = ""
    heads: bool = True
    sorts: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what is under it; a tuple of figures is a row of small ones.

    Attributes:
        title: plain text, or markup.
        says: a paragraph of markup under it.
        items: in order.
        fold: whether it is closed at first, as a smaller part of the one before.
        id: of the element.
    """

    title: str
    says: str
    items: Sequence[Table | Figure | tuple[Figure, ...]]
    fold: bool = False
    id: str = ""


def table(
    rows: Sequence[Row],
    labels: Sequence[str],
    *,
    own: bool = False,
    open_ended: bool = False,
    gaps: bool = False,
    opens: str = "",
    numbers: dict[str, int] | None = None,
) -> Table | None:
    """The measured values, a row per set or budget; None where there are none.

    Args:
        rows, labels: the rows, and their names.
        own: the methods at their own beta, or the others.
        open_ended: whether votes are minimum Bayes risk.
        gaps: what QAlign has more than each of the others, or the accuracy of each method.
        opens: "cells" if each number leads to its problems, by method and budget.
        numbers: where a page lists the problems of a set, by its name.
    """
    import pandas as pd

    columns: dict[str, list[Cell | str]] = {}
    pairs = dict.fromkeys((d.a, d.b) for row in rows for d in row.differences) if gaps else ()
    for pair in (pair for pair in pairs if own == any(m.endswith("_own") for m in pair)):
        found = [next((d for d in r.differences if (d.a, d.b) == pair), None) for r in rows]
        column = [Cell(d, opens=opens and f"{d.a}:{d.b}:{d.n}") if d else "–" for d in found]
        columns[" − ".join(curve_name(each, open_ended) for each in pair)] = column
    for method in () if gaps else shown():
        if own == method.endswith("_own") and any(method in row.points for row in rows):
            link = f"{method}::" if opens and method not in ("one", "any") else ""
            columns[curve_name(method, open_ended)] = [
                _share(row, method, link, numbers or {}) for row in rows
            ]
    return Table(pd.DataFrame(columns, index=[*labels])) if columns else None


def _share(row: Row, method: Curve, link: str, numbers: dict[str, int]) -> Cell | str:
    point, samples = row.points.get(method), row.points.get("any")
    if point is None:
        return "–"
    ended = method != "one" and samples is not None and not is_level(point, samples)
    opens = f"#problems-{numbers[row.name]}" if row.name in numbers else link and f"{link}{row.n}"
    return Cell(point, method == row.best, opens, "its chain ended before" * ended)
