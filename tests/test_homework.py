"""Homework without a server: a page draws each learner's run, and the files are graded."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import pytest
import pytest_asyncio
from browser import PATIENCE, ROOT
from refusals import refusal

from qalign_core.record.format import parse_trace
from qalign_core.record.trace import Trace
from qalign_study.commands import main
from qalign_study.lessons import homework
from qalign_study.lessons.facts import LEARNERS, RUNS, ChainFacts, run_of
from qalign_study.lessons.files import InvalidLesson, Place, read_lesson
from qalign_study.lessons.homework import (
    HandedIn,
    grade_answers,
    grade_folder,
    homework_page,
    seed_of,
)

LESSON = """
title = "My own chain"
says = "Questions about a run of your own."
minutes = 10

[[stop]]
title = "The first rewrite"
text = "Look at step 1."
at = { page = "watch", run = "few", step = 1, phase = "score" }
lit = "text"

[stop.ask]
question = "Which text has the higher reward?"
fact = "better"
options = { old = "The old text", new = "The new text" }
right = "Yes."
wrong = "The other one."

[[stop]]
title = "The chance"
text = "At the same step:"
lit = "text"

[stop.ask]
question = "How likely was the new text to be accepted?"
fact = "alpha"
within = 1
right = "Yes."
wrong = "It is {alpha}."
"""
STEPS, POOL = 6, 3
ALL = f"{STEPS + 1} of {STEPS + 1} steps and all {POOL} samples redrawn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the lesson and its recorded run, as an instructor has it."""
    folder = tmp_path_factory.mktemp("homework")
    (folder / "1-own.toml").write_text(LESSON, encoding="utf-8")
    header, *_ = (ROOT / "assets/runs/watch.jsonl").read_text("utf-8").split("\n")
    values = json.loads(header) | {"steps": STEPS, "pool": POOL, "seed": 3}
    few = [*(ROOT / "assets/runs/watch.jsonl").read_text("utf-8").split("\n")[1:]]
    kept = [line for line in few if line and _is_kept(json.loads(line))]
    (folder / "few.jsonl").write_text("\n".join([json.dumps(values, separators=(",", ":")), *kept]))
    before = dict(RUNS)
    yield folder
    RUNS.clear()
    RUNS.update(before)


def _is_kept(line) -> bool:
    return line["type"] == "step" and line["t"] <= STEPS


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def saved(folder, browser):
    """The files of three learners, each saved by the exported page, from a disk and offline."""
    page_path = folder / "page.html"
    assert main_in_thread(["export", str(folder / "1-own.toml"), "--html", str(page_path)]) == 0
    files = {}
    for name in ("Mia", "  Åsa  Öberg ", '=HYPERLINK("x")'):
        context = await browser.new_context(offline=True, accept_downloads=True)
        page, errors = await context.new_page(), []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        page.on("console", lambda message, errors=errors: errors.append(message.text))
        await page.goto(page_path.as_uri())
        assert await page.is_disabled("text=Save my answers")
        await page.fill("#hw-name", name)
        await page.click("text=Draw my run")
        await page.wait_for_selector(".hw-start[data-state=finished]")
        assert await page.is_disabled("#hw-name")
        trace = parse_trace(await page.evaluate("document.querySelector('.qp').qalign.text"))
        LEARNERS["own"] = trace
        facts = ChainFacts(Place("watch", run="own", step=1))
        del LEARNERS["own"]
        await page.check("text=The old text" if facts.better() == "old" else "text=The new text")
        if name == "Mia":
            await page.fill("#learn-number-2", f"{100 * facts.alpha():.1f}")
        async with page.expect_download() as download:
            await page.click("text=Save my answers")
        status = await page.inner_text(".hw-left")
        assert status.startswith("Saved.") == (name == "Mia")
        files[name] = await (await download.value).path()
        files[name] = json.loads(files[name].read_text("utf-8"))
        assert errors == []
        await context.close()
    return files


def main_in_thread(arguments):
    """Run a command from a test that has an event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(main, arguments).result()


def hand_in(folder, tmp_path, **files):
    """A folder with the lesson, its run, and these files."""
    for name in ("1-own.toml", "few.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        RUNS.pop("few", None)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return tmp_path


pytestmark = pytest.mark.asyncio(loop_scope="session")


TIE = "no right answer in this run"
"""Step 1 of Åsa's run writes the same text again."""


