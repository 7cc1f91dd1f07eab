"""A built wheel in an empty environment is the engine, its command and its models, and no page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def ran(*command: object, folder: Path) -> str:
    """What a command said that ended well; it sees nothing of the checkout."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    ran(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    ran(
        programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, folder=folder
    )
    return programs


def test_the_wheel_holds_the_models_the_registry_the_problem_sets_the_player_and_no_page(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("models", "tasks", "web/player"):
        for path in (ROOT / "assets" / kind).rglob("*.*"):
            assert f"qalign_core/{path.relative_to(ROOT).as_posix()}" in names
    assert {
        f"qalign_core/assets/{name}" for name in ("registry.toml", "dictionary.toml", "web/dom.js")
    } <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "qalign_core",
        "qalign_explorer",
        "qalign_study",
    }


def test_the_environment_has_no_package_of_the_page(programs, tmp_path):
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    names = ("gradio", "plotly", "components", "app")
    assert ran(programs / "python", "-c", code, *names, folder=tmp_path).strip() == "[]"


def test_the_python_example_of_the_readme_runs(programs, tmp_path):
    block = re.search(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[1]
    output = ran(programs / "python", "-c", block, folder=tmp_path)
    assert len(output.splitlines()) == 9  # t = 0 .. 8


def test_the_command_runs_a_problem_of_an_embedded_set(programs, tmp_path):
    command = ["run", "--task", "in_distribution", "--problem", "0", "--steps", "4"]
    output = ran(programs / "qalign", *command, folder=tmp_path)
    assert "right is 3" in output


def test_a_run_of_the_wheel_is_the_run_of_the_checkout(programs, tmp_path):
    command = ["run", "--prompt", "Hi", "--rm", "embedded-weak", "--steps", "4", "--seed", "3"]
    installed = ran(programs / "qalign", *command, folder=tmp_path)
    assert installed == ran(sys.executable, "-m", "qalign_study", *command, folder=ROOT)


def test_the_command_exports_the_page_that_the_checkout_exports(programs, tmp_path):
    trace = ROOT / "assets" / "runs" / "watch.jsonl"
    for name, command in (
        ("wheel", [programs / "qalign"]),
        ("tree", [sys.executable, "-m", "qalign_study"]),
    ):
        folder = tmp_path if name == "wheel" else ROOT
        ran(*command, "export", trace, "--html", tmp_path / f"{name}.html", folder=folder)
    pages = [(tmp_path / f"{name}.html").read_text("utf-8") for name in ("wheel", "tree")]
    assert pages[0] == pages[1]


def test_the_command_writes_a_lesson_that_runs_and_a_page_of_homework(programs, tmp_path):
    lesson = tmp_path / "1-mine.toml"
    ran(programs / "qalign", "lesson", "new", lesson, folder=tmp_path)
    checked = ran(programs / "qalign", "lesson", "check", lesson, folder=tmp_path)
    assert checked == "1-mine.toml: 3 stops, no faults\n"
    text = re.sub(
        r'^text = ".*"', 'text = "Look at your run."', lesson.read_text("utf-8"), flags=re.M
    )
    lesson.write_text(text, encoding="utf-8")
    ran(programs / "qalign", "export", lesson, "--html", "homework.html", folder=tmp_path)
    assert (tmp_path / "homework.html").stat().st_size > 4_000_000
