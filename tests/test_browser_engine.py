"""The engine of the embedded models in a real browser: a worker draws what the server recorded."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from browser import ROOT

from qalign_core.chain.chain import run_chain
from qalign_core.record.format import TraceReader
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run
from qalign_study.export.scripts import bundle

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENGINE = bundle(ROOT / "assets/web/engine/browser.js")
DRAW = """async ({ run, file, script }) => {
  const engine = new BrowserEngine({
    script: () => script,
    file: async (name) => (await fetch(name === file ? "nothing" : name)).arrayBuffer(),
  });
  const lines = [];
  const failed = await new Promise((resolve) => engine.draw(run, {
    line: (line) => lines.push(line), ended: () => resolve(""), failed: resolve,
  }));
  return { lines, failed };
}"""
COMPARED = ("tokens", "pieces", "text", "index", "finished", "accepted", "answer", "cost")


@pytest.fixture
def blank(visit, toy_app):
    """Open a page of the server's that is a text alone: the engine needs no more of the app."""
    return lambda: visit(f"{toy_app}engine.js", ready="pre")


def recorded() -> list[dict[str, Any]]:
    text = (ROOT / "assets/runs/watch.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def begun(**changes: Any) -> dict[str, Any]:
    """The header of the recorded run, as a page gives it to the engine."""
    run = recorded()[0]
    for name in ("type", "version", "created", "notes", "prompt_tokens", "prompt_scored"):
        del run[name]
    return {**run, "steps": 8, "pool": 3, **changes}


async def draw(page: Any, run: dict[str, Any], *, file: str = "", script: str = "engine.js") -> Any:
    await page.add_script_tag(content=ENGINE)
    return await page.evaluate(DRAW, {"run": run, "file": file, "script": script})


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("type", "chain", "t", "n"))


# without its WebAssembly the worker computes in plain JavaScript
@pytest.mark.parametrize("missing", ["", "engine/net.wasm"], ids=["wasm", "plain"])
@pytest.mark.recorded
async def test_a_worker_draws_the_recorded_run(blank, missing):
    page = await blank()
    reply = await draw(page, begun(), file=missing)
    page.errors[:] = [error for error in page.errors if "404" not in error]
    assert reply["failed"] == ""
    lines = [json.loads(line) for line in reply["lines"]]
    expected = {key(line): line for line in recorded()}
    compared = [line for line in lines if line["type"] in ("step", "sample")]
    assert len(compared) == 9 + 3
    for line in compared:
        wanted = expected[key(line)]
        assert [line.get(n) for n in COMPARED] == [wanted.get(n) for n in COMPARED]
        assert abs(line["reward"] - wanted["reward"]) < 1e-3


async def test_its_lines_are_a_trace_that_python_reads(blank):
    reply = await draw(await blank(), begun(chains=2, steps=2, seed=5))
    reader = TraceReader()
    for line in reply["lines"]:
        reader.feed(line)
    trace = reader.trace()
    assert trace.end == ("finished", "")
    assert trace.header.run == Run(**{
        **{name: value for name, value in begun().items() if name in Run.kinds()},
        **{"chains": 2, "steps": 2, "seed": 5},
    })  # fmt: skip
    assert trace.header.meter.lm_parameters > 0


async def test_the_log_probability_of_a_proposal_is_pythons(blank):
    """That of the whole text at the run's temperature; the rewritten part alone is noticed."""
    page, run = await blank(), Run.read(recorded()[0]).with_changes(temperature=0.7, steps=8)
    reply = await draw(page, begun(temperature=0.7, pool=0, logProb=True))
    entries = [json.loads(line) for line in reply["lines"]]
    entries = [line for line in entries if line["type"] == "step"]
    lm, rm = load_language_model("embedded", sampling=run.sampling), load_reward_model("embedded")
    chain = run_chain(lm, rm, run.prompt, target=run.target, move=run.move, steps=run.steps,
                      seed=run.seed, chain=0)  # fmt: skip
    steps = [step async for step in chain]
    written = [(step.index, step.proposal.response) for step in steps]
    assert [line["tokens"] for line in entries] == [list(r.tokens[k:]) for k, r in written]
    log_probs = [line["log_prob"] for line in entries]
    assert log_probs == pytest.approx([r.log_prob for _, r in written], abs=1e-3)
    parts = [math.fsum(r.log_probs[k:]) for k, r in written]
    assert log_probs != pytest.approx(parts, abs=1e-3)


@pytest.mark.more
async def test_a_worker_that_does_not_start_is_one_sentence(blank):
    page = await blank()
    reply = await draw(page, begun(), script="no-such-script.js")
    page.errors.clear()
    assert (reply["lines"], reply["failed"]) == ([], "the worker did not start")


ENDS = """() => {
  const Real = window.Worker;
  window.Worker = class extends Real {
    set onmessage(heard) {
      let n = 0;
      super.onmessage = (event) => {
        if ("line" in event.data && (n += 1) > 3) {
          this.terminate();
          window.ended = true;
        } else heard(event);
      };
    }
  };
}"""


@pytest.mark.more
async def test_a_worker_that_ends_in_mid_run_is_one_sentence_and_what_it_drew_stays(blank):
    page = await blank()
    await page.clock.install()
    await page.evaluate(ENDS)
    drawing = asyncio.ensure_future(draw(page, begun()))
    await page.wait_for_function("window.ended")
    while not drawing.done():  # from now on the page's clock goes faster than ours
        await page.clock.run_for(5000)
    reply = drawing.result()
    assert reply["failed"] == "the worker stopped answering"
    assert len(reply["lines"]) == 3
    assert (await draw(await blank(), begun()))["failed"] == ""  # the control


async def test_a_prompt_without_room_is_the_sentence_that_the_server_has(blank):
    reply = await draw(await blank(), begun(max_new_tokens=500))
    n = recorded()[0]["prompt_tokens"]
    assert reply["failed"].startswith(f"the prompt has {n} tokens and the response may have 500")
