"""What is being loaded, told to whoever waits for it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

TOLD: ContextVar[Callable[[str], None] | None] = ContextVar("qalign_told", default=None)
"""Set it to hear what a load does, in a few words at a time; a thread's context inherits it."""


def tell(what: str) -> None:
    """Say what happens now, such as "reading 0.5 GiB of NAME"."""
    told = TOLD.get()
    if told is not None:
        told(what)


class FetchBar(tqdm):  # type: ignore[misc]
    """The progress bar that a download from the hub moves: told instead of drawn."""

    source = ""
    last = ""

    @classmethod
    def of(cls, source: str) -> type[FetchBar]:
        """The class for one model; the hub's client makes the bars. Its threads share the ear."""
        return type(
            "FetchBar", (cls,), {"source": source, "told": staticmethod(TOLD.get() or cls.told)}
        )

    @staticmethod
    def told(what: str) -> None:
        """Hear nothing, unless `of` found somebody who does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "disable": False, "file": io.StringIO()})

    def display(self, *args: Any, **options: Any) -> None:
        """Tell the share of bytes; the bar of whole files says less."""
        if self.unit == "B" and self.total:
            size = f"{self.total / 1e6:.0f} MB"
            text = f"fetching {self.source}: {self.n / self.total:.0%} of {size}"
            if text != self.last:  # a shell shows a line for each
                self.told(text)
            self.last = text
