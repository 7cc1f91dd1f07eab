"""Chains of many prompts in a folder: nothing that was finished is lost, whatever happens."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from many_client import CHAINS, PROBLEMS, STEPS, TOTAL, run
from qalign_core.runs.many import ANSWERS, run_many
from toys import ToyLM, ToyRM

from qalign_core.cli import main
from qalign_core.decide.rules import majority_vote
from qalign_core.errors import InvalidPrompt, InvalidSetting
from qalign_core.runs.trace import load_trace

CLIENT = Path(__file__).with_name("many_client.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing interrupted, and its answers."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)


def lines_of(folder):
    """The lines of steps by file and chain, to the byte, and the other lines but the date."""
    found = defaultdict(list)
    for path in sorted(folder.glob("0*.jsonl")):
        for line in path.read_bytes().splitlines():
            content = json.loads(line)
            content.pop("created", None)
            if content["type"] == "step":
                found[path.name, content["chain"]].append(line)
            else:
                found[path.name, content["type"]].append(content)
    return dict(found)


def n_steps(folder):
    complete = [path.read_bytes().rpartition(b"\n")[0] for path in folder.glob("0*.jsonl")]
    return sum(content.count(b'"type":"step"') for content in complete)


@pytest.mark.slow
def test_a_client_killed_twenty_times_writes_the_trace_of_one_that_was_not(whole, tmp_path):
    rng = random.Random(5)
    for kill in range(21):
        client = subprocess.Popen(
            [sys.executable, str(CLIENT), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": f"{CLIENT.parent}:{CLIENT.parent.parent}"},
        )
        assert client.stdin is not None
        assert client.stdout is not None
        if kill == 20:  # the last one may finish
            reported = client.communicate()[0].splitlines()
            assert client.returncode == 0
            assert int(reported[-1]) == TOTAL
            break
        until = rng.randrange(1, 40)
        client.stdin.write("\n" * (until + 8))
        client.stdin.flush()
        lines = [client.stdout.readline() for _ in range(until)]
        client.kill()  # it goes on, for up to 8 steps, until the signal arrives
        lines += [line for line in client.stdout if line.endswith("\n")]
        client.communicate()
        assert client.returncode == -signal.SIGKILL
        assert n_steps(tmp_path) >= int(lines[-1]), "a step that was reported is lost"
    assert lines_of(tmp_path) == lines_of(whole[0])


def test_cut_anywhere_a_file_is_continued_to_the_same_trace(whole, tmp_path):
    files = {path.name: path.read_bytes() for path in whole[0].iterdir()}
    name = "00000.jsonl"
    content, rng = files[name], random.Random(2)
    ends = [content.rindex(b"\n", 0, len(content) - 1) + k for k in (-1, 0, 1, 2)]
    for at in [0, 1, len(content) - 1, *ends, *rng.sample(range(len(content)), 12)]:
        for other, whole_content in files.items():
            (tmp_path / other).write_bytes(whole_content)
        (tmp_path / name).write_bytes(content[:at])
        assert run(tmp_path) == whole[1]
        assert lines_of(tmp_path) == lines_of(whole[0])


def test_every_file_is_a_trace_and_the_answers_are_those_of_its_states(whole):
    folder, answers = whole
    assert [answer.id for answer in answers] == [problem.id for problem in PROBLEMS]
    for place, (problem, answer) in enumerate(zip(PROBLEMS, answers, strict=True)):
        trace = load_trace(folder / f"{place:05}.jsonl")
        assert (trace.header.prompt, trace.header.seed) == (problem.prompt, 11 + place)
        assert len(trace.steps) == answer.n_states == CHAINS * (STEPS + 1)
        if problem.extract is not None:
            decision = majority_vote(trace.states, problem.extract)
            assert (answer.answer, answer.share) == (decision.answer, decision.shares[0][1])
            assert decision.chosen.response.text == answer.text
        else:
            assert answer.answer is None
            assert answer.text
    written = [json.loads(line) for line in (folder / ANSWERS).read_text().splitlines()]
    assert sorted(line["id"] for line in written) == sorted(problem.id for problem in PROBLEMS)


def test_a_run_that_is_done_draws_nothing_more(whole):
    class Broken(ToyLM):
        async def extend(self, prompt_ids, prefix, *, seed):
            pytest.fail("there was nothing to draw")

    told = []
    assert again(whole[0], lm=Broken(), progress=told.append) == whole[1]
    assert sum(told) == TOTAL


def again(folder, *, lm=None, problems=PROBLEMS, **changes):
    import asyncio

    settings = {"beta": 0.5, "steps": STEPS, "seed": 11, "n_chains": CHAINS, **changes}
    return asyncio.run(run_many(lm or ToyLM(), ToyRM(), problems, folder=folder, **settings))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beta": 0.6}, "beta: 0.5, now 0.6"),
        ({"steps": 8}, "steps: 120, now 8"),
        ({"n_chains": 2}, "chains: 3, now 2"),
        ({"seed": 12}, "seed: 11, now 12"),
        ({"problems": PROBLEMS[1:]}, "prompt"),
        ({"lm": ToyLM(max_new_tokens=64)}, "sampling"),
    ],
)
def test_a_folder_of_another_run_is_refused_and_left_as_it_is(whole, changes, said):
    before = lines_of(whole[0])
    with pytest.raises(InvalidSetting, match=said):
        again(whole[0], **changes)
    assert lines_of(whole[0]) == before


def test_a_folder_is_one_runs_at_a_time(tmp_path):
    inside = []

    class Nosy(ToyLM):
        async def extend(self, prompt_ids, prefix, *, seed):
            if not inside:
                inside.append(True)
                with pytest.raises(InvalidSetting, match="in use by another run"):
                    await run_many(
                        ToyLM(), ToyRM(), PROBLEMS, beta=1.0, steps=1, seed=1, folder=tmp_path
                    )
            return await super().extend(prompt_ids, prefix, seed=seed)

    again(tmp_path, lm=Nosy(), steps=1)
    assert inside


def test_a_prompt_that_is_too_long_is_said_before_anything_is_drawn(tmp_path):
    class Short(ToyLM):
        def encode(self, prompt):
            if len(prompt) > 200:
                raise InvalidPrompt("the prompt has too many tokens; shorten it")
            return super().encode(prompt)

    long = replace(PROBLEMS[0], id="long", prompt="word " * 50)
    with pytest.raises(InvalidPrompt):
        again(tmp_path / "new", lm=Short(), problems=[PROBLEMS[0], long])
    assert not (tmp_path / "new").exists()


def test_the_command_line_runs_a_set_and_goes_on(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "Tom has 5 eggs. How many?", "answer": 5}, {"prompt": "Write: eggs."}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["run", "--prompts", str(prompts), "--steps", "4", "--chains", "2"]
    assert main(command) == 2
    assert "--out FOLDER" in capsys.readouterr().err
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "right is 5" in first
    assert "2 prompts, 20 states" in first
    before = lines_of(tmp_path / "out")
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert lines_of(tmp_path / "out") == before
