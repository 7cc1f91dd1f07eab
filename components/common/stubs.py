"""Gradio without its stubs: at each import it writes the interface of every component again."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_stub_files() -> Iterator[None]:
    """While Gradio is imported in here it writes no stubs: they take two seconds of its four."""
    file_of = inspect.getfile

    def hidden(object: Any) -> str:
        if type(object).__name__ == "ComponentMeta":
            raise OSError("a class without a file has no stub")
        return file_of(object)

    inspect.getfile = hidden
    try:
        yield
    finally:
        inspect.getfile = file_of
