"""The settings of a run as widgets: one for each field of `Run` that a page shows, by its name."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import gradio as gr

from components.common.reward import mixed, model_list, reward_shown, reward_widgets
from components.session.runs import Runs
from qalign_core.run import OPEN, Run, default_extractor

USUAL = ""
"""What stands for the extractor that suits the prompt."""
ANSWERS = {
    "As the problem asks": USUAL,
    "Numbers": "number",
    "Choice letters": "choice",
    "Last letter A to J": "option",
    "LaTeX in \\boxed{}": "boxed",
    "Short texts": "text",
    "Amounts by name": "amounts",
    "None: open-ended": OPEN,
}
"""How answers can be read, as people call it."""
SLIDERS = {"steps": 1, "chains": 1, "temperature": 0.05, "max_new_tokens": 1, "burn_in": 1}
"""The settings that are sliders, and their step; they reach as far as a run and the server."""


class RunForm:
    """Widgets for the settings of a run, in the order in which they are added.

    Args:
        start: what they show at first.
        runs: the server's limits, and the models on offer.
        page: what the ids of the widgets begin with.
    """

    def __init__(self, start: Run, runs: Runs, *, page: str) -> None:
        self._start, self._runs, self._page = start.within(runs.limits), runs, page
        self.widgets: dict[str, Any] = {}

    def values(self) -> list[Any]:
        """The widgets, in order."""
        return list(self.widgets.values())

    def names(self, *more: str) -> str:
        """The names of the widgets' settings, in order, as JSON: scripts take values by name."""
        return json.dumps([*self.widgets, *more])

    def watch(self, **more: Any) -> None:
        """Tell the page's script what the widgets hold, and a page's own `more`, when one moves."""
        widgets, names = [*self.values(), *more.values()], self.names(*more)
        js = f"(...values) => QAlignShell.settings('{self._page}', {names}, values)"
        gr.on([widget.change for widget in widgets], None, widgets, js=js)

    @property
    def problem(self) -> list[Any]:
        """The widgets that say what the problem is, its answer, and how that is read."""
        return [self.widgets[name] for name in ("prompt", "reference", "extractor")]

    def add(self, *names: str) -> None:
        """Make the widgets of these settings in the current context."""
        for name in names:
            if name == "rm":
                offer, given = self._runs.offer, self._given(name)
                self.widgets |= reward_widgets(
                    self._start.rm, offer, f"{self._page}-second", **given
                )
            else:
                self.widgets[name] = self._widget(name)

    @property
    def rest(self) -> list[str]:
        """The settings that pages show and that have no widget yet."""
        shown = (each.name for each in fields(Run) if each.metadata["page"])
        return [name for name in shown if name not in self.widgets]

    def read(self, values: Sequence[Any]) -> Run:
        """The run that the widgets' values say.

        Raises:
            InvalidSetting: one of them cannot be.
        """
        given = dict(zip(self.widgets, values, strict=True))
        given["rm"] = mixed(given["rm"], given.pop("second"), given.pop("share"))
        run = Run.read(given)
        return run.with_changes(burn_in=min(run.burn_in, run.steps))

    def show(self, run: Run) -> dict[Any, Any]:
        """What the widgets show for a run."""
        values = {name: getattr(run, name, None) for name in self.widgets}
        asked = run.extractor or OPEN
        if asked == default_extractor(run.prompt) or asked not in ANSWERS.values():  # or a file
            asked = USUAL
        values["extractor"] = asked
        values |= {"reference": run.reference or "", **reward_shown(run.rm, self._runs.offer)}
        return {widget: values[name] for name, widget in self.widgets.items()}

    def _given(self, name: str) -> dict[str, Any]:
        """What every widget of a setting has."""
        label = Run.__dataclass_fields__[name].metadata["label"]
        return {"label": label, "elem_id": f"{self._page}-{name.replace('_', '-')}"}

    def _widget(self, name: str) -> Any:
        told, given = Run.__dataclass_fields__[name].metadata, self._given(name)
        value, kind = getattr(self._start, name), Run.kinds()[name]
        if name == "lm":
            return model_list(self._runs.offer, "lm", value, **given)
        if name == "extractor":
            given["info"] = "open-ended: the most typical text is chosen"
            return gr.Dropdown(list(ANSWERS.items()), value=USUAL, filterable=False, **given)
        given["info"] = told["says"]
        if told["choices"]:
            return gr.Dropdown(list(told["choices"]), value=value, filterable=False, **given)
        cap = getattr(self._runs.limits, told["cap"]) if told["cap"] else None
        if name == "prompt":
            given["info"] = (
                "The 0.9M model was trained on such story problems and short writing tasks."
            )
            return gr.Textbox(value, lines=4, max_lines=8, max_length=cap, **given)
        if kind is str:
            del given["info"]
            return gr.Textbox(value or "", max_length=min(60, cap or 60), lines=1, **given)
        if name in SLIDERS:
            most = told["most"] if cap is None else min(told["most"], cap)
            return gr.Slider(told["least"], most, value=value, step=SLIDERS[name], **given)
        # neither bounds nor precision: Gradio would round, and refuse in words of its own
        return gr.Number(value, **given)
