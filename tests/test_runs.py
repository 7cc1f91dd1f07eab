"""Live runs: caps in plain words, a fair queue, one run a visitor, an end that frees the place."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from toys import PROMPT, ToyLM, ToyRM

from components.common.form import label_of
from components.session.links import from_query, linked
from components.session.offer import Offer
from components.session.runs import TICK, Feed, Runs, Snapshot, Status, tick
from components.watch.tuning import tune_run
from qalign_core import Trace, collect, run_chains
from qalign_core.context import RUN
from qalign_core.errors import EngineError, InvalidPrompt, InvalidSetting, InvalidTrace
from qalign_core.models.progress import tell
from qalign_core.record.format import parse_trace, trace_lines
from qalign_core.run import Limits, Run
from qalign_study.serve.limits import read_limits

OFFER = Offer(names=())


async def last_of(stream):
    last = None
    async for snapshot in stream:
        last = snapshot
    return last


def counting(n, turns=None, name=None):
    async def work(feed: Feed) -> None:
        for k in range(n):
            feed.write(f"{k}\n")
            if turns is not None:
                turns.append(name)
            await feed.step()

    return work


async def forever(feed: Feed) -> None:
    feed.write("started\n")
    await asyncio.Event().wait()


async def test_a_run_ends_with_all_of_its_text_and_says_finished():
    last = await last_of(Runs(Limits()).stream("a", counting(50)))
    assert last.text == "".join(f"{k}\n" for k in range(50))
    assert last.status.state == "finished"


class StatusFeed(Feed):
    """A feed that keeps every status."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "status":
            self.__dict__.setdefault("texts", []).append(value.text)


async def test_a_search_for_beta_counts_its_proposals_and_rounds_and_writes_each_estimate():
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    feed = StatusFeed()
    await tune_run(feed, runs, Run(prompt=PROMPT, beta=0.05))
    form = re.compile(r"Finding β: round (\d) of at most 6, (\d+) of 64 proposals\. Stop ends it")
    places = [tuple(map(int, match.groups())) for match in map(form.match, feed.texts) if match]
    rounds = places[-1][0]
    assert rounds > 1
    # it counts up to the end of each round
    assert places == sorted(places)
    assert {n for r, n in places if r == 1} == set(range(65))
    estimates = [json.loads(line) for line in feed.text.splitlines()]
    # Stop finds the estimate of each round that is done; the last has its acceptance and band
    assert [len(each) for each in estimates] == [1] * (rounds - 1) + [4]
    assert 0.35 < estimates[-1][1] < 0.65


async def test_runs_take_turns_step_by_step():
    runs, turns = Runs(Limits()), []
    await asyncio.gather(*(last_of(runs.stream(name, counting(30, turns, name))) for name in "abc"))
    for k in range(0, 90, 3):
        assert set(turns[k : k + 3]) == set("abc")


async def test_over_the_cap_a_run_waits_and_says_its_number():
    runs = Runs(Limits(runs=1))
    first = runs.stream("first", forever)
    while (await anext(first)).text != "started\n":
        pass
    second = runs.stream("second", counting(1))
    status = (await anext(second)).status
    while status.state != "queued":
        status = (await anext(second)).status
    assert status.text == "Number 1 in the queue"
    await first.aclose()  # the visitor leaves the page
    last = await last_of(second)
    assert last.status.state == "finished"
    assert not runs._running


async def test_a_full_queue_refuses_a_programs_call_with_a_plain_message():
    runs = Runs(Limits(runs=1, queue=1))
    streams = [runs.stream(name, forever, patient=False) for name in "abc"]
    await anext(streams[0])
    await asyncio.sleep(0)
    await anext(streams[1])
    await asyncio.sleep(0)
    last = await last_of(streams[2])
    assert last.status.state == "failed"
    assert "runs are already waiting" in last.status.text
    for stream in streams[:2]:
        await stream.aclose()


@pytest.mark.parametrize(("patient", "refused"), [(True, 0), (False, 22)])
async def test_of_150_visitors_each_is_told_a_place_and_comes_to_an_end(patient, refused):
    runs, go = Runs(Limits()), asyncio.Event()

    async def run(feed: Feed) -> None:
        await go.wait()
        feed.write("done")

    seen: list[list[Snapshot]] = [[] for _ in range(150)]

    async def visit(number: int) -> None:
        async with aclosing(runs.stream(f"{number}", run, patient=patient)) as stream:
            async for now in stream:
                seen[number].append(now)
                if now.status.state == "queued":
                    numbers.add(number)
                if len(numbers) == 150 - 64 - refused:
                    go.set()

    numbers: set[int] = set()
    await asyncio.gather(*map(visit, range(150)))
    ends = Counter(each[-1].status.state for each in seen)
    assert ends == Counter(finished=150 - refused, failed=refused)
    assert len(numbers) == 86 - refused
    places = {now.status.text for each in seen for now in each if now.status.state == "queued"}
    assert {"Number 1 in the queue", f"Number {86 - refused} in the queue"} <= places


