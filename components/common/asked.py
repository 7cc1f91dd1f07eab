"""What a page's script may ask the server; what it sends is anybody's word."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from qalign_core.errors import QAlignError
from qalign_core.reading import shown
from qalign_study.serve.refused import Refused

_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a value of the wrong kind raises where it is first used."""


def asked(*functions: Callable[[Any], Any]) -> list[Callable[[Any], Any]]:
    """The `server_functions` of a component: a value that one cannot use gets one sentence."""
    return [_asked(function) for function in functions]


def _asked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def refused(error: Exception, sent: object) -> Refused:
        own = isinstance(error, QAlignError)
        return Refused(422, str(error) if own else f"{function.__name__} cannot use {shown(sent)}")

    @wraps(function)
    async def later(sent: Any) -> Any:
        try:
            return await function(sent)
        except (QAlignError, *_WRONG) as error:
            raise refused(error, sent) from error

    @wraps(function)
    def now(sent: Any) -> Any:
        try:
            return function(sent)
        except (QAlignError, *_WRONG) as error:
            raise refused(error, sent) from error

    return later if inspect.iscoroutinefunction(function) else now
