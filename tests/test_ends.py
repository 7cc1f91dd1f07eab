"""Whatever ends a task, whoever waits for it hears of it: errors, exits and a library's panic."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from test_rooms import SETTINGS, end, until
from test_serve import answering, served_by
from toys import PROMPT, ToyLM, ToyRM

from components.room.limits import Caps
from components.room.service import RoomService
from components.session.drawing import draw_run
from components.session.runs import Runs
from qalign_core.chain.chain import run_chain
from qalign_core.chain.checks import check_reward
from qalign_core.chain.concurrent import sample_iid
from qalign_core.chain.merging import collect, gather, merge
from qalign_core.errors import EngineError, InvalidReward, ModelLoadError
from qalign_core.models.local.worker import Worker
from qalign_core.record.runner import record
from qalign_core.rewards.functions import CompositeReward, FunctionReward, import_object
from qalign_core.run import Limits, Run
from qalign_core.types import Response


class Panic(BaseException):
    """As pyo3 raises it where a library in Rust panics."""


ENDS = [Panic, SystemExit, GeneratorExit, MemoryError, RuntimeError, StopIteration]
"""What may end a task; each was waited for for ever where only `Exception` is caught."""


class Ending(ToyRM):
    """Scores three responses, and then raises."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__()
        self.kind, self.left = kind, 3

    async def score(self, prompt: str, response: Response) -> float:
        self.left -= 1
        if self.left < 0:
            raise self.kind("the end")
        return await super().score(prompt, response)


async def soon(work: Any) -> Any:
    """What some work returns or raises; a failure if nobody hears of its end."""
    return await asyncio.wait_for(work, 20)


