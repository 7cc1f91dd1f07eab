"""What is carried unseen, in one place: context variables that no function takes or returns.

A coroutine sets them where it begins. The coroutines it awaits, the tasks it starts and the threads
that load its models inherit them. None of them changes a number: they decide who is served first
and who hears that a model is being loaded.
"""

from collections.abc import Callable
from contextvars import ContextVar

RUN: ContextVar[str] = ContextVar("qalign_run", default="")
"""Whose work this is. Set it (`RUN.set(session_id)`) so that runs share a model fairly."""

ASIDE: ContextVar[bool] = ContextVar("qalign_aside", default=False)
"""Whether nobody watches this work: while a model is busy, it comes second."""

TOLD: ContextVar[Callable[[str], None]] = ContextVar("qalign_told", default=lambda what: None)
"""Set it to receive short messages about a model that is being loaded."""
