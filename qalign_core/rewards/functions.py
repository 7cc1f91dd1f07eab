"""Rewards that need no network of their own: a Python function, and a weighted sum of rewards."""

import asyncio
import math
import runpy
from collections.abc import Callable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, Self

from qalign_core.chain.cost import parameters_of, reading_of, reads_nothing
from qalign_core.errors import InvalidReward, InvalidSetting, ModelLoadError
from qalign_core.protocols import RewardModel
from qalign_core.reading import first_line, is_finite, shown
from qalign_core.types import Response


def load_name(place: str) -> Callable[..., Any]:
    """A function, class or move of a user's own file, "FILE.py:NAME"; the file is run.

    Raises:
        ModelLoadError: there is no such file or name, or running the file failed.
    """
    path, _, name = place.rpartition(":")
    try:
        found = runpy.run_path(path).get(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a file may call `sys.exit()`
        raise ModelLoadError(
            f"{path} cannot be run ({type(error).__name__}: {first_line(error)}); "
            f"a Python file that defines {name} was expected"
        ) from error
    if not callable(found) and not hasattr(found, "propose"):
        raise ModelLoadError(f"{path} has no function or class {name}; name one as FILE.py:NAME")
    function: Callable[..., Any] = found
    return function


class FunctionReward:
    """`r(x, y) = function(prompt, response text)`: a rule as a reward model.

    Args:
        function: of the prompt and the response's text; returns one finite number.
        id: its name, for traces.
    """

    n_parameters = 0
    n_read = staticmethod(reads_nothing)

    def __init__(self, function: Callable[[str, str], float], *, id: str = "rule") -> None:
        self.function, self.id = function, id

    @classmethod
    def from_file(cls, place: str, *, id: str | None = None) -> Self:
        """The function of a user's own file, "FILE.py:NAME"; the file is run.

        Args:
            place: the file and the function.
            id: its name; by default the function's.

        Raises:
            ModelLoadError: there is no such file or function, or running the file failed.
        """
        function = load_name(place)
        if isinstance(function, type):
            raise ModelLoadError(
                f"{place} is a class; name a function of the prompt and the response's text"
            )
        return cls(function, id=id or place.rpartition(":")[2])

    async def score(self, prompt: str, response: Response) -> float:
        """The function's value; anything but a finite number is an `InvalidReward`."""
        try:
            value = self.function(prompt, response.text)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            said = f"{type(error).__name__}: {first_line(error)}"
            raise InvalidReward(f"{self.id} failed with {said}; fix the function") from error
        with suppress(OverflowError):  # a whole number may have any length
            if isinstance(value, Real) and is_finite(number := float(value)):
                return number
        raise InvalidReward(f"{self.id} returned {shown(value)}; one finite number was expected")


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
        return sum(weight * value for (_, weight), value in zip(self.parts, values, strict=True))

    def n_read(self, known: int, total: int) -> int:
        """The mean of the parts' tokens by their parameters: times all parameters, their cost."""
        if not self.n_parameters:
            return 0
        each = ((parameters_of(rm), reading_of(rm)(known, total)) for rm, _ in self.parts)
        return round(sum(size * tokens for size, tokens in each) / self.n_parameters)
