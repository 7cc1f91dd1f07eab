"""How figures look: ideas drawn as the dictionary says, one typeface, axes that can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qalign_core.analysis.comparisons import METHODS, Method
from qalign_core.export.dictionary import colour, ideas

BLUE, ORANGE, TEAL, GREY = colour("chain"), colour("bon"), colour("wmv"), colour("base")
INK, VIOLET, RED = colour("target"), colour("proposed"), colour("wrong")
COLOURS: dict[Method, str] = {method: colour(method) for method in METHODS}
SYMBOLS: dict[Method, str] = {method: ideas()[method].marker for method in METHODS}
DASHES: dict[Method, str] = {method: ideas()[method].line for method in METHODS}
GRID = "#dfe3ea"
FONT = {"family": "IBM Plex Sans, system-ui, sans-serif", "size": 13, "color": INK}
"""The page's typeface, in figures too."""
MOST_TICKS = 10
"""Labelled ticks of an axis."""


def line_of(id_: str) -> dict[str, object]:
    """The line with which an idea is drawn."""
    idea = ideas()[id_]
    return {"color": colour(id_), "dash": idea.line or "solid", "width": idea.width}


def marker_of(id_: str, size: int = 8) -> dict[str, object]:
    """The marker with which an idea is drawn."""
    return {"color": colour(id_), "symbol": ideas()[id_].marker or "circle", "size": size}


def log_axis(
    values: Sequence[float], *, most: int = MOST_TICKS, **axis: object
) -> dict[str, object]:
    """A logarithmic axis over these values, with ticks that people read: 1, 2, 5, 10, … 1k, 2M.

    Args:
        values: what is drawn along it; those that are not above 0 are left out.
        most: labelled ticks; a low axis has room for few.
        axis: what else the axis has.
    """
    told = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = (min(told), max(told)) if told else (1.0, 10.0)
    ticks = log_ticks(low, high, most)
    return {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [tick_text(tick) for tick in ticks],
        **axis,
    }


def log_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Round numbers from a little below `low` to a little above `high`, at most `most` of them.

    As many of 1, 2 and 5 in each power of ten as there is room for, or only every so many powers.
    """
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    for digits, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 6)):
        ticks = [
            float(f"{digit}e{power}")
            for power in range(first, last + 1)
            if power % every == 0
            for digit in digits
        ]
        within = [tick for tick in ticks if low / 1.2 <= tick <= high * 1.2]
        if len(within) <= most:
            break
    return within


def tick_text(value: float) -> str:
    """A round number as an axis says it: 0.05, 200, 5k, 2M; powers where there is no such word."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if factor <= value < 1000 * factor:
            return f"{value / factor:g}{prefix}"
    if 0.001 <= value < 1000:
        return f"{value:g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    power = f"10<sup>{int(exponent)}</sup>".replace("-", "−")
    return power if mantissa == "1" else f"{mantissa} × {power}"


def frame(height: int, **layout: object) -> dict[str, object]:
    """The layout that all figures share: no title, no background, quiet grid, legend above."""
    return {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 34, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": FONT,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.04, "x": 0, "xanchor": "left"},
        "dragmode": False,
        **layout,
    }
