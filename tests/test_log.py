"""A server logs one defect per interval, whatever way it takes, with long values shortened."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from typing import Any

import gradio as gr
import httpx
import pytest
from browser import PATIENCE, serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from components.common.options import queued
from components.request_guard import GuardedApp, limited_log
from qalign_study.serve import log as logs
from qalign_study.serve.guard import Guard
from qalign_study.serve.log import LimitedLog, limit_log
from qalign_study.serve.origins import OriginPolicy

TIMEOUT = PATIENCE / 1000
LONG = "x" * 900_000
N = 30


async def fail(request: Request) -> Any:
    raise ValueError(LONG)


async def of_requests() -> None:
    guard = Guard(Starlette(routes=[Route("/", fail)]), OriginPolicy())
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for _ in range(N):
            assert (await client.get("/")).status_code == 500


async def of_forgotten_tasks() -> None:
    loop = asyncio.get_running_loop()
    for k in range(N):
        loop.call_exception_handler({"message": f"{k} {LONG}", "exception": KeyError(LONG)})


async def of_warnings() -> None:
    for k in range(N):
        warnings.warn(f"{k} is no choice {LONG}", stacklevel=1)


async def of_the_web_server() -> None:
    for k in range(N):
        logging.getLogger("uvicorn.error").warning("request %d: %s", k, LONG)


WAYS = [of_requests, of_forgotten_tasks, of_warnings, of_the_web_server]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("always")
async def test_every_way_to_the_log_is_limited_and_long_values_are_shortened(limited, way):
    logging.captureWarnings(False)  # pytest has its own place for them
    logging.captureWarnings(True)
    await way()
    text = limited()
    assert text.startswith(("ERROR: ", "WARNING: "))
    assert len(text) < 10_000
    assert max(map(len, text.splitlines())) <= logs.WIDTH


@pytest.mark.filterwarnings("always")
async def test_all_ways_share_one_limit_and_what_is_left_out_is_counted(limited, monkeypatch):
    logging.captureWarnings(False)
    logging.captureWarnings(True)
    for way in WAYS:
        await way()
    assert limited().count("ERROR: ") == 1
    monkeypatch.setattr(logs, "INTERVAL", 0.0)
    logging.getLogger("qalign.any").error("the next")
    assert limited() == f"ERROR: the next\n({len(WAYS) * N - 1} more before it are left out)\n"


def test_a_message_whose_arguments_do_not_fit_is_logged_without_them(capfd):
    record = logging.makeLogRecord({"msg": "%d tries", "args": (LONG,), "levelname": "ERROR"})
    LimitedLog().emit(record)
    assert capfd.readouterr().err == "ERROR: %d tries\n"


def test_a_log_that_cannot_be_written_fails_nobody(monkeypatch):
    class Full:
        def write(self, _: str) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    record = logging.makeLogRecord({"msg": "a", "levelno": logging.ERROR})
    LimitedLog().emit(record)


def test_the_limit_is_set_once(limited):
    limit_log()
    handlers = logging.getLogger().handlers
    assert sum(isinstance(each, LimitedLog) for each in handlers) == 1


# Events of pages.


@pytest.fixture(scope="module")
def address():
    """An app with an event that takes a choice, one that fails, and one that fails midway."""

    def broken(text: str) -> str:
        raise ValueError(text)

    def midway(text: str) -> Any:
        yield "begun"
        raise ValueError(text)

    with gr.Blocks(analytics_enabled=False) as demo:
        text, choice = gr.Textbox(), gr.Dropdown(["a", "b"])
        choice.input(lambda value: value, choice, text)
        text.submit(broken, text, text)
        text.change(midway, text, text)
    served = {"_app": GuardedApp(OriginPolicy()), "app_kwargs": {"lifespan": limited_log}}
    with serve(queued(demo), ssr_mode=False, **served) as address:
        yield f"{address}gradio_api"


@pytest.mark.parametrize("length", [0, 1, 500, 900_000])
@pytest.mark.parametrize("way", ["queue/join", "run/predict"])
def test_the_reply_to_a_wrong_choice_is_short_and_ends_with_the_choices(address, way, length):
    session = f"{length}-{way.replace('/', '-')}"
    body = {"fn_index": 0, "data": ["x" * length + "y"], "session_hash": session}
    reply = httpx.post(f"{address}/{way}", json=body, timeout=TIMEOUT).text
    if way == "queue/join":
        stream = f"{address}/queue/data?session_hash={session}"
        reply = httpx.get(stream, timeout=TIMEOUT).text
    assert "is not in the list of choices: ['a', 'b']" in reply
    assert len(reply) < 1200


@pytest.mark.parametrize("event", [0, 1, 2])
@pytest.mark.parametrize("value", ["wrong", LONG], ids=["short", "long"])
def test_an_event_that_fails_is_logged_once_and_a_wrong_choice_never(
    limited, address, event, value
):
    for k in range(N):
        session = f"{event}-{len(value)}-{k}"
        body = {"fn_index": event, "data": [value], "session_hash": session}
        httpx.post(f"{address}/queue/join", json=body, timeout=TIMEOUT).raise_for_status()
        stream = f"{address}/queue/data?session_hash={session}"
        answer = httpx.get(stream, timeout=TIMEOUT).text
        last = json.loads(answer.strip().split("\n\n")[-2].removeprefix("data: "))
        assert not last["success"]
    text = limited()
    assert text.count("ERROR: an event failed") == (event > 0)
    assert len(text) < 10_000
    assert (text == "") == (event == 0)
