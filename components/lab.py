"""The Theory lab: everything that can be computed exactly, on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from components import lab_balance, lab_beta, lab_break, lab_chain, lab_wrong
from components.lab_section import Section
from components.lab_style import CSS, note
from qalign_core.errors import QAlignError
from qalign_core.theory.world import (
    LANGUAGE_MODELS,
    LETTERS,
    REWARDS,
    ROWS,
    RewardSpec,
    World,
    make_world,
)

TABS: tuple[tuple[str, str, Callable[[], Section]], ...] = (
    ("chain", "The exact chain", lab_chain.build),
    ("balance", "Detailed balance", lab_balance.build),
    ("break", "Break it", lab_break.build),
    ("beta", "Beta", lab_beta.build),
    ("wrong", "A wrong reward", lab_wrong.build),
)
QUIET: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "trigger_mode": "always_last",
}


def world_of(rows: Sequence[Sequence[object]], *parts: float) -> World:
    """The world that the editors describe: the table's rows after their names, then the parts.

    Raises:
        InvalidSetting: the editors hold no valid world; the message says what to change.
    """
    a, b, c, length, roughness, gem = (float("nan") if part is None else part for part in parts)
    spec = RewardSpec((a, b, c), length, roughness, gem)
    return make_world([list(row)[1:] for row in rows], spec)


def rows_of(name: str) -> list[list[object]]:
    """A preset language model as the rows of its editor."""
    return [[row, *values] for row, values in zip(ROWS, LANGUAGE_MODELS[name], strict=True)]


def parts_of(name: str) -> list[float]:
    """A preset reward as the values of its editors."""
    spec = REWARDS[name]
    return [*spec.letters, spec.length, spec.roughness, spec.gem]


def draw_section(section: Section, world: Sequence[Any], own: Sequence[Any]) -> tuple[object, ...]:
    """What a section shows, after a message that is empty unless the settings are invalid."""
    rows, parts, beta = world[0], world[1:-1], world[-1]
    try:
        if section.uses_world:
            return ("", *section.draw(world_of(rows, *parts), float(beta), *own))
        return ("", *section.draw(*own))
    except QAlignError as error:
        return (note(str(error)), *[gr.skip()] * len(section.outputs))


def build_lab_page() -> None:
    """Build the page in the current `gr.Blocks`: the shared world, the sections, the wiring."""
    gr.HTML(f"<style>{CSS.read_text(encoding='utf-8')}</style>", padding=False)
    with gr.Column(elem_classes="lab"):
        with gr.Column(elem_id="lab-world") as shared:
            with gr.Row():
                lm = gr.Dropdown(list(LANGUAGE_MODELS), label="Language model", elem_id="lab-lm",
                                 min_width=160)  # fmt: skip
                reward = gr.Dropdown(list(REWARDS), label="Reward", elem_id="lab-reward",
                                     min_width=160)  # fmt: skip
                beta = gr.Slider(0.05, 5, lab_chain.FIRST_BETA, step=0.05, scale=2, min_width=260,
                                 label="beta, in spreads of the reward (← trust the reward, "
                                 "the LM →)", elem_id="lab-beta")  # fmt: skip
            with gr.Accordion("Edit the language model and the reward", open=False):
                rows, parts = _editors(next(iter(LANGUAGE_MODELS)), next(iter(REWARDS)))
        message = gr.HTML(elem_id="lab-message", padding=False)
        tabs, sections = [], []
        with gr.Tabs(elem_id="lab-tabs"):
            for name, title, build in TABS:
                with gr.Tab(title, id=f"lab-{name}") as tab:
                    tabs.append(tab)
                    sections.append(build())
    lm.input(rows_of, lm, rows, **QUIET)
    reward.input(parts_of, reward, parts, **QUIET)
    _wire(sections, tabs, shared, [rows, *parts, beta], message)


def _editors(lm: str, reward: str) -> tuple[gr.Dataframe, list[gr.Number]]:
    rows = gr.Dataframe(
        rows_of(lm), headers=["next token", *LETTERS, "end"], type="array", static_columns=[0],
        label="Weights of the next token (each row is divided by its sum)", elem_id="lab-rows",
        row_count=4, column_count=5, interactive=True,
    )  # fmt: skip
    names = ("worth of a", "worth of b", "worth of c", "worth of a token", "roughness",
             "worth of aba·")  # fmt: skip
    with gr.Row():
        parts = [
            gr.Number(value, label=name, step=0.5, min_width=100, elem_id=f"lab-part-{k}")
            for k, (name, value) in enumerate(zip(names, parts_of(reward), strict=True))
        ]
    return rows, parts


def _wire(
    sections: list[Section],
    tabs: list[gr.Tab],
    shared: gr.Column,
    world: list[Component],
    message: gr.HTML,
) -> None:
    """Draw a section when its tab opens and whenever a setting changes while it is open."""
    opened = gr.State(sections[0].name)

    def redraw(name: str, *values: Any) -> list[object]:
        """Draw the open section; the others keep what they show until they are opened."""
        found: list[object] = []
        said: object = gr.skip()
        settings, rest = values[: len(world)], values[len(world) :]
        for section in sections:
            own, rest = rest[: len(section.controls)], rest[len(section.controls) :]
            if section.name == name and section.uses_world:
                said, *drawn = draw_section(section, settings, own)
                found += drawn
            else:
                found += [gr.skip()] * len(section.outputs)
        return [said, *found]

    gr.on(
        [widget.change for widget in world],
        redraw,
        [opened, *world, *(control for s in sections for control in s.controls)],
        [message, *(output for s in sections for output in s.outputs)],
        **QUIET,
    )
    for section, tab in zip(sections, tabs, strict=True):
        _wire_section(section, tab, shared, world, message, opened)


def _wire_section(
    section: Section,
    tab: gr.Tab,
    shared: gr.Column,
    world: list[Component],
    message: gr.HTML,
    opened: gr.State,
) -> None:
    def draw(*values: Any) -> tuple[object, ...]:
        return draw_section(section, values[: len(world)], values[len(world) :])

    def select(*values: Any) -> tuple[object, ...]:
        return (section.name, gr.Column(visible=section.uses_world), *draw(*values))

    inputs, outputs = [*world, *section.controls], [message, *section.outputs]
    gr.on([control.change for control in section.controls], draw, inputs, outputs, **QUIET)
    tab.select(select, inputs, [opened, shared, *outputs], **QUIET)
