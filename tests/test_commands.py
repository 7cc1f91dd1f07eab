"""The command line as a whole: a command is a file and one line, and its options mean one thing."""

import importlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from qalign_study.commands import COMMANDS, main, read

ROOT = Path(__file__).parents[1]


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_own_options_first_models_last_and_two_examples_at_the_end(name, capsys):
    told = help_of(name, capsys)
    groups = [line for line in told.splitlines() if line and not line.startswith(" ")]
    assert groups[0].startswith(f"usage: qalign {name} [OPTIONS]")
    assert len(groups[0]) < 60
    assert groups[-1] == "Examples:"
    if "loading of models:" in groups:
        assert groups[-2] == "loading of models:"
    examples = told.partition("\nExamples:\n")[2].splitlines()
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
        ("tune --prompts 5", "tune --problems 5"),
    ],
)
def test_an_option_that_was_renamed_keeps_its_old_name(old, new, capsys):
    assert vars(read(old.split())) == vars(read(new.split()))
    assert vars(read(new.split())) != vars(read(new.split()[:1]))
    assert f"{old.split()[1]} " not in help_of(old.split()[0], capsys)
