"""Colours, markers and lines of the methods, and the frame of every figure."""

from __future__ import annotations

from qalign_core.analysis.comparisons import Method

BLUE, ORANGE, TEAL, GREY = "#2f73d2", "#d97a1d", "#0f8a7e", "#7c8696"
INK = "#1d2430"
COLOURS: dict[Method, str] = {"qalign": BLUE, "bon": ORANGE, "mv": GREY, "wmv": TEAL}
SYMBOLS: dict[Method, str] = {
    "qalign": "circle",
    "bon": "triangle-up",
    "mv": "square",
    "wmv": "diamond",
}
DASHES: dict[Method, str] = {"qalign": "solid", "bon": "dash", "mv": "dot", "wmv": "dashdot"}


def frame(height: int, **layout: object) -> dict[str, object]:
    """The layout that all figures share: no title, no background, quiet grid, legend above."""
    return {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 34, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13, "color": INK},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.04, "x": 0, "xanchor": "left"},
        "dragmode": False,
        **layout,
    }
