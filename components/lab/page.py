"""The Theory lab: everything that can be computed exactly, on one page."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from gradio.components import Component

from components.common.folding import fold
from components.common.options import PRIVATE, on_link
from components.lab import balance, best_of_n, beta, break_it, chain, which_move, worth, wrong
from components.lab.link import from_query, to_query
from components.lab.section import Section
from qalign_core.errors import QAlignError
from qalign_study.exact.world import (
    LANGUAGE_MODELS,
    LETTERS,
    REWARDS,
    ROWS,
    RewardSpec,
    World,
    make_world,
    preset,
)
from qalign_study.export.dictionary import markup_of, with_terms

SECTIONS = tuple(
    module.SECTION
    for module in (beta, chain, balance, break_it, best_of_n, wrong, worth, which_move)
)
ANCHORS = [section.anchor for section in SECTIONS]
UNNAMED = "Convergence"
"""The section of a link with settings and no section: the Lab opened on it up to version 0.5."""
Held = dict[Component, Any]
"""Values by their controls."""
PARTS = ("worth of a", "worth of b", "worth of c", "worth of a token", "roughness", "worth of aba·")
INTRO = f'<p data-anchors="{" ".join(ANCHORS)}"></p>'
"""Where the page's script reads the anchors; it is not shown."""
LAST = {**PRIVATE, "trigger_mode": "always_last"}
DIRECT = {**LAST, "queue": False}
"""For what is drawn at once: the queue's own stream takes longer than most of the mathematics."""


def world_of(rows: Sequence[Sequence[object]], *parts: float, sharpness: float = 1.0) -> World:
    """The world that the editors describe: the table's rows after their names, then the parts.

    Raises:
        InvalidSetting: the editors hold no valid world; the message says what to change.
    """
    a, b, c, length, roughness, gem = (float("nan") if part is None else part for part in parts)
    spec = RewardSpec((a, b, c), length, roughness, gem)
    return make_world([list(row)[1:] for row in rows], spec, sharpness)


def rows_of(name: str) -> list[list[object]]:
    """A preset language model as the rows of its editor."""
    return [[row, *values] for row, values in zip(ROWS, LANGUAGE_MODELS[name], strict=True)]


def parts_of(name: str) -> list[float]:
    """A preset reward as the values of its editors."""
    spec = REWARDS[name]
    return [*spec.letters, spec.length, spec.roughness, spec.gem]


def draw_section(section: Section, world: Sequence[Any], own: Sequence[Any]) -> tuple[str, Any]:
    """A message, empty unless the settings are invalid, and the value of the section's view."""
    rows, *parts, sharpness, beta = world
    try:
        if section.uses_world:
            shared = world_of(rows, *parts, sharpness=sharpness)
            return "", section.draw(shared, float(beta), *own).value()
        return "", section.draw(*own).value()
    except QAlignError as error:
        message = html.escape(str(error))
        return f'<div class="lab-note" role="status">{message}</div>', gr.skip()


@dataclass(frozen=True, slots=True)
class _Placed:
    """A section's widgets."""

    section: Section
    column: gr.Column
    controls: list[Component]
    view: gr.HTML


