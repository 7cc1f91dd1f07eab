"""Saves files; buttons under a Plotly figure, which is drawn again for a light page."""

import gradio as gr

SAVER = """
watch("value", () => {
  const file = JSON.parse(props.value);
  window.QAlignCompare.download(file.name, file.text);
});
"""


def save_line(figure: str) -> str:
    """Markup of the buttons for the figure in the element of this id."""
    buttons = " ".join(
        f'<button type="button" data-save="{kind}" data-figure="{figure}" '
        f'aria-label="Save the figure as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("svg", "png")
    )
    return f'<p class="q-save">Save the figure: {buttons}</p>'


def file_saver() -> gr.HTML:
    """A component that saves a file: its value is the name and the text, as JSON."""
    return gr.HTML(value="", html_template="<i hidden></i>", js_on_load=SAVER)
