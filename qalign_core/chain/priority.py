"""Whose work a request is, and whether anybody waits for it: what a queue in front of a model asks.

Coroutines set these where they begin; whatever they await, and the tasks that they start, inherit
them.
"""

from contextvars import ContextVar

RUN: ContextVar[str] = ContextVar("qalign_run", default="")
"""Whose work this is; set it (`RUN.set(session_id)`) so that runs share a model fairly."""

ASIDE: ContextVar[bool] = ContextVar("qalign_aside", default=False)
"""Whether it is drawn beside what somebody watches: while a model is busy, it comes second."""
