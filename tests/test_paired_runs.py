"""Two runs of the same problems compared, and tables of draws and of outcomes."""

import asyncio
import json
import re
import shlex
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refuse_command
from test_results import PROBLEMS, RUN, AnswerLM, AnswerRM, run

from qalign_core.errors import InvalidSetting
from qalign_study.commands import main
from qalign_study.measure.curves import curves
from qalign_study.measure.paired_runs import paired_runs
from qalign_study.measure.results import frame_in, load_results, pack
from qalign_study.sets.folder import run_set


class Flipped(AnswerRM):
    """The opposite taste: it dislikes the right answer."""

    id = "flipped"

    async def score(self, prompt, response):
        return -await super().score(prompt, response)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    one, other = (tmp_path_factory.mktemp(name) for name in ("taste", "flipped"))
    asyncio.run(run(one))
    asyncio.run(run_set(AnswerLM(), Flipped(), RUN, PROBLEMS, other))
    return one, other


def test_a_run_differs_from_itself_in_nothing_and_from_another_by_the_mean_of_the_problems(folders):
    one, other = map(load_results, folders)
    assert all(pair.difference.value == 0 for pair in paired_runs(one, one))
    pairs = {(pair.a.method, pair.a.n): pair for pair in paired_runs(one, other)}
    points = [{(p.method, p.n): p for p in curves(each)} for each in (one, other)]
    assert pairs.keys() == points[0].keys() & points[1].keys()
    for key, pair in pairs.items():
        first, second = (np.array(each[key].each) for each in points)
        assert pair.difference.value == pytest.approx((first - second).mean())
    assert pairs["bon", 32].difference.verdict == "ahead", "only one reward likes right answers"
    assert pairs["mv", 1].difference.value == 0, "the same samples, whatever the reward"


def test_only_problems_that_both_have_are_compared_and_in_the_order_of_one(folders):
    one, other = map(load_results, folders)
    part = replace(other, records=other.records[3:0:-1])
    pairs = {(p.a.method, p.a.n): p for p in paired_runs(one, part)}
    assert {p.difference.problems for p in pairs.values()} == {3}
    whole = {(p.method, p.n): p for p in curves(one)}
    assert pairs["bon", 32].a.each == whole["bon", 32].each[1:4]
    with pytest.raises(InvalidSetting, match="no problem in common"):
        list(paired_runs(replace(one, records=one.records[:1]), part))


def test_runs_of_other_problems_are_not_compared(folders, tmp_path):
    one = load_results(folders[0])
    changed = [replace(problem, answer="19") for problem in PROBLEMS]
    asyncio.run(run_set(AnswerLM(), AnswerRM(), RUN, changed, tmp_path / "other"))
    with pytest.raises(InvalidSetting, match="is not the same in the two runs"):
        list(paired_runs(one, load_results(tmp_path / "other")))
    packed = load_results(pack(load_results(tmp_path / "other"), tmp_path / "other.zip"))
    with pytest.raises(InvalidSetting, match="not of the same problems"):
        list(paired_runs(one, packed))


def test_the_command_prints_both_runs_and_their_differences(folders, tmp_path, capsys):
    packed = pack(load_results(folders[1]), tmp_path / "flipped.zip")
    assert main(["report", "--paired", str(folders[0]), str(packed)]) == 0
    printed = capsys.readouterr().out
    assert "with taste" in printed
    assert "with flipped" in printed
    assert "A - B, points, paired over problems" in printed
    assert main(["report", "--paired", str(folders[0]), str(packed), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    (best,) = [row for row in rows if (row["method"], row["n"]) == ("bon", 32)]
    assert best["value"] == pytest.approx(best["a"] - best["b"])
    assert best["verdict"] == "ahead"
    two = ["report", "--paired", str(folders[0]), str(packed), "--csv", str(tmp_path / "a.csv")]
    refuse_command(capsys, two, "leave out --csv")


def test_outcomes_are_a_row_per_problem_method_and_budget(folders, tmp_path, capsys):
    table = tmp_path / "outcomes.csv"
    assert main(["report", str(folders[0]), "--outcomes", str(table)]) == 0
    frame = pd.read_csv(table)
    for point in curves(load_results(folders[0])):
        at = frame[(frame["method"] == point.method) & (frame["n"] == point.n)]
        assert at["problem"].astype(str).tolist() == [problem.id for problem in PROBLEMS]
        assert at["value"].tolist() == pytest.approx(point.each)
    parquet = tmp_path / "outcomes.parquet"
    capsys.readouterr()
    status = main(["report", str(folders[0]), "--outcomes", str(parquet)])
    if find_spec("pyarrow") or find_spec("fastparquet"):
        assert status == 0
        assert pd.read_parquet(parquet)["value"].tolist() == pytest.approx(frame["value"].tolist())
    else:
        assert status == 2
        assert "pip install pyarrow, or name a .csv file" in capsys.readouterr().err


def test_frames_have_answers_and_texts_and_results_a_short_name(folders):
    results = load_results(folders[0])
    assert len(repr(results)) < 120
    assert f"{len(PROBLEMS)} of {len(PROBLEMS)} problems" in repr(results)
    numbers, texts = results.to_frame(), frame_in(folders[0])
    assert len(numbers) == len(texts)
    assert set(texts["problem"]) == {problem.id for problem in PROBLEMS}
    for problem in PROBLEMS:
        for source in ("chain", "pool"):
            first, second = (
                frame[(frame["problem"] == problem.id) & (frame["source"] == source)]
                for frame in (numbers, texts)
            )
            assert first["answer"].fillna("").tolist() == second["answer"].fillna("").tolist()
            assert first["right"].tolist() == second["right"].tolist()
            read = [problem.extract(text) or "" for text in second["text"]]
            assert read == second["answer"].fillna("").tolist()


@pytest.mark.more
def test_the_comparison_in_the_documents_runs(monkeypatch, capsys):
    root = Path(__file__).parent.parent
    page = (root / "docs" / "measuring.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^qalign (report --paired .*)$", page, re.MULTILINE)
    monkeypatch.chdir(root)
    assert main(shlex.split(command)) == 0
    assert "B: assets/results/inventory-block.zip" in capsys.readouterr().out
