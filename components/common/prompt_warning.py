"""A line that says, before a run, that its model was not made for such a text, and offers one."""

import html

import gradio as gr

from components.common.form import RunForm
from components.common.options import PLAIN, PRIVATE
from qalign_core.registry import entries, is_foreign


def add_prompt_warning(row: gr.Row, form: RunForm) -> None:
    """Fill a row, hidden at first, that shows itself while the form's prompt is foreign to its LM.

    Args:
        row: its place on the page.
        form: with a prompt, a language model and a reward model. The server's first model that was
            made for any text is one press away.
    """
    offer = form.runs.offer
    prompt, lm, rm = (form.widgets[name] for name in ("prompt", "lm", "rm"))
    able = offer.for_any_text("lm")
    with row:
        message = gr.HTML(**PLAIN)
        title = entries()["lm", able].title if able else ""
        take = gr.Button(f"Use {title}", size="sm", visible=able is not None)

    def look(prompt: str, lm: str) -> tuple[gr.Row, str]:
        # a program may send more than the field takes, and tokens take long to count
        foreign = is_foreign(lm, (prompt or "")[: form.runs.limits.prompt])
        return gr.Row(visible=foreign), sentence(offer.models["lm"].get(lm, lm)) if foreign else ""

    at_once = {**PRIVATE, "queue": False}
    gr.on([prompt.change, lm.change], look, [prompt, lm], [row, message],
          trigger_mode="always_last", **at_once)  # fmt: skip
    take.click(lambda: (able, offer.for_any_text("rm") or gr.skip()), None, [lm, rm], **at_once)


def sentence(title: str) -> str:
    """What is said of a text for which the model of this title was not made."""
    return (
        f'<p role="status">“{html.escape(title)}” was not made for a text like '
        "this, and will probably write about something else.</p>"
    )
