"""The command line as a whole: a command is a file and one line, and its options mean one thing."""

import argparse
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from added_rules import ADDED, added_rule
from refusals import refuse_command
from tqdm import tqdm

from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.record.store import read_trace
from qalign_study import __main__, commands
from qalign_study.commands import COMMANDS, drawing, main, read, shared
from qalign_study.measure.comparisons import Comparison, full_cut, outcomes
from qalign_study.measure.diagnostics import agreement, ess
from qalign_study.sets.folder import read_set, traces_of
from qalign_study.sets.problem_sets import load_problems
from qalign_study.sheet.words import describe_mixing
from qalign_study.train.reward_training import SETTINGS, check_unchanged

ROOT = Path(__file__).parents[1]


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    return capsys.readouterr().out


PACKED = "assets/results/smollm2/gsm8k.zip"


def test_a_terminal_without_greek_letters_and_another_time_zone_show_the_same_numbers(capsys):
    assert main(["report", str(ROOT / PACKED)]) == 0
    usual = capsys.readouterr().out
    assert "β" in usual
    elsewhere = {"PYTHONIOENCODING": "ascii", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"}
    ran = subprocess.run(
        [sys.executable, "-m", "qalign_study", "report", PACKED],
        cwd=ROOT,
        env={**os.environ, **elsewhere},
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout == usual.encode("ascii", "replace")
    ran = subprocess.run(
        [sys.executable, "-m", "qalign_study", "report", "β"],
        cwd=ROOT,
        env={**os.environ, **elsewhere},
        capture_output=True,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"qalign: ")


WARNS = """
from qalign_core.decide.rouge import rouge1
from qalign_study import __main__, commands
commands.main = lambda: [rouge1.matrix(["αβγ"] * n) for n in (2, 3)]
__main__.main()
"""


def test_a_warning_is_one_sentence_and_shown_once():
    ran = subprocess.run([sys.executable, "-c", WARNS], cwd=ROOT, capture_output=True, text=True)
    (line,) = ran.stderr.splitlines()
    assert line.startswith("qalign: ROUGE-1 counts words of Latin letters"), line


def test_a_program_that_keeps_the_output_in_memory_can_call_a_command(monkeypatch):
    out = io.StringIO()  # no `reconfigure`
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["report", str(ROOT / PACKED)]) == 0
    assert "β" in out.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_own_options_first_models_last_and_two_examples_at_the_end(name, capsys):
    help_text = help_of(name, capsys)
    groups = [line for line in help_text.splitlines() if line and not line.startswith(" ")]
    assert groups[0].startswith(f"usage: qalign {name} [OPTIONS]")
    assert len(groups[0]) < 60
    assert groups[-1] == "Examples:"
    if "loading of models:" in groups:
        assert groups[-2] == "loading of models:"
    examples = help_text.partition("\nExamples:\n")[2].splitlines()
    assert len(examples) == 2
    for each in examples:
        assert each.startswith(f"  qalign {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_read(name):
    module = importlib.import_module(f"qalign_study.commands.{name.replace('-', '_')}")
    for line in module.__doc__.partition("Examples:\n")[2].strip().splitlines():
        assert read(shlex.split(line)[1:]).name == name


def test_only_the_chosen_commands_module_is_imported():
    code = (
        "import sys; from qalign_study.commands import COMMANDS, read; read(['export', 'x', "
        "'--html', 'y']); print([n for n in COMMANDS if 'qalign_study.commands.' + "
        "n.replace('-', '_') in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "['export']", ran.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("compare --budget samples", "compare --match samples"),
        ("tune --prompts 5", "tune --last 5"),
        ("tune --problems 5", "tune --last 5"),
        ("train-rm --preset paper", "train-rm --recipe paper"),
    ],
)
def test_an_option_that_was_renamed_keeps_its_old_name(old, new, capsys):
    assert vars(read(old.split())) == vars(read(new.split()))
    assert vars(read(new.split())) != vars(read(new.split()[:1]))
    assert f"{old.split()[1]} " not in help_of(old.split()[0], capsys)


def differing(commands: Mapping[str, Callable[[argparse.ArgumentParser], object]]) -> list[str]:
    """Options of several commands that do not mean the same in all, defaults left out."""
    meanings_of = defaultdict[str, set](set)
    for declare in commands.values():
        parser = argparse.ArgumentParser()
        declare(parser)
        for each in parser._actions:
            help_text = re.sub(r" \(default: .*\)", "", each.help or "")
            if each.help != argparse.SUPPRESS:
                for name in each.option_strings:
                    meanings_of[name].add(
                        (help_text, each.type, tuple(each.choices or ()), each.metavar)
                    )
    return [name for name, meanings in meanings_of.items() if len(meanings) > 1]


def test_an_option_means_the_same_in_every_command():
    modules = {
        name: importlib.import_module(f"qalign_study.commands.{name.replace('-', '_')}").options
        for name in COMMANDS
    }
    assert differing(modules) == []
    other = {"other": lambda parser: parser.add_argument("--problems", help="the last N")}
    assert differing(modules | other) == ["--problems"], "the control"


def test_a_command_refuses_an_option_that_it_would_ignore(capsys):
    with pytest.raises(SystemExit, match="2"):  # it tunes on several problems
        main(["tune", "--problem", "3"])
    assert "unrecognized arguments: --problem 3" in capsys.readouterr().err


NONSENSE = {
    "evaluate --plan --at-once 0": "--at-once must be a whole number >= 1, got 0",
    "evaluate --plan --beta nan": "beta must be a finite number, got nan",
    "evaluate --plan --beta -1": "beta must be between 0.001 and 1000, got -1",
    "evaluate --plan --temperature 1e38": "temperature must be between 0.05 and 5, got 1e+38",
    "evaluate --plan --top-p 1.000001": "top_p must be between 0.000001 and 1, got 1.000001",
    "evaluate --plan --top-k 1000001": "top_k must be between 0 and 1000000, got 1000001",
    "evaluate --plan --budget 99999999999": "--budget must be at most 1,000,000,000",
    "evaluate --plan --response-tokens 0": "--response-tokens must be a whole number >= 1, got 0",
    "train-rm --plan --warmup nan": "--warmup must be between 0 and 1, got nan",
    "train-rm --plan --weight-decay -1": "--weight-decay must be between 0 and 1, got -1.0",
    "train-rm --plan --epochs 1e38": "--epochs must be above 0 and at most 1000, got 1e+38",
    "train-rm --plan --each 0": "--each must be a whole number >= 1, got 0",
    "train-rm --plan --samples 1": "--samples must be a whole number >= 2, got 1",
    "tune --target nan": "the target acceptance must be between 0 and 1, got nan",
    "tune --start inf": "beta must be a finite number > 0, got inf",
    "tune --steps 7": "steps must be a whole number >= 8, got 7",
    "tune --sharpness 2 nan": "sharpness must be a finite number, got nan",
    "tune --last 0": "--last must be a whole number >= 1, got 0",
    "run --lm=": "lm is empty; name a model",
    "run --rm=": "rm is empty; name a model",
}


@pytest.mark.parametrize("command", NONSENSE)
def test_a_setting_that_cannot_be_is_refused_before_any_model_loads(command, capsys, monkeypatch):
    def load(*_, **__):
        pytest.fail("a model was loaded")

    monkeypatch.setattr(shared, "load_language_model", load)
    assert main(command.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"qalign: {NONSENSE[command]}")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "export run.jsonl --html run.jsonl",
        "export run.jsonl --html ./set/../run.jsonl",
        "report set --csv set/00000.jsonl",
        "report set --latex set/set.json",
        "report set --csv numbers --html numbers",
        "report --paired set set --outcomes set/problems.jsonl",
        "grade run.jsonl --csv run.jsonl",
        "evaluate --task set/problems.jsonl --out new --pack set/problems.jsonl",
    ],
)
def test_no_command_replaces_what_it_reads_or_writes(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    for name in ("run.jsonl", "set/00000.jsonl", "set/set.json", "set/problems.jsonl"):
        (tmp_path / name).write_text("precious", encoding="utf-8")
    refuse_command(capsys, command.split(), "would replace what this command reads or writes")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_text(encoding="utf-8") for path in files] == ["precious"] * 4


