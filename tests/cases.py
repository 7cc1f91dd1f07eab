"""Cases of one test: those that `make test` tries, and the others of their kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

RICHEST = ("one-step", "worse", "worth")
"""Lessons that together have every kind of question, page and figure of the lessons."""


def cases_of(values: Mapping[str, Any], first: Iterable[str]) -> list[Any]:
    """Return a case per value; all but the first ones are left to `make test-more`."""
    first = set(first)
    assert first <= values.keys()
    return [
        pytest.param(value, id=name, marks=[] if name in first else pytest.mark.more)
        for name, value in values.items()
    ]
