"""The lab's visual language: colours, the frame of every figure, tables and facts as HTML.

Blue is the exact target, orange the base LM or a wrong rule, violet the chain, as in the player.
The colours are mid-tones that read on light and on dark; words and grids follow the page's theme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
import plotly.graph_objects as go

BLUE, ORANGE, VIOLET, TEAL, GREY = "#2f73d2", "#d97a1d", "#8a5cf0", "#0f8a7e", "#7c8696"
INK = "#1d2430"
CSS = Path(__file__).resolve().parent.parent / "assets" / "lab" / "lab.css"

Cell = str | float | int | None

TICKS = {"ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)"}
"""Ticks that are not drawn: they keep an axis' words off the axis."""


def figure(
    traces: Sequence[go.Scatter | go.Bar],
    *,
    x: str,
    y: str,
    height: int = 340,
    **layout: object,
) -> go.Figure:
    """A figure in the lab's frame: no title (the page has headings), legend above, both themes.

    The browser draws it anew at each change, so it is kept light: no template, and margins that
    are wide enough, since measuring them takes a second drawing.
    """
    axis = {"gridcolor": "#dfe3ea", "zerolinecolor": "#c3cad5", **TICKS}
    frame = {
        "template": "none",
        "height": height,
        "margin": {"l": 64, "r": 12, "t": 36, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13, "color": INK},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        "hovermode": "x unified",
        "bargap": 0.15,
        "xaxis": {**axis, "title": {"text": x, "font": {"size": 13}}},
        "yaxis": {**axis, "title": {"text": y, "font": {"size": 13}}},
        "dragmode": False,
    }
    found = go.Figure(list(traces), frame)
    found.update_layout(layout)
    return found


def number(value: Cell) -> str:
    """A number for people: four significant digits, scientific where it is very small."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if math.isnan(value):
        return "–"
    if value != 0 and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return f"{value:,.4g}".replace("-", "−")


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f} %"


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """An HTML table of numbers; every cell is escaped."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(number(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    # tabindex: a scrolling region must be reachable from the keyboard
    return (
        '<div class="lab-table" tabindex="0" role="region" aria-label="numbers"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(items: Sequence[tuple[str, str] | tuple[str, str, str]]) -> str:
    """Facts as a list of small cards: (what, value) or (what, value, "good" or "bad")."""
    cards = []
    for what, value, *tone in items:
        kind = f" lab-{tone[0]}" if tone else ""
        cards.append(
            f'<div class="lab-fact{kind}"><dt>{html.escape(what)}</dt>'
            f"<dd>{html.escape(value)}</dd></div>"
        )
    return f'<dl class="lab-facts">{"".join(cards)}</dl>'


def note(text: str) -> str:
    """A remark that must not be overlooked; an empty text is nothing at all."""
    return f'<div class="lab-note" role="status">{html.escape(text)}</div>' if text else ""


def heading(question: str, sentence: str) -> gr.HTML:
    """A section's question and the one sentence that explains it."""
    return gr.HTML(
        f'<h2>{html.escape(question)}</h2><p class="lab-say">{html.escape(sentence)}</p>',
        padding=False,
    )


@dataclass(frozen=True)
class Block:
    """A figure on the page with its table of numbers."""

    plot: gr.Plot
    numbers: gr.HTML


def block(title: str, name: str, plot: go.Figure | None = None, numbers: str = "") -> Block:
    """A figure under its title, with "show the numbers" beneath it; empty until it is drawn."""
    gr.HTML(f"<h3>{html.escape(title)}</h3>", padding=False)
    drawn = gr.Plot(plot, show_label=False, container=False, elem_id=f"lab-{name}")
    with gr.Accordion("Show the numbers", open=False, elem_id=f"lab-{name}-open"):
        told = gr.HTML(numbers, elem_id=f"lab-{name}-numbers", padding=False)
    return Block(drawn, told)
