"""The lab's visual language: the frame of every figure, tables and facts.

Colours are the dictionary's; words and grids follow the page's theme.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gradio as gr
import numpy as np
from numpy.typing import NDArray

from components.common.style import GRID, frame, log_axis
from qalign_core.types import Array
from qalign_study.export.dictionary import colour
from qalign_study.sheet.words import number

Cell = str | float | int | None

Words = str | list[Any]
"""A text, or what `element` made; the page's script makes nodes of it, and text nodes of texts."""

Trace = dict[str, object]
Figure = dict[str, Any]
"""plotly's "data" and "layout" as plain values; `go.Figure` takes it as it is."""

HEIGHT = 340
"""The height of a figure, in pixels."""
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"}
AXIS = {
    "gridcolor": GRID,
    "zerolinecolor": "#c3cad5",
    # ticks that are not drawn: they keep an axis' words off the axis
    "ticks": "outside",
    "ticklen": 5,
    "tickcolor": "rgba(0,0,0,0)",
}


def bar(id_: str, *, hatched: int = 0, **trace: object) -> Trace:
    """A bar trace in an idea's colour; `hatched` is the size of its pattern, 0 for none."""
    pattern = {"pattern": {"shape": "/", "size": hatched}} if hatched else {}
    return {"type": "bar", "marker": {"color": colour(id_), **pattern}, **trace}


def scatter(**trace: object) -> Trace:
    """A trace of points, lines or both."""
    return {"type": "scatter", **trace}


def curve(name: str, x: Any, y: Any, id_: str, shows: str = ".3f", **more: Any) -> Trace:
    """A line by its name; `shows` is the form of its values: plotly's, "number", or "" for none.

    It has the colour of an idea: "base" for lines that only help to read. `more` takes `width` and
    `dash` of the line, and any other setting of a trace.
    """
    hover: Trace = {"hovertemplate": f"%{{y:{shows}}}"} if shows else {"hoverinfo": "skip"}
    if shows == "number":
        hover = {"customdata": [number(v) for v in y], "hovertemplate": "%{customdata}"}
    line = {"color": colour(id_), "width": 2.5, "dash": "solid"}
    line |= {name: more.pop(name) for name in ("width", "dash") if name in more}
    return scatter(**{"x": x, "y": y, "name": name, "mode": "lines", "line": line, **hover, **more})


def dot(x: float | None, y: float | None, id_: str, **more: object) -> Trace:
    """The point of the present settings."""
    marker = {"size": 12, "color": colour(id_), "line": {"color": "white", "width": 2}}
    return scatter(x=[x], y=[y], mode="markers", marker=marker, hoverinfo="skip", **more)


def slider(
    name: str, label: str, low: float, high: float, value: float, step: float, **more: Any
) -> gr.Slider:
    """A section's slider; `name` is its place in links."""
    more = {"min_width": 200, **more}
    return gr.Slider(low, high, value, step=step, label=label, elem_id=f"lab-{name}", **more)


def as_float32(values: Array) -> NDArray[np.float32]:
    """Values of a long curve to the seven digits that a drawing can show; half the bytes."""
    return values.astype(np.float32)


def line_at(x: float, **line: object) -> dict[str, object]:
    """A vertical line through the whole figure, a shape of its layout; dotted, it says: here."""
    line = line or {"color": colour("base"), "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def title(text: str) -> dict[str, object]:
    """An axis' title."""
    return {"text": text, "font": {"size": 13}, "standoff": 5}  # off the words of its ticks


def figure(
    traces: Sequence[Trace],
    *,
    x: str,
    y: str,
    xaxis: Mapping[str, object] | None = None,
    yaxis: Mapping[str, object] | None = None,
    margin: Mapping[str, float] | None = None,
    **layout: object,
) -> Figure:
    """A figure in the lab's frame: no title (the page has headings), legend above, both themes.

    It is drawn at each change, so it is kept light: plain values, which plotly.js checks itself
    (`go.Figure` takes longer than the mathematics), no template, and margins that are wide enough,
    since measuring them takes a second drawing.
    """
    settings: dict[str, Any] = {
        "template": {},
        "margin": {"l": 70, "r": 20, "t": 36, "b": 48, **(margin or {})},
        "legend": LEGEND,
        "hovermode": "x unified",
        "bargap": 0.15,
        "xaxis": {**AXIS, "title": title(x), **(xaxis or {})},
        "yaxis": {**AXIS, "title": title(y), **(yaxis or {})},
        "height": HEIGHT,
        **layout,
    }
    return {"data": list(traces), "layout": frame(**settings)}


def cell_text(value: Cell) -> str:
    """Format a cell: a number in four significant digits, a whole number in full."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value, 4)


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f}%"


def element(name: str, *parts: Words, **attributes: str) -> Words:
    """An element: its tag with the lab's classes ("p.say" is of class "lab-say"), what is in it."""
    return [name, attributes, *parts]


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Words:
    """A table of numbers."""
    head = [element("th", name, scope="col") if name else element("td") for name in headers]
    body = [element("tr", *(element("td", cell_text(cell)) for cell in row)) for row in rows]
    numbers = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # tabindex: a scrolling region must be reachable from the keyboard
    return element("div.table", numbers, tabindex="0", role="region", aria="numbers")


def over_steps(traces: Sequence[Trace], values: Sequence[float], **axis: Any) -> Figure:
    """Distances from the target, step by step, on a log axis over these values."""
    scale = log_axis(values, **axis)
    return figure(traces, x="step t", y="total variation to the target", yaxis=scale)


def table_at(steps: Iterable[int], curves: Mapping[str, Array]) -> Words:
    """Curves over the steps as numbers, at some of the steps."""
    of_all = curves.values()
    return table(("t", *curves), [[str(t), *(float(each[t]) for each in of_all)] for t in steps])


def facts(items: Sequence[tuple[str, str] | tuple[str, str, str]]) -> Words:
    """Facts as a list of small cards: (what, value) or (what, value, "good" or "bad")."""
    cards = [
        element(".".join(("div.fact", *tone)), element("dt", what), element("dd", value))
        for what, value, *tone in items
    ]
    return element("dl.facts", *cards)


def note(text: str) -> Words:
    """A remark that must not be overlooked."""
    return element("div.note", text, role="status")