async def test_a_new_run_of_a_visitor_ends_the_old_one_and_keeps_others():
    runs = Runs(Limits())
    old, other = runs.stream("a", forever), runs.stream("b", forever)
    for stream in (old, other):
        while (await anext(stream)).text != "started\n":
            pass
    assert (await last_of(runs.stream("a", counting(2)))).status.state == "finished"
    assert (await last_of(old)).status.state == "stopped"
    assert len(runs._running) == 1
    await other.aclose()


async def test_stop_keeps_what_was_written():
    runs = Runs(Limits())
    stream = runs.stream("a", forever)
    while (await anext(stream)).text != "started\n":
        pass
    await runs.stop("a")
    last = await last_of(stream)
    assert (last.text, last.status.state) == ("started\n", "stopped")


async def test_a_failure_says_why_and_an_unknown_one_says_nothing_of_the_inside(caplog):
    async def refused(feed: Feed) -> None:
        raise EngineError("the model ran out of memory")

    async def broken(feed: Feed) -> None:
        raise RuntimeError("secret path /home/me")

    runs = Runs(Limits())
    assert (await last_of(runs.stream("a", refused))).status.text == (
        "Failed: the model ran out of memory"
    )
    status = (await last_of(runs.stream("a", broken))).status
    assert status.state == "failed"
    assert "secret" not in status.text
    assert "secret" in caplog.text


def test_a_page_is_updated_ten_times_a_second_and_less_often_in_a_crowd():
    assert tick(1) == TICK == 0.1
    assert 0.5 < tick(50) < 1  # 50 pages at ten updates a second would fill a core