class _Page:
    """The widgets of the page, made in the current context."""

    def __init__(self) -> None:
        names = [section.name for section in SECTIONS]
        with gr.Column(elem_classes="lab"):
            gr.HTML(INTRO, padding=False, elem_id="lab-intro")
            # a radio, not tabs: on a phone all the sections stay in sight
            self.opened = gr.Radio(
                names, value=names[0], label="What to show", elem_id="lab-opened"
            )
            with gr.Column(elem_id="lab-world") as self.shared:
                self._world()
            self.message = gr.HTML(elem_id="lab-message", padding=False)
            self.link = gr.Textbox(visible="hidden", elem_id="lab-link")
            self.sections = {section.name: _placed(section) for section in SECTIONS}
        self.own = [control for each in self.sections.values() for control in each.controls]
        self.controls = [self.opened, self.lm, self.reward, *self.world, *self.own]
        self.linked = [each for each in self.controls if not isinstance(each, gr.Textbox)]
        """The controls that a link names: all but pasted text."""

    def _world(self) -> None:
        with gr.Row():
            beta = gr.Slider(0.05, 5, chain.FIRST_BETA, step=0.05, scale=2, min_width=260,
                             label="β, in standard deviations of the reward",
                             info="small: follow the reward; large: stay close to the model",
                             elem_id="lab-beta")  # fmt: skip
            self.lm = gr.Dropdown(list(LANGUAGE_MODELS), label="Language model", elem_id="lab-lm",
                                  info="writes strings of a, b and c", min_width=200)  # fmt: skip
            self.reward = gr.Dropdown(list(REWARDS), label="Reward", elem_id="lab-reward",
                                      min_width=200)  # fmt: skip
            sharpness = gr.Slider(1, 8, 1, step=0.5, scale=1, min_width=180, label="Sharpness",
                                  info="power of the model’s own probability",
                                  elem_id="lab-sharpness")  # fmt: skip
        with fold("Edit the language model and the reward", "lab-editors"):
            self.rows = gr.Dataframe(
                rows_of(next(iter(LANGUAGE_MODELS))), headers=["next token", *LETTERS, "end"],
                label="Weights of the next token (each row is divided by its sum)",
                type="array", static_columns=[0], elem_id="lab-rows", row_count=4, column_count=5,
                interactive=True,
            )  # fmt: skip
            with gr.Row():
                values = zip(PARTS, parts_of(next(iter(REWARDS))), strict=True)
                self.parts = [
                    gr.Number(value, label=name, step=0.5, min_width=100, elem_id=f"lab-part-{k}")
                    for k, (name, value) in enumerate(values)
                ]
        self.moved = [sharpness, beta]
        self.world: list[Component] = [self.rows, *self.parts, *self.moved]

    def unmoved(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """The initial values of the linked controls, by name.

        The editors have the values of the presets in `held`.
        """
        first = {str(control.elem_id): control.value for control in self.linked}
        parts = parts_of(held.get("lab-reward", first["lab-reward"]))
        editors = {"lab-rows": rows_of(held.get("lab-lm", first["lab-lm"]))}
        return first | editors | {str(p.elem_id): v for p, v in zip(self.parts, parts, strict=True)}

    def link_of(self, values: Held) -> str:
        """The query of a link to what the controls hold."""
        held = {str(control.elem_id): values[control] for control in self.linked}
        unmoved = self.unmoved(held)
        return to_query(held, unmoved) and to_query(held, unmoved | {"lab-opened": ""})


def _placed(section: Section) -> _Placed:
    """A section's widgets in the current context; the first section is open."""
    is_first = section is SECTIONS[0]
    place = f"lab-section-{section.anchor}"
    with gr.Column(visible=is_first, elem_id=place, elem_classes="lab-section") as column:
        gr.HTML(
            f"<h2>{markup_of(section.question)}</h2>"
            f'<p class="lab-say">{with_terms(section.explanation)}</p>',
            padding=False,
            elem_classes="lab-heading",
        )
        with gr.Column(elem_classes="lab-own"):
            controls = section.controls()
        own = [control.value for control in controls]
        first = section.draw(preset(), chain.FIRST_BETA, *own).value() if is_first else ""
        return _Placed(section, column, controls, section.view(first))


def build_lab_page(demo: gr.Blocks, led: gr.HTML) -> None:
    """Build the page in the current context: the shared world, the sections, the wiring.

    The section that is open is drawn when it is opened, and when one of its settings changes. The
    others keep what they show until they are opened, so a slider costs one section.

    Args:
        demo: the app.
        led: a component whose value is the query of a link that the page follows.
    """
    page = _Page()
    sections = page.sections

    def redraw(held: Held) -> Held:
        placed, newest = sections[held[page.opened]], held[latest]
        newest[0] = max(newest[0], held[number])
        world, own = ([held[c] for c in each] for each in (page.world, placed.controls))
        message, value = draw_section(placed.section, world, own)
        if held[number] < newest[0]:  # a newer one is asked for, whose reply may be there already
            return {page.message: gr.skip()}
        return {page.message: message, page.link: page.link_of(held), placed.view: value}

    def open_section(name: str) -> list[gr.Column]:
        uses_world = sections[name].section.uses_world
        return [gr.Column(visible=on) for on in (uses_world, *(name == each for each in sections))]

    def follow(query: Mapping[str, str]) -> Any:
        linked, notices = from_query(query, page.linked)
        for notice in notices:
            gr.Warning(notice)
        held = page.unmoved(linked) | {"lab-opened": UNNAMED} | linked
        return {c: held[str(c.elem_id)] for c in page.linked} if linked else gr.skip()

    def follow_link(query: dict[str, str]) -> Any:
        moved = follow(query)
        return moved if moved == gr.skip() else {**moved, due: 1}

    outputs = [page.message, page.link, *(placed.view for placed in sections.values())]
    latest = gr.State([0])  # the number of the newest drawing that this visitor has asked for
    number = gr.Number(0, visible=False)  # made last, so that its value comes last
    inputs = {*page.controls, latest, number}
    draw: dict[str, Any] = {"fn": redraw, "inputs": inputs, "outputs": outputs, **DIRECT}
    draw["js"] = (
        "(...held) => [...held.slice(0, -1), (window.labAsked = (window.labAsked ?? 0) + 1)]"
    )
    due = gr.State(0)

    def then_draw(event: Any) -> Any:
        """Draw after an event, by the one event that draws: of two the slower would be shown."""
        return event.then(lambda n: n + 1, due, due, **LAST)

    edits = [editor.input for editor in (page.rows, *page.parts)]
    changes = [widget.change for widget in (*page.moved, *page.own, due)]
    gr.on([*edits, *changes], **draw)
    # a preset fills all the editors, which are then drawn together
    then_draw(page.lm.input(rows_of, page.lm, page.rows, **DIRECT))
    then_draw(page.reward.input(parts_of, page.reward, page.parts, **DIRECT))
    columns = [page.shared, *(placed.column for placed in sections.values())]
    opening = then_draw(page.opened.change(open_section, page.opened, columns, **DIRECT))
    opening.then(lambda name: sections[name].section.prepare(), page.opened, None, **LAST)
    on_link(demo, "lab", follow_link, [*page.controls, due], **LAST)
    lead = {"fn": lambda query: follow(dict(parse_qsl(str(query)))), "inputs": led}
    leading = led.change(**lead, outputs=page.controls, **LAST).then(**draw)
    leading.then(None, led, js="(query) => QAlignLearn.arrived('lab', query)", **PRIVATE)
    page.link.change(None, page.link, None, js="(query) => QAlignShell.lab(query)", **PRIVATE)
