"""Generated problems: right answers, in many words, and never one that was trained on."""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from qalign_core.decide.answers.extraction import extract_number
from qalign_core.errors import InvalidSetting
from qalign_study.sets import problem_sets
from qalign_study.sets.generated import (
    LARGEST,
    PHRASINGS,
    SHIFTED_PHRASINGS,
    Event,
    ProblemKind,
    WritingTask,
    generate_problem,
    generate_writing_task,
    kind_of,
    met_constraints,
    split_of,
)

pytestmark = pytest.mark.more

TASKS = Path(__file__).parent.parent / "assets" / "tasks"
KINDS = get_args(ProblemKind)


@cache
def problems(kind, n=400, **more):
    rng = random.Random(f"test {kind}")
    return [generate_problem(rng, kind, **more) for _ in range(n)]


def tasks(name):
    return [json.loads(line) for line in (TASKS / f"{name}.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_follows_from_the_events_and_stays_in_range(kind):
    for problem in problems(kind):
        amount = problem.start
        for event in problem.events:
            assert event.kind != "half" or amount % 2 == 0, "half of an odd number of things"
            amount = event.apply(amount)
            assert 2 <= amount <= LARGEST
        assert problem.answer == str(amount)
        assert extract_number(f"The answer is {problem.answer}.") == problem.answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_says_every_number_and_leaves_no_slot_open(kind):
    for problem in problems(kind):
        assert "{" not in problem.prompt
        numbers_in_prompt = [int(number) for number in re.findall(r"\d+", problem.prompt)]
        numbers = [n for e in problem.events if e.kind != "times" for n in (e.a, e.b) if n]
        assert sorted(numbers_in_prompt) == sorted([problem.start, *numbers])
        assert problem.prompt.endswith("?")


@pytest.mark.parametrize(
    ("event", "before", "after"),
    [
        (Event("gain", 5), 12, 17),
        (Event("loss", 5), 12, 7),
        (Event("boxes", 3, 4), 12, 24),
        (Event("days", 3, 4), 12, 24),
        (Event("times", 3), 12, 36),
        (Event("half"), 12, 6),
        (Event("distractor", 9), 12, 12),
    ],
)
def test_each_kind_of_event_does_what_its_sentence_says(event, before, after):
    assert event.apply(before) == after


@pytest.mark.parametrize("kind", KINDS)
def test_no_problem_gives_two_numbers_for_one_thing(kind):
    for problem in problems(kind):
        subjects = [event.subject for event in problem.events if event.kind == "distractor"]
        assert len(subjects) == len(set(subjects)), problem.prompt


def test_the_same_state_of_randomness_gives_the_same_problem():
    assert problems("long", 20) == problems.__wrapped__("long", 20)


def test_kinds_differ_in_length_and_wording():
    lengths = {kind: {len(p.events) for p in problems(kind)} for kind in KINDS}
    assert lengths["in_distribution"] == {2, 3}
    assert lengths["shifted"] == {3, 4}
    assert min(lengths["long"]) >= 5
    for kind, seen in PHRASINGS.items():
        assert not set(seen) & set(SHIFTED_PHRASINGS[kind]), "a shifted phrasing is not shifted"


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_problem_is_read_off_its_prompt(kind):
    assert {kind_of(problem.prompt) for problem in problems(kind)} == {kind}


@pytest.mark.parametrize(
    "prompt", ["", "Hello.", "Tell me of shells. Why?", "x" * 2000 + ". ? " * 99]
)
def test_a_prompt_of_no_kind_is_said_to_be_of_none(prompt):
    assert kind_of(prompt) is None


def test_there_are_more_than_a_million_distinct_problems():
    # n draws from N equally likely problems repeat about n^2 / 2N times; unequal chances repeat
    # more often. 10 000 draws from 10^6 would repeat about 50 times, from 10^7 about 5 times.
    rng = random.Random(0)
    keys = [generate_problem(rng, "long", split="train").key for _ in range(10_000)]
    assert len(keys) - len(set(keys)) < 20
    # Of the shortest kind, the count is exact enough by wording: 20 names x 19 friends x 20 things
    # times the distinct contents seen so far.
    short = {generate_problem(rng, split="train").key for _ in range(2_000)}
    assert len(short) * 20 * 19 * 20 > 10**6


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_problems_and_training_problems_never_meet(kind):
    assert {split_of(p.key) for p in problems(kind)} == {"held_out"}
    assert {split_of(p.key) for p in problems(kind, split="train")} == {"train"}


def test_no_document_of_the_corpus_is_a_held_out_problem():
    from tools.embedded.corpus import documents

    held_out = {row["prompt"] for name in (*KINDS, "writing") for row in tasks(name)}
    corpus = {prompt for prompt, _ in documents(0, 0, 4096)}
    assert not corpus & held_out


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    from tools.embedded.corpus import write_tasks

    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder, 0)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_problem_sets_are_held_out_and_made_by_the_generator(kind, written):
    assert (written / f"{kind}.jsonl").read_bytes() == (TASKS / f"{kind}.jsonl").read_bytes()
    rows = tasks(kind)
    assert len(rows) == 250
    assert len({row["prompt"] for row in rows}) == 250
    assert len({row["id"] for row in rows}) == 250
    rng = random.Random(f"tasks 0 {kind}")
    problems = {}
    while len(problems) < 250:
        problem = generate_problem(rng, kind)
        problems.setdefault(problem.key, problem)
    assert [row["prompt"] for row in rows] == [p.prompt for p in problems.values()]
    assert {split_of(key) for key in problems} == {"held_out"}


def test_the_writing_set_is_held_out_too():
    for row in tasks("writing"):
        assert row["answer"] is None
        assert split_of(WritingTask(row["prompt"], **row["constraints"]).key) == "held_out"


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSetting, match="in_distribution, shifted, long, got 'hard'"):
        generate_problem(random.Random(0), "hard")


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("The lamp waits by the wall. Mia likes the river.", 3),
        ("The lamp waits by the wall. Mia likes the boat.", 2),
        ("The clamp waits by the wall. Mia likes the river.", 2),
        ("The lamp waits by the river", 2),
        ("The boat waits.", 0),
        ("", 0),
    ],
)
def test_writing_is_checked_by_its_three_constraints(text, met):
    task = WritingTask("", use="lamp", end="river", sentences=2)
    assert met_constraints(task, text) == met
    assert problem_sets.Problem("1", "", check=task).is_right(text) == (met == 3)


def test_a_writing_prompt_names_all_of_its_constraints():
    rng = random.Random(1)
    for _ in range(200):
        task = generate_writing_task(rng)
        assert f'"{task.use}"' in task.prompt
        assert f'"{task.end}"' in task.prompt
        assert ("one", "two", "three")[task.sentences - 1] in task.prompt
        assert task.use != task.end
