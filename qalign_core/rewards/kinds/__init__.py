"""The kinds of rewards that a name of the form "PREFIX" or "PREFIX:ARGUMENT" refers to.

A kind is one decorated loader, in a file of this folder. Command line, pages, servers' offers and
plans read the table `reward_kinds()`:

    >>> from qalign_core.rewards.functions import FunctionReward
    >>> @reward_kind("starts", argument="WORD", noun="a first word", example="Yes")
    ... def load_starts(argument, *, id):
    ...     return FunctionReward(lambda _, text: float(text.startswith(argument)), id=id)
    >>> reward_kinds()["starts"].form
    'starts:WORD'
    >>> del KINDS["starts"]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, TypeVar

from qalign_core.protocols import RewardModel

Load = Callable[..., RewardModel]
"""(argument, *, id) -> the reward, or `InvalidSetting` if the argument cannot be."""


AnyLoad = TypeVar("AnyLoad", bound=Load)


@dataclass(frozen=True, slots=True)
class RewardKind:
    """A kind of reward.

    Attributes:
        prefix: the part of the name before the colon.
        load: returns the reward of an argument.
        uses: "text": it reads the text alone, and every server offers it; "lm": the argument is a
            language model, which `load` gets loaded, with its options; "code": it runs the user's
            own code, so only the command line and Python load it.
        argument: what stands after the colon, in capitals; empty if nothing does.
        noun, example: the argument in words, and one, if visitors may choose their own.
        max_new_tokens: the length limit of that language model.
    """

    prefix: str
    load: Load
    uses: Literal["text", "lm", "code"] = "text"
    argument: str = ""
    noun: str = ""
    example: str = ""
    max_new_tokens: int = 256

    @property
    def form(self) -> str:
        """How its names are written: "contains:WORD"."""
        return f"{self.prefix}:{self.argument}" if self.argument else self.prefix


KINDS: dict[str, RewardKind] = {}
"""The kinds by prefix; `reward_kinds` fills it."""


def reward_kind(prefix: str, **declared: Any) -> Callable[[AnyLoad], AnyLoad]:
    """Add the kind of reward that the decorated function loads.

    Args:
        prefix: the part of the name before the colon.
        declared: the other fields of `RewardKind`.
    """

    def add(load: AnyLoad) -> AnyLoad:
        KINDS[prefix] = RewardKind(prefix, load, **declared)
        return load

    return add


@cache
def reward_kinds() -> Mapping[str, RewardKind]:
    """Import every file of this folder, and return the kinds that they add."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return KINDS
