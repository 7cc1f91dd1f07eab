"""Pairs from a model's own draws, and what is refused; the training itself is in tests/train."""

from __future__ import annotations

import asyncio
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refuse_command
from test_results import AnswerLM

from qalign_core.errors import InvalidSetting, InvalidTask
from qalign_core.rewards.functions import FunctionReward
from qalign_core.run import Run
from qalign_study.commands import main
from qalign_study.measure.intervals import wilson
from qalign_study.sets.folder import run_set, traces_of
from qalign_study.sets.problem_sets import Problem
from qalign_study.sets.tasks import read_task, task_of
from qalign_study.train import trainer as training
from qalign_study.train.preferences import (
    Grade,
    GradedTexts,
    Kinds,
    Pair,
    encode_pairs,
    grade_trace,
    in_order,
    other_number,
    pairs_of,
    split,
)
from qalign_study.train.reward_training import base_of, learn, measure_accuracy, settings_of
from qalign_study.train.trainer import RECIPES, Recipe

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "sample-dont-search.tex"
PROBLEMS = [
    Problem(f"p{k}", f"prompt {k:03}", "18", "number", extra={"solution": "6 + 12 = 18."})
    for k in range(40)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sixteen samples and a chain of each problem, told apart."""
    folder, run = tmp_path_factory.mktemp("samples"), Run("-", seed=3, pool=16, steps=24)
    asyncio.run(run_set(AnswerLM(), Grade(PROBLEMS), run, PROBLEMS, folder))
    traces = [trace for _, trace in traces_of(folder, len(PROBLEMS))]
    return traces, [grade_trace(*each) for each in zip(PROBLEMS, traces, strict=True)]


def group(*, right=("It is 18.",), wrong=("It is 17.",), near=(), problem=PROBLEMS[0]):
    return GradedTexts(problem, tuple(right), tuple(wrong), tuple(near))


def test_samples_are_told_apart_by_the_sets_own_scorer_and_kept_once(corpus):
    for trace, texts_of_problem in zip(*corpus, strict=True):
        texts = [sample.response.text for sample in trace.pool]
        assert sorted([*texts_of_problem.right, *texts_of_problem.wrong]) == sorted(set(texts))
        assert set(texts_of_problem.right) <= {"The answer is 18."}
        assert all(sample.reward == ("18" in sample.response.text) for sample in trace.pool)


def test_a_near_miss_is_a_state_and_a_proposal_with_one_beginning_of_which_one_is_right(
    corpus,
):
    traces, groups = corpus
    for problem, trace, graded in zip(PROBLEMS, traces, groups, strict=True):
        met = set()
        for step in trace.steps:
            texts = step.current.response.text, step.proposal.response.text
            right = [problem.solved_by(text) for text in texts]
            if step.index and right[0] != right[1]:
                met.add(texts if right[0] else texts[::-1])
        assert set(graded.near) == met
    assert sum(len(graded.near) for graded in groups) > 20


def test_the_papers_pairs_are_one_right_against_one_wrong_sample_a_prompt(corpus):
    for graded in corpus[1]:
        pairs = list(pairs_of(graded, Kinds(), seed=1))
        assert len(pairs) == bool(graded.right and graded.wrong)
        assert all(p.better in graded.right and p.worse in graded.wrong for p in pairs)
        assert pairs == list(pairs_of(graded, Kinds(), seed=1))


def test_each_kind_of_pair_is_an_option_of_its_own():
    wrong = ("It is 17.", "It is 3.")
    graded = group(wrong=wrong, near=[("So 18.", "So 12."), ("So 6 + 12 = 18.", "So 6.")])
    one = {(p.better, p.worse) for p in pairs_of(graded, Kinds(2), seed=0)}
    assert one == {("It is 18.", "It is 17."), ("It is 18.", "It is 3.")}
    suffix = {(p.better, p.worse) for p in pairs_of(graded, Kinds(2, suffix=True), seed=0)}
    assert suffix - one == set(graded.near)
    solution = {p.better for p in pairs_of(graded, Kinds(8, solution=True), seed=0)}
    assert solution == {"It is 18.", "6 + 12 = 18."}
    number = list(pairs_of(graded, Kinds(2, number=True), seed=0))[2:]
    assert [p.better for p in number] == ["It is 18."]
    assert re.fullmatch(r"It is (8|16|17|19|20|28)\.", number[0].worse)


@pytest.mark.parametrize(
    ("answer", "text", "changed"),
    [
        ("18", "6 + 12 = 18. The answer is $18.00.", r"6 \+ 12 = 18. The answer is \$\d+\."),
        ("1200", "So 1,200 it is.", r"So 1[12]\d\d it is\."),
        ("18", "Eighteen.", None),
        ("2/3", "It is 2/3.", None),
    ],
)
def test_a_changed_number_is_the_last_that_says_the_answer_and_makes_it_wrong(
    answer, text, changed
):
    problem = Problem("p", "?", answer, "number")
    other = other_number(problem, text, random.Random(0))
    if changed is None:
        assert other is None
    else:
        assert re.fullmatch(changed, other)
        assert not problem.solved_by(other)


def test_a_cut_that_makes_a_pair_equal_leaves_it_out_and_says_so():
    pairs = [Pair("p", "abcd", "abce"), Pair("p", "xb", "yb"), Pair("p", "abcde", "zz")]
    cut = encode_pairs(pairs, lambda prompt, text: [*map(ord, text)], 3)
    assert (len(cut.pairs), cut.n_cut, cut.n_equal) == (2, 2, 1)
    assert cut.pairs[1] == ((97, 98, 99), (122, 122))
    with pytest.raises(InvalidTask, match="equal within the first 3 tokens; raise --max-length"):
        encode_pairs(pairs[:1], lambda prompt, text: [*map(ord, text)], 3)


def test_whole_problems_are_held_out_and_a_set_without_pairs_is_refused_in_one_sentence():
    groups = [group(problem=problem) for problem in PROBLEMS]
    learned, held = split(groups, 0.05, seed=1)
    assert (len(learned), len(held)) == (38, 2)
    assert {g.problem.id for g in learned}.isdisjoint(g.problem.id for g in held)
    more = [*groups, group(right=(), problem=PROBLEMS[0])]
    assert [len(part) for part in split(more, 0.05, seed=1)] == [38, 2]
    assert [len(part) for part in split(more, 0.05, seed=1, solutions=True)] == [39, 2]
    with pytest.raises(InvalidTask, match=r"1 of 3 problems .* \(2 have no right one\)"):
        split([groups[0], group(right=()), group(right=())], 0.05, seed=1)


async def test_accuracy_is_the_share_of_pairs_ordered_rightly_averaged_over_problems():
    groups = [group(right=("a", "b"), wrong=("c",)), group(right=("a",), wrong=("d",))]
    rm = FunctionReward(lambda prompt, text: float("acbd".index(text)), id="order")
    share = (await measure_accuracy(rm, groups))["pair"]
    assert (share["value"], share["problems"], share["pairs"]) == (0.25, 2, 3)
    assert (share["low"], share["high"]) == wilson(0.5, 2)
    assert (await measure_accuracy(rm, []))["pair"]["value"] is None
    assert in_order([[(1.0, 1.0)]]).value == 0.5, "a tie counts half"


async def test_four_of_four_pairs_in_order_are_not_called_certain():
    groups = [group(right=("b",), wrong=("a",)) for _ in range(4)]
    rm = FunctionReward(lambda prompt, text: float(ord(text)), id="order")
    share = (await measure_accuracy(rm, groups))["pair"]
    assert (share["value"], share["high"]) == (1.0, 1.0)
    assert share["low"] == pytest.approx(0.510, abs=1e-3)
    assert in_order([[(2.0, 1.0)]] * 400).low > 0.99, "the control: many in order are narrow"


def test_the_preset_paper_is_the_table_of_the_appendix():
    assert RECIPES["paper"] == Recipe(
        learning_rate=1e-5,
        warmup=0.03,
        weight_decay=0.0,
        epochs=1.0,
        batch=128,
        lora=0,
        precision="bfloat16",
        validation=0.05,
    )
    if PAPER.is_file():
        table = PAPER.read_text("utf-8").partition("Training Hyperparameters for the RM")[2]
        for row in (r"5\%", r"$1 \times 10^{-5}$", "& 128", "& 1.0", "0.03", "& 0.0", "bfloat16"):
            assert row in table


@pytest.mark.parametrize(
    ("name", "row", "solution"),
    [
        (
            "gsm8k",
            {"question": "q", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 1,024"},
            "48/2 = 24 clips.\nThe answer is 1024.",
        ),
        ("math500", {"problem": "q", "answer": "2", "solution": "It is 2."}, "It is 2."),
    ],
)
def test_a_problem_keeps_its_sets_own_solution(tmp_path, name, row, solution):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    (problem,) = read_task(task_of(name), file).problems
    assert problem.extra["solution"] == solution


def test_what_trains_is_looked_for_before_anything_is_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "_PACKAGES", ("json", "no_such_package"))
    refuse_command(
        capsys,
        ["train-rm", "--out", str(tmp_path / "rm")],
        "train-rm needs no_such_package; pip install 'qalign-explorer[train]'",
    )
    assert not (tmp_path / "rm").exists()


def test_processes_without_what_trains_can_share_the_drawing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "_PACKAGES", ("no_such_package",))
    command = ["train-rm", "--problems", "2", "--samples", "4", "--steps", "2", "--only-draw"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    traces = [trace for _, trace in traces_of(tmp_path / "samples", 2)]
    assert [(len(t.pool), len(t.steps), t.header.run.rm) for t in traces] == [(4, 3, "right")] * 2
    (tmp_path / "asked.json").write_text("{}")  # is there once something has been trained
    capsys.readouterr()
    assert main(["grade", str(tmp_path)]) == 0
    assert " texts: " in capsys.readouterr().out


def test_a_set_that_nobody_can_grade_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "_PACKAGES", ())
    (tmp_path / "open.jsonl").write_text('{"prompt": "Why is the sky blue?", "extractor": null}\n')
    out = tmp_path / "rm"
    task = ["--task", str(tmp_path / "open.jsonl")]
    assert main(["train-rm", *task, "--out", str(out)]) == 2
    assert "neither an answer to compare with nor one of constraints" in capsys.readouterr().err
    assert main(["train-rm", "--learning-rate", "7", "--out", str(out)]) == 2
    assert "--learning-rate must be above 0 and at most 1, got 7.0" in capsys.readouterr().err
    assert not out.exists()


def test_a_served_model_has_no_weights_to_start_from():
    assert base_of("tulu-3-8b-sft", None) == "allenai/Llama-3.1-Tulu-3-8B-SFT"
    assert base_of("http://localhost:8000", "owner/name") == "owner/name"
    with pytest.raises(InvalidSetting, match="with --base"):
        base_of("http://localhost:8000", None)


async def test_a_folder_goes_on_with_the_settings_that_it_was_begun_with_and_no_others(tmp_path):
    async def learn_with(recipe):
        return await learn(PROBLEMS, tmp_path, Kinds(), recipe, base="nowhere")

    first, other = Recipe(max_length=64), Recipe(max_length=65)
    for recipe in (first, other):  # no training began, so another one may
        with pytest.raises(InvalidTask, match="0 of 0 problems"):
            await learn_with(recipe)
    begun = settings_of(PROBLEMS, Kinds(), first, base="nowhere", draws=0)
    (tmp_path / "asked.json").write_text(json.dumps(begun))
    with pytest.raises(InvalidSetting, match="a training with max_length = 64, not 65"):
        await learn_with(other)
    (tmp_path / "report.json").write_text('{"pairs": 3}')
    assert await learn_with(first) == {"pairs": 3}


def test_what_cannot_be_trained_is_refused_before_it_is_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "_PACKAGES", ())
    (tmp_path / "asked.json").write_text('{"draws": 40}')
    command = ["train-rm", "--problems", "2", "--samples", "4", "--out", str(tmp_path)]
    for option, message in (
        ("--samples=4", "draws = 40, not 42"),
        ("--each=0", "--each must be a whole number >= 1"),
        ("--precision=float16", "--precision must be float32 or bfloat16, got float16"),
    ):
        refuse_command(capsys, [*command, option], message)
    assert not (tmp_path / "samples").exists()


@pytest.mark.parametrize(("batch", "at_once"), [(5, 2), (6, 4), (16, 4), (2, 4), (7, 3), (48, 16)])
def test_a_step_learns_from_exactly_its_pairs(batch, at_once):
    in_memory, passes = replace(Recipe(), batch=batch, pairs_at_once=at_once).passes
    assert in_memory * passes == batch
    assert in_memory <= at_once
