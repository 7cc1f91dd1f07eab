"""IFEval's instructions as lm-eval checks them: `make test-tasks`, an environment of its own."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from benchmarks.followed import followed
from qalign_core.errors import InvalidTask
from qalign_study.sets.instructions import Instructions

LINES = Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in LINES]


def instruction_of(case, rule):
    return Instructions(case["prompt"], tuple(case["ids"]), tuple(case["kwargs"]), rule)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        pytest.fail("a checker asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("rule", ["strict", "loose"])
def test_every_case_is_followed_or_not_as_it_was_when_it_was_written_down(rule):
    verdicts = [instruction_of(case, rule).followed(case["response"]) for case in CASES]
    assert verdicts == [case[rule] for case in CASES]


def test_the_benchmarks_reward_counts_the_instructions_that_a_response_follows(
    monkeypatch, tmp_path
):
    kwargs = [{}, {"relation": "at least", "num_words": 4}]
    row = {"key": 1, "prompt": "Write.", "kwargs": kwargs}
    row["instruction_id_list"] = ["punctuation:no_comma", "length_constraints:number_words"]
    (tmp_path / "input_data.jsonl").write_text(json.dumps(row))
    monkeypatch.chdir(tmp_path)
    for response, n in (("One, two", 0), ("One two", 1), ("One, two, three, four", 1)):
        assert followed("Write.", response) == n
    assert followed("Write.", "One two three four") == 2


def test_a_verdict_is_the_same_every_time():
    text = "No un das the de la et 1"  # of several languages at once
    detected = Instructions("", ("language:response_language",), ({"language": "fr"},))
    assert len({detected.followed(text) for _ in range(20)}) == 1


@pytest.mark.parametrize("letter", ["#", "!", "e", "E"])  # two official rows ask for no letter
def test_what_is_asked_for_is_counted_and_no_letter_drawn_by_chance(letter):
    instruction_ofns = {"let_relation": "at least", "letter": letter, "let_frequency": 4}
    counted = Instructions("", ("keywords:letter_frequency",), (instruction_ofns,))
    for n in (3, 4):
        assert {counted.followed("word " + n * letter) for _ in range(20)} == {n == 4}


@pytest.mark.parametrize(
    ("id", "kwargs"), [("no:such_thing", {}), ("punctuation:no_comma", {"no_such_argument": 1})]
)
def test_an_instruction_that_there_is_not_is_said_in_one_sentence(id, kwargs):
    with pytest.raises(InvalidTask, match=f"{id}.*cannot be checked") as error:
        Instructions("Say hi.", (id,), (kwargs,)).followed("Hi")
    assert "\n" not in str(error.value)
