"""The paper's published rules and ours, case by case: where they part, ours is right and says why.

`published rule` in the table is what the published code returned for the case; IFEval's cases, with
the verdicts of lm-eval's checkers and of the published code's own copy of them (the same on all),
are in tests/ifeval.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from refusals import refusal

from qalign_core.errors import InvalidTask
from qalign_study.sets import instructions
from qalign_study.sets.instructions import Instructions
from qalign_study.sets.problem_sets import Problem

TESTS = Path(__file__).parent
LINES = (TESTS / "scorer_cases.tsv").read_text(encoding="utf-8").splitlines()[1:]
CASES = [tuple(line.split("\t")) for line in LINES]


def is_right(rule, text, reference):
    problem = Problem("x", "prompt", reference, rule)
    answer = problem.extract(text.replace("⏎", "\n"))
    return answer is not None and bool(problem.is_right(answer))


@pytest.mark.parametrize("rule", ["number", "boxed", "option"])
def test_on_two_hundred_cases_a_rule_is_the_published_one_but_where_a_reason_is_given(rule):
    cases = [case[1:] for case in CASES if case[0] == rule]
    assert len(cases) >= 200
    for text, reference, published, expected, why in cases:
        assert is_right(rule, text, reference) == bool(int(expected)), (text, reference)
        assert (published != expected) == bool(why), (text, reference)


def test_letters_are_read_by_the_published_rule_alone():
    assert not [case for case in CASES if case[0] == "option" and case[3] != case[4]]


def test_the_published_rule_for_numbers_is_what_the_table_says():
    for _, text, reference, published, _, _ in (c for c in CASES if c[0] == "number"):
        verdicts = [
            re.findall(r"[-+]?\d*\.\d+|\d+", re.sub(r"(\d),(\d)", r"\1\2", each))[-1:]
            for each in (text.replace("⏎", "\n"), reference)
        ]
        assert (verdicts[0] == verdicts[1]) == bool(int(published)), text


def test_where_the_published_rule_is_right_and_ours_is_not_it_was_by_chance():
    reasons = Counter(case[5] for case in CASES if case[3] > case[4])
    assert set(reasons) == {
        "it drops the sign of a whole number",
        "it drops every comma between digits",
    }
    assert reasons.total() <= 7


def test_without_lm_eval_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "langdetect", None)
    instructions._library.cache_clear()
    with refusal(InvalidTask, match=r"pip install 'qalign-explorer\[tasks\]'"):
        Instructions("Say hi.", ("punctuation:no_comma",), ({},)).followed("Hi")


def test_the_cases_of_ifeval_are_of_every_kind_of_instruction():
    cases = (TESTS / "ifeval" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    instructions = [json.loads(case) for case in cases]
    assert len(instructions) >= 200
    assert len({id for case in instructions for id in case["ids"]}) == 25
    assert {(case["strict"], case["loose"]) for case in instructions} == {
        (True, True), (False, False), (False, True),
    }  # fmt: skip
