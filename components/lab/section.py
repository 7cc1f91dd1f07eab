"""What the page knows of a section: its controls, what it shows, and the function between them."""

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr
from gradio.components import Component

from components.lab.view import View


@dataclass(frozen=True)
class Section:
    """A section of the lab.

    Attributes:
        draw: from (world, beta, *values of `controls`) to what the section shows; a section with a
            world of its own gets only the values.
        controls: the section's own widgets; a change of one draws the section again.
        view: the component that shows it.
        uses_world: whether it shows the shared language model and reward.
        prepare: run once the section is open and drawn, for what is slow the first time.
    """

    draw: Callable[..., View]
    controls: list[Component]
    view: gr.HTML
    uses_world: bool = True
    prepare: Callable[[], object] | None = None
