"""Common options of the pages' events and texts in Gradio."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from components.gradio_patches import patch_queue
from qalign_study.export.dictionary import with_terms

PLAIN: dict[str, Any] = {"padding": False, "apply_default_css": False}
"""HTML that the pages' own sheets place and colour."""
PRIVATE: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "show_progress_on": [],
}
"""An event that is no endpoint and shows no sign of waiting: the pages have their own.

With nothing to show progress on, Gradio's page keeps no state of loading for the event's outputs.
It would go through all that any event has had, each time that one begins, goes on or ends: a
quarter of the browser's time in a lesson that uses the Lab.
"""


def queued(demo: gr.Blocks, **options: Any) -> gr.Blocks:
    """Give the app a queue in which no event waits for others."""
    demo.queue(default_concurrency_limit=None, **options)
    patch_queue(demo)
    return demo


def on_link(
    demo: gr.Blocks,
    page: str,
    read: Callable[[dict[str, str]], Any],
    outputs: list[Any],
    **options: Any,
) -> None:
    """Fill `outputs` with what `read` returns for the query of a link, and end the page's hold.

    Gradio creates each output of an event again, even if the event skips it. The event of a visitor
    without a link therefore has one output, a state that stays the same.
    """
    query = gr.State({})

    def read_address(request: gr.Request) -> dict[str, str]:
        return {key: str(value) for key, value in request.query_params.items()}

    loading = demo.load(read_address, None, query, **options)
    filling = query.change(read, query, outputs, **options)
    for end in (loading.failure, filling.then):
        end(None, js=f"() => QAlignShell.release('{page}')")


def heading(question: str, sentence: str) -> str:
    """A question that a part of a page answers, and a sentence with its terms, as markup."""
    return f'<h2 class="qc-h">{question}</h2><p class="qc-sub">{with_terms(sentence)}</p>'
