"""The line that says what a run is doing."""

from __future__ import annotations

import json

import gradio as gr

from components.session.runs import Status


def status_value(status: Status, **more: str) -> str:
    """The value of the status line; `more` is "query" of the run's link, or a "notice"."""
    return json.dumps({"state": status.state, "text": status.text, **more})


def status_line(value: str) -> gr.HTML:
    """One line that says what the run is doing; its value comes from `status_value`."""
    return gr.HTML(
        value=value,
        html_template='<div class="q-status" role="status"><i></i><span></span></div>',
        js_on_load="""
const line = element.querySelector(".q-status");
const update = () => window.QAlignShell.status(line, props.value);
watch("value", update);
update();
""",
        apply_default_css=False,
    )
