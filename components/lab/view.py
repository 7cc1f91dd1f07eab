"""What a section of the lab shows: words, and figures each with its table, as one component.

A graph stays in the page and takes new data: Gradio's own plot component builds a new one at each
update. One component a section, because Gradio tells every output of an event how the event fares.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import gradio as gr
import numpy as np
import orjson

from components.common.saving import save_line
from components.common.theme import plotly_module
from components.lab.style import HEIGHT, Figure, Words

FIGURE = """<section class="lab-figure"><h2>{title}</h2>
<div class="lab-plot" id="lab-{name}" role="group" aria-label="{title}"
style="min-height: {height}px"></div>
{save}<details id="lab-{name}-open"><summary>Show the numbers</summary>
<div id="lab-{name}-numbers"></div></details></section>"""


@dataclass(frozen=True, slots=True)
class View:
    """What a section shows.

    Attributes:
        told: the words under the figures.
        figures: each figure with its table, in the order of their places on the page.
    """

    told: tuple[Words, ...]
    figures: tuple[tuple[Figure, Words], ...]

    def value(self) -> str:
        """What the page's component gets."""
        figures = [{"drawing": _text(drawn), "table": table} for drawn, table in self.figures]
        return _text({"told": self.told, "figures": figures})


def _text(value: object) -> str:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _plain(array: np.ndarray) -> object:
    # orjson asks for what it cannot write: an array that is a slice of another is not contiguous
    return np.ascontiguousarray(array)


def view(
    told: str,
    figures: Mapping[str, str],
    first: View | None = None,
    heights: Mapping[str, int] = MappingProxyType({}),
) -> gr.HTML:
    """A section's view, empty until it is drawn: figures, then words.

    Args:
        told: id of the words in the page.
        figures: the figures' titles by their names in the page.
        first: what it shows before any event.
        heights: of figures that are not as high as others: nothing moves when they are drawn.
    """
    places = "".join(
        FIGURE.format(
            name=name,
            title=html.escape(title),
            height=heights.get(name, HEIGHT),
            save=save_line(f"lab-{name}"),
        )
        for name, title in figures.items()
    )
    return gr.HTML(
        first.value() if first else "",
        html_template=f'<div class="lab-figures">{places}</div>'
        f'<div class="lab-told" id="{told}"></div>',
        js_on_load="window.QAlignLab.mount(element, props, watch);",
        plotly=plotly_module(),
        padding=False,
        elem_classes="lab-panel",
    )
