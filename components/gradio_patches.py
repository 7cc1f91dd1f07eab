"""Changes to Gradio's private parts, one per function: delete a function and its call to drop it.

Each function leaves Gradio as it is where the private names that it needs are missing. The
environment variable `QALIGN_PATCHES=0` turns all of them off. The app then still works: its page
takes two seconds longer to serve, an idle server takes 9% of a core, and a defect in Gradio's queue
stops all runs. This module imports Gradio inside its functions, because one of them has to run
first.
"""

import asyncio
import inspect
import logging
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from components.common.switches import read_switch

if TYPE_CHECKING:
    import gradio as gr

log = logging.getLogger("qalign.queue")
LOOPS = ("start_processing", "start_progress_updates", "notify_clients")
"""The loops of Gradio's queue: it starts events, reports progress, and reports places."""
_ENDS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""Errors by which the process or its event loop ends; every other error is a defect."""


MAX_ERROR = 600
"""Characters of an error's text in a reply: enough for the choices of any list of the app."""
POLLING = {"sleep_when_free": 0.02, "progress_update_sleep_when_free": 60.0}
"""Seconds between two polls of the queue: for waiting events, and for progress."""


def is_on() -> bool:
    """Return False if the operator turned all patches off; `patch_queue` refuses other values."""
    return os.environ.get("QALIGN_PATCHES") != "0"


def patch_queue(demo: "gr.Blocks") -> None:
    """Apply every patch of the queue, unless patches are turned off."""
    if read_switch(os.environ, "QALIGN_PATCHES", default=True):
        log_tracebacks()
        shorten_errors()
        keep_no_configs()
        poll_queue_slowly(demo)
        keep_sessions_with_events(demo)
        contain_reports(demo)
        supervise_queue(demo)


@contextmanager
def without_stub_files() -> Iterator[None]:
    """Import Gradio within this context, and it writes no stub files.

    Gradio (6.31) writes the interface file of every component again at each import.

    Without this function: the import takes two seconds longer, of four.
    """
    original = inspect.getfile

    def getfile(object: Any) -> str:
        if type(object).__name__ == "ComponentMeta":
            raise OSError("a class without a file has no stub")
        return original(object)

    if is_on():
        inspect.getfile = getfile
    try:
        yield
    finally:
        inspect.getfile = original


def poll_queue_slowly(demo: "gr.Blocks") -> None:
    """Poll the queue every 20 ms for waiting events.

    Gradio (6.31) polls every millisecond, and every 10 ms for progress.

    Without this function: an idle server takes 9% of a core.
    """
    for name, seconds in POLLING.items():
        setattr(getattr(demo, "_queue", demo), name, seconds)


