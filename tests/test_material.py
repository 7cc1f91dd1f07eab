"""Lessons, problem sets, recorded runs and rewards of one's own, from folders."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import ROOT
from forks import START_APP, Program
from refusals import refuse_command

from components.common.form import USUAL
from components.common.new_problem import list_kinds
from components.common.status import next_problem, status_value
from components.learn.exhibit import build_exhibit
from components.room.page import problems
from components.session.runs import IDLE
from components.watch.gallery import gallery
from qalign_core import registry
from qalign_core.registry import load_reward_model
from qalign_core.types import Response
from qalign_study.commands import main
from qalign_study.lessons.facts import RUNS, format_value, run_of, value_of
from qalign_study.lessons.material import Material, load_material
from qalign_study.lessons.messages import lesson_message

TEACHING = (ROOT / "docs" / "teaching.md").read_text("utf-8")
BLOCKS = re.findall(r"```(toml|text)\n(.*?)```", TEACHING.split("### An example")[1], re.S)
NAMES = ("1-tone.toml", "letters.jsonl", "rules.py", "registry.toml")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The recorded runs and the registry of the project, before and after."""
    monkeypatch.setenv("QALIGN_REGISTRY", "")
    before = dict(RUNS)
    yield
    RUNS.clear()
    RUNS.update(before)
    os.environ.pop("QALIGN_REGISTRY", None)
    registry.unload("plain")
    registry.entries.cache_clear()


@pytest.fixture
def tone(tmp_path: Path) -> Path:
    """The folder of the example in docs/teaching.md, and a recorded run."""
    folder = tmp_path / "tone"
    folder.mkdir()
    for name, (_, text) in zip(NAMES, BLOCKS[:4], strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "assets/runs/climb.jsonl", folder / "mine.jsonl")
    return folder


def test_the_example_of_the_documents_is_a_folder_without_faults(tone):
    material = load_material([tone])
    assert material.faults == ()
    *_, name = material.lessons
    assert name == "tone"
    stops = lesson_message(material.lessons["tone"])["stops"]
    assert "{" not in json.dumps([stop["text"] for stop in stops])
    assert [problem.extractor for problem in material.sets["letters"]] == [None, None]
    plain = load_reward_model("plain")
    texts = ("Perhaps, maybe, it rains.", "It rains.")
    hedged, short = (asyncio.run(plain.score("x", Response((), text, True))) for text in texts)
    assert short > hedged


def test_files_that_people_write_may_begin_with_a_byte_order_mark(tone):
    (tone / "rows.csv").write_text("story\nSix.\n")
    (tone / "rows.toml").write_text('rows = "rows.csv"\ntemplate = "<{story}> How many?"\n')
    for path in tone.iterdir():
        if path.name != "mine.jsonl":  # which a program writes
            path.write_text("\ufeff" + path.read_text("utf-8"), encoding="utf-8")
    material = load_material([tone])
    assert material.faults == ()
    assert [problem.prompt for problem in material.sets["rows"]] == ["Six. How many?"]


