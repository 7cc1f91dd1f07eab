"""The look of the app: Gradio's theme in the player's colours, and the page's head."""

from pathlib import Path

import gradio as gr
from plotly.offline import get_plotlyjs

from qalign_study.export import dictionary
from qalign_study.export.scripts import WEB, bundle, sheets


def theme() -> gr.themes.Base:
    """Calm and typographic; the font is one that Gradio carries, so no outside host is asked."""
    colour = gr.themes.Color(
        *("#eef4fd", "#e3edfb", "#c3d9f8", "#93bbf1", "#6aa5ff", "#2f73d2"),
        *("#1659b8", "#124a99", "#0f3d7e", "#0c3165", "#08234a"),
        name="qalign",
    )
    # the bundled semi-bold cuts lack most letters; the regular and the bold are whole
    font = gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700))
    return gr.themes.Default(
        primary_hue=colour,
        secondary_hue=colour,
        neutral_hue="slate",
        font=(font, "system-ui", "sans-serif"),
        font_mono=("ui-monospace", "Consolas", "monospace"),
    ).set(
        body_background_fill="#f6f7f9",
        body_background_fill_dark="#0f141d",
        block_background_fill_dark="#171e2a",
        body_text_color="#1d2430",
        body_text_color_dark="#e9edf4",
        body_text_color_subdued="#545d6b",
        body_text_color_subdued_dark="#a7b1c2",
        block_label_text_color="#545d6b",
        block_label_text_color_dark="#a7b1c2",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_500",
        button_primary_background_fill_hover_dark="*primary_600",
        button_secondary_background_fill="white",
        button_secondary_background_fill_dark="#171e2a",
        button_primary_border_color="*primary_600",
        button_primary_border_color_dark="*primary_500",
        button_border_width="1px",
        button_large_radius="8px",
        button_secondary_text_color="#1d2430",
        button_secondary_text_color_dark="#e9edf4",
        button_secondary_border_color="#cfd5df",
        button_secondary_border_color_dark="#3b4657",
    )


def plotly_module(frontend: Path = Path(gr.__file__).parent / "templates" / "frontend") -> str:
    """Address of Gradio's own module of plotly.js, "" if it is gone.

    Compare and Results load it too; 4.6 MB, which the lab fetches when it is opened. It is no part
    of what Gradio promises (6.31 has it); without it `head` brings plotly.js to every page.
    """
    module = next(frontend.glob("assets/PlotlyPlot-*.js"), None)
    return "" if module is None else module.relative_to(frontend).as_posix()


def head() -> str:
    """The page's head: what the pages bring of their own, style and script, in the page itself."""
    names = ("player", "shell", "gallery", "compare", "lab", "learn", "presenter")
    parts = [WEB / name / name for name in names]
    css = dictionary.style() + sheets(WEB / "learn" / "ask", *parts)
    script = dictionary.script() + bundle(*(part.with_suffix(".js") for part in parts))
    plotly = "" if plotly_module() else f"<script>{get_plotlyjs()}</script>"
    return f"{plotly}<style>{css}</style><script>{script}</script>"
