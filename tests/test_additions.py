"""The rows "a lesson" and "a setting of a run" of CONTRIBUTING are true: each is done once."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.common import form
from components.common.form import RunForm
from components.session.runs import Runs
from qalign_core.errors import InvalidSetting
from qalign_core.run import Run, setting
from qalign_study.commands import read, shared
from qalign_study.lessons.facts import FACTS, value_of
from qalign_study.lessons.files import FOLDER, InvalidLesson, load_lessons

LESSON = """
title = "Warm"
says = "One sentence."
minutes = 1

[[stop]]
title = "A stop"
text = "The draft has {warmth} degrees."
at = { page = "watch", run = "watch", step = 0 }
lit = "text"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped lessons, and one file more."""
    shutil.copytree(FOLDER, tmp_path / "lessons")
    (tmp_path / "lessons" / "9-warm.toml").write_text(LESSON, encoding="utf-8")
    return tmp_path / "lessons"


def test_a_lesson_is_a_file_and_a_new_fact_a_method(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidLesson, match="'warmth' is not a fact of watch"):
        load_lessons(folder)  # the control: the fact is new
    monkeypatch.setattr(FACTS["watch"], "warmth", lambda self: 21, raising=False)
    *_, last = lessons = load_lessons(folder)
    assert last == "warm"
    assert len(lessons) == len(load_lessons(FOLDER)) + 1
    assert value_of("warmth", lessons["warm"].stops[0].at) == 21


@dataclass(frozen=True)
class Warmer(Run):
    """A run with one setting more."""

    warmth: float = setting(0.5, "how warm it is", min=0.0, max=1.0)


def test_a_setting_is_a_field_of_run_and_is_found_in_options_links_and_forms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared, "Run", Warmer)
    monkeypatch.setattr(form, "Run", Warmer)
    with pytest.raises(SystemExit, match="0"):
        read(["run", "--help"])
    output = capsys.readouterr().out
    assert "--warmth" in output
    assert "how warm it is (default: 0.5)" in output
    run = shared.settings_of(read(["run", "--warmth", "0.75"]))
    assert isinstance(run, Warmer)
    assert run.warmth == 0.75
    assert "warmth=0.75" in run.query()
    assert RunForm(Warmer(), Runs(), page="watch").rest[-1] == "warmth"
    with pytest.raises(InvalidSetting, match="warmth must be between 0 and 1, got 2"):
        shared.settings_of(read(["run", "--warmth", "2"]))
