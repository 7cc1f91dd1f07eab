"""What stands under a figure of Plotly's: buttons that save it, drawn anew for a light page."""


def save_line(figure: str) -> str:
    """Markup of the buttons for the figure in the element of this id."""
    buttons = " ".join(
        f'<button type="button" data-save="{kind}" data-figure="{figure}" '
        f'aria-label="Save the figure as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("svg", "png")
    )
    return f'<p class="q-save">Save the figure: {buttons}</p>'