def supervise_queue(demo: "gr.Blocks") -> None:
    """Restart each loop of the queue whatever error ends it, and keep what runs and waits.

    Gradio (6.31) starts all events of pages and programs in one loop. The first error in that loop
    ends it, cancels every running event, and marks the queue as stopped: each later request gets
    503 "Queue is stopped." until the app is restarted. Here the error is logged, events that were
    taken from the queue and not started return to it, and the loop starts again.

    Without this function: one error in Gradio's bookkeeping stops the app for all visitors.
    """
    queue: Any = getattr(demo, "_queue", None)
    names = ("get_events", "process_events", "_cancel_asyncio_tasks", *LOOPS)
    if not all(callable(getattr(queue, name, None)) for name in names):
        return
    get_events, process, cancel = (getattr(queue, name) for name in names[:3])
    batch: Any = None

    def take() -> Any:
        nonlocal batch
        batch = get_events()
        return batch

    def start(*arguments: Any) -> Awaitable[None]:
        nonlocal batch
        running: Awaitable[None] = process(*arguments)
        batch = None
        return running

    def recover() -> None:
        """Return events that were taken and not started, and count the places that are held."""
        nonlocal batch
        if batch is None:
            return
        (events, _, name), batch = batch, None
        jobs = queue.active_jobs = [None if job is events else job for job in queue.active_jobs]
        waiting = queue.event_queue_per_concurrency_id[name]
        waiting.current_concurrency = sum(job[0].concurrency_id == name for job in jobs if job)
        waiting.queue.extend(events)

    def restarting(loop: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            while True:
                try:
                    await loop()
                except _ENDS:
                    cancel()
                    raise
                except BaseException:
                    # no other task runs between the loop's end and here: none sees a stopped queue
                    queue.stopped = not demo.is_running
                    log.exception("Gradio's queue failed and was restarted")
                    recover()
                    await asyncio.sleep(queue.sleep_when_free)
                else:  # the app is closed
                    cancel()
                    return

        return run

    queue.get_events, queue.process_events = take, start
    setattr(queue, names[2], lambda: None)  # the loop calls it at every end
    for name in LOOPS:
        setattr(queue, name, restarting(getattr(queue, name)))


def contain_reports(demo: "gr.Blocks") -> None:
    """Keep the queue's messages from failing for anybody but their own session.

    Gradio (6.31) deletes a session's list of messages when its reader leaves, and removes the
    session's events from the queue only afterwards. It also files an event whose session has no
    name under another name than its messages. When places in the queue are reported in between,
    `KeyError` is raised where the report was caused: in the loop that starts all events, or in
    another visitor's request, which gets 500. Here a message to a session without a list is
    dropped, and an error while places are reported is logged.

    Without this function: such a request fails, and the loop has to be restarted.
    """
    queue: Any = getattr(demo, "_queue", None)
    send, report = (getattr(queue, n, None) for n in ("send_message", "broadcast_estimations"))
    if send is None or report is None or not hasattr(queue, "pending_messages_per_session"):
        return

    def send_message(event: Any, message: Any) -> None:
        if event.session_hash in queue.pending_messages_per_session:
            send(event, message)

    def report_places(*arguments: Any) -> None:
        try:
            report(*arguments)
        except Exception:
            log.exception("Gradio could not report places in the queue")

    queue.send_message, queue.broadcast_estimations = send_message, report_places


def keep_sessions_with_events(demo: "gr.Blocks") -> None:
    """Keep the messages of each session that has an event in the queue.

    Gradio (6.31) keeps lists of messages for 2,000 sessions and deletes the list that was made
    first, so a page that has been open for long loses its run to a new visitor: "404: Not Found".
    It also never forgets the names of sessions that left. Here a full table deletes the session
    that has been idle longest, then a session whose events ended unread, and never a session with
    an event that waits or runs: the queue's own limits bound their number.

    Without this function: a run ends after 2,000 later sessions, and memory grows with
    each session.
    """
    queue: Any = getattr(demo, "_queue", None)
    lists: Any = getattr(queue, "pending_messages_per_session", None)
    names = ("pending_event_ids_session", "event_ids_to_events")
    if hasattr(lists, "max_size") and all(hasattr(queue, name) for name in names):
        queue.pending_event_ids_session = _EventsBySession()
        queue.pending_messages_per_session = _MessagesBySession(queue, lists.max_size)


def keep_no_configs() -> None:
    """Keep no copy of the page's configuration in each session.

    Gradio (6.31) writes out every component of the page at the first event of each session, and
    stores each value that the session later sends or gets in that copy, such as the text of a run.
    Only deep links read it, which `RequestGuard` refuses.

    Without this function: the first event of a session takes 18 ms of the loop that serves all
    visitors, and each of the last 256 sessions keeps half a megabyte and its last run.
    """
    from gradio import state_holder

    session_state: Any = getattr(state_holder, "SessionState", None)
    updates = ("_update_config", "_update_value_in_config")
    methods = [getattr(session_state, name, None) for name in updates]
    if None in methods or _keep_nothing in methods:
        return
    initialize = session_state.__init__

    def initialize_without_configs(self: Any, blocks: Any) -> None:
        initialize(self, SimpleNamespace(default_config=blocks.default_config, blocks={}))

    session_state.__init__ = initialize_without_configs
    for name in updates:
        setattr(session_state, name, _keep_nothing)


def _keep_nothing(*_: Any) -> None:
    """Store nothing, instead of a value in the configuration of a session."""


def forget_session(app: Any, session: str) -> None:
    """Delete the session of a program's call that has ended.

    Gradio (6.31) keeps the sessions last used.

    Without this function: sessions of programs take the place of visitors' sessions.
    """
    if not is_on():
        return
    holder = getattr(app, "state_holder", None)
    queue = getattr(getattr(app, "get_blocks", lambda: None)(), "_queue", None)
    for table in (
        *(getattr(holder, name, {}) for name in ("session_data", "time_last_used")),
        getattr(queue, "pending_messages_per_session", {}),
    ):
        if session in table:
            del table[session]


def log_tracebacks() -> None:
    """Have Gradio write the tracebacks of failed events to the log.

    Gradio (6.31) prints the traceback of each failed event to standard error, with the whole value
    that failed: 60 wrong choices in a dropdown wrote 101 kB, and one of 900 kB wrote 452 kB. Here
    defects go to the log, which is limited. A `gr.Error` is no defect: it is the answer to its
    visitor, such as that a choice is wrong.

    Without this function: any client can fill the disk that keeps the log.
    """
    from gradio import queueing, route_utils, routes

    for module in (queueing, routes, route_utils):
        if getattr(module, "traceback", None) is traceback:
            module.traceback = SimpleNamespace(print_exc=_log_defect)


def shorten_errors() -> None:
    """Cut the middle out of the text of a long error before Gradio sends it.

    Gradio (6.31) repeats a wrong choice as a whole, followed by the right choices.

    Without this function: the reply to a wrong choice is as long as its request.
    """
    from gradio import queueing, utils

    error_payload: Any = getattr(utils, "error_payload", None)
    if not callable(error_payload) or hasattr(error_payload, "__wrapped__"):
        return

    @wraps(error_payload)
    def short_payload(*arguments: Any) -> Any:
        payload = error_payload(*arguments)
        text = payload.get("error")
        if isinstance(text, str) and len(text) > MAX_ERROR:
            payload["error"] = f"{text[: MAX_ERROR // 3]} ... {text[-MAX_ERROR * 2 // 3 + 5 :]}"
        return payload

    for module in (queueing, utils):
        if getattr(module, "error_payload", None) is error_payload:
            module.error_payload = short_payload


def _log_defect() -> None:
    """Log the error of an event; in the place of `traceback.print_exc` in Gradio's modules."""
    import gradio as gr

    if not isinstance(sys.exception(), gr.Error):
        log.exception("an event failed")


class _EventsBySession(dict[str, set[str]]):
    """The events of each session that have not been read to their end; none of other sessions."""

    def __missing__(self, session: str) -> set[str]:
        return set()


class _MessagesBySession(OrderedDict[str, Any]):
    """The list of messages of each session, the least recently used first."""

    def __init__(self, queue: Any, max_size: int) -> None:
        super().__init__()
        self._queue, self.max_size = queue, max_size

    def __getitem__(self, session: str) -> Any:
        messages = super().__getitem__(session)
        self.move_to_end(session)
        return messages

    def __setitem__(self, session: str, messages: Any) -> None:
        if session not in self and len(self) >= self.max_size:
            self._drop_one()
        super().__setitem__(session, messages)

    def __delitem__(self, session: str) -> None:
        super().__delitem__(session)
        self._queue.pending_event_ids_session.pop(session, None)

    def _drop_one(self) -> None:
        unread = None
        for session in self:
            events = self._queue.pending_event_ids_session[session]
            if not events:
                break
            if unread is None and not any(e in self._queue.event_ids_to_events for e in events):
                unread = session
        else:
            if unread is None:
                return
            session = unread
        del self[session]
