"""Rewards without a network of their own: a Python function or class, several rewards as one."""

import asyncio
import math
import runpy
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from numbers import Real
from typing import Any

import numpy as np

from qalign_core.chain.cost import Reading, parameters_of, reading_of, reads_nothing
from qalign_core.errors import EngineError, InvalidReward, InvalidSetting, ModelLoadError
from qalign_core.protocols import RewardModel
from qalign_core.types import Response
from qalign_core.validation import (
    check_count,
    check_real,
    is_finite,
    is_text,
    short_repr,
    user_code,
)


def import_object(place: str) -> Any:
    """Run a user's own file, and return its function, its move, or an object of its class.

    Args:
        place: "FILE.py:NAME"; a class is made without arguments.

    Raises:
        ModelLoadError: there is no such file or name, it is an async function, running the file
            failed, or the class cannot be made.
    """
    path, _, name = place.rpartition(":")
    expected = f"); a Python file that defines {name} was expected"
    with user_code(ModelLoadError, f"{path} cannot be run (", expected):
        value = runpy.run_path(path).get(name)
    if not callable(value) and not hasattr(value, "propose"):
        raise ModelLoadError(f"{path} has no function or class {name}; name one as FILE.py:NAME")
    if iscoroutinefunction(value):
        raise ModelLoadError(f"{name} in {path} is an async function; write it with a plain def")
    if not isinstance(value, type):
        return value
    expected = "); a class whose __init__ takes no arguments was expected"
    with user_code(ModelLoadError, f"{place} cannot be made (", expected):
        return value()


class FunctionReward:
    """`r(x, y) = function(prompt, response text)`: a rule as a reward model.

    Args:
        function: of the prompt and the response's text; returns one finite number.
        id: its name, for traces.

    Raises:
        InvalidSetting: the function is async.
    """

    n_parameters = 0
    n_read: Reading = staticmethod(reads_nothing)

    def __init__(self, function: Callable[[str, str], float], *, id: str = "rule") -> None:
        if any(map(iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
            raise InvalidSetting(f"{id} is an async function; write it with a plain def")
        self.function, self.id = function, id

    async def score(self, prompt: str, response: Response) -> float:
        """The function's value; anything but a finite number is an `InvalidReward`."""
        after = f"; fix the function ({_quote(response)})"
        with user_code(InvalidReward, f"{self.id} failed with ", after):
            value = self.function(prompt, response.text)
        return self.checked(value, response)

    def checked(self, value: object, response: Response) -> float:
        """The value, if it is one finite number; else the error names it and the response."""
        with suppress(OverflowError):  # a whole number may have any length
            if isinstance(value, (Real, np.bool_)) and is_finite(number := float(value)):
                return number
        raise InvalidReward(
            f"{self.id} returned {short_repr(value)}; one finite number was expected "
            f"({_quote(response)})"
        )


def _quote(response: Response) -> str:
    return f"response: {short_repr(response.text, 80)}"


class OwnReward(FunctionReward):
    """A reward of a user's class, whose mistakes are told in one sentence."""

    def __init__(self, reward: Any, *, id: str) -> None:
        self.reward, self.id = reward, id
        with user_code(ModelLoadError, f"{id} cannot be used (", "); fix its attributes"):
            self.n_parameters = int(check_real("n_parameters", parameters_of(reward), 0))
            self._reading = reading_of(reward)
        self.n_read = self._count_read

    def _count_read(self, known: int, total: int) -> int:
        with user_code(InvalidReward, f"{self.id} failed with ", "; fix the class"):
            return check_count("n_read", self._reading(known, total), 0)

    async def score(self, prompt: str, response: Response) -> float:
        """The object's score; anything but a finite number is an `InvalidReward`."""
        let = EngineError, InvalidReward
        after = f"; fix the class ({_quote(response)})"
        with user_code(InvalidReward, f"{self.id} failed with ", after, let=let):
            value = await self.reward.score(prompt, response)
        return self.checked(value, response)


def reward_from_file(place: str, *, id: str) -> FunctionReward:
    """Load the reward of a user's own file, "FILE.py:NAME": a function, or a class; run the file.

    A class is made without arguments and has `async score(prompt, response)`, and perhaps `id` and
    the other attributes of a `RewardModel`.

    Args:
        place: the file and the name in it.
        id: the reward's name; if it is the place, the class's `id`, or the name in the file.

    Raises:
        ModelLoadError: there is no such file or name, running the file failed, or the class is none
            of a reward.
    """
    name, reward = place.rpartition(":")[2], import_object(place)
    with user_code(ModelLoadError, f"{place} cannot be used (", "); fix its attributes"):
        is_class = hasattr(reward, "score")
        if id == place:
            id = str(getattr(reward, "id", name)) if is_class else name
            if not is_text(id):
                raise ValueError(f"the id {short_repr(id)} is not UTF-8 text")
    if not is_class:
        return FunctionReward(reward, id=id)
    if not iscoroutinefunction(reward.score):
        raise ModelLoadError(
            f"{place} has a plain method score; write async def score(self, prompt, response), "
            "which returns one finite number"
        )
    return OwnReward(reward, id=id)


class CompositeReward:
    """`r = sum_k w_k r_k`: steer by several preferences at once (raw units of each, weighted).

    Args:
        parts: pairs of a reward model and its weight, any finite number.
        id: its name; by default the parts' names with their weights.
    """

    def __init__(
        self, parts: Sequence[tuple[RewardModel, float]], *, id: str | None = None
    ) -> None:
        if not parts or not all(math.isfinite(weight) for _, weight in parts):
            raise InvalidSetting("a composite reward needs one part or more, with finite weights")
        self.parts = tuple(parts)
        self.id = id or " + ".join(f"{weight:g} {rm.id}" for rm, weight in parts)
        self.n_parameters = sum(parameters_of(rm) for rm, _ in parts)

    async def score(self, prompt: str, response: Response) -> float:
        """The weighted sum; the parts are scored at the same time."""
        values = await asyncio.gather(*(rm.score(prompt, response) for rm, _ in self.parts))
        pairs = zip(self.parts, values, strict=True)
        return self.combine([weight * value for (_, weight), value in pairs])

    def combine(self, values: Sequence[float]) -> float:
        """One reward of the weighted values of the parts."""
        return sum(values)

    def n_read(self, known: int, total: int) -> int:
        """The mean of the parts' tokens by their parameters: times all parameters, their cost."""
        if not self.n_parameters:
            return 0
        each = ((parameters_of(rm), reading_of(rm)(known, total)) for rm, _ in self.parts)
        return round(sum(size * tokens for size, tokens in each) / self.n_parameters)


class LeastReward(CompositeReward):
    """`r = min_k w_k r_k`: the reward that finds a text worst decides."""

    def combine(self, values: Sequence[float]) -> float:
        """The least of the weighted values."""
        return min(values)
