"""The Theory lab: everything that can be computed exactly, on one page."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from gradio.components import Component

from components.common.folding import fold
from components.common.options import PRIVATE
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
)

SECTIONS: tuple[tuple[str, Callable[[], Section]], ...] = (
    ("Beta", beta.build),
    ("Convergence", chain.build),
    ("Detailed balance", balance.build),
    ("Break it", break_it.build),
    ("Best-of-n", best_of_n.build),
    ("A wrong reward", wrong.build),
    ("When is a chain worth it?", worth.build),
    ("Which move?", which_move.build),
)
ANCHORS = ("beta", "convergence", "balance", "break", "best-of-n", "wrong", "worth", "move")
"""What links call the sections, whatever their names: `<a href="#lab-section-worth">`."""
UNNAMED = "Convergence"
"""The section of a link with settings and no section: the Lab opened on it up to version 0.5."""
INTRO = f"""<p class="lab-say" data-anchors="{" ".join(ANCHORS)}">The models here are so small
that numbers are exact, unless marked as sampled or fitted.</p>"""
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
        said = html.escape(str(error))
        return f'<div class="lab-note" role="status">{said}</div>', gr.skip()


@dataclass(frozen=True, slots=True)
class _Page:
    """The widgets of the page, and its sections by name, each with the column that holds it."""

    opened: gr.Radio
    shared: gr.Column
    lm: gr.Dropdown
    reward: gr.Dropdown
    rows: gr.Dataframe
    parts: list[gr.Number]
    sharpness: gr.Slider
    beta: gr.Slider
    message: gr.HTML
    link: gr.Textbox
    sections: dict[str, tuple[gr.Column, Section]]

    @property
    def world(self) -> list[Component]:
        """The widgets that describe the shared world, and beta."""
        return [self.rows, *self.parts, self.sharpness, self.beta]

    @property
    def own(self) -> list[Component]:
        """The controls of all sections."""
        return [control for _, section in self.sections.values() for control in section.controls]

    @property
    def controls(self) -> list[Component]:
        """Every control of the page."""
        return [self.opened, self.lm, self.reward, *self.world, *self.own]

    @property
    def linked(self) -> list[Component]:
        """The controls that a link names: all but pasted text."""
        return [control for control in self.controls if not isinstance(control, gr.Textbox)]

    def unmoved(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """The initial values of the linked controls, by name.

        The editors have the values of the presets in `held`.
        """
        first = {str(control.elem_id): control.value for control in self.linked}
        parts = parts_of(held.get("lab-reward", first["lab-reward"]))
        editors = {"lab-rows": rows_of(held.get("lab-lm", first["lab-lm"]))}
        return first | editors | {str(p.elem_id): v for p, v in zip(self.parts, parts, strict=True)}

    def link_of(self, values: Sequence[Any]) -> str:
        """The query of a link to what the controls hold."""
        held = {
            str(control.elem_id): value
            for control, value in zip(self.controls, values, strict=True)
            if not isinstance(control, gr.Textbox)
        }
        unmoved = self.unmoved(held)
        return to_query(held, unmoved) and to_query(held, unmoved | {"lab-opened": ""})


def build_lab_page(demo: gr.Blocks, led: gr.HTML | None = None) -> None:
    """Build the page in the current context: the shared world, the sections, the wiring.

    Args:
        demo: the app.
        led: a component whose value is the query of a link that the page follows.
    """
    names = [name for name, _ in SECTIONS]
    with gr.Column(elem_classes="lab"):
        gr.HTML(INTRO, padding=False, elem_id="lab-intro")
        # a radio, not tabs: on a phone all the sections stay in sight
        opened = gr.Radio(names, value=names[0], label="What to show", elem_id="lab-opened")
        with gr.Column(elem_id="lab-world") as shared:
            with gr.Row():
                beta = gr.Slider(0.05, 5, chain.FIRST_BETA, step=0.05, scale=2, min_width=260,
                                 label="β, in standard deviations of the reward",
                                 info="small: follow the reward; large: stay close to the model",
                                 elem_id="lab-beta")  # fmt: skip
                lm = gr.Dropdown(list(LANGUAGE_MODELS), label="Language model", elem_id="lab-lm",
                                 min_width=200)  # fmt: skip
                reward = gr.Dropdown(list(REWARDS), label="Reward", elem_id="lab-reward",
                                     min_width=200)  # fmt: skip
                sharpness = gr.Slider(1, 8, 1, step=0.5, scale=1, min_width=180, label="Sharpness",
                                  info="power of the model’s own probability",
                                  elem_id="lab-sharpness")  # fmt: skip
            with fold("Edit the language model and the reward", "lab-editors"):
                rows, parts = _editors(next(iter(LANGUAGE_MODELS)), next(iter(REWARDS)))
        message = gr.HTML(elem_id="lab-message", padding=False)
        link = gr.Textbox(visible="hidden", elem_id="lab-link")
        sections: dict[str, tuple[gr.Column, Section]] = {}
        for anchor, (name, build) in zip(ANCHORS, SECTIONS, strict=True):
            place = f"lab-section-{anchor}"
            with gr.Column(
                visible=name == names[0], elem_id=place, elem_classes="lab-section"
            ) as column:
                sections[name] = (column, build())
    page = _Page(opened, shared, lm, reward, rows, parts, sharpness, beta, message, link, sections)
    _wire(page, demo, led)


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


def _wire(page: _Page, demo: gr.Blocks, led: gr.HTML | None) -> None:
    """Draw the section that is open: when it is opened, and when one of its settings changes.

    The others keep what they show until they are opened, so a slider costs one section.
    """
    world, sections = page.world, page.sections

    def redraw(name: str, lm: str, reward: str, *values: Any) -> list[object]:
        held = (name, lm, reward, *values)
        settings, rest = values[: len(world)], values[len(world) :]
        message, drawn = gr.skip(), []
        for title, (_, section) in sections.items():
            own, rest = rest[: len(section.controls)], rest[len(section.controls) :]
            if title == name:
                message, shown = draw_section(section, settings, own)
                drawn.append(shown)
            else:
                drawn.append(gr.skip())
        return [message, page.link_of(held), *drawn]

    def of_lm(name: str, lm: str, reward: str, _: object, *values: Any) -> list[object]:
        rows = rows_of(lm)
        return [rows, *redraw(name, lm, reward, rows, *values)]

    def of_reward(name: str, lm: str, reward: str, rows: object, *values: Any) -> list[object]:
        parts = parts_of(reward)
        return [*parts, *redraw(name, lm, reward, rows, *parts, *values[len(parts) :])]

    def open_section(name: str) -> list[gr.Column]:
        return [
            gr.Column(visible=sections[name][1].uses_world),
            *(gr.Column(visible=title == name) for title in sections),
        ]

    def prepare(name: str) -> None:
        section = sections[name][1]
        if section.prepare is not None:
            section.prepare()

    def follow(query: Mapping[str, str]) -> list[Any]:
        found, notices = from_query(query, page.linked)
        for notice in notices:
            gr.Warning(notice)
        if not found:
            return [gr.skip()] * (len(page.controls) + 1)
        held = page.unmoved(found) | {"lab-opened": UNNAMED} | found
        return [*(held.get(str(c.elem_id), gr.skip()) for c in page.controls), str(found)]

    outputs = [page.message, page.link, *(section.view for _, section in sections.values())]
    draw: dict[str, Any] = {"fn": redraw, "inputs": page.controls, "outputs": outputs, **DIRECT}
    followed = gr.State("")
    # a preset fills all the editors and is drawn in the same event, not as each of them changes
    edits = [editor.input for editor in (page.rows, *page.parts)]
    changes = [widget.change for widget in (page.sharpness, page.beta, *page.own, followed)]
    gr.on([*edits, *changes], **draw)
    page.lm.input(of_lm, page.controls, [page.rows, *outputs], **DIRECT)
    page.reward.input(of_reward, page.controls, [*page.parts, *outputs], **DIRECT)
    columns = [page.shared, *(column for column, _ in sections.values())]
    opening = page.opened.change(open_section, page.opened, columns, **DIRECT).then(**draw)
    opening.then(prepare, page.opened, None, **LAST)
    to = [*page.controls, followed]

    def on_load(request: gr.Request) -> list[Any]:
        return follow({key: str(value) for key, value in request.query_params.items()})

    demo.load(on_load, None, to, **LAST)
    if led is not None:
        lead = {"fn": lambda query: follow(dict(parse_qsl(str(query))))[:-1], "inputs": led}
        leading = led.change(**lead, outputs=page.controls, **LAST).then(**draw)
        leading.then(None, led, js="(query) => QAlignLearn.arrived('lab', query)", **PRIVATE)
    page.link.change(None, page.link, None, js="(query) => QAlignShell.lab(query)", **PRIVATE)
