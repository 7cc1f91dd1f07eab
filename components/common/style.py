"""How figures look: ideas drawn as the dictionary says, one typeface, axes that can be read."""

import math
from collections.abc import Sequence

from qalign_study.export.dictionary import colour, ideas
from qalign_study.sheet.words import MOST_TICKS, log_ticks, tick_text

GREY, INK = colour("base"), colour("target")
GRID = "#dfe3ea"
FONT = {"family": "IBM Plex Sans, system-ui, sans-serif", "size": 13, "color": INK}
"""The page's typeface, in figures too."""


def line_of(id_: str) -> dict[str, object]:
    """The line with which an idea is drawn."""
    idea = ideas()[id_]
    return {"color": colour(id_), "dash": idea.line or "solid", "width": idea.width}


def marker_of(id_: str, size: int = 8) -> dict[str, object]:
    """The marker with which an idea is drawn."""
    return {"color": colour(id_), "symbol": ideas()[id_].marker or "circle", "size": size}


def curve_of(id_: str, **more: object) -> dict[str, object]:
    """An idea's curve: its line and its marker at each value."""
    return {"mode": "lines+markers", "line": line_of(id_), "marker": marker_of(id_), **more}


def band_of(
    id_: str, x: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> dict[str, object]:
    """The band around an idea's curve."""
    ends = {"x": [*x, *reversed(x)], "y": [*high, *reversed(low)]}
    look = {"hoverinfo": "skip", "showlegend": False, "line": {"width": 0}, "opacity": 0.13}
    return {**ends, **look, "mode": "lines", "fill": "toself", "fillcolor": colour(id_)}


def log_axis(
    values: Sequence[float], *, most: int = MOST_TICKS, **axis: object
) -> dict[str, object]:
    """A logarithmic axis over these values, with ticks that people read: 1, 2, 5, 10, … 1k, 2M.

    Args:
        values: what is drawn along it; those that are not above 0 are left out.
        most: labelled ticks; a low axis has room for few.
        axis: what else the axis has.
    """
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    ticks = log_ticks(low, high, most)
    return {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [tick_text(tick) for tick in ticks],
        **axis,
    }


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