async def test_files_of_three_learners_are_graded_and_a_spreadsheet_sees_no_formula(
    folder, saved, tmp_path, capsys
):
    files = dict(zip(("a", "b", "c"), saved.values(), strict=True))
    refused = saved["Mia"] | {"trace": "{}"}
    handed_in = hand_in(folder, tmp_path, **files, d=refused)
    assert main_in_thread(["grade", str(handed_in)]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("qalign: d.json has no readable run")
    assert "d.json" not in printed.out
    assert f"a.json\tMia\t2 of 2 right\tdraws: {ALL}" in printed.out
    assert "b.json\tÅsa Öberg\t0 of 1 right\t" in printed.out
    with (handed_in / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["stop"], row["right"], row["draws"]) for row in rows[:-1]] == [
        ("Mia", "1", "yes", ALL), ("Mia", "2", "yes", ALL),
        ("Åsa Öberg", "1", TIE, ALL), ("Åsa Öberg", "2", "no answer", ALL),
        ("'=HYPERLINK(\"x\")", "1", "yes", ALL), ("'=HYPERLINK(\"x\")", "2", "no answer", ALL),
    ]  # fmt: skip
    assert (rows[-1]["name"], rows[-1]["stop"]) == ("Mia", "")
    seeds = [parse_trace(each["trace"]).header.run.seed for each in files.values()]
    assert seeds == [seed_of(each["name"]) for each in files.values()]
    assert len(set(seeds)) == 3
    assert len(json.dumps(files["a"])) < 30_000


@pytest.mark.more
async def test_a_stop_opens_at_its_phase_with_its_outcome_hidden_and_empty_questions_are_named(
    folder, tmp_path, browser
):
    path = hand_in(folder, tmp_path) / "1-own.toml"
    RUNS.setdefault("few", folder / "few.jsonl")
    end = 'at = { phase = "rewrite" }\nlit = "chance"\n\n[stop.ask]\nveil = true\nquestion = "How'
    start = 'lit = "text"\n\n[stop.ask]\nquestion = "How'
    path.write_text(LESSON.replace(start, end), encoding="utf-8")
    (tmp_path / "page.html").write_text(homework_page(read_lesson(path)), encoding="utf-8")
    page, errors = await browser.new_page(accept_downloads=True), []
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto((tmp_path / "page.html").as_uri())
    assert await page.is_hidden(".qp-invite button")
    await page.fill("#hw-name", "Mia")
    await page.click("text=Draw my run")
    await page.wait_for_selector(".hw-start[data-state=finished]")
    assert await page.inner_text(".hw-left") == "Without an answer: 1, 2."
    await page.click("text=Show step 1 >> nth=1")
    at = await page.evaluate("document.querySelector('.qp').qalign.position")
    assert (at["t"], at["phase"]) == (1, 1)
    hidden = "getComputedStyle(document.querySelector('[data-stage=chance] > *')).visibility"
    assert await page.evaluate(hidden) == "hidden"
    await page.fill("#learn-number-2", "50")
    assert await page.evaluate(hidden) == "visible"
    assert await page.inner_text(".hw-left") == "Without an answer: 1."
    async with page.expect_download():
        await page.click("text=Save my answers")
    assert (await page.inner_text(".hw-left")).startswith("Saved, without an answer to 1.")
    assert errors == []
    await page.close()


async def test_draws_that_are_not_those_of_the_seed_are_named(folder, saved, tmp_path):
    mia = saved["Mia"]
    lines = mia["trace"].splitlines()
    steps = [json.loads(line) for line in lines]
    at = next(k for k, step in enumerate(steps) if step["type"] == "step" and step["t"] == 4)
    sample = next(k for k, step in enumerate(steps) if step["type"] == "sample")

    def with_line(k, **change):
        changed = json.dumps(steps[k] | change, separators=(",", ":"))
        return mia | {"trace": "\n".join([*lines[:k], changed, *lines[k + 1 :]]) + "\n"}

    files = {
        "copied": mia | {"name": "Tom"},
        "reward": with_line(at, reward=steps[at]["reward"] + 0.5),
        "sample": with_line(sample, reward=9.0),
        "early": mia | {"trace": "\n".join(lines[:at]) + "\n"},
        "again": mia | {"name": "MIA"},
        "honest": mia,
    }
    rows, _ = await grade_folder(hand_in(folder, tmp_path, **files))
    draws = {row["file"].removesuffix(".json"): row["draws"] for row in rows}
    assert draws.pop("honest") == ALL
    assert re.match(r"no: seed \d+ is not the seed of this name", draws.pop("copied"))
    assert draws.pop("again").startswith("no: seed")
    assert draws == {
        "reward": "no: step 4 of chain 1 is another",
        "sample": "no: sample 0 is another",
        "early": "no: the run is not finished",
    }


