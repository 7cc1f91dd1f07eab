"""Progress of a load, sent to the callers that wait for it."""

import io
from typing import Any

from tqdm import tqdm

from qalign_core.context import PROGRESS


def tell(what: str) -> None:
    """Say what happens now, such as "reading 0.5 GiB of NAME"."""
    PROGRESS.get()(what)


def fetch_bar(source: str) -> type[tqdm]:
    """A progress bar of the hub's downloads that reports instead of drawing.

    The hub's client makes the bars, in threads of its own; they share the listener of the load.
    """
    report = PROGRESS.get()

    class FetchBar(tqdm):  # type: ignore[misc]
        last = ""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": False, "file": io.StringIO()})

        def display(self, *args: Any, **options: Any) -> None:
            """Tell the share of bytes; the bar of whole files says less."""
            if self.unit == "B" and self.total:
                size = f"{self.total / 1e6:.0f} MB"
                text = f"fetching {source}: {self.n / self.total:.0%} of {size}"
                if text != self.last:  # a shell shows a line for each
                    report(text)
                self.last = text

    return FetchBar
