"""The endpoints as tools of an MCP server, called by a real client over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest
from browser import serve
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

import app
from components.session.runs import Runs
from qalign_core.run import Limits

PROMPT = "Leo has 9 ribbons. He buys 3 boxes of 4 ribbons each. How many ribbons does Leo have now?"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The whole app with its embedded models, as `QALIGN_MCP=1 python app.py` serves it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QALIGN_MCP", "1")
        options = app.launch_options()
    with serve(app.build_app(Runs(Limits(steps=64))), **options) as url:
        yield f"{url}gradio_api/mcp/"


@asynccontextmanager
async def connected(address):
    async with (
        streamable_http_client(address) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def called(address, tool, **arguments):
    async with connected(address) as session:
        answer = await session.call_tool(tool, {"prompt": PROMPT, **arguments})
    (content,) = answer.content
    return content.text, answer.isError


async def test_the_two_endpoints_and_nothing_else_of_the_page_are_tools(address):
    async with connected(address) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert set(tools) == {"run_chain", "compare"}
    for tool in tools.values():
        settings = tool.inputSchema["properties"]
        assert tool.inputSchema["required"] == ["prompt"]
        assert all(setting["description"] for setting in settings.values())
        assert settings["beta"] == settings["beta"] | {"type": "number", "default": 1.0}
        assert settings["steps"]["type"] == settings["seed"]["type"] == "integer"
    assert "Markov chain Monte Carlo" in tools["run_chain"].description
    assert "best-of-n" in tools["compare"].description


async def test_a_call_runs_a_chain_and_gives_its_whole_trace(address):
    text, failed = await called(address, "run_chain", steps=4, seed=3)
    lines = [json.loads(line) for line in text.splitlines()]
    assert not failed
    assert lines[0]["type"] == "header"
    assert lines[0]["seed"] == 3
    assert sum(line["type"] == "step" for line in lines) == 5
    assert lines[-1] == {"type": "end", "reason": "finished", "message": ""}


async def test_a_call_compares_the_four_ways_to_decide(address):
    text, failed = await called(address, "compare", steps=4, reference="21")
    assert not failed
    assert [row["method"] for row in json.loads(text)] == ["qalign", "bon", "mv", "wmv"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"lm": "/etc"}, "this server does not offer '/etc'; choose embedded"),
        ({"steps": 65}, "steps must be between 0 and 64 on this server, got 65"),
        ({"prompt": " "}, "the problem is empty"),
    ],
)
async def test_what_a_client_gets_wrong_is_one_sentence(address, wrong, sentence):
    text, failed = await called(address, "run_chain", **wrong)
    assert failed
    assert sentence in text
    assert "\n" not in text
