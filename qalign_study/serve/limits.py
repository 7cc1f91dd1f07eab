"""The limits of a server, from its environment."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Literal

from qalign_core.errors import InvalidSetting
from qalign_core.run import Limits
from qalign_core.validation import short_repr


def read_limits(environment: Mapping[str, str] = os.environ) -> Limits:
    """Return the default limits, overridden by `QALIGN_MAX_STEPS` and so on.

    Raises:
        InvalidSetting: a variable is not a whole number above 0.
    """
    return Limits(**read_caps(environment, [cap.name for cap in fields(Limits)]))


def read_caps(
    environment: Mapping[str, str], names: Iterable[str], *, minimum: Literal[0, 1] = 1
) -> dict[str, int]:
    """Return the caps that the environment sets: `QALIGN_MAX_STEPS` is the cap `steps`.

    Raises:
        InvalidSetting: a variable is not a whole number of at least `minimum`.
    """
    caps: dict[str, int] = {}
    for cap in names:
        name = f"QALIGN_MAX_{cap.upper()}"
        if name in environment:
            text = environment[name].strip()
            if not (text.isdecimal() and len(text) < 16 and int(text) >= minimum):
                raise InvalidSetting(
                    f"{name} must be a whole number{' above 0' * minimum}, got {short_repr(text)}"
                )
            caps[cap] = int(text)
    return caps