async def test_a_number_that_a_question_is_graded_by_is_always_redrawn(
    folder, saved, tmp_path, monkeypatch
):
    """No chance decides whether a forged step that the lesson asks about is found."""
    monkeypatch.setattr(homework, "REDRAWN", 0)
    mia = saved["Mia"]
    steps = [json.loads(line) for line in mia["trace"].splitlines()]

    def forge(t, **change):
        return mia | {"trace": "".join(
            json.dumps(line | change if line.get("t") == t else line) + "\n" for line in steps
        )}  # fmt: skip

    first = next(line for line in steps if line.get("t") == 1)
    pieces = [piece.replace("e", "o") for piece in first["pieces"]]
    # a draw that leads to the same verdict
    coin = first["log_u"] - 1 if first["accepted"] else (first["log_u"] + first["log_alpha"]) / 2
    files = {
        "before": forge(0, reward=4.0),
        "reward": forge(1, reward=first["reward"] + 1),
        "coin": forge(1, log_u=coin),
        "cost": forge(1, cost=[first["cost"][0] + 7, *first["cost"][1:]]),
        "text": forge(1, pieces=pieces),
        "honest": mia,
        "late": forge(STEPS, reward=4.0),  # nothing is asked about it
    }
    rows, _ = await grade_folder(hand_in(folder, tmp_path, **files))
    draws = {row["file"].removesuffix(".json"): row["draws"] for row in rows}
    assert draws == {
        "before": "no: step 0 of chain 1 is another",
        **dict.fromkeys(("reward", "coin", "cost", "text"), "no: step 1 of chain 1 is another"),
        **dict.fromkeys(
            ("honest", "late"), f"2 of {STEPS + 1} steps and all {POOL} samples redrawn"
        ),
    }


def tie(trace):
    """The run with all rewards 0, an answer "1" in one half of its texts and "2" in the other."""

    def scored(each, answer):
        return replace(each, reward=0.0, response=replace(each.response, text=f"So {answer}."))

    steps = [
        replace(step, accepted=True, current=scored(step.current, 1 + (step.t - 1) % 2),
                proposal=scored(step.proposal, 1 + step.t % 2))
        for step in trace.steps if step.t < 4
    ]  # fmt: skip
    pool = tuple(scored(each, 1 + k % 2) for k, each in enumerate(trace.pool[:4]))
    return Trace(trace.header, tuple(steps), pool)


TIES = {
    "two equal rewards": 'fact = "better"\noptions = { old = "Old", new = "New" }',
    "two leading answers": 'fact = "leader"\noptions = { 1 = "One", 2 = "Two" }',
    "two answers of a chain": 'fact = "chain_says:0"\noptions = { 1 = "One", 2 = "Two" }',
    "two answers of the model": 'fact = "model_says"\noptions = { 1 = "One", 2 = "Two" }',
    "two of its first answers": 'fact = "model_says:2"\noptions = { 1 = "One", 2 = "Two" }',
    "two weighted answers": 'fact = "weighted_says"\noptions = { 1 = "One", 2 = "Two" }',
    "two best samples": 'fact = "best_says"\noptions = { 1 = "One", 2 = "Two" }',
    "two equal numbers": 'largest = true\noptions = { reward = "Old", new_reward = "New" }',
    "a number between two": 'fact = "step"\noptions = { 2 = "Two", 4 = "Four" }',
    "an answer that is no option": 'fact = "leader"\noptions = { 7 = "Seven", 8 = "Eight" }',
    "no move, and no option for it": 'moves = "reward"\noptions = { up = "Up", down = "Down" }',
    "an infinite number": 'fact = "rhat"\nwithin = 1',
}