async def every(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.mark.parametrize("kind", [Panic, GeneratorExit, asyncio.CancelledError, ValueError])
async def test_the_end_of_one_stream_is_raised_at_its_place_and_ends_the_others(kind):
    ended = []

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise kind

    async def endless() -> AsyncIterator[int]:
        try:
            await asyncio.Event().wait()
            yield 2
        finally:
            ended.append(True)

    items = []

    async def read() -> None:
        async for item in merge(failing(), endless()):
            items.append(item)

    with pytest.raises(kind):
        await soon(read())
    assert (items, ended) == ([1], [True])


@pytest.mark.parametrize("kind", [Panic, asyncio.CancelledError, ValueError])
async def test_the_first_of_several_calls_to_fail_is_heard_while_others_wait(kind):
    async def failing() -> None:
        raise kind

    with pytest.raises(kind):
        await soon(gather(asyncio.Event().wait(), failing()))


@pytest.mark.parametrize("kind", [Panic, MemoryError, asyncio.CancelledError])
@pytest.mark.parametrize("matched", ["none", "pool", "chain"])
async def test_a_reward_that_ends_anyhow_ends_its_run(kind, matched):
    run = Run(prompt=PROMPT, steps=9, chains=2, pool=9, matched=matched)
    with pytest.raises(kind):
        await soon(every(record(ToyLM(), Ending(kind), run)))
    with pytest.raises(kind):
        await soon(every(sample_iid(ToyLM(), Ending(kind), PROMPT, n=9, seed=1, concurrency=4)))


@pytest.mark.parametrize("kind", [Panic, SystemExit, MemoryError])
def test_a_loop_without_an_event_loop_hears_of_every_end(kind):
    heard: list[BaseException] = []

    def draw() -> None:
        rm = CompositeReward([(Ending(kind), 1.0), (ToyRM(), 1.0)])
        try:
            collect(sample_iid(ToyLM(), rm, PROMPT, n=9, seed=1))
        except BaseException as error:
            heard.append(error)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    thread.join(20)
    assert [type(error) for error in heard] == [kind]


def raising(kind: type[BaseException]) -> FunctionReward:
    def rule(prompt: str, text: str) -> float:
        raise kind("the end")

    return FunctionReward(rule)


@pytest.mark.parametrize("kind", ENDS)
async def test_a_function_that_ends_anyhow_is_a_reward_that_failed(kind):
    with pytest.raises(InvalidReward, match=rf"^rule failed with {kind.__name__}: the end; fix"):
        await raising(kind).score("", Response((), "", finished=True))


async def test_ctrl_c_in_a_function_stays_what_it_is():
    with pytest.raises(KeyboardInterrupt):
        await raising(KeyboardInterrupt).score("", Response((), "", finished=True))


@pytest.mark.parametrize("line", ["import sys; sys.exit(3)", "raise BaseException('x')", "exit()"])
def test_a_file_that_ends_the_interpreter_is_no_reward(tmp_path, line):
    path = tmp_path / "rules.py"
    path.write_text(line)
    with pytest.raises(ModelLoadError, match="a Python file that defines rule was expected"):
        import_object(f"{path}:rule")


@pytest.mark.parametrize("value", [np.float32(1.5), np.float16(1.5), np.float64(1.5), np.int8(1)])
@pytest.mark.filterwarnings("error")
async def test_a_reward_may_be_any_finite_number(value):
    assert await rule_of(value).score("", Response((), "", finished=True)) == float(value)


@pytest.mark.parametrize(
    "value", [math.nan, np.float32("inf"), 10**400, np.longdouble("1e4000"), 1e301, "1", None]
)
@pytest.mark.filterwarnings("error")
async def test_a_reward_that_is_no_finite_number_is_refused(value):
    response = Response((), "", finished=True)
    with pytest.raises(InvalidReward, match="one finite number was expected"):
        await rule_of(value).score("", response)
    with pytest.raises(InvalidReward, match="one finite number was expected"):
        check_reward(value, response, rule_of(0.0))  # of a reward model of any kind


def rule_of(value: Any) -> FunctionReward:
    return FunctionReward(lambda prompt, text: value)


# A worker's thread.


class Ended(Worker):
    """Takes a job a turn, and ends."""

    def __init__(self, kind: type[BaseException], *, abandons: bool = True) -> None:
        super().__init__("the model")
        self.kind, self.abandons = kind, abandons

    def turn(self) -> None:
        job = self.take()
        if job is not None and job.work == "fine":
            self.finish(job, "done")
            return
        raise self.kind("the end")

    def abandon(self, error: BaseException) -> None:
        if not self.abandons:
            raise self.kind("the end of the end")


@pytest.mark.parametrize("kind", ENDS)
async def test_a_turn_that_ends_anyhow_fails_its_jobs_and_no_others(kind):
    worker = Ended(kind)
    works = ["x", "fine", "x", "fine"]
    ends = await soon(
        asyncio.gather(*(worker.submit(work) for work in works), return_exceptions=True)
    )
    assert [end if end == "done" else type(end) for end in ends] == [
        *(EngineError, "done", EngineError, "done")
    ]
    assert "the model failed while it ran: the end" in str(ends[0])
    worker.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_jobs_of_a_thread_that_ended_fail_and_so_do_later_ones():
    worker = Ended(Panic, abandons=False)
    ends = await soon(
        asyncio.gather(*(worker.submit("x") for _ in range(3)), return_exceptions=True)
    )
    assert {type(end) for end in ends} == {EngineError}
    worker._thread.join()
    with pytest.raises(EngineError, match="load the model again"):
        await soon(worker.submit("fine"))


async def test_a_thread_that_cannot_start_is_tried_again():
    worker, usual = Ended(Panic), threading.stack_size()
    threading.stack_size(2**46)  # more than there are addresses
    try:
        with pytest.raises(RuntimeError, match="can't start"):
            await soon(worker.submit("fine"))
    finally:
        threading.stack_size(usual)
    assert await soon(worker.submit("fine")) == "done"
    worker.close()


# Whoever waits on a page, in a room or behind the endpoint.


@pytest.mark.parametrize("kind", [Panic, SystemExit, GeneratorExit, MemoryError])
async def test_a_visitor_hears_of_every_end(kind, caplog):
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), Ending(kind)))
    run = Run(prompt=PROMPT, steps=9)

    async def draw(feed: Any) -> None:
        async with runs.models(feed, run) as (lm, rm):
            async for _ in run_chain(lm, rm, PROMPT, beta=1.0, steps=9, seed=1):
                pass

    *_, last = await soon(every(runs.stream("a", draw)))
    assert last.status.text == "Failed: the run had an internal error; try again."
    assert caplog.messages == ["a run failed"]


@pytest.mark.parametrize("kind", [Panic, MemoryError])
async def test_a_visitor_hears_of_the_end_of_a_run_of_several_chains(kind):
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), Ending(kind)))
    run = Run(prompt=PROMPT, steps=9, chains=2)
    *_, last = await soon(every(runs.stream("a", lambda feed: draw_run(feed, runs, run))))
    assert last.status.state == "failed"


@pytest.mark.parametrize(
    ("rm", "trouble"),
    [
        (Ending(Panic), "the models had an internal error; start again"),
        (Ending(MemoryError), "the models had an internal error; start again"),
        (raising(SystemExit), "rule failed with SystemExit: the end; fix the function"),
    ],
)
async def test_a_room_hears_of_every_end(rm, trouble):
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), rm))
    service = RoomService(runs, {}.__getitem__, Caps(steps=4))
    try:
        await service.open(SETTINGS, "")
        (room,) = service.rooms
        await until(lambda: room.trouble)
        assert room.trouble.startswith(trouble)
    finally:
        await end(service)


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_client_hears_of_every_end(stream):
    with answering(served_by(ToyLM(), Ending(Panic))) as address:
        body = {"model": "toy/qalign", "messages": [{"role": "user", "content": PROMPT}]}
        answer = httpx.post(f"{address}/v1/chat/completions", json={**body, "stream": stream})
    assert answer.status_code == (200 if stream else 500)
    assert "the server had an internal error; try again" in answer.text
