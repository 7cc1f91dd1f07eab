"""The instructor's guide says what the lessons, the gallery and the benchmarks say."""

from __future__ import annotations

import re

import pytest
from browser import ROOT

from components.learn.guide import GUIDE, on_the_page
from components.watch.gallery import gallery, write_slides
from qalign_study.lessons.files import load_lessons

TEXT = GUIDE.read_text(encoding="utf-8")
LINKS = [dict(re.findall(r"(\w+)=([\w-]+)", link)) for link in re.findall(r"`\?([^`]+)`", TEXT)]


def test_every_link_of_the_guide_leads_to_a_stop_or_a_run_that_there_is():
    assert len(LINKS) > 40
    for link in LINKS:
        assert link.keys() <= {"lesson", "stop", "run", "tab", "present"}
        if "lesson" in link:
            assert 1 <= int(link.get("stop", 1)) <= len(load_lessons()[link["lesson"]].stops)
        assert link.get("run", "watch") in gallery()


@pytest.mark.parametrize("minutes", [45, 90])
def test_a_plan_begins_at_once_goes_on_and_ends_in_time(minutes):
    plan = TEXT.split(f"## The plan for {minutes} minutes")[1].split("\n## ")[0]
    starts = [int(n) for n in re.findall(r"^\| (\d+) \|", plan, re.MULTILINE)]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert minutes - 10 <= starts[-1] < minutes


def test_what_is_said_of_many_users_is_what_was_measured():
    measured = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    form = (
        r"^\| (\d+) \| ([\d.]+) s(?:; ([\d.]+) s in another run)? \| ([\d.]+) \| ([\d.]+) GiB \|$"
    )
    rows = re.findall(form, TEXT, re.M)
    assert [users for users, *_ in rows] == ["10", "30", "50"]
    (overview,) = re.findall(
        r"`users`: 50 users .* \| ([\d.]+) s \(([\d.]+) s in another run\) / (\d+);",
        (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"),
    )
    for users, first, other, rate, memory in rows:
        named = "two heads" if users == "50" else users  # the later runs, of the shipped models
        row = re.search(rf"^\| {named} \| (.+)$", measured, re.M)[1].replace("*", "").split(" | ")
        assert float(row[5].removesuffix(" s")) == pytest.approx(float(first), abs=0.05)
        if users == "50":
            (again,) = re.findall(r"95 %: ([\d.]+) s\)", measured)
            assert float(again) == pytest.approx(float(other), abs=0.05)
            assert overview == (first, other, f"{float(row[0]):.0f}")
        assert round(float(row[2]), 1) == float(rate)
        assert int(row[7].split()[0]) / 1024 == pytest.approx(float(memory), abs=0.08)


def test_on_the_page_links_of_the_app_work_and_files_are_plain_words():
    text = on_the_page(TEXT)
    assert "](?lesson=first-pass&present=1)" in text
    assert not re.search(r"\]\((?!\?)", text)
    assert not text.startswith("# ")


def test_the_slides_are_the_gallerys_runs_with_their_titles(tmp_path):
    written = write_slides(tmp_path / "slides")
    assert [path.stem for path in written] == list(gallery())
    for path, entry in zip(written, gallery().values(), strict=True):
        assert f"<h1>{entry.title}</h1>" in path.read_text(encoding="utf-8")
