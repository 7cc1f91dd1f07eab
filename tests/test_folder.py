"""Runs over a set in a folder: nothing that was drawn is lost, whatever happens, whoever draws."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from folder_client import PROBLEMS, RUN, TOTAL, fill
from forks import Program
from refusals import refusal, refuse_command
from toys import ToyLM, ToyRM

from qalign_core import load_trace
from qalign_core.decide.methods import majority_vote
from qalign_core.errors import InvalidPrompt, InvalidSetting, InvalidTask, InvalidTrace
from qalign_core.record.store import open_trace
from qalign_study.commands import drawing, main, shared
from qalign_study.measure.results import answers_in, load_results, pack, results_in
from qalign_study.sets import folder as folders
from qalign_study.sets.folder import run_set
from qalign_study.sets.problem_sets import Problem, load_problems

CLIENT = Path(__file__).with_name("folder_client.py").read_text("utf-8")
RUNS = "0*.jsonl"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    fill(folder)
    return folder


def contents(folder):
    """What is in a folder: the lines of each trace, but for their order and the date."""
    files = {}
    for path in sorted(folder.glob(RUNS)):
        header, *lines = path.read_bytes().splitlines()
        files[path.name] = ({**json.loads(header), "created": ""}, sorted(lines))
    return files


def count_draws(folder):
    complete = [path.read_bytes().rpartition(b"\n")[0] for path in folder.glob(RUNS)]
    return sum(c.count(b'"type":"step"') + c.count(b'"type":"sample"') for c in complete)


def client(folder, halt=0):
    return Program(str(folder), str(halt), code=CLIENT)


def test_a_client_killed_eight_times_writes_the_traces_of_one_that_was_not(whole, tmp_path):
    rng = random.Random(5)
    for kill in range(9):
        with client(tmp_path) as process:
            if kill == 8:  # the last one may finish
                process.stdin.close()
                assert int(process.stdout.read().split()[-1]) == TOTAL
                assert process.wait() == 0
                break
            until = rng.randrange(1, 40)
            process.stdin.write("\n" * (until + 8))
            lines = [process.stdout.readline() for _ in range(until)]
            process.kill()  # it goes on, for up to 8 draws, until the signal arrives
            lines += [line for line in process.stdout if line.endswith("\n")]
            assert process.wait() == -signal.SIGKILL
        assert count_draws(tmp_path) >= int(lines[-1]), "a draw that was reported is lost"
    assert contents(tmp_path) == contents(whole)


def test_two_processes_share_a_folder_and_one_that_is_killed_is_replaced(whole, tmp_path):
    with client(tmp_path) as first:
        first.stdout.readline()  # it holds a problem, and now waits for a line
        with client(tmp_path, halt=TOTAL) as second:
            while (line := second.stdout.readline()) != "waiting\n":
                assert line, "the second ended while the first held a problem"
            assert count_draws(tmp_path) < TOTAL
            first.kill()
            lines = second.stdout.read().split()
            assert second.wait() == 0
            assert [int(n) for n in lines if n != "waiting"][-1] == TOTAL
    assert contents(tmp_path) == contents(whole)


async def test_two_that_share_a_folder_draw_nothing_twice(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "WAIT", 0.01)

    class Counting(ToyRM):
        n = 0

        async def score(self, prompt, response):
            self.n += 1
            await asyncio.sleep(0)
            return await super().score(prompt, response)

    one, two = Counting(), Counting()
    each = (run_set(ToyLM(), rm, RUN, PROBLEMS, tmp_path, at_once=1) for rm in (one, two))
    await asyncio.gather(*each)
    assert contents(tmp_path) == contents(whole)
    assert one.n + two.n == TOTAL
    assert min(one.n, two.n) > 0


def test_what_another_process_has_in_work_is_told(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "WAIT", 0.0)
    shutil.copytree(whole, tmp_path / "shared")
    path = folders.trace_path(tmp_path / "shared", 1)
    reports = []
    with ExitStack() as other:
        other.enter_context(open_trace(path, load_trace(path).header))

        def progress(n_new, n_done, n_elsewhere):
            reports.append((n_done, n_elsewhere))
            assert len(reports) < 1000, "the other was never told of"
            if n_elsewhere:
                other.close()

        fill(tmp_path / "shared", progress=progress)
    assert (len(PROBLEMS) - 1, 1) in reports
    assert reports[-1] == (len(PROBLEMS), 0)


def test_the_command_line_says_that_others_are_waited_for(tmp_path, capsys, monkeypatch):
    async def waits(*_, progress, **__):
        progress(0, 0, 1)

    monkeypatch.setattr(drawing, "run_set", waits)
    monkeypatch.setattr(shared, "load_language_model", lambda *_, **__: ToyLM())
    monkeypatch.setattr(shared, "load_reward_model", lambda *_, **__: ToyRM())
    command = ["run", "--prompts", "in_distribution", "--problems", "1", "--out", str(tmp_path)]
    main(command)
    assert capsys.readouterr().err == "", "a pipe gets no progress bar"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main(command)
    assert "1 with other processes" in capsys.readouterr().err


def test_cut_anywhere_a_file_is_continued_to_the_same_trace(whole, tmp_path):
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    name = "00000.jsonl"
    content, rng = files[name], random.Random(2)
    ends = [content.rindex(b"\n", 0, len(content) - 1) + k for k in (-1, 0, 1, 2)]
    for at in [0, 1, len(content) - 1, *ends, *rng.sample(range(len(content)), 3)]:
        for other, whole_content in files.items():
            (tmp_path / other).write_bytes(whole_content)
        (tmp_path / name).write_bytes(content[:at])
        fill(tmp_path)
        assert contents(tmp_path) == contents(whole)
        assert answers_in(tmp_path, PROBLEMS) == answers_in(whole, PROBLEMS)


@pytest.mark.parametrize("matched", ["none", "pool", "chain"])
def test_stopped_anywhere_and_however_many_at_once_it_comes_to_the_same(tmp_path, matched):
    class Stop(Exception):
        pass

    def stop_at(most):
        def stop_here(n_new, n_done, n_elsewhere):
            nonlocal most
            most -= n_new
            if most < 0:
                raise Stop

        return stop_here

    settings = {"matched": matched, "steps": 400 if matched == "chain" else 12, "chains": 2}
    fill(tmp_path / "whole", **settings)
    for after in (1, 20, 55, 99):
        folder = tmp_path / f"{after}"
        with pytest.raises(Stop):
            fill(folder, at_once=after % 4 + 1, progress=stop_at(after), **settings)
        fill(folder, **settings)
        assert contents(folder) == contents(tmp_path / "whole")
    one, other = (pack(results_in(f), tmp_path / "p.zip") for f in (folder, tmp_path / "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_every_file_is_a_trace_and_the_answers_are_those_of_its_states(whole):
    answers = answers_in(whole, PROBLEMS)
    assert [answer.id for answer in answers] == [problem.id for problem in PROBLEMS]
    for place, (problem, answer) in enumerate(zip(PROBLEMS, answers, strict=True)):
        trace = load_trace(whole / f"{place:05}.jsonl")
        assert (trace.header.run.prompt, trace.header.run.seed) == (problem.prompt, 11 + place)
        assert (trace.header.run.reference, trace.header.run.extractor) == (
            problem.answer,
            problem.extractor,
        )
        assert len(trace.states) == answer.n_states == RUN.chains * (RUN.steps + 1)
        assert len(trace.pool) == RUN.pool
        if problem.extract is not None:
            decision = majority_vote(trace.states, problem.extract)
            assert (answer.answer, answer.share) == (decision.answer, decision.shares[0][1])
            assert decision.chosen.response.text == answer.text
        else:
            assert answer.answer is None
            assert answer.text


def test_a_run_that_is_done_draws_nothing_more(whole):
    class Broken(ToyLM):
        async def extend(self, prompt_ids, prefix, *, seed):
            pytest.fail("there was nothing to draw")

    reports = []
    before = {path: path.read_bytes() for path in whole.iterdir()}
    fill(whole, lm=Broken(), progress=lambda *now: reports.append(now))
    assert sum(n_new for n_new, _, _ in reports) == TOTAL
    assert reports[-1] == (0, len(PROBLEMS), 0)
    assert {path: path.read_bytes() for path in whole.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"beta": 0.6}, "beta: 0.5, now 0.6"),
        ({"steps": 8}, "40 steps are in it, and 8 were asked for"),
        ({"chains": 2}, "3 chains are in it, and 2 were asked for"),
        ({"pool": 2}, "20 samples are in it, and 2 were asked for"),
        (
            {"pool": 2, "steps": 8},
            "20 samples are in it, and 2 were asked for",
        ),  # the steps may follow from the samples
        ({"matched": "pool"}, "matched: 'none', now 'pool'"),
        ({"seed": 12}, "seed: 11, now 12"),
        ({"problems": PROBLEMS[:2]}, "other problems, or fewer"),
        (
            {"problems": [replace(PROBLEMS[0], answer="19"), *PROBLEMS[1:]]},
            "other problems, or fewer",
        ),
        ({"lm": ToyLM(max_new_tokens=64)}, "max_new_tokens: 128, now 64"),
    ],
)
def test_a_folder_of_another_run_is_refused_and_left_as_it_is(whole, changes, sentence):
    before = {path: path.read_bytes() for path in whole.iterdir()}
    with pytest.raises(InvalidSetting, match=sentence):
        fill(whole, **changes)
    assert {path: path.read_bytes() for path in whole.iterdir()} == before


def test_more_problems_samples_and_steps_go_on_from_what_is_there(whole, tmp_path):
    fill(tmp_path, problems=PROBLEMS[:2], pool=3, steps=9)
    assert len(load_results(tmp_path).records) == 2
    fill(tmp_path, problems=PROBLEMS[:2])  # more of each, and the other problems still missing
    before = {path.name: path.read_bytes() for path in tmp_path.glob(RUNS)}
    fill(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    grown, fresh = load_results(tmp_path), load_results(whole)
    assert [record.id for record in grown.records] == [problem.id for problem in PROBLEMS]
    for one, other in zip(grown.records, fresh.records, strict=True):
        assert one.pool_reward.tolist() == other.pool_reward.tolist()
        assert sorted(one.chain_reward) == sorted(other.chain_reward)


def test_a_problem_that_has_only_the_shorter_run_is_not_finished(tmp_path):
    fill(tmp_path, pool=3, steps=9)
    shorter = (tmp_path / "00001.jsonl").read_bytes()
    fill(tmp_path)
    (tmp_path / "00001.jsonl").write_bytes(shorter)
    assert PROBLEMS[1].id not in [record.id for record in results_in(tmp_path).records]
    fill(tmp_path)
    assert PROBLEMS[1].id in [record.id for record in results_in(tmp_path).records]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("problems.jsonl", b'{"prompt": "mine"}', "was not written by this program"),
        ("problems.jsonl", b"\xff", "was not written by this program"),
        ("set.json", b'{"mine": 1}', "has version None, this program reads 3"),
        ("set.json", b"mine", "has no readable settings"),
        ("set.json", b"\xff\xfe", "has no readable settings"),
        ("00000.jsonl", b"mine", "is not a trace; give another path, or an empty folder"),
        ("00001.jsonl", b"mine\n", "not JSON; .* give another path, or an empty folder"),
    ],
)
def test_files_that_are_not_ours_are_never_changed(tmp_path, name, content, sentence):
    (tmp_path / "answers.jsonl").write_bytes(b"mine")
    (tmp_path / name).write_bytes(content)
    with refusal((InvalidSetting, InvalidTrace), match=sentence):
        fill(tmp_path)
    assert (tmp_path / name).read_bytes() == content
    assert (tmp_path / "answers.jsonl").read_bytes() == b"mine"


def test_a_run_into_the_folder_of_its_own_problem_file_spares_it(tmp_path, capsys):
    mine = tmp_path / "problems.jsonl"
    mine.write_text('{"note": "kept", "prompt": "How many?", "answer": 1}\n')
    command = ["run", "--prompts", str(mine), "--steps", "1", "--out", str(tmp_path)]
    refuse_command(capsys, command, "was not written by this program; use another folder")
    assert "kept" in mine.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "match"), [("set.json", "set.json"), ("00000.jsonl", "not a file")]
)
def test_a_folder_in_place_of_a_file_is_said_in_one_sentence(tmp_path, name, match):
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidSetting, match=match):
        fill(tmp_path)


def test_a_file_in_place_of_the_folder_is_said_in_one_sentence(tmp_path):
    (tmp_path / "f").write_text("mine")
    with pytest.raises(InvalidSetting, match="Not a directory"):
        fill(tmp_path / "f")
    assert (tmp_path / "f").read_text("utf-8") == "mine"


def test_a_prompt_that_is_too_long_is_said_before_anything_is_drawn(tmp_path):
    class Short(ToyLM):
        def encode(self, prompt):
            if len(prompt) > 200:
                raise InvalidPrompt("the prompt has too many tokens; shorten it")
            return super().encode(prompt)

    long = replace(PROBLEMS[0], id="long", prompt="word " * 50)
    with pytest.raises(InvalidPrompt, match="problem 'long': the prompt has too many tokens"):
        fill(tmp_path / "new", lm=Short(), problems=[PROBLEMS[0], long])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"beta": -1}, InvalidSetting, "beta"),
        ({"pool": -1}, InvalidSetting, "pool"),
        ({"at_once": 0}, InvalidSetting, "at_once"),
        ({"seed": 2**31 - 2}, InvalidSetting, "seed"),
        ({"problems": []}, InvalidTask, "no problems"),
    ],
)
def test_bad_settings_are_refused_and_nothing_is_drawn(tmp_path, changes, error, sentence):
    with pytest.raises(error, match=sentence):
        fill(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_what_is_finished_in_a_folder_is_read_while_it_still_grows(whole, tmp_path):
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    cut = tmp_path / "00001.jsonl"
    cut.write_bytes(cut.read_bytes()[: 2 * cut.stat().st_size // 3])
    (tmp_path / "00002.jsonl").unlink()
    results = results_in(tmp_path)
    assert [record.id for record in results.records] == ["with an answer"]
    assert results.n_missing == 2
    (tmp_path / "00000.jsonl").unlink()
    [begun] = results_in(tmp_path).records
    assert 0 < len(begun.chain_reward) < RUN.chains * (RUN.steps + 1), "if nothing is finished"
    (tmp_path / "00000.jsonl").write_bytes((whole / "00000.jsonl").read_bytes())
    assert [answer.id for answer in answers_in(tmp_path, PROBLEMS)] == ["with an answer", "open"]


def test_a_set_that_was_changed_after_the_run_is_not_graded_by_it(whole, tmp_path):
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    problems = tmp_path / "problems.jsonl"
    assert load_problems(problems) == PROBLEMS
    problems.write_text(problems.read_text("utf-8").replace('"17"', '"18"'))
    with pytest.raises(InvalidTrace, match=r"problems.jsonl was changed; restore"):
        load_results(tmp_path)


@pytest.mark.parametrize("content", [b"nothing", b'{"version": 99}', b"[]", b"\xff", None])
def test_what_is_no_folder_of_results_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "set.json").write_bytes(content)
    with refusal(InvalidTrace, match=str(tmp_path)):
        load_results(tmp_path)


def test_the_command_line_runs_a_set_and_goes_on(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "Tom has 5 eggs. How many?", "answer": 5}, {"prompt": "Write: eggs."}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["run", "--prompts", str(prompts), "--steps", "4", "--chains", "2"]
    refuse_command(capsys, command, "--out FOLDER")
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "right is 5" in first
    assert "2 prompts, 20 states" in first
    before = contents(tmp_path / "out")
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert contents(tmp_path / "out") == before


def test_an_id_is_a_label_and_no_path(tmp_path):
    fill(tmp_path / "f", problems=[Problem("../../x", "How many?")], steps=1)
    assert sorted(path.name for path in tmp_path.rglob("*.json*")) == [
        "00000.jsonl",
        "problems.jsonl",
        "set.json",
    ]