def test_own_material_is_in_the_lists(tone):
    rows = [{"prompt": "One and one?", "answer": "2"}, {"prompt": "Which?", "answer": "B",
             "extractor": "choice"}]  # fmt: skip
    (tone / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sets = load_material([tone, tone]).sets
    assert list_kinds(sets)[-2:] == [("Set: letters", "letters"), ("Set: sums", "sums")]
    prompt, answer, extractor, status = next_problem(sets, "letters", status_value(IDLE))
    assert (answer, extractor) == ("", "none")
    assert json.loads(str(status))["text"] == f"Next run: {prompt}"
    triples = {next_problem(sets, "sums", status_value(IDLE))[:3] for _ in range(64)}
    assert triples == {("One and one?", "2", "number"), ("Which?", "B", "choice")}
    assert next_problem(sets, "long", status_value(IDLE))[2] == USUAL
    offered = problems(p for each in sets.values() for p in each)
    assert [(each["prompt"], each["reference"], each["extractor"]) for each in offered[:4]] == [
        ("Write a sentence that declines an invitation.", "", "none"),
        ("Write a sentence about a delayed train.", "", "none"),
        ("One and one?", "2", "number"),
        ("Which?", "B", "choice"),
    ]
    assert len(offered) == 4 + len(problems(()))
    *_, last = gallery().values()
    assert (last.name, last.path) == ("mine", tone / "mine.jsonl")
    assert run_of("mine").header == run_of("climb").header


HEADER = (ROOT / "assets/runs/climb.jsonl").read_text("utf-8").split("\n")[0]
BAD = {
    "2-broken.toml": ("title =", "2-broken.toml:1: this is not TOML"),
    "3-worse.toml": ('title = 3\nsays = "a"', "3-worse.toml:1: 'title' is 3; expected a text (and"),
    "1-one-step.toml": (BLOCKS[0][1], "there already is a lesson with the name 'one-step'"),
    "4 a b.toml": (BLOCKS[0][1], "which no link can carry"),
    "rows.toml": ('template = "x"\nrows = "none.csv"', "does not describe a problem set"),
    "empty.jsonl": ("", "empty.jsonl has no problems"),
    "lines.jsonl": ("{", "lines.jsonl, line 1 is not JSON"),
    "long.jsonl": ('{"prompt": "x"}', "there already is a problem set with the name 'long'"),
    "watch.jsonl": (HEADER, "there already is a recorded run with the name 'watch'"),
    "<b>.jsonl": (HEADER, "'<b>' is no name for a recorded run"),
    "half.jsonl": (HEADER[:90], "half.jsonl"),
    "registry.toml": ("[[rm]]\nid = 3", "cannot be read"),
    "binary.toml": ("\0\1", "binary.toml:1: "),
}


def test_a_bad_file_is_named_in_one_sentence_and_left_out(tone):
    for name, (text, _) in BAD.items():
        (tone / name).write_text(text, encoding="utf-8")
    (tone / "folder.toml").mkdir()
    (tone / "notes.txt").write_text("ignored")
    (tone / ".hidden.toml").write_text("ignored")
    material = load_material([tone])
    assert len(material.faults) == len(BAD)
    for name, (_, sentence) in BAD.items():
        (fault,) = [each for each in material.faults if name in each]
        assert sentence in fault
        assert "\n" not in fault
        assert len(fault) < 600
    assert "tone" in material.lessons
    assert list(material.sets) == ["letters"]
    assert "QALIGN_REGISTRY" not in os.environ


def test_a_registry_does_not_replace_the_one_that_the_operator_named(tone, monkeypatch):
    monkeypatch.chdir(tone.parent)
    Path("other.toml").touch()
    monkeypatch.setenv("QALIGN_REGISTRY", "other.toml")
    (fault,) = load_material([tone]).faults
    assert (
        fault == "registry.toml: QALIGN_REGISTRY=other.toml is used; add this file's entries to it"
    )


BROKEN = {
    "nameless": ("bad.py:warn", "bad.py has no function or class warn"),
    "fileless": ("none.py:warns", "none.py cannot be run (FileNotFoundError"),
    "raising": ("raises.py:warns", "raises.py cannot be run (ModuleNotFoundError"),
    "exiting": ("exits.py:warns", "exits.py cannot be run (SystemExit"),
    "unmade": ("bad.py:Unmade", "bad.py:Unmade cannot be made (ZeroDivisionError"),
    "summed": ("0.5*mood + 0.5*nameless", "bad.py has no function or class warn"),
    "embedded": ("bad.py:scoreless", "bad.py has no function or class scoreless"),
}


@pytest.mark.parametrize("named", [False, True])
def test_a_reward_whose_python_cannot_be_loaded_is_left_out_in_one_sentence(
    tmp_path, monkeypatch, named
):
    (tmp_path / "bad.py").write_text(
        "def warns(x, y):\n    return 1\nclass Unmade:\n    def __init__(self):\n        1 / 0\n"
    )
    (tmp_path / "raises.py").write_text("import no_such_package")
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    sources = {id: source for id, (source, _) in BROKEN.items()} | {"works": "bad.py:warns"}
    path = tmp_path / "registry.toml"
    path.write_text(
        "\n".join(f'[[rm]]\nid = "{id}"\nsource = "{source}"' for id, source in sources.items())
    )
    registry.entries.cache_clear()
    usual = registry.entries()
    if named:
        monkeypatch.setenv("QALIGN_REGISTRY", str(path))
        registry.entries.cache_clear()
    faults = load_material([] if named else [tmp_path]).faults
    assert len(faults) == len(BROKEN)
    for id, (_, sentence) in BROKEN.items():
        (fault,) = [each for each in faults if each.startswith(f"registry.toml: reward {id}: ")]
        assert sentence in fault
        assert "\n" not in fault
    own = registry.entries()["rm", "works"]
    assert registry.entries() == {**usual, ("rm", "works"): own}
    assert registry.entries_of("rm")[-1] == own
    assert [each for each in registry.entries() if each in usual] == list(usual)  # in their order
    assert asyncio.run(load_reward_model("works").score("x", Response((), "y", True))) == 1


def test_without_folders_the_material_is_the_projects():
    assert load_material([]) == Material()


def test_a_new_lesson_runs_and_a_check_reports_every_fault_with_its_line(tmp_path, capsys):
    path = tmp_path / "1-mine.toml"
    assert main(["lesson", "new", str(path)]) == 0
    assert "a lesson with 3 stops" in capsys.readouterr().out
    assert main(["lesson", "check", str(path)]) == 0
    assert capsys.readouterr().out == "1-mine.toml: 3 stops, no faults\n"
    lesson = load_material([tmp_path]).lessons["mine"]
    for stop in lesson.stops:
        if stop.ask:
            value = format_value(value_of(stop.ask.fact, stop.ask.then))
            assert value not in [number for _, number in build_exhibit(stop)["rows"]]
    assert main(["lesson", "new", str(path)]) == 2
    assert "cannot be written (File exists); give a new file" in capsys.readouterr().err
    text = path.read_text("utf-8").replace("minutes = 3", "hours = 3").replace("{kept}", "{kepd}")
    path.write_text(text, encoding="utf-8")
    assert main(["lesson", "check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    numbers = [k for k, line in enumerate(text.split("\n"), 1) if "hours" in line or "kepd" in line]
    assert [int(line.split(":")[1]) for line in lines] == [1, *numbers]
    path.write_text(text.replace('run = "watch"', 'run = "wach"').replace("hours", "minutes")
                    .replace("{kepd}", "{kept}"), encoding="utf-8")  # fmt: skip
    assert main(["lesson", "check", str(path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()  # and none for the stops that follow it
    assert "there is no recorded run 'wach'" in line
    refuse_command(capsys, ["lesson", "new", "x.txt"], "got x.txt; use x.toml")
    assert main(["lesson", "check", str(tmp_path / "none.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().out


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_the_app_starts_with_own_material_and_shows_it(visit, tone):
    (tone / "2-broken.toml").write_text("title =")
    tasks = tone.parent / "tasks"
    tasks.mkdir()
    (tasks / "sums.jsonl").write_text('{"prompt": "One and one?", "answer": "2"}')
    with (
        (tone.parent / "errors").open("w+") as errors,
        Program(
            *("--lessons", str(tone), "--tasks", str(tasks)),
            code=START_APP, stderr=errors.fileno(),
        ) as process,
    ):  # fmt: skip
        line = process.stdout.readline()
        address = line.removeprefix("QAlign Explorer: ").split(" ")[0].strip()
        room = httpx.get(f"{address}room", timeout=60).text
        for words in ("Whose tone is it?", "One and one?"):
            assert words in room
        page = await visit(f"{address}?lesson=tone&stop=2")
        await page.wait_for_selector(".learn-panel h2 >> text=An editor with a word list")
        await page.wait_for_function(
            "document.querySelector('.qp').qalign.trace.header.prompt.includes('rainy')"
        )
        await page.check("text=The new ending")
        await page.click(".learn-next")
        await page.wait_for_selector(".learn-status >> text=for the new one")
        await page.click(".learn-foot >> text=Leave")
        await page.click("#watch-gallery")
        await page.click("[data-name=mine]")
        await page.wait_for_function(
            f"document.querySelector('.qp').qalign.text.startsWith({json.dumps(HEADER)})"
        )
        errors.seek(0)
        assert errors.read().startswith("app.py: left out: 2-broken.toml:1: this is not TOML")
