"""The Results page: the four methods over whole problem sets, as it came out."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

import gradio as gr

from components.common.folding import fold
from components.common.options import PLAIN, PRIVATE, heading
from components.common.saving import file_saver
from components.results.advice import advice_html
from components.results.sheet import file_of, list_html, paper_html, show, whole_html
from components.session.links import unusable
from qalign_core.errors import QAlignError
from qalign_study.sheet.evaluated import (
    NO_FOLDERS,
    OLD_NAMES,
    groups_of,
    read,
    results_files,
    summarise,
)

IN_A_SENTENCE = {
    "in_distribution": "problems like the training problems",
    "shifted": "problems in unfamiliar wording",
    "long": "long problems",
    "inventory": "inventories",
}
"""Names of the embedded sets after "on"."""
EMPTY = """
<p class="qc-sub">No results are in <code>assets/results</code> yet. Make them with
<code>qalign evaluate --task in_distribution --budget 512 --out runs/in_distribution
--pack assets/results/in_distribution.zip</code>; if interrupted, it resumes.</p>
"""
DECIDING = (
    "Three questions decide it, on the sets with a trained reward model. A reward without mistakes "
    "helps the chain: with a validator it is ahead on forms where 1 sample in 14 is right."
)
WIDEST = 240
"""Pixels below which a menu has a row of its own, so that its longest title can be read."""
READING = '<p class="qc-sub">Reading the results…</p>'
COMPARING = '<p class="qc-sub">Comparing the methods on every set; this takes a few seconds…</p>'
OPENS = """
element.addEventListener("click", (event) => {
  const cell = event.target.closest("[data-opens]");
  if (cell) trigger("open", { cell: cell.dataset.opens }); // 'open'
});
"""


def advice(files: Sequence[Path]) -> str:
    """Which method to use, from the usual results (`results_files`) that have right answers."""
    sets, poor = {}, {}
    for path in files:
        try:
            header = read(path).header  # first: the curves of an open-ended set take long
            if header.run.open_ended or header.run.sharpness != 1:
                continue
            evaluated = summarise(path)
        except QAlignError:  # the page shows the error where that set is chosen
            continue
        task, _, model = path.stem.partition("-")
        named = IN_A_SENTENCE.get(task, f"“{task.replace('_', ' ')}”")
        if model:
            poor[f"{named}, with the {model} reward model,"] = evaluated
        else:
            sets[named] = evaluated
    return advice_html(sets, poor)


def build_results_page(
    looked_at: gr.State,
    led: gr.HTML,
    opened: Mapping[str, Path] = NO_FOLDERS,
) -> None:
    """Build the page's widgets in the current context; curves are computed when first looked at.

    Args:
        looked_at: changes when a visitor first looks at the page; then the sets are read.
        led: a component whose value is the query of a link that the page follows.
        opened: folders of the user's own by name, which come first.
    """
    files = results_files() + results_files(others=True)
    with gr.Column(elem_id="results"):
        if files or opened:
            _build_sets(looked_at, files, led, opened)
        else:
            gr.HTML(EMPTY, **PLAIN)
        with fold("And in the paper?", "results-papers"):
            gr.HTML(
                '<p class="qc-sub">The paper’s own numbers, not measured here: accuracy in % at '
                "1,024 samples in its general experiments, and the settings of both kinds of "
                "experiment.</p>",
                **PLAIN,
            )
            gr.HTML(paper_html("paper"), elem_id="results-paper", **PLAIN)
            gr.HTML(paper_html("paper-settings"), elem_id="results-settings", **PLAIN)


@dataclass(frozen=True)
class _Sets:
    """The sets on offer by name, and what the page shows of the one that is chosen."""

    by_name: Mapping[str, Path]

    @cached_property
    def groups(self) -> dict[str, dict[str, str]]:
        """The names by what they show and by their titles."""
        return groups_of(self.by_name)

    @property
    def first(self) -> str:
        """The set that is chosen at first."""
        return next(iter(next(iter(self.groups.values())).values()))

    def menus(self, name: str | None) -> list[Any]:
        """Return what both menus show once a set is chosen."""
        title, group = next(each for each in self.groups.items() if name in each[1].values())
        return [title, gr.Dropdown(list(group.items()), value=name)]

    async def choose_group(self, title: str) -> list[Any]:
        """Choose the first variant of a group; the title comes from a browser."""
        group = self.groups.get(str(title), next(iter(self.groups.values())))
        name = next(iter(group.values()))
        return [self.menus(name)[1], *await self.choose(name)]

    def known(self, name: object) -> str | None:
        """Return today's name of a set; the name comes from a browser or an older link."""
        today = str(name) if str(name) in self.by_name else OLD_NAMES.get(str(name))
        return today if today in self.by_name else None

    def path(self, name: object) -> Path:
        """Return the path of a set; nothing but the sets is read."""
        return self.by_name[self.known(name) or self.first]

    async def choose(self, name: object) -> tuple[str, str, str]:
        """Return what stands above and behind the figures of a set, and below."""
        return await asyncio.to_thread(show, self.path(name))

    async def open(self, name: str, event: gr.EventData) -> str:
        """List the problems of a cell that was pressed."""
        try:
            evaluated = await asyncio.to_thread(summarise, self.path(name))
        except QAlignError:  # its message is shown instead of the figure
            return ""
        return await asyncio.to_thread(list_html, evaluated, str(getattr(event, "cell", "")))

    async def look(self, query: str, request: gr.Request) -> list[Any]:
        """Choose the set of a visitor's first look."""
        # a lesson that leads here comes before the link that brought the visitor
        parameters = {**request.query_params, **dict(parse_qsl(str(query)))}
        name = self.known(parameters.get("set", self.first))
        if name is None:
            gr.Warning(unusable(parameters["set"], "Problem set"))
            name = self.first
        return [*self.menus(name), *await self.choose(name)]

    async def follow(self, query: str) -> Any:
        """Choose the set that a lesson's link names, if it names one."""
        name = self.known(dict(parse_qsl(str(query))).get("set"))
        if name is None:
            return gr.skip()
        return [*self.menus(name), *await self.choose(name)]


