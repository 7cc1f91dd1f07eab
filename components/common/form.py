"""The settings of a run as widgets: one for each field of `Run` that a page shows, by its name."""

import json
import re
from collections.abc import Sequence
from typing import Any

import gradio as gr

from components.common.reward import mixed, model_list, reward_values, reward_widgets
from components.session.runs import Runs
from qalign_core.run import NO_EXTRACTOR, Run, default_extractor

USUAL = ""
"""The value that selects the extractor by the prompt."""
ANSWERS = {
    "As the problem asks": USUAL,
    "Numbers": "number",
    "Choice letters": "choice",
    "Last letter A to J": "option",
    "LaTeX in \\boxed{}": "boxed",
    "Short texts": "text",
    "Amounts by name": "amounts",
    "None: open-ended": NO_EXTRACTOR,
}
"""The ways to read answers, by their titles."""
LABELS = {
    "prompt": "Problem",
    "reference": "Known answer, if any",
    "extractor": "Answers to vote on",
    "lm": "Language model",
    "rm": "Reward model",
    "beta": "β (beta)",
    "sharpness": "Sharpness (κ)",
    "move": "Moves",
    "burn_in": "Burn-in",
    "max_new_tokens": "Length limit",
    "top_p": "Top-p",
    "top_k": "Top-k",
}
"""The labels of settings whose label is not their name."""
SLIDERS = {"steps": 1, "chains": 1, "temperature": 0.05, "max_new_tokens": 1, "burn_in": 1}
"""The settings that are sliders, and their step; they reach as far as a run and the server."""
_NAME = re.compile(rf"(^(?:Failed: )?|the setting )({'|'.join(Run.kinds())})\b")


def label_of(name: str) -> str:
    """Return the label of a setting's widget."""
    return LABELS.get(name, name.replace("_", " ").capitalize())


def with_labels(sentence: str) -> str:
    """Return an error as a page shows it: a setting has its label, an empty field is called so."""
    sentence = _NAME.sub(lambda match: match[1] + label_of(match[2]), sentence)
    return re.sub(r", got (None|'')(?=\.?$)", ", but the field is empty", sentence)


class RunForm:
    """Widgets for the settings of a run, in the order in which they are added.

    Args:
        start: what they show at first.
        runs: the server's limits, and the models on offer.
        page: what the ids of the widgets begin with.
    """

    def __init__(self, start: Run, runs: Runs, *, page: str) -> None:
        self.start, self.runs, self.page = start.within(runs.limits), runs, page
        self.widgets: dict[str, Any] = {}

    def values(self) -> list[Any]:
        """The widgets, in order."""
        return list(self.widgets.values())

    def names(self, *more: str) -> str:
        """The names of the widgets' settings, in order, as JSON: scripts take values by name."""
        return json.dumps([*self.widgets, *more])

    def watch(self, demo: gr.Blocks, **more: Any) -> None:
        """Tell the page's script what the widgets hold, and a page's own `more`, when one moves."""
        widgets, names = [*self.values(), *more.values()], self.names(*more)
        js = f"(...values) => QAlignShell.settings('{self.page}', {names}, values)"
        gr.on([widget.change for widget in widgets], None, widgets, js=js)
        first = f"(...values) => QAlignShell.first('{self.page}', {names}, values)"
        demo.load(None, widgets, js=first)

    @property
    def problem(self) -> list[Any]:
        """The widgets that say what the problem is, its answer, and how that is read."""
        return [self.widgets[name] for name in ("prompt", "reference", "extractor")]

    def add(self, *names: str) -> None:
        """Make the widgets of these settings in the current context."""
        for name in names:
            if name == "rm":
                offer, options = self.runs.offer, self._common_options(name)
                self.widgets |= reward_widgets(
                    self.start.rm, offer, f"{self.page}-second", **options
                )
            else:
                self.widgets[name] = self._widget(name)

    @property
    def rest(self) -> list[str]:
        """The settings that pages show and that have no widget yet."""
        settings = Run.settings().items()
        return [n for n, each in settings if each.metadata["page"] and n not in self.widgets]

    def read(self, values: Sequence[Any]) -> Run:
        """Build the run that the widgets describe.

        Raises:
            InvalidSetting: a value is not valid.
        """
        settings = dict(zip(self.widgets, values, strict=True))
        settings["rm"] = mixed(settings["rm"], settings.pop("second"), settings.pop("share"))
        return Run.read(settings)

    def show(self, run: Run) -> dict[Any, Any]:
        """Return the widgets' values for a run."""
        values = {name: getattr(run, name, None) for name in self.widgets}
        extractor = run.extractor or NO_EXTRACTOR
        # a grader from a file is in no list
        if extractor == default_extractor(run.prompt) or extractor not in ANSWERS.values():
            extractor = USUAL
        values["extractor"] = extractor
        values |= {"reference": run.reference or "", **reward_values(run.rm, self.runs.offer)}
        return {widget: values[name] for name, widget in self.widgets.items()}

    def _common_options(self, name: str) -> dict[str, Any]:
        """Return the options that every widget of a setting has."""
        return {"label": label_of(name), "elem_id": f"{self.page}-{name.replace('_', '-')}"}

    def _widget(self, name: str) -> Any:
        metadata, options = Run.settings()[name].metadata, self._common_options(name)
        value, kind = getattr(self.start, name), Run.kinds()[name]
        if name == "lm":
            return model_list(self.runs.offer, "lm", value, **options)
        if name == "extractor":
            options["info"] = "open-ended: the most typical text is chosen"
            return gr.Dropdown(list(ANSWERS.items()), value=USUAL, filterable=False, **options)
        options["info"] = metadata["help"]
        if metadata["choices"]:
            return gr.Dropdown(list(metadata["choices"]), value=value, filterable=False, **options)
        if name == "prompt":
            options["info"] = (
                "The 0.9M model was trained on such story problems and short writing tasks."
            )
            return gr.Textbox(value, lines=4, max_lines=8, **options)
        if kind is str:  # without `max_length`, at which a browser cuts and says nothing
            return gr.Textbox(value or "", lines=1, **options)
        if name in SLIDERS:
            most = metadata["max"]
            if metadata["cap"]:
                most = min(most, getattr(self.runs.limits, metadata["cap"]))
            return gr.Slider(metadata["min"], most, value=value, step=SLIDERS[name], **options)
        # neither bounds nor precision: Gradio would round, and refuse in words of its own
        return gr.Number(value, **options)
