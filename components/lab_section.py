"""What the page knows of a section: its controls, what it shows, and the function between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradio.components import Component


@dataclass(frozen=True)
class Section:
    """A section of the lab.

    Attributes:
        draw: from (world, beta, *values of `controls`) to the values of `outputs`, in order; a
            section with a world of its own gets only the values.
        controls: the section's own widgets; a change of one draws the section again.
        outputs: the widgets that it fills.
        uses_world: whether it shows the shared language model and reward.
        prepare: run once the section is open and drawn, for what is slow the first time.
    """

    draw: Callable[..., Sequence[object]]
    controls: list[Component]
    outputs: list[Component]
    uses_world: bool = True
    prepare: Callable[[], object] | None = None