def test_limits_come_from_the_environment_and_bad_ones_are_named():
    assert read_limits({"QALIGN_MAX_STEPS": "32"}).steps == 32
    for bad in ("0", "-1", "many", "", "9" * 5000):
        with pytest.raises(InvalidSetting, match="QALIGN_MAX_RUNS"):
            read_limits({"QALIGN_MAX_RUNS": bad})


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"steps": 5000}, InvalidSetting, "steps must be between 0 and 1024"),
        ({"chains": 0}, InvalidSetting, "chains"),
        ({"beta": 0.0}, InvalidSetting, "beta"),
        ({"beta": float("nan")}, InvalidSetting, "beta"),
        ({"prompt": "  "}, InvalidPrompt, "empty"),
        ({"prompt": "x" * 5000}, InvalidPrompt, "5,000 characters; 4,000 at most"),
        ({"seed": -1}, InvalidSetting, "seed"),
        ({"burn_in": 65}, InvalidSetting, "burn_in must be 0 to 64"),
    ],
)
def test_settings_outside_the_caps_get_one_sentence(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        Run(**{"prompt": "How many?", **changes}).check(Limits())


def test_a_link_restores_every_setting():
    run = Run(
        prompt="5 + 5 & more?\n“yes”", reference="10", rm="embedded-weak", beta=0.25, steps=99,
        chains=3, seed=123, temperature=0.7, max_new_tokens=64, burn_in=4,
    )  # fmt: skip
    two = replace(run, rm="0.7*embedded + 0.3*embedded-weak", top_p=0.9, top_k=40, pool=8)
    exact = replace(run, beta=0.123456789, temperature=1 / 3)
    open_ended = replace(run, extractor=None, seed=0)
    counted = replace(run, prompt="Write a number.", extractor="number")
    for each in (run, two, exact, open_ended, counted):
        assert from_query(dict(parse_qsl(each.query())), Limits(), OFFER) == (each, ())
    assert "extractor=none" in open_ended.query()
    assert Run().query() == ""


def test_a_link_that_was_shared_before_the_settings_had_more_fields_still_opens():
    query = (
        "prompt=5+%2B+5+%26+more%3F&reference=10&extractor=choice&rm=embedded-weak&beta=0.25"
        "&steps=99&chains=3&seed=123&temperature=0.7&max_new_tokens=64&burn_in=4&tab=compare"
    )
    run, notice = from_query(dict(parse_qsl(query)), Limits(), OFFER)
    assert notice == ()
    assert run == Run(
        prompt="5 + 5 & more?", reference="10", extractor="choice", rm="embedded-weak", beta=0.25,
        steps=99, chains=3, seed=123, temperature=0.7, max_new_tokens=64, burn_in=4,
    )  # fmt: skip


def test_a_page_opens_with_what_its_link_names_and_else_as_it_is():
    start = Run(prompt="How many?", reference="4")
    assert linked("watch", {"tab": "compare"}, Runs(Limits(), offer=OFFER), start) is None
    run, notice = linked("watch", {"beta": "2"}, Runs(Limits(), offer=OFFER), start) or (None, "")
    assert run == replace(start, beta=2.0)
    assert "in place" in notice
    writing = Run(prompt="Write a line.", extractor=None)
    run, _ = linked("watch", {"beta": "2"}, Runs(Limits(), offer=OFFER), writing) or (None, "")
    assert run == replace(writing, beta=2.0)
    _, notice = linked("watch", {"beta": "x"}, Runs(Limits(), offer=OFFER), start) or (None, "")
    assert notice == "The link's value “x” of “β (beta)” cannot be used here."
    both = {"beta": "x", "steps": "9"}
    _, notice = linked("watch", both, Runs(Limits(), offer=OFFER), start) or (None, "")
    assert notice.endswith("cannot be used here. This link's other settings are in place.")


SENT = {"prompt": "How many?", "reference": " 4 ", "lm": "embedded", "rm": "embedded"}


def test_what_a_browser_sends_is_read_as_its_kind():
    read = Run.read({**SENT, "beta": "0.5", "steps": 20.0, "burn_in": 30})
    assert (read.reference, read.beta, read.steps, read.burn_in) == ("4", 0.5, 20, 30)
    assert isinstance(read.steps, int)
    assert read.extractor == "number"
    assert Run.read({**SENT, "prompt": "Write one sentence."}).extractor is None
    assert Run.read({**SENT, "extractor": "none"}).extractor is None
    for wrong in ({"beta": "x"}, {"steps": None}, {"seed": float("inf")}, {"extractor": "all"}):
        with pytest.raises(InvalidSetting):
            Run.read({**SENT, **wrong}).check()


@pytest.mark.parametrize(
    ("name", "value"),
    [("extractor", "x"),
     ("beta", "-1"), ("beta", "nan"), ("steps", "1e9"), ("steps", "99999"), ("seed", "x"),
     ("lm", "../../etc/passwd"), ("rm", "nonsense"), ("chains", ""),
     ("rm", "0.5*embedded + 0.5*nonsense"), ("rm", "judge:../lm")],
)  # fmt: skip
def test_a_bad_value_in_a_link_falls_back_with_a_notice(name, value):
    settings, notices = from_query({name: value, "beta" if name != "beta" else "seed": "2"},
                                   Limits(), OFFER)  # fmt: skip
    assert getattr(settings, name) == getattr(Run(), name)
    assert len(notices) == 1
    assert f"of “{label_of(name)}” cannot" in notices[0]
    assert (settings.beta, settings.seed) in ((2.0, 7), (1.0, 2))


async def test_the_engines_know_whose_work_it_is():
    runs, seen = Runs(Limits()), []

    async def look(feed: Feed) -> None:
        seen.append(await asyncio.create_task(current_run()))

    async def current_run() -> str:
        return RUN.get()

    await asyncio.gather(*(last_of(runs.stream(name, look)) for name in "ab"))
    assert sorted(seen) == ["a", "b"]
    assert RUN.get() == ""


async def test_what_must_be_said_of_a_model_stands_in_the_status():
    class Approximate(ToyLM):
        notes = ("approximate: prefixes re-tokenised",)

    runs = Runs(Limits(), load=lambda *_: (Approximate(), ToyRM()))

    async def work(feed: Feed) -> None:
        async with runs.models(feed, Run()):
            await feed.step()
        assert "approximate" in feed.status.text

    last = await last_of(runs.stream("a", work))
    assert last.status.text == "All texts are drawn; approximate: prefixes re-tokenised"


async def test_a_load_says_how_far_it_is():
    feed, texts = Feed(), []

    def load(*_):
        tell("fetching a/model: 25% of 270 MB")
        texts.append(feed.status)
        return ToyLM(), ToyRM()

    async with Runs(Limits(), load=load).models(feed, Run()):
        pass
    assert texts == [Status("loading", "Loading: fetching a/model: 25% of 270 MB…")]


@pytest.mark.parametrize("round_", range(10))  # without the lock, most rounds fail
def test_threads_read_a_run_while_it_is_written_and_no_line_is_lost_or_read_twice(round_):
    steps = run_chains(ToyLM(), ToyRM(), PROMPT, beta=1.0, steps=40, n_chains=2, seed=3)
    text = "".join(trace_lines(Trace.collect(collect(steps))))
    feed, failed, written = Feed(), [], threading.Event()

    def look() -> None:
        try:
            while not written.is_set():
                assert feed.trace is None or feed.text
        except InvalidTrace as error:
            failed.append(error)

    looking = [threading.Thread(target=look) for _ in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the midst of a line
    try:
        for thread in looking:
            thread.start()
        for line in text.splitlines(keepends=True):
            feed.write(line)
        written.set()
        for thread in looking:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []
    assert feed.text == text
    assert feed.trace == parse_trace(text)
