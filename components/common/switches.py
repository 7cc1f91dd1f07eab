"""Environment variables of the app that turn something on or off."""

from collections.abc import Mapping

from qalign_core.errors import InvalidSetting
from qalign_core.validation import short_repr


def read_switch(environment: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return True for 1 and False for 0; `default` if the variable is empty or not set.

    Raises:
        InvalidSetting: it has another value.
    """
    text = environment.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise InvalidSetting(f"{name} must be 1 or 0, got {short_repr(text)}")
    return text == "1" if text else default