def _build_sets(
    looked_at: gr.State,
    files: tuple[Path, ...],
    led: gr.HTML,
    opened: Mapping[str, Path],
) -> None:
    sets = _Sets({**opened, **{path.stem: path for path in files if path.stem not in opened}})
    first_question = heading(
        "How many answers are wrong, for how much compute?",
        "Every method ran on whole problem sets"
        + ("" if opened else " that no model was trained on")
        + ", at the same [compute](compute). Lower is better; shaded bands are 95% intervals over "
        "problems. Rules that choose among n samples cannot be below “any of n”; a chain can.",
    )
    gr.HTML(first_question, **PLAIN)
    with gr.Row(elem_classes="q-menus"):
        group = gr.Dropdown(
            list(sets.groups),
            value=next(iter(sets.groups)),
            label="Problem set",
            filterable=False,
            min_width=WIDEST,
            elem_id="results-set",
        )
        # the server knows the variants of all groups; a browser shows those of one
        chosen = gr.Dropdown(
            [pair for variants in sets.groups.values() for pair in variants.items()],
            value=sets.first,
            label="Variant",
            filterable=False,
            min_width=WIDEST,
            elem_id="results-variant",
        )
    above = gr.HTML(READING, elem_id="results-sheet", js_on_load=OPENS, **PLAIN)
    behind = gr.HTML("", elem_id="results-problems", **PLAIN)
    gr.HTML(heading("Which should I use?", DECIDING), **PLAIN)
    advised = gr.HTML(COMPARING, elem_id="results-advice", **PLAIN)
    below = gr.HTML("", **PLAIN)
    _build_averages(tuple(path for path in files if "@" not in path.stem))

    outputs = [above, behind, below]
    cast(Any, above).open(sets.open, chosen, behind, concurrency_limit=2, **PRIVATE)
    waits = f"() => [{json.dumps(READING)}, '', '']"  # no figure of the set before under its title
    for menu in (group, chosen):
        menu.input(None, None, outputs, js=waits, **PRIVATE)
    group.input(sets.choose_group, group, [chosen, *outputs], concurrency_limit=2, **PRIVATE)
    chosen.input(sets.choose, chosen, outputs, concurrency_limit=2, **PRIVATE)
    chosen.change(None, chosen, js="(name) => QAlignShell.set(name)", **PRIVATE)
    both = [group, chosen, *outputs]
    looking = looked_at.change(sets.look, led, both, concurrency_limit=2, **PRIVATE)
    for changes in (group.change, chosen.change, looking.then):
        changes(None, js="() => QAlignShell.titles()", **PRIVATE)
    # after what is looked at first: it reads every set
    looking.then(lambda: advice(results_files()), None, advised, concurrency_limit=1, **PRIVATE)
    leading = led.change(sets.follow, led, both, concurrency_limit=2, **PRIVATE)
    leading.then(None, led, js="(query) => QAlignLearn.arrived('results', query)", **PRIVATE)


def _build_averages(files: tuple[Path, ...]) -> None:
    """Build the fold of all sets together, each of which counts once."""
    with fold("All sets together: averages, crossings of the curves, waiting times", "results-all"):
        with gr.Row(elem_id="results-files"):
            together = gr.Button("Draw them", size="sm")
            as_csv = gr.Button("Save as CSV", size="sm")
            as_latex = gr.Button("Save as LaTeX", size="sm")
        whole = gr.HTML("", elem_id="results-whole", **PLAIN)
        saver = file_saver()
    for button, kind in ((as_csv, "csv"), (as_latex, "tex")):
        make_file = partial(file_of, files, kind)
        button.click(make_file, None, saver, concurrency_limit=1, **PRIVATE)
    slow = {**PRIVATE, "show_progress": "minimal", "show_progress_on": whole}
    together.click(lambda: whole_html(files), None, whole, concurrency_limit=1, **slow)
