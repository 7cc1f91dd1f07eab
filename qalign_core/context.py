"""Context variables: state that functions share without passing it as an argument.

A coroutine sets them where it begins. The coroutines it awaits, the tasks it starts and the threads
that load its models inherit them. None of them changes a number: they set the order in which
requests are served, who receives progress messages while a model loads, and what its name may mean.
"""

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context

RUN: ContextVar[str] = ContextVar("qalign_run", default="")
"""The run that this work belongs to. Set it (`RUN.set(session_id)`) so that runs share a model
fairly."""

BACKGROUND: ContextVar[bool] = ContextVar("qalign_background", default=False)
"""True for background work, which yields to interactive work while a model is busy."""

VISITOR: ContextVar[bool] = ContextVar("qalign_visitor", default=False)
"""True for work that a visitor of a server requests: a model's relative name is then an id of the
hub, and never a folder of this machine."""


def in_background() -> Context:
    """Return a copy of the present context for background work."""
    context = copy_context()
    context.run(BACKGROUND.set, True)
    return context


PROGRESS: ContextVar[Callable[[str], None]] = ContextVar(
    "qalign_progress", default=lambda message: None
)
"""Receives short progress messages while a model loads."""
