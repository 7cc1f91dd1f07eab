"""The paper's data sets: rows of their shape, their prompts word for word, and every trap in them.

The official files are no part of this project. Where they are (the folder that `QALIGN_DATA` names,
or shared/data beside the checkout) they are read too; where they are not, the tests say so.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from refusals import refusal, refuse_command
from toys import ToyLM, ToyRM

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting, InvalidTask
from qalign_study.commands import main, shared
from qalign_study.measure.results import unpack
from qalign_study.sets.problem_sets import Problem, parse_problems, problem_line
from qalign_study.sets.rows import fill_template, options_of
from qalign_study.sets.tasks import PRESETS, read_task, task_names, task_of

BESIDE = Path(__file__).resolve().parents[2] / "shared"
OFFICIAL = Path(os.environ.get("QALIGN_DATA", BESIDE / "data"))
PAPER = Path(os.environ.get("QALIGN_PAPER", BESIDE / "paper")) / "sample-dont-search.tex"
GUIDE = "".join(
    (Path(__file__).resolve().parents[1] / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("paper", "paper-differences", "results")
)
SUBJECTS = task_of("mmlu-redux").table["subjects"]

GSM = [
    {"question": f"Ann has {n} pens. How many?", "answer": f"She has {n}.\n#### {n:,}"}
    for n in (3, 1200, -4)
]
MATH = [{"problem": "Solve $x=1$.", "answer": "1", "unique_id": "a/1.json", "solution": "..."}]
REDUX = [
    {"question": "Q ok?", "choices": "['a', \"b's\", 'c', 'd']", "answer": "1",
     "error_type": "OK "},
    {"question": "Q wrong?", "choices": "['a', 'b', 'c', 'd']", "answer": "1",
     "error_type": "Wrong Groundtruth", "correct_answer": "D"},
    {"question": "Q unclear?", "choices": "['a', 'b', 'c', 'd']", "answer": "1",
     "error_type": "bad_question_clarity"},
    {"question": "Q unmended?", "choices": "['a', 'b', 'c', 'd']", "answer": "1",
     "error_type": "wrong_groundtruth ", "correct_answer": ""},
]  # fmt: skip
TRUTH = [
    {"Category": "Myths", "Question": f"Is it {n}?", "Best Answer": f"Yes, {n}",
     "Correct Answers": "Yes", "Incorrect Answers": "; ".join(f"No, {k}" for k in range(n))}
    for n in range(1, 13)
]  # fmt: skip
IFEVAL = [
    {"key": 1000, "prompt": "Say hi.", "instruction_id_list": ["punctuation:no_comma"],
     "kwargs": [{}]},
]  # fmt: skip


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, names, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def files(tmp_path):
    """A file or folder of every set, in its official format."""
    redux = tmp_path / "redux"
    redux.mkdir()
    for k, subject in enumerate(SUBJECTS):
        table(redux / f"mmlu_{subject}.csv", REDUX, ";,"[k % 2])
    gsm = lines(tmp_path / "gsm.jsonl", GSM)
    math = tmp_path / "math.json"
    math.write_text(json.dumps(MATH))
    return {
        "gsm8k": gsm, "gsm-symbolic": gsm, "math500": math, "mmlu-redux": redux,
        "truthfulqa": table(tmp_path / "truth.csv", TRUTH),
        "ifeval": lines(tmp_path / "ifeval.jsonl", IFEVAL),
    }  # fmt: skip


def read(name, files, preset="", **more):
    return read_task(task_of(name, preset), files[name.partition(":")[0]], **more)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [name.partition("[")[0] for name in task_names()])
def test_rows_of_the_official_shape_are_problems_that_a_folder_keeps(files, name, preset):
    loaded = read(name, files, preset)
    assert loaded.problems
    assert parse_problems(map(problem_line, loaded.problems)) == list(loaded.problems)
    assert re.fullmatch(rf"{preset}: {files[name].name} sha256:[0-9a-f]{{64}}", loaded.source)


# The prompts


def test_the_templates_are_the_papers_word_for_word():
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here; QALIGN_PAPER names its folder")
    text = PAPER.read_text(encoding="utf-8")
    text = text[text.index("Prompts Used for Evaluation") :]
    boxes = re.findall(r"\\ttfamily\n(.*?)\n\\end\{minipage\}", text, re.DOTALL)[:3]
    plain = {"\\\\\n": "\n", "\\textbackslash ": "\\", "\\{": "{", "\\}": "}", "\\_": "_"}
    for latex, word in plain.items():
        boxes = [box.replace(latex, word) for box in boxes]
    templates = [task_of(name).table["template"] for name in ("gsm8k", "math500", "mmlu-redux")]
    assert templates == boxes
    assert task_of("truthfulqa").table["template"] == boxes[2]


def test_the_prompts_are_what_a_reader_of_the_appendix_would_write(files):
    assert read("gsm8k", files).problems[0].prompt == (
        "Solve the following grade school math problem step-by-step: Ann has 3 pens. How many?"
    )
    assert read("math500", files).problems[0].prompt == (
        "Solve the following math problem step-by-step: Solve $x=1$.\n"
        "Present the answer in LaTex format: \\boxed{Your answer}"
    )
    assert read("mmlu-redux", files).problems[2].prompt == (
        "Choose the correct answer to the following multiple-choice question about business "
        "ethics.\nQuestion: Q ok?\nA). a\nB). b's\nC). c\nD). d\nProvide your reasoning about the "
        "answer and finish your answer with the letter corresponding to the correct option (e.g., "
        "A, B, C, or D)."
    )


def test_a_question_that_holds_a_placeholder_is_not_filled_in_again():
    assert fill_template("<{a}> <{b}>", {"a": "<{b}>", "b": "\\1"}) == "<{b}> \\1"


def test_the_task_specific_runs_ask_the_question_alone(files):
    assert read("gsm8k:task", files).problems[0].prompt == GSM[0]["question"]
    assert read("gsm-symbolic", files).problems[0].prompt == GSM[0]["question"]


# The traps


def test_the_published_scripts_take_the_first_128_rows(tmp_path, files):
    gsm = {"gsm8k": lines(tmp_path / "many.jsonl", GSM * 50)}
    assert len(read("gsm8k", gsm, "published-code").problems) == 128
    assert len(read("gsm8k", gsm, "paper").problems) == 150


def test_the_first_128_rows_of_mmlu_redux_are_of_two_subjects(tmp_path):
    for subject in SUBJECTS:
        table(tmp_path / f"mmlu_{subject}.csv", REDUX[:1] * 100)
    published = read_task(task_of("mmlu-redux", "published-code"), tmp_path).problems
    subjects = [problem.extra["subject"] for problem in published]
    assert (subjects[:100], subjects[100:]) == (["anatomy"] * 100, ["business_ethics"] * 28)
    assert len(read_task(task_of("mmlu-redux"), tmp_path).problems) == 3000


def test_rows_with_errors_are_mended_or_left_out_but_the_scripts_score_the_original(files):
    (ok, wrong, *_), n = read("mmlu-redux", files).problems, len(SUBJECTS)
    assert (ok.answer, wrong.answer) == ("B", "D")
    assert read("mmlu-redux", files).n_left_out == 2 * n
    published = read("mmlu-redux", files, "published-code")
    assert {problem.answer for problem in published.problems} == {"B"}
    assert (len(published.problems), published.n_left_out) == (4 * n, 0)
    assert read("mmlu-redux:original", files).n_left_out == 0


@pytest.mark.parametrize(
    "choices",
    [
        "__import__('os').system('true')", "['a', 'b'] + ['c']", "[" * 5000, "[1, 2]", "{'a': 1}",
        "'ab'", "['a']", "", "[b'a', 'b']", "['a', " + "'b'," * 9999 + "]", "['a' 'b'", "[[], 'b']",
    ],
)  # fmt: skip
def test_options_are_read_and_never_run(choices):
    with pytest.raises(ValueError, match=r'"choices" is .*; a list of texts is needed'):
        options_of(choices)


def test_the_scripts_right_option_is_always_a_and_ours_is_shuffled_by_the_seed(files):
    def answers(preset="", **more):
        return [p.answer for p in read("truthfulqa", files, preset, **more).problems]

    assert set(answers("published-code")) == {"A"}
    assert len(set(answers())) > 3
    assert answers(seed=1) == answers(seed=1) != answers(seed=2)
    for problem, row in zip(read("truthfulqa", files).problems, TRUTH, strict=True):
        assert f"{problem.answer}). {row['Best Answer']}\n" in problem.prompt


def test_no_right_option_is_beyond_the_letters_that_the_rule_reads(files):
    prompts = [problem.prompt for problem in read("truthfulqa", files).problems]
    assert "J). " in prompts[-1]
    assert "K). " not in prompts[-1]
    assert "M). No, 11" in read("truthfulqa", files, "published-code").problems[-1].prompt


@pytest.mark.parametrize("name", ["mmlu-redux", "truthfulqa"])
def test_a_letter_is_read_where_it_is_announced_and_by_the_published_rule_with_its_preset(name):
    for preset, extractor, is_right in (
        ("", "choice", True),
        ("paper", "choice", True),
        ("published-code", "option", False),
    ):
        table = task_of(name, preset).table
        assert table["extractor"] == extractor
        problem = Problem("x", "prompt", "D", table["extractor"])
        for text in ("The correct answer is D. I hope this helps!", "(D). A classic sign."):
            assert problem.solved_by(f"The answer is {text}") == is_right


def test_ifeval_is_open_ended_so_minimum_bayes_risk_decides(files):
    (problem,) = read("ifeval", files).problems
    assert (problem.extractor, problem.answer) == (None, None)
    assert (problem.check.rule, problem.prompt) == ("loose", "Say hi.")
    assert read("ifeval:strict", files).problems[0].check.rule == "strict"


def test_gsm8ks_number_stands_after_the_hashes_without_commas(files):
    assert [problem.answer for problem in read("gsm8k", files).problems] == ["3", "1200", "-4"]


# The hub, which no test reaches: what would be asked of it, and rows of the shape that it sends


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the hub and for the package `datasets`: the network is not there."""
    requests = []

    def load_dataset(id, config, *, split, revision):
        requests.append((id, config, split, revision))
        return rows[config] if config in rows else rows[id]

    rows = {
        "openai/gsm8k": GSM,
        "apple/GSM-Symbolic": GSM,
        "HuggingFaceH4/MATH-500": MATH,
        "google/IFEval": [{**IFEVAL[0], "kwargs": [{"relation": None, "num_words": None}]}],
        "edinburgh-dawg/mmlu-redux": [
            {**REDUX[0], "choices": ["a", "b's", "c", "d"], "answer": 1, "error_type": "ok"}
        ],
        "multiple_choice": [
            {
                "question": row["Question"],
                "mc1_targets": {
                    "choices": [row["Best Answer"], *row["Incorrect Answers"].split("; ")],
                    "labels": [1] + [0] * len(row["Incorrect Answers"].split("; ")),
                },
            }
            for row in TRUTH
        ],
        "generation": [{"question": r["Question"], "category": r["Category"]} for r in TRUTH],
    }
    api = SimpleNamespace(dataset_info=lambda id: SimpleNamespace(sha="f00d"))
    for name, content in {
        "datasets": {"load_dataset": load_dataset, "disable_progress_bars": lambda: None},
        "huggingface_hub": {"HfApi": lambda: api},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return requests


@pytest.mark.parametrize(
    ("name", "preset", "source"),
    [
        ("gsm8k", "paper", ("openai/gsm8k", "main", "test")),
        ("gsm8k", "published-code", ("openai/gsm8k", "socratic", "test")),
        ("gsm-symbolic", "paper", ("apple/GSM-Symbolic", "main", "test")),
        ("gsm-symbolic", "published-code", ("apple/GSM-Symbolic", "p1", "test")),
        ("gsm-symbolic:p2", "paper", ("apple/GSM-Symbolic", "p2", "test")),
        ("math500", "paper", ("HuggingFaceH4/MATH-500", "default", "test")),
        ("ifeval", "paper", ("google/IFEval", "default", "train")),
    ],
)
def test_the_hub_is_asked_for_the_set_at_an_exact_revision(hub, name, preset, source):
    loaded = read_task(task_of(name, preset))
    assert hub == [(*source, "f00d")]
    assert loaded.source == f"{preset}: {source[0]} {source[1]} {source[2]} @f00d"


def test_the_hubs_rows_and_the_official_files_make_the_same_problems(hub, files):
    for name in ("truthfulqa", "ifeval", "math500"):
        assert read_task(task_of(name)).problems == read(name, files).problems
    redux = read_task(task_of("mmlu-redux")).problems
    assert [config for _, config, _, _ in hub[-30:]] == SUBJECTS
    assert redux[0].prompt == read("mmlu-redux", files).problems[0].prompt


def test_without_the_package_or_the_network_one_sentence_says_what_to_do(hub, monkeypatch, capsys):
    def offline(*_, **__):
        raise ConnectionError("no route\nto the hub")

    sys.modules["datasets"].load_dataset = offline
    error = (
        r"cannot be read from the hub \(no route\); give the official file or folder with --data"
    )
    with pytest.raises(InvalidTask, match=error):
        read_task(task_of("gsm8k"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidTask, match=r"pip install 'qalign-explorer\[tasks\]', or give the"):
        read_task(task_of("gsm8k"))


# What is wrong is said in one sentence


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.jsonl", '{"question": "q"}\n', "row 0 has no 'answer'; it has question, which is not"),
        ("x.jsonl", '{"question": "q", "answer": "4"}\n', 'no "####"'),
        ("x.jsonl", '{"question": 3, "answer": "#### 4"}\n', '"question" is 3; a text'),
        ("x.jsonl", "{\n", "cannot be read"),
        ("x.jsonl", "3\n", "not a list of rows"),
        ("x.json", "{}", "not a list of rows"),
        ("x.json", "[" * 10**5, "cannot be read"),
        ("x.csv", '"', "no problems"),
        ("x.jsonl", "", "no problems"),
    ],
)
def test_a_file_that_is_none_of_the_sets_is_refused(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with refusal(InvalidTask, match=sentence):
        read_task(task_of("gsm8k"), tmp_path / name)


def test_a_missing_file_or_subject_is_named(tmp_path, files):
    (files["mmlu-redux"] / "mmlu_virology.csv").unlink()
    with pytest.raises(InvalidTask, match="no file for virology"):
        read("mmlu-redux", files)
    with pytest.raises(InvalidTask, match="is not a folder"):
        read_task(task_of("mmlu-redux"), files["gsm8k"])
    with pytest.raises(InvalidTask, match="is a folder"):
        read_task(task_of("gsm8k"), tmp_path)
    with pytest.raises(InvalidTask, match="cannot be read"):
        read_task(task_of("gsm8k"), tmp_path / "absent.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "caf\xe9"}')
    with pytest.raises(InvalidTask, match="not UTF-8"):
        read_task(task_of("gsm8k"), tmp_path / "latin.jsonl")


def test_a_variant_or_preset_that_there_is_not_is_named_with_those_that_are():
    with pytest.raises(InvalidSetting, match="'p3'; it has gsm-symbolic:main, gsm-symbolic:p1"):
        task_of("gsm-symbolic:p3")
    with pytest.raises(InvalidSetting, match="paper, published-code, got 'text'"):
        task_of("gsm8k", "text")
    with pytest.raises(InvalidSetting, match=r"gsm-symbolic\[:main\|p1\|p2\].*got 'shifted'"):
        task_of("shifted", "paper")


# The command line


@pytest.fixture
def toys(monkeypatch):
    loads = []

    def load(id="embedded", **options):
        loads.append((id, options))
        return ToyLM()

    monkeypatch.setattr(shared, "load_language_model", load)
    monkeypatch.setattr(shared, "load_reward_model", lambda id="embedded", **_: ToyRM())
    return loads


def test_a_preset_sets_what_no_option_says_and_the_results_keep_where_the_rows_are_from(
    files, toys, tmp_path, capsys
):
    out = tmp_path / "out"
    command = ["evaluate", "--task", "gsm8k", "--data", str(files["gsm8k"]), "--preset", "paper"]
    command += ["--budget", "4", "--problems", "2", "--out", str(out)]
    assert main(command) == 0
    output = capsys.readouterr()
    assert "GSM8K: 2 problems; paper: gsm.jsonl sha256:" in output.err
    assert "license MIT" in output.err
    assert toys[0] == ("tulu-3-8b-sft", {"temperature": 1.0, "max_new_tokens": 800})
    header = json.loads((out / "set.json").read_text("utf-8"))
    assert (header["beta"], header["pool"], header["steps"]) == (0.5, 4, 1023)
    assert header["source"].startswith("paper: gsm.jsonl sha256:")
    assert str(tmp_path) not in header["command"]
    assert "--preset paper" in header["command"]


def test_a_set_without_a_preset_keeps_the_usual_settings(files, toys, tmp_path):
    command = ["evaluate", "--task", "gsm8k", "--data", str(files["gsm8k"]), "--states", "3"]
    assert main([*command, "--budget", "4", "--out", str(tmp_path / "out")]) == 0
    assert toys[0] == ("embedded", {})


@pytest.mark.parametrize(
    "command",
    [
        "run --problem 0 --steps 2",
        "compare --problem 0 --steps 2 --pool 2",
        "train-rm --problems 1 --samples 2 --steps 1 --only-draw",
        "tune --last 2 --steps 16",
        "bench-moves suffix --problems 1 --steps 2",
    ],
)
def test_every_command_reads_rows_of_the_papers_sets(command, files, toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "--task", "gsm8k", "--data", str(files["gsm8k"])]
    assert main([*words, "--out", "out"] if "train-rm" in command else words) == 0


def test_a_reward_model_that_was_not_published_has_to_be_named(files, toys, tmp_path, capsys):
    command = ["evaluate", "--task", "gsm8k:task", "--preset", "paper"]
    command += ["--data", str(files["gsm8k"]), "--out", str(tmp_path / "out"), "--budget", "2"]
    refuse_command(capsys, command, "was not published; give one of your own with --rm")
    assert main([*command, "--rm", "embedded", "--states", "2"]) == 0


def test_rows_are_for_the_papers_sets_only(tmp_path, capsys):
    assert main(["run", "--task", "shifted", "--data", str(tmp_path)]) == 2
    assert "--data has rows of the paper's sets" in capsys.readouterr().err


def test_the_guide_lists_where_text_and_code_part():
    departures = tomllib.loads((ASSETS / "tasks" / "paper.toml").read_text("utf-8"))["departures"]
    assert len(departures) >= 10
    for each in departures:
        sets = ", ".join(each.get("sets", ())) or "all"
        assert f"| {each['what']} | {sets} | {each['paper']} | {each['code']} |" in GUIDE


# The official files, where they are


def official(name):
    path = OFFICIAL / name
    if not path.exists():
        pytest.skip(f"{name} is not here; QALIGN_DATA names the folder of the official files")
    return path


@pytest.mark.parametrize(
    ("name", "file", "n", "first", "answer"),
    [
        ("gsm8k", "gsm8k_test.jsonl", 1319, "Janet’s ducks lay", "18"),
        ("mmlu-redux", "mmlu_redux", 2803, "Which of the following is a disorder", "D"),
        ("truthfulqa", "truthfulqa.csv", 817, "What happens to you if you eat", None),
        ("ifeval", "ifeval_input_data.jsonl", 541, "Write a 300+ word summary", None),
    ],
)
def test_an_official_file_is_read_whole_by_both_presets(name, file, n, first, answer):
    path = official(file)
    loaded = read_task(task_of(name), path)
    assert len(loaded.problems) == n
    assert first in loaded.problems[0].prompt
    assert answer in (None, loaded.problems[0].answer)
    assert len(read_task(task_of(name, "published-code"), path).problems) == 128
    assert task_of(name).n_problems == len(loaded.problems) + loaded.n_left_out


def test_the_official_math500_is_read_whole():
    problems = read_task(task_of("math500"), official("math500.json")).problems
    assert len(problems) == 500
    assert problems[0].answer == "\\left( 3, \\frac{\\pi}{2} \\right)"


def test_every_subject_of_the_official_mmlu_redux_has_a_hundred_rows():
    problems = read_task(task_of("mmlu-redux:original"), official("mmlu_redux")).problems
    counts = {s: sum(p.extra["subject"] == s for p in problems) for s in SUBJECTS}
    assert counts == dict.fromkeys(SUBJECTS, 100)


PACKED = sorted((ASSETS / "results" / "smollm2").glob("*.zip"))


@pytest.mark.recorded
@pytest.mark.parametrize("path", PACKED, ids=lambda path: path.stem)
def test_the_runs_of_a_pretrained_model_are_of_official_rows_and_their_commands_in_the_guide(path):
    results = unpack(path)
    header = results.header
    lm = "HuggingFaceTB/SmolLM2-135M-Instruct" if "vllm" in path.stem else "smollm2-135m"
    n = 100 if "100" in path.stem else 20
    assert (len(results.records), results.n_missing, header.run.lm) == (n, 0, lm)
    assert header.lm_parameters == 134_515_008
    assert re.search(r" sha256:[0-9a-f]{64}$", header.source)
    settings = header.command.partition("--data PATH")[0].replace("qalign evaluate", "")
    commands = [line for line in GUIDE.replace("\\\n", " ").splitlines() if path.stem in line]
    options = set(settings.replace("--", "\n--").split("\n"))
    assert any(all(each.strip() in command for each in options) for command in commands), options