@pytest.mark.parametrize("question", TIES.values(), ids=TIES)
@pytest.mark.parametrize("answer", ["1", "old", "reward", "no option", ""])
async def test_a_question_without_a_right_answer_in_this_run_is_not_graded(
    folder, tmp_path, question, answer
):
    path = hand_in(folder, tmp_path) / "1-own.toml"
    RUNS.setdefault("few", folder / "few.jsonl")
    text = LESSON[: LESSON.rindex("[[stop]]")].replace("step = 1", "step = 3")
    (old,) = re.findall(r'fact = "better"\n.*', text)
    path.write_text(text.replace(old, question), encoding="utf-8")
    lesson = read_lesson(path)
    handed_in = HandedIn("Mia", {"1": answer}, tie(run_of("watch")))
    (row,) = grade_answers(lesson, handed_in)
    assert (row["right"], row["value"]) == (TIE, "")


async def test_a_hostile_file_gets_one_sentence_and_a_row(folder, saved, tmp_path):
    mia = saved["Mia"]
    header, rest = mia["trace"].split("\n", 1)
    easier = json.dumps(json.loads(header) | {"beta": 9.0}, separators=(",", ":"))
    hostile = {
        "huge": "[" + "1," * 3_000_000 + "1]",
        "deep": "[" * 100_000,
        "list": [1],
        "types": mia | {"answers": [1]},
        "numbers": mia | {"answers": {"1": 3}},
        "name": mia | {"name": "a\nb"},
        "empty": mia | {"name": ""},
        "long": mia | {"name": "x" * 41},
        "other": mia | {"lesson": "one-step"},
        "run": mia | {"trace": "{}"},
        "beta": mia | {"trace": f"{easier}\n{rest}"},
    }
    twice = {
        "first": mia,
        "second": mia,
        "wrong": mia | {"answers": {"1": "no option", "2": "nan"}},
    }
    handed_in = hand_in(folder, tmp_path, **hostile, **twice)
    (handed_in / "photo.jpg").write_bytes(b"\xff\xd8")
    (handed_in / "moodle").mkdir()
    (handed_in / "grades.csv").touch()
    (handed_in / ".DS_Store").touch()
    rows, sentences = await grade_folder(handed_in)
    refused = [row for row in rows if str(row["draws"]).startswith("refused")]
    others = ("moodle", "photo.jpg")
    assert [row["file"] for row in refused] == sorted([*others, *(f"{n}.json" for n in hostile)])
    named = {"numbers", "other", "run", "beta"}
    assert {row["file"].removesuffix(".json") for row in refused if row["name"]} == named
    assert {row["name"] for row in refused if row["name"]} == {"Mia"}
    assert len(sentences) == len(hostile) + len(others) + 2  # three files are Mia's
    assert any(each.startswith("moodle cannot be read: Is a dir") for each in sentences)
    for sentence in sentences:
        assert "\n" not in sentence
        assert len(sentence) < 300
    assert "second.json has the name 'Mia', as first.json has; ask which file counts" in sentences
    assert "beta.json has a run with another beta: 9.0 instead of" in "\n".join(sentences)
    right = [row["right"] for row in rows if row["file"] == "wrong.json"]
    assert right == ["no: not an answer to this question", "no"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("Look at step 1.", "It is {alpha}.", "stop 1 shows {alpha}, a number of the recorded run"),
        ('lit = "text"\n\n[stop.ask]\nquestion = "How', 'at = { run = "watch", step = 1 }\n'
         'lit = "text"\n\n[stop.ask]\nquestion = "How', "it has 2 runs"),
        ('fact = "alpha"\nwithin = 1', 'fact = "reward"\nwithin = 1\nspot = true', "for a spot"),
    ],
)  # fmt: skip
async def test_a_lesson_that_cannot_be_homework_is_refused_in_a_sentence(
    folder, tmp_path, old, new, sentence
):
    path = hand_in(folder, tmp_path) / "1-own.toml"
    RUNS.setdefault("few", folder / "few.jsonl")
    assert LESSON.count(old) == 1
    path.write_text(LESSON.replace(old, new), encoding="utf-8")
    with refusal(InvalidLesson, sentence, match="own cannot be homework"):
        homework_page(read_lesson(path))


async def test_a_folder_without_its_lesson_is_refused_in_a_sentence(tmp_path, capsys):
    (tmp_path / "registry.toml").touch()
    (tmp_path / "units.toml").write_text('template = "{q}"', encoding="utf-8")
    (tmp_path / "a.json").write_text("{}")
    assert main_in_thread(["grade", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(
        InvalidLesson, match=r"has no lesson files \(NUMBER-NAME.toml\); put the one"
    ):
        await grade_folder(tmp_path)
