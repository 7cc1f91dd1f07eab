"""A trace survives the way through a file, and a broken one is named by its line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from finite import TableReward, letters
from hypothesis import given
from hypothesis import strategies as st
from traces import sharper_trace

from qalign_core import (
    Cost,
    Response,
    ScoredResponse,
    Step,
    Trace,
    TraceHeader,
    collect,
    load_trace,
    run_chain,
    run_chains,
    sample_iid,
    save_trace,
)
from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidTrace
from qalign_core.record.format import header_line, parse_trace, trace_lines
from qalign_core.run import Run
from qalign_study.exact.enumerable import EnumerableLM

LM, RM = letters(), TableReward()
HEADER = TraceHeader(Run(lm=LM.id, rm=RM.id, prompt="x", beta=0.7, seed=3, steps=20, chains=3))


@pytest.fixture(scope="module")
def trace() -> Trace:
    steps = collect(run_chains(LM, RM, "x", n_chains=3, beta=0.7, steps=20, seed=3))
    pool = collect(sample_iid(LM, RM, "x", n=4, seed=3))
    return Trace(HEADER, tuple(steps), tuple(pool), end=("stopped", "by hand"))


def test_a_trace_survives_its_file(trace: Trace, tmp_path) -> None:
    save_trace(trace, tmp_path / "run.jsonl")
    again = load_trace(tmp_path / "run.jsonl")
    assert again == trace
    assert [step.cost for step in again.steps] == [step.cost for step in trace.steps]
    assert [sample.cost for sample in again.pool] == [sample.cost for sample in trace.pool]
    assert [s.proposal.response.pieces for s in again.steps] == [
        s.proposal.response.pieces for s in trace.steps
    ]


def test_a_saved_trace_has_the_lines_of_its_recorded_file_answers_included(tmp_path) -> None:
    path = ASSETS / "runs" / "watch.jsonl"
    save_trace(load_trace(path), tmp_path / "again.jsonl")
    (_, *recorded), (_, *again) = (
        p.read_text().splitlines() for p in (path, tmp_path / "again.jsonl")
    )
    assert sorted(again) == sorted(recorded)
    assert '"answer":"' in again[0]


def test_a_trace_collects_states_with_repeats(trace: Trace) -> None:
    assert len(trace.states) == 3 * 21
    assert tuple(trace.chains) == (0, 1, 2)
    assert [s.chain for s in trace.chains[1]] == [1] * 21
    assert trace.states[21:42] == tuple(step.state for step in trace.chains[1])


def test_a_line_that_a_killed_writer_left_half_is_dropped(trace: Trace) -> None:
    lines = list(trace_lines(trace))[:-1]
    assert parse_trace("".join(lines)[:-20]).pool == trace.pool[:-1]
    steps = "".join(lines[: 1 + len(trace.steps)])
    assert parse_trace(steps[:-20]).steps == trace.steps[:-1]
    assert parse_trace(steps[:-1]).steps == trace.steps


def test_a_character_that_a_killed_writer_left_half_is_dropped_with_its_line(tmp_path) -> None:
    header = TraceHeader(Run(prompt="½"))
    path = tmp_path / "run.jsonl"
    response = Response((1,), "½ of a shell 😀", False)
    trace = Trace(header, pool=(ScoredResponse(response, 0.0),))
    whole = "".join(trace_lines(trace)).encode()
    at = whole.index("😀".encode())
    for kept in range(4):
        path.write_bytes(whole[: at + kept])
        assert load_trace(path) == Trace(header)


ANY_TEXT = st.text(min_size=1)  # of whole characters: half of one is refused when it is read


def test_the_settings_of_a_header_are_in_the_order_of_forms() -> None:
    names = list(
        json.loads(header_line(TraceHeader(Run(prompt="x", sharpness=2.0, move="entropy"))))
    )
    assert names[2 : 2 + len(Run.kinds())] == list(Run.kinds())
    assert names[2:4] == ["prompt", "reference"]


@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=4), text=st.none() | ANY_TEXT)
def test_any_text_survives_and_no_line_can_end_a_script_element(texts, text) -> None:
    joined = "".join(texts) if text is None else text
    response = Response(tuple(range(len(texts))), joined, False, tuple(texts))
    scored = ScoredResponse(response, 1.5)
    step = Step(0, 0, 0, scored, scored, 0.0, float("-inf"), True, Cost(1, 2))
    trace = Trace.collect([step], TraceHeader(Run(prompt=joined)))
    written = "".join(trace_lines(trace))
    assert "<" not in written
    written.encode("utf-8")
    assert written.count("\n") == len(written.splitlines()) == 3
    assert parse_trace(written).steps[0].proposal.response == response


def test_a_trace_of_version_2_still_opens_with_its_alpha_as_the_sharpness() -> None:
    header, *rest = sharper_trace().splitlines()
    now = json.loads(header)
    assert (now["version"], now["sharpness"]) == (3, 2.0)
    old = {**now, "version": 2, "alpha": now["sharpness"]}
    del old["sharpness"]
    read = parse_trace("\n".join([json.dumps(old), *rest]))
    assert read == parse_trace("\n".join([header, *rest]))
    assert read.header.run.sharpness == 2.0


def test_a_line_of_any_length_that_was_written_is_read_again(tmp_path) -> None:
    n = 200_000  # tokens of a response; the line has more than 2 MB
    response = Response((5,) * n, "ab" * n, False, ("ab",) * n)
    scored = ScoredResponse(response, 1.5)
    step = Step(0, 0, 0, scored, scored, 0.0, float("-inf"), True, Cost(n, n))
    trace = Trace.collect([step], TraceHeader(Run(prompt="<" * 10**6)))
    save_trace(trace, tmp_path / "long.jsonl")
    assert load_trace(tmp_path / "long.jsonl").steps == trace.steps


def broken(trace: Trace, number: int, **changes) -> str:
    lines = list(trace_lines(trace))
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **changes}) + "\n"
    return "".join(lines)


@pytest.mark.parametrize(
    ("number", "changes", "sentence"),
    [
        (1, {"version": 99}, "line 1 of the trace has version 99; version 2 or 3 was expected"),
        (1, {"seed": "7"}, "line 1 of the trace has seed = '7'; a whole number was expected"),
        (2, {"t": 5}, "line 2 of the trace has step t = 5 of chain"),
        (3, {"index": -1}, "line 3 of the trace has index -1"),
        (3, {"index": 99}, "line 3 of the trace has index 99"),
        (4, {"reward": None}, "line 4 of the trace has reward = None; a finite number"),
        (
            4,
            {"reward": float("nan")},
            r"line 4 of the trace .* not JSON \(reward = NaN is not a JSON",
        ),
        (4, {"tokens": [1.5]}, "line 4 of the trace has tokens = 1.5; a whole number"),
        (4, {"reward": 10**301}, "line 4 of the trace has reward = a whole number beyond"),
        (
            4,
            {"reward": 10**400},
            r"line 4 of the trace .* \(reward = 10+\.\.\. is too large a number",
        ),
        (4, {"reward": True}, "line 4 of the trace has reward = True; a finite number"),
        (4, {"tokens": [10**300]}, "line 4 of the trace has tokens = a whole number beyond"),
        (
            4,
            {"tokens": [10**400]},
            r"line 4 of the trace .* \(tokens\[0\] = 10+\.\.\. is too large a number",
        ),
        (4, {"cost": [-1, 0]}, "line 4 of the trace has cost = -1; a whole number >= 0"),
        (1, {"version": True}, "line 1 of the trace has version True"),
        (1, {"seed": 10**300}, "line 1 of the trace has seed = a whole number beyond"),
        (1, {"seed": 10**400}, r"line 1 of the trace .* \(seed = 10+\.\.\. is too large a number"),
        (4, {"tokens": []}, "line 4 of the trace has no new tokens"),
        (4, {"pieces": ["a"] * 9}, "line 4 of the trace has 9 pieces for"),
        (9, {"log_alpha": -5.0, "log_u": -1.0, "accepted": True}, "line 9 .* verdict of u < alpha"),
        (9, {"log_alpha": 0.5}, "line 9 of the trace has accepted"),
        (9, {"type": "header", "version": 2}, r"line 9 of the trace has another header \(prompt:"),
        (9, {"type": "spam"}, "line 9 of the trace has type 'spam'"),
        (1, {"beta": "x"}, "line 1 of the trace has beta = 'x'; a finite number was expected"),
        (1, {"notes": [1]}, "line 1 of the trace has notes = .*; a list of texts was expected"),
        (65, {"n": 5}, "line 65 of the trace has sample 5; sample 0 was expected"),
        (66, {"n": 7}, "line 66 of the trace has sample 7; sample 1 was expected"),
        (66, {"text": None}, "line 66 of the trace has text = None; text was expected"),
        (66, {"tokens": []}, "line 66 of the trace has no tokens; one at least was expected"),
        (9, {"cost": [1]}, "line 9 of the trace has 1 costs; 2 or 3 was expected"),
    ],
)
def test_a_broken_trace_is_refused_by_line(trace, number, changes, sentence) -> None:
    with pytest.raises(InvalidTrace, match=sentence):
        parse_trace(broken(trace, number, **changes))


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "[1]\n", "{}\n", "\x00\x01\n{}\n", "[" * 99999 + "\n\n", "{}\n" + "[" * 99999],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(InvalidTrace):
        parse_trace(text)


def test_a_missing_or_binary_file_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidTrace, match="cannot be read"):
        load_trace(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidTrace, match="not UTF-8"):
        load_trace(tmp_path / "binary.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InvalidTrace, match="Is a directory"):
        load_trace(tmp_path / "folder.jsonl")


async def test_numbers_of_numpy_are_written_as_numbers(tmp_path) -> None:
    class Numpy(EnumerableLM):
        async def extend(self, prompt_ids, prefix, *, seed):
            response = await super().extend(prompt_ids, prefix, seed=seed)
            log_probs = tuple(map(np.float32, response.log_probs))
            return replace(
                response, tokens=tuple(map(np.int64, response.tokens)), log_probs=log_probs
            )

    lm = Numpy(lambda prefix: [0.9, 0.1], pieces=("x", "<eos>"), max_new_tokens=6)
    run = Run(prompt="p", steps=8, sharpness=2.0)
    steps = [
        step async for step in run_chain(lm, TableReward(), "p", target=run.target, steps=8, seed=1)
    ]
    trace = Trace.collect(steps, TraceHeader(run))
    save_trace(trace, tmp_path / "run.jsonl")
    assert load_trace(tmp_path / "run.jsonl").steps == trace.steps


def test_the_file_of_an_unreadable_trace_is_named(tmp_path) -> None:
    (tmp_path / "broken.jsonl").write_text("[1]\n")
    with pytest.raises(InvalidTrace, match=r"^broken\.jsonl: line 1 of the trace"):
        load_trace(tmp_path / "broken.jsonl")


def test_a_trace_of_steps_alone_says_that_its_settings_are_not_known(tmp_path):
    steps = collect(run_chain(LM, RM, "x", beta=0.2, steps=2, seed=9))
    save_trace(Trace.collect(steps), tmp_path / "alone.jsonl")
    (note,) = load_trace(tmp_path / "alone.jsonl").header.notes
    assert note.startswith("the settings, other than steps and chains, are not those of the run")
    header = TraceHeader(Run(prompt="x", beta=0.2, steps=2, seed=9))
    save_trace(Trace.collect(steps, header), tmp_path / "known.jsonl")
    assert load_trace(tmp_path / "known.jsonl").header.notes == ()


@pytest.mark.parametrize("other", [[], None, "a.jsonl"])
def test_what_is_no_trace_is_not_saved_and_the_file_stays(other, tmp_path):
    (tmp_path / "there").write_text("precious")
    with pytest.raises(InvalidTrace, match=r"expected a trace, got .*; Trace.collect\(steps\)"):
        save_trace(other, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "precious"
