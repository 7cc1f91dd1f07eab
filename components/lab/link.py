"""The lab's settings as the query of a link, and back: a link shows what its sender saw.

The keys are the controls' names on the page (`lab-opened=Beta&lab-beta=0.5`). A link names the open
section, and the other controls that differ from the page as it opens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from gradio.components import Component

from components.session.links import unusable
from qalign_core.validation import rename_settings

LONGEST = 400
"""Characters of a value that are read."""


def to_query(held: Mapping[str, Any], unmoved: Mapping[str, Any]) -> str:
    """The query of a link: the values by control that differ from those of the same name."""
    return urlencode(
        [
            (name, _written(value))
            for name, value in held.items()
            if value is not None and _written(value) != _written(unmoved[name])
        ]
    )


def from_query(
    query: Mapping[str, str], controls: Sequence[Component]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by the controls' names, and a notice for each that the control cannot have."""
    linked = {key.removeprefix("lab-"): v for key, v in query.items() if key.startswith("lab-")}
    query = {f"lab-{key}": value for key, value in rename_settings(linked).items()}
    values, notices = {}, []
    for control in controls:
        name = str(control.elem_id)
        if name not in query:
            continue
        try:
            values[name] = _read(control, query[name][:LONGEST])
        except ValueError:
            notices.append(unusable(query[name], str(control.label)))
    return values, tuple(notices)


def _written(value: Any) -> str:
    if isinstance(value, list):  # a table
        return " ".join(_written(cell) for row in value for cell in row[1:])
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _read(control: Component, text: str) -> Any:
    if isinstance(control, gr.Dataframe):
        numbers = [_number(word) for word in text.split()]
        rows = control.value["data"]
        width = len(rows[0]) - 1  # the first column names the rows
        if len(numbers) != width * len(rows):
            raise ValueError
        return [[row[0], *numbers[k * width : (k + 1) * width]] for k, row in enumerate(rows)]
    if isinstance(control, gr.Number | gr.Slider):
        value = _number(text)
        low, high = control.minimum, control.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError
        return value
    assert isinstance(control, gr.Radio | gr.Dropdown), "a link names no other kind of control"
    if text not in {value for _, value in control.choices}:
        raise ValueError
    return text


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value
