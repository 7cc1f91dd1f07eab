"""A part of a page that is folded away and yet is there."""

from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from components.common.options import PLAIN

SCRIPT = """
const button = element.querySelector("button");
button.addEventListener("click", () => {
  button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
});
"""


@contextmanager
def fold(title: str, elem_id: str) -> Iterator[None]:
    """Widgets that a button with this title shows and hides; they are mounted from the start.

    `gr.Accordion` (Gradio 6.31) mounts its widgets when it opens and gives them their first values
    again one frame later: on a busy machine, what a visitor has typed by then is lost.
    """
    gr.HTML(
        html_template=f'<button type="button" aria-expanded="false" aria-controls="{elem_id}">'
        f"{title}</button>",
        js_on_load=SCRIPT,
        elem_classes="q-fold",
        **PLAIN,
    )
    with gr.Column(elem_id=elem_id, elem_classes="q-folded"):
        yield
