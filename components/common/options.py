"""Common options of the pages' events and texts in Gradio."""

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


def heading(question: str, sentence: str) -> str:
    """A question that a part of a page answers, and a sentence with its terms, as markup."""
    return f'<h2 class="qc-h">{question}</h2><p class="qc-sub">{with_terms(sentence)}</p>'
