"""Gradio's queue of events: no request and no error stops it, and nobody loses a run to others."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from browser import PATIENCE, serve
from gradio import queueing

from components.common.options import queued

TIMEOUT = PATIENCE / 1000


class Panic(BaseException):
    """An error of another kind than Python's own, such as a panic of a library in Rust."""


@contextmanager
def small_app(prepare: Any = queued) -> Iterator[SimpleNamespace]:
    """An app whose only event yields "begun", and "ended" once it is let go or at once if short."""
    let_go = threading.Event()

    async def run(text: str) -> Any:
        yield f"{text} begun"
        while text != "short" and not let_go.is_set():
            await asyncio.sleep(0.01)
        yield f"{text} ended"

    with gr.Blocks(analytics_enabled=False) as demo:
        text = gr.Textbox()
        text.submit(run, text, gr.Textbox(), concurrency_limit=None)
    prepare(demo)
    with serve(demo, ssr_mode=False) as address:
        yield SimpleNamespace(
            demo=demo, queue=demo._queue, url=f"{address}gradio_api", let_go=let_go.set
        )


def join(url: str, session: str, text: str = "run") -> httpx.Response:
    body = {"fn_index": 0, "data": [text], "session_hash": session}
    return httpx.post(f"{url}/queue/join", json=body, timeout=TIMEOUT)


