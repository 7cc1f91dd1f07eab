"""The chain player as a Gradio component: a trace in, all animation in the browser.

The template is constant and nothing is interpolated into it: traces travel as the component's
value (a live run, growing) or its `recorded` property, and the script puts their text into the page
as text only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from components.common.rpc import server_functions

# The quoted names are the events that Python can listen to.
SCRIPT = """
const shell = window.QAlignShell;
const calls = shell.answering(server);
const api = window.QAlign.mount(element.querySelector(".qp-host"), {
  text: props.recorded, name: props.recorded_name,
  place: shell.linked ? null : shell.place,
  onseek: shell.seek,
  actions: shell.actions(calls),
  enough: (view) => shell.enough(calls.diagnose, view),
  again: calls.redraw_step && ((view) => shell.redraw(calls.redraw_step, api, view)),
  run: () => document.querySelector("#watch-run").click(),
  compare: shell.compare(() => api, calls),
  ask: calls.score_texts && { score: calls.score_texts, rewrite: calls.rewrite_text },
  extra: { diagnostics: ["Can I trust it?", (view) => shell.diagnostics(calls.diagnose, view)] },
});
if (window.QAlignLearn.waits) api.toggle(false);
shell.outlive(api);
watch("value", () => api.stream(props.value));
"""


def chain_player(recorded: str, name: str, functions: Sequence[Callable[[Any], Any]]) -> gr.HTML:
    """Build a player that shows a recorded trace at once and a live run when its value grows.

    Args:
        recorded: a whole trace, JSON lines.
        name: the title of the recorded run.
        functions: the functions that the browser calls by name; without those about single texts,
            the tabs that need them are left out.
    """
    return gr.HTML(
        value="",
        html_template='<div class="qp-host"></div>',
        js_on_load=SCRIPT,
        recorded=recorded,
        recorded_name=name,
        server_functions=server_functions(*functions),
        apply_default_css=False,
        elem_id="watch-player",
    )
