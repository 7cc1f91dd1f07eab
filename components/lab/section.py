"""A section of the lab: what it asks, its controls, and what they draw, as one component.

A graph stays in the page and takes new data: Gradio's own plot component builds a new one at each
update. One component a section, because Gradio tells every output of an event how the event fares.
"""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import gradio as gr
import numpy as np
import orjson
from gradio.components import Component

from components.common.rpc import server_functions
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

    words: tuple[Words, ...]
    figures: tuple[tuple[Figure, Words], ...]

    def value(self) -> str:
        """What the page's component gets."""
        figures = [{"drawing": _text(figure), "table": table} for figure, table in self.figures]
        return _text({"words": self.words, "figures": figures})


def _text(value: object) -> str:
    # orjson asks for what it cannot write: an array that is a slice of another is not contiguous
    return orjson.dumps(value, np.ascontiguousarray, orjson.OPT_SERIALIZE_NUMPY).decode()


@dataclass(frozen=True)
class Section:
    """A section of the lab.

    Attributes:
        name: in the list of sections, and in links.
        anchor: what links call it, whatever its name: `<a href="#lab-section-worth">`.
        question: its heading.
        explanation: what explains the question, with its terms as `with_terms` has them.
        controls: makes the section's own widgets; a change of one draws the section again.
        draw: from (world, beta, *values of the controls) to what the section shows; a section with
            a world of its own gets only the values.
        figures: the figures' titles by their names in the page.
        heights: of figures that are not as high as others: nothing moves when they are drawn.
        uses_world: whether it shows the shared language model and reward.
        prepare: run once the section is open and drawn, for what is slow the first time.
    """

    name: str
    anchor: str
    question: str
    explanation: str
    controls: Callable[[], list[Component]]
    draw: Callable[..., View]
    figures: Mapping[str, str]
    heights: Mapping[str, int] = field(default_factory=dict)
    uses_world: bool = True
    prepare: Callable[[], object] = lambda: None

    def view(self, first: str = "") -> gr.HTML:
        """Return the component that shows the section: figures, then words.

        Args:
            first: the value until a setting changes. The page fetches it when the Lab is opened.
        """

        def initial(_: object) -> str:
            return first

        places = "".join(
            FIGURE.format(
                name=name,
                title=html.escape(title),
                height=self.heights.get(name, HEIGHT),
                save=save_line(f"lab-{name}"),
            )
            for name, title in self.figures.items()
        )
        return gr.HTML(
            "",
            html_template=f'<div class="lab-figures">{places}</div>'
            f'<div class="lab-words" id="lab-{self.anchor}-told"></div>',
            js_on_load="window.QAlignLab.mount(element, props, watch, server);",
            server_functions=server_functions(initial) if first else None,
            plotly=plotly_module(),
            padding=False,
            elem_classes="lab-panel",
        )
