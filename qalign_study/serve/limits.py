"""The limits of a server, from its environment."""

import os
from collections.abc import Mapping
from dataclasses import fields

from qalign_core.errors import InvalidSetting
from qalign_core.run import Limits
from qalign_core.validation import short_repr


def read_limits(environment: Mapping[str, str] = os.environ) -> Limits:
    """Return the default limits, overridden by `QALIGN_MAX_STEPS` and so on.

    Raises:
        InvalidSetting: a variable is not a whole number above 0.
    """
    values: dict[str, int] = {}
    for cap in fields(Limits):
        name = f"QALIGN_MAX_{cap.name.upper()}"
        if name in environment:
            text = environment[name].strip()
            if not (text.isdecimal() and len(text) < 16 and int(text)):
                raise InvalidSetting(
                    f"{name} must be a whole number above 0, got {short_repr(text)}"
                )
            values[cap.name] = int(text)
    return Limits(**values)
