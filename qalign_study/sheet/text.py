"""The sheet as plain text: what the command line prints."""

import re
from collections.abc import Iterable, Sequence

from qalign_study.measure.curves import Point
from qalign_study.measure.intervals import Difference, Measured
from qalign_study.sheet.values import Cell
from qalign_study.sheet.words import in_points

_NUMBER = re.compile(r"[-+−]?\d[\d,.]*(e[-+]\d+)?%?|-?")


def format_value(value: object) -> str:
    """A value as text; a measurement with its interval (and verdict), in percent or points."""
    if isinstance(value, Point | Difference):
        first, *notes = Cell(value).texts
        return f"{first} ({'; '.join(filter(None, notes))})"
    if isinstance(value, Measured):
        return in_points(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def format_columns(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 0
) -> str:
    """Rows in columns, such as a frame's columns and values; numbers end at the right.

    Args:
        heads: the columns' names; without any, there is no line of them.
        rows: the values (`format_value`).
        indent: spaces before each line.
    """
    texts = [[format_value(value) for value in row] for row in rows]
    columns = []
    for place, column in enumerate(zip(*texts, strict=True)):
        side = ">" if all(map(_NUMBER.fullmatch, column)) else "<"
        whole = [*heads[place : place + 1], *column]
        columns.append([f"{text:{side}{max(map(len, whole))}}" for text in whole])
    return "\n".join(" " * indent + "  ".join(line).rstrip() for line in zip(*columns, strict=True))
