"""The messages of a page's scripts, and the functions that they may call; all are untrusted."""

import asyncio
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from components.common.form import with_labels
from qalign_core.errors import QAlignError
from qalign_core.validation import from_json, short_repr
from qalign_study.serve.refusal import HTTPRefusal, public_errors

_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that a value of the wrong type raises at its first use."""


def value_of(body: bytes) -> Any:
    """The JSON value that a request has as its body.

    Raises:
        HTTPRefusal: it has none.
    """
    try:
        return from_json(body)
    except ValueError as error:
        raise HTTPRefusal(422, f"the request is not JSON ({error}); send an object") from error


def object_of(body: bytes) -> dict[str, Any]:
    """The body of a request, if it is an object.

    Raises:
        HTTPRefusal: it is not.
    """
    payload = value_of(body)
    if not isinstance(payload, dict):
        raise HTTPRefusal(
            422, f"the request must be an object of settings, got {short_repr(payload)}"
        )
    return payload


def server_functions(*functions: Callable[[Any], Any]) -> list[Callable[[Any], Any]]:
    """The `server_functions` of a component: a value that one cannot use gets one sentence.

    An error of the engine is answered with {"error": one sentence}.
    """
    return [_answer_errors(function) for function in functions]


def _answer_errors(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(function)
    async def answer(sent: Any) -> Any:
        try:
            with public_errors():
                if inspect.iscoroutinefunction(function):
                    return await function(sent)
                return await asyncio.to_thread(function, sent)
        except QAlignError as error:
            return {"error": with_labels(f"{error}.")}
        except _WRONG as error:
            raise HTTPRefusal(422, f"{function.__name__} cannot use {short_repr(sent)}") from error

    return answer
