"""`make demo` serves the app with its real models, and a visitor can do the whole of it."""

from __future__ import annotations

import itertools
import math
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
from browser import ROOT

from qalign_core.decide.answers.extraction import extract_number
from qalign_core.decide.rules import RULES
from qalign_core.record.format import parse_trace

pytestmark = pytest.mark.asyncio(loop_scope="session")

SET_UP = 900  # seconds that a fresh machine may take to install the requirements
PLAYER = "document.querySelector('#watch-player .qp').qalign"
SEEN_LAST = f"""() => new Promise((done) => {{
  const seen = new Set();
  const look = () => (seen.add({PLAYER}.position.last), {PLAYER}.position.last < 40)
    ? requestAnimationFrame(look) : done(seen.size);
  look();
}})"""
"""How many last steps a visitor sees until the 40th is there."""


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of a running `make demo`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["make", "demo"],
        cwd=ROOT,
        env={**os.environ, "GRADIO_SERVER_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in wait_until_served(address, process):
            assert process.poll() is None, process.communicate()[0]
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def wait_until_served(address: str, process: subprocess.Popen[str]) -> Iterator[None]:
    deadline = time.monotonic() + SET_UP
    while time.monotonic() < deadline:
        yield
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            process.poll()
            time.sleep(0.1)  # between two attempts to connect, not for something to happen
    raise AssertionError(f"no page at {address} after {SET_UP} s")


@pytest.mark.slow
async def test_a_visitor_watches_a_real_chain_stops_it_and_compares_four_answers(visit, demo):
    page = await visit(f"{demo}?tab=compare&steps=64&pool=64")  # Compare's settings
    assert page.hosts <= {demo.split("/")[2]}
    await page.click("#tab-watch-button")

    # Run: at least 32 steps of the embedded models arrive one by one
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
    assert len(trace.steps) > 32
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
        "document.querySelector('#compare .q-status').dataset.state === 'finished'"
    )
    for method in RULES:
        card = page.locator(f"#compare .qc-card[data-method={method}]")
        answer = await card.locator(".qc-answer b").inner_text()
        assert answer == "no answer" or float(answer) == float(answer), (method, answer)
        assert await card.locator(".qc-text").inner_text()
    assert page.errors == []
    assert page.hosts <= {demo.split("/")[2]}
