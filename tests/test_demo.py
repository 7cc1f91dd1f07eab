"""`make demo` serves the app with its real models, and a visitor can do the whole of it."""

from __future__ import annotations

import itertools
import math
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from browser import ROOT

from qalign_core.decide.answers.extraction import extract_number
from qalign_core.decide.rules import RULES
from qalign_core.record.format import parse_trace

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAYER = "document.querySelector('#watch-player .qp').qalign"
SEEN_LAST = f"""() => new Promise((done) => {{
  const seen = new Set();
  const look = () => (seen.add({PLAYER}.position.last), {PLAYER}.position.last < 20)
    ? requestAnimationFrame(look) : done(seen.size);
  look();
}})"""
"""How many last steps a visitor sees until the 20th is there."""


@pytest.fixture(scope="module")
def running() -> Iterator[subprocess.Popen[str]]:
    """A `make demo` whose port another program has; its first line is unread."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = subprocess.Popen(
            ["make", "demo"],
            cwd=ROOT,
            env={**os.environ, "GRADIO_SERVER_PORT": str(other.getsockname()[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # a test ended it
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="module")
def demo(running: subprocess.Popen[str]) -> str:
    """The address that the app names once it is served."""
    assert running.stdout is not None
    line = next((line for line in running.stdout if line.startswith("QAlign Explorer: ")), "")
    match = re.fullmatch(
        r"QAlign Explorer: (http://127\.0\.0\.1:\d+)/ \(port \d+ was taken\)\n", line
    )
    assert match, line or running.communicate()
    return match[1]


async def test_a_visitor_watches_a_real_chain_stops_it_and_compares_four_answers(visit, demo):
    page = await visit(f"{demo}?tab=compare&steps=16&pool=16")  # Compare's settings
    assert page.hosts <= {demo.split("/")[2]}
    await page.click("#tab-watch-button")

    # Run: at least 16 steps of the embedded models arrive one by one
    await page.click("#watch-run")
    await page.wait_for_function(
        f"{PLAYER}.position.source === 'live' && {PLAYER}.position.last >= 4"
    )
    assert await page.evaluate(SEEN_LAST) >= 3, "the steps came at once"
    await page.click("#watch-stop")
    await page.wait_for_function("document.querySelector('.q-status').dataset.state !== 'sampling'")

    # every step's alpha and verdict against arithmetic of the test's own
    trace = parse_trace(await page.evaluate(f"{PLAYER}.text"))
    assert (trace.header.run.lm, trace.header.run.rm) == ("embedded", "embedded")
    assert len(trace.steps) > 16
    for before, step in itertools.pairwise(trace.steps):
        old, new = before.state, step.proposal
        assert new.response.tokens[: step.index] == old.response.tokens[: step.index]
        ratio = math.exp((new.reward - old.reward) / trace.header.run.beta)
        ratio *= len(old.response) / len(new.response)
        assert math.exp(step.log_alpha) == pytest.approx(min(1.0, ratio), rel=1e-9)
        assert step.accepted == (math.exp(step.log_u) < ratio)
        assert step.state == (new if step.accepted else old)
    assert len({step.proposal.response.text for step in trace.steps}) > 8
    assert any(extract_number(step.proposal.response.text) for step in trace.steps)

    # Compare: four answers, each with its word
    await page.get_by_role("tab", name="Compare").click()
    await page.click("#compare-run")
    await page.wait_for_function(
        "document.querySelector('#compare .q-status').dataset.state === 'finished'", polling=50
    )
    for method in RULES:
        card = page.locator(f"#compare .qc-card[data-method={method}]")
        answer = await card.locator(".qc-answer b").inner_text()
        assert answer == "no answer" or float(answer) == float(answer), (method, answer)
        assert await card.locator(".qc-text").inner_text()
    assert page.errors == []
    assert page.hosts <= {demo.split("/")[2]}


async def test_the_app_ends_at_once_in_mid_run(running: subprocess.Popen[str], demo: str) -> None:
    call = f"{demo}/gradio_api/call/v2/run_chain"
    payload = {"prompt": "Tom has 5 eggs. He buys 3 more. How many?", "steps": 1000}
    async with httpx.AsyncClient(timeout=60) as client:
        event = (await client.post(call, json=payload)).json()["event_id"]
        async with client.stream("GET", f"{call}/{event}") as answer:
            lines, times = answer.aiter_lines(), [0]
            async for text in lines:
                if '\\"step\\"' in text:
                    break
            os.killpg(running.pid, signal.SIGINT)  # as Ctrl-C does
            with suppress(httpx.RemoteProtocolError):  # the stream breaks off
                async for text in lines:
                    times += [int(t) for t in re.findall(r'\\"t\\":(\d+)', text)]
    _, errors = running.communicate(timeout=60)
    assert "app.py: stopped" in errors.splitlines()
    assert "Error 130" in errors, "the status of the app, as make reports it"
    assert max(times) < 900, "it did not wait for the run to end"