@pytest.mark.parametrize(
    "command", ["report {}", "grade {}", "export {} --html x.html", "lesson check {}"]
)
def test_a_folder_of_something_else_is_refused_without_numbers_of_errors(command, tmp_path, capsys):
    main(command.format(tmp_path).split())
    output = capsys.readouterr()
    sentence = output.err or output.out
    assert sentence.count("\n") == 1
    assert re.search(r"No such file or directory|Is a directory|it is a folder", sentence)
    assert "Errno" not in sentence


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"\xff", b'{"batch": NaN}'])
def test_a_damaged_record_of_a_training_is_named(damaged, tmp_path):
    (tmp_path / SETTINGS).write_bytes(damaged)
    with pytest.raises(InvalidSetting, match=r"asked\.json (is not JSON|holds \[\])"):
        check_unchanged(tmp_path, {})


def test_a_progress_bar_never_passes_its_total():
    with tqdm(total=3, file=io.StringIO()) as bar:
        for _ in range(5):
            drawing.advance(bar, 1)
        assert (bar.n, bar.total) == (5, 5)
    with tqdm(total=3, file=io.StringIO()) as bar:  # the control: a bar by itself passes it
        bar.update(5)
        assert bar.n > bar.total


MANY = "run --prompts in_distribution --problems 1 --rm plain --steps 2 --max-new-tokens 8 --out {}"
BARS = {
    "run": MANY,
    "compare": "compare --rm plain --steps 2 --pool 2 --max-new-tokens 8",
    "evaluate": "evaluate --problems 1 --rm plain --budget 2 --max-new-tokens 8 --out {}",
    "check": "check --rm plain --max-new-tokens 8",
    "bench-moves": "bench-moves suffix --task in_distribution --problems 1 --rm none --steps 2",
}
"""A short command of each kind that has a progress bar."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.more
@pytest.mark.parametrize("name", BARS)
def test_a_progress_bar_is_drawn_on_a_terminal_and_not_into_a_pipe(
    name, tmp_path, capsys, monkeypatch
):
    def run(place):
        assert main(BARS[name].format(tmp_path / place).split()) in (0, None)
        return capsys.readouterr()

    piped = run("piped")
    assert "\r" not in piped.out + piped.err
    assert "/s" not in piped.out + piped.err
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert "\r" not in run("shown").out
    assert "\r" in terminal.getvalue()


def test_every_command_draws_its_bars_with_the_one_function():
    for path in (ROOT / "qalign_study").rglob("*.py"):
        assert "tqdm(" not in path.read_text() or path.name == "drawing.py", path


@pytest.mark.parametrize("open_ended", [False, True])
def test_compare_prints_the_decisions_as_json(open_ended, tmp_path, capsys):
    command = "compare --rm plain --steps 3 --pool 3 --max-new-tokens 24 --json --seed 2"
    problem = ["--prompt", "Write a sentence."] if open_ended else ["--problem", "1"]
    assert main([*command.split(), *problem, "--out", str(tmp_path / "a.jsonl")]) in (0, None)
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == [*RULES]
    comparison = Comparison(read_trace(tmp_path / "a.jsonl"))
    decisions = outcomes(comparison, full_cut(comparison))
    for row, outcome in zip(rows, decisions, strict=True):
        assert (row["answer"], row["right"]) == (outcome.decision.answer, outcome.correct)
        assert row["votes"] == dict(outcome.decision.shares)
        assert (row["samples"], row["spent"]) == (outcome.n, outcome.spent)
        assert row["reference"] == comparison.header.run.reference


def test_a_decision_without_an_answer_is_its_text_and_an_answer_that_is_missing_is_named(
    tmp_path, capsys
):
    settings = "--rm plain --steps 3 --max-new-tokens 8 --seed 2"
    command = ["compare", *settings.split(), "--extractor=none", "--prompt=Write a sentence."]
    assert main([*command, "--json"]) in (0, None)
    rows = json.loads(capsys.readouterr().out)
    assert main(command) in (0, None)
    output = capsys.readouterr().out
    assert all(f"\n{row['method']}: {row['text']}\n" in output for row in rows)
    problems = tmp_path / "set.jsonl"
    problems.write_text('{"prompt": "Which letter?", "answer": "C", "extractor": "option"}\n')
    run = ["run", *settings.split(), "--prompts", str(problems), "--out", str(tmp_path / "out")]
    assert main(run) in (0, None)
    assert "0: (none); right is C\n" in capsys.readouterr().out


def test_run_prints_the_answer_to_one_prompt_as_json_as_it_does_for_a_set(tmp_path, capsys):
    settings = "--rm plain --steps 3 --chains 2 --max-new-tokens 24 --seed 2"
    command = ["run", *settings.split(), "--json"]
    assert main([*command, "--problem", "1"]) in (0, None)
    (alone,) = map(json.loads, capsys.readouterr().out.splitlines())
    many = ["--prompts", "in_distribution", "--problems", "2", "--out", str(tmp_path)]
    assert main([*command, *many]) in (0, None)
    of_set = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(answer) for answer in of_set] == [set(alone)] * 2
    assert alone["reference"] == of_set[1]["reference"]
    assert (alone["n_states"], alone["share"] > 0) == (8, alone["answer"] is not None)


@pytest.mark.parametrize("make", ADDED, ids=lambda make: make.__name__)
def test_a_rule_that_is_added_is_printed_by_compare_and_evaluate(make, tmp_path, capsys):
    with added_rule(make) as rule:
        settings = "--rm plain --max-new-tokens 24"
        run = f"compare {settings} --problem 1 --steps 3 --pool 3"
        assert main(run.split()) in (0, None)
        assert f"\n{rule.id} " in capsys.readouterr().out
        run = f"evaluate {settings} --task shifted --problems 2 --budget 2 --out {tmp_path}"
        assert main(run.split()) in (0, None)
        assert f"\n{rule.id} " in capsys.readouterr().out


@pytest.mark.parametrize("steps", [40, 4])
def test_run_prints_the_agreement_of_its_chains(steps, tmp_path, capsys):
    out = tmp_path / "a.jsonl"
    command = f"run --rm plain --steps {steps} --max-new-tokens 8 --out {out} --chains"
    assert main([*command.split(), "4"]) in (0, None)
    last = capsys.readouterr().out.splitlines()[-1]
    rewards = [[s.state.reward for s in steps] for steps in read_trace(out).chains.values()]
    chains, effective = agreement(rewards), ess(rewards)
    size = "–" if effective is None else f"{effective:.0f}"
    assert last == f"R-hat {chains}, effective sample size {size}; {describe_mixing(chains)}"
    assert (effective is None) == (steps == 4)
    out.unlink()
    assert main([*command.split(), "1"]) in (0, None)
    assert "R-hat" not in capsys.readouterr().out


def test_the_command_that_a_folder_keeps_draws_the_same_again_in_a_shell(tmp_path, capsys):
    first, again = tmp_path / "first", tmp_path / "again"
    settings = ["--rm", "0.5*embedded + 0.5*mood", "--steps", "1", "--max-new-tokens", "8"]
    command = ["run", "--prompts", "in_distribution", "--problems", "1", *settings]
    assert main([*command, "--out", str(first)]) == 0
    header, problems = read_set(first)
    qalign, *words = shlex.split(header.command)
    assert (qalign, words[-2:]) == ("qalign", ["--out", "FOLDER"])
    assert main([*words[:-1], str(again)]) == 0
    (_, one), (_, other) = (next(traces_of(each, len(problems))) for each in (first, again))
    assert one.steps == other.steps


def test_ctrl_c_while_modules_are_imported_is_one_sentence_too(capsys, monkeypatch):
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "import_module", interrupt)
    monkeypatch.setattr(sys, "argv", ["qalign", "run"])
    assert __main__.main() == 130
    assert capsys.readouterr().err == "qalign: stopped\n"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"qalign": "qalign_study.__main__:main"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "-1"], "127.0.0.1:-1 cannot be used (ports are 0 to 65535); give another"),
        (
            ["--port", "65536"],
            "127.0.0.1:65536 cannot be used (ports are 0 to 65535); give another",
        ),
        (["--host", "203.0.113.1", "--key", "k"], "203.0.113.1:8000 cannot be used (Cannot assign"),
    ],
)
def test_an_address_that_cannot_be_is_one_sentence(options, sentence, capsys):
    err = refuse_command(capsys, ["serve", *options], sentence)
    assert err.endswith("; give another --host or --port")


def test_serve_states_no_default_for_the_seed_that_it_draws_per_request(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    seed = capsys.readouterr().out.partition("--seed INT")[2].partition("--temperature")[0]
    assert "default" not in seed


def test_a_share_of_no_proposals_is_left_out(capsys):
    command = "bench-moves suffix --problems 1 --steps 0 --max-new-tokens 6 --rm plain"
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        assert main(command.split()) == 0
    assert re.search(r"suffix +0\.0 \(0\.0 to 79\.3\) +- +- ", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("run --prompt x --reference banana", 'the right answer is "banana", which the extractor'),
        ('run --prompt x --reference ["5","banana"]', 'the right answer is "banana", which the'),
        ("run --task shifted --extractor choice", "of problem 'shifted-000' is"),
        ("evaluate --task shifted --extractor choice --out x", "of problem 'shifted-000' is"),
    ],
)
def test_a_right_answer_that_is_never_read_is_refused(options, sentence, capsys):
    refuse_command(capsys, options.split(), sentence)


def test_a_text_with_checks_is_right_or_wrong_in_run_and_compare(capsys):
    problem = "--task writing --problem 0 --steps 4"
    assert main(["compare", *problem.split(), "--pool", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    checked = load_problems("writing")[0]
    assert [row["right"] for row in rows] == [checked.is_right(row["text"]) for row in rows]
    assert main(["run", *problem.split(), "--quiet"]) == 0
    head, text = capsys.readouterr().out.strip().splitlines()[-2:]
    assert head.endswith(f", {'right' if checked.is_right(text) else 'wrong'}:")