@contextmanager
def reading(url: str, session: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The messages to a session, while it reads them."""
    address = f"{url}/queue/data?session_hash={session}"
    with httpx.stream("GET", address, timeout=TIMEOUT) as answer:
        yield (json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:"))


def until(messages: Iterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(message for message in messages if message["msg"] == kind)


def plain(demo: gr.Blocks) -> None:
    """Gradio's own queue."""
    demo.queue(default_concurrency_limit=None)


LOOPS = [
    (queueing.Queue, "get_events"),
    (queueing.Queue, "process_events"),
    (queueing, "set_task_name"),
]
"""What Gradio calls in the loop that starts events, and nowhere else."""
FAILING = [
    *((*each, error) for each in LOOPS for error in (KeyError("a"), MemoryError(), Panic("b"))),
    *((queueing.Queue, "broadcast_estimations", error) for error in (KeyError("a"), MemoryError())),
]


@pytest.mark.parametrize(("owner", "name", "error"), FAILING)
def test_whatever_error_ends_the_queues_loop_runs_and_later_requests_go_on(
    monkeypatch, caplog, owner, name, error
):
    failed = fail_once(monkeypatch, owner, name, error)
    with small_app() as app, reading_run(app, "early") as early:
        failed.clear()  # from here on: the next call fails
        assert join(app.url, "late").status_code == 200
        with reading(app.url, "late") as late:
            until(late, "process_generating")
            assert failed.is_set()
            assert not app.queue.stopped
            app.let_go()
            for messages in (early, late):
                assert until(messages, "process_completed")["success"]
    records = [each for each in caplog.records if each.name == "qalign.queue"]
    assert len(records) == 1
    assert records[0].exc_info[1] is error
    assert app.queue.active_jobs.count(None) == len(app.queue.active_jobs)
    assert all(not each.current_concurrency for each in places(app.queue))


def test_without_the_supervisor_one_error_stops_every_run_and_all_later_requests(monkeypatch):
    failed = fail_once(monkeypatch, queueing.Queue, "get_events", KeyError("abc"))
    with small_app(plain) as app, reading_run(app, "early") as early:
        failed.clear()
        assert join(app.url, "late").status_code == 200
        assert until(early, "unexpected_error")["message"] == "Server stopped unexpectedly."
        assert join(app.url, "later").status_code == 503


def fail_once(monkeypatch: Any, owner: Any, name: str, error: BaseException) -> threading.Event:
    """Have something of Gradio's raise an error once, when the event that it returns is cleared."""
    real, failed = getattr(owner, name), threading.Event()
    failed.set()

    def call(*arguments: Any) -> Any:
        if not failed.is_set() and (name != "get_events" or len(arguments[0])):
            failed.set()
            raise error
        return real(*arguments)

    monkeypatch.setattr(owner, name, call)
    return failed


@contextmanager
def reading_run(app: SimpleNamespace, session: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The messages of a run that has begun."""
    assert join(app.url, session).status_code == 200
    with reading(app.url, session) as messages:
        until(messages, "process_generating")
        yield messages


def places(queue: Any) -> list[Any]:
    return list(queue.event_queue_per_concurrency_id.values())


@pytest.mark.parametrize("prepare", [queued, plain])
def test_events_of_sessions_without_a_name_stop_nobody(monkeypatch, prepare, caplog):
    caplog.set_level(logging.CRITICAL, "uvicorn.error")
    with small_app(prepare) as app, reading_run(app, "early") as early:
        with monkeypatch.context() as busy:
            busy.setattr(app.queue, "get_events", lambda: None)  # as two at the same moment wait
            answers = [join(app.url, "").status_code for _ in range(2)]
        is_guarded = prepare is queued
        assert answers == ([200, 200] if is_guarded else [500, 500])
        app.let_go()
        until(early, "process_completed" if is_guarded else "unexpected_error")
        assert join(app.url, "late").status_code == (200 if is_guarded else 503)


def test_who_knows_a_sessions_name_reads_and_ends_its_run_and_nothing_else_shows_the_name():
    name = "a-name-that-is-drawn-at-random"
    with small_app() as app, reading_run(app, "another") as others:
        assert join(app.url, name).status_code == 200
        stranger = httpx.stream("GET", f"{app.url}/queue/data?session_hash={name}", timeout=TIMEOUT)
        with stranger as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data:"))
            assert name not in next(line for line in lines if "process_generating" in line)
        waiting(lambda: name not in app.queue.pending_messages_per_session)  # the stranger left
        for path in ("config", "gradio_api/info", "gradio_api/queue/status"):
            assert name not in httpx.get(app.url.replace("gradio_api", path), timeout=TIMEOUT).text
        app.let_go()
        assert name not in json.dumps(until(others, "process_completed"))


# The table of sessions.

PLACES = 8


@pytest.fixture
def few_places(monkeypatch):
    """A table of sessions that is soon full; Gradio's has 2,000 places."""
    monkeypatch.setattr(queueing, "LRUCache", lambda _: gr.utils.LRUCache(PLACES))


def complete(url: str, session: str) -> None:
    """An event of a session that begins, ends and is read to its end."""
    assert join(url, session, "short").status_code == 200
    with reading(url, session) as messages:
        assert until(messages, "process_completed")["success"]


@pytest.mark.usefixtures("few_places")
@pytest.mark.parametrize("prepare", [queued, plain])
def test_a_run_outlives_any_number_of_later_sessions(prepare, caplog):
    caplog.set_level(logging.CRITICAL, "uvicorn.error")
    with small_app(prepare) as app, reading_run(app, "early") as early:
        for k in range(2 * PLACES):
            complete(app.url, f"idle-{k}")
        for k in range(2 * PLACES):
            join(app.url, f"unread-{k}", "short")
            # a session with an event that still runs would keep its place, beyond the limit too
            waiting(lambda: len(app.queue.event_ids_to_events) <= 1)  # the early run's
        app.let_go()
        if prepare is queued:
            assert until(early, "process_completed")["success"]
            assert len(app.queue.pending_messages_per_session) <= PLACES
            assert set(app.queue.pending_event_ids_session) <= set(
                app.queue.pending_messages_per_session
            )
        else:  # the control: Gradio's own
            assert until(early, "unexpected_error")["session_not_found"]


@pytest.mark.usefixtures("few_places")
def test_idle_sessions_leave_first_then_unread_ones_and_no_session_with_an_event():
    with small_app() as app:
        table = app.queue.pending_messages_per_session
        for k in range(PLACES // 2):
            join(app.url, f"unread-{k}", "short")
            complete(app.url, f"idle-{k}")
        waiting(lambda: not app.queue.event_ids_to_events)
        for k in range(PLACES // 2):
            join(app.url, f"running-{k}")
        assert not [name for name in table if name.startswith("idle")]
        assert len(table) == PLACES
        for k in range(PLACES // 2, 2 * PLACES):
            join(app.url, f"running-{k}")
        assert {*table} == {f"running-{k}" for k in range(2 * PLACES)}  # the last one used is last
        app.let_go()
        for k in range(2 * PLACES):
            with reading(app.url, f"running-{k}") as messages:
                assert until(messages, "process_completed")["success"]


def waiting(condition: Any) -> None:
    """Look again until a condition holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)
