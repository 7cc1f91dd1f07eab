"""A folder of results opens: on Results, as a page from a disk, and each chain on Watch."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
from pathlib import Path

import pytest
from browser import ROOT, serve
from refusals import refusal
from toys import ANSWER, PROMPT, ToyLM, ToyRM, toy_reward

import app
from components.results.problems import problems_html
from components.results.sheet import show
from components.session.runs import Runs
from components.watch.gallery import recorded_text
from qalign_core.errors import InvalidTrace
from qalign_core.record.store import read_trace
from qalign_core.run import Run
from qalign_study.commands import main
from qalign_study.export.player import PLAYS
from qalign_study.measure.diagnostics import agreement
from qalign_study.measure.report import evaluated
from qalign_study.measure.results import answers_in, load_results
from qalign_study.serve.refusal import HIDDEN
from qalign_study.sets.folder import read_set, run_set, sets_in, trace_path
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.evaluated import NO_FOLDERS, summarise
from qalign_study.sheet.folder import folder_page

PROBLEMS = [
    Problem(id=f"toy-{k}", prompt=f"{PROMPT} {k} </script>", answer=ANSWER, extractor="number")
    for k in range(4)
]


def draw_folder(folder: Path, problems: list[Problem], **changes: object) -> Path:
    run = Run(steps=48, pool=8, seed=3, matched="none").with_changes(**changes)
    asyncio.run(run_set(ToyLM(), ToyRM(), run, problems, folder, task="toys"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four problems with eight samples and a chain each."""
    return draw_folder(tmp_path_factory.mktemp("home") / "toys", PROBLEMS)


def rows_of(list_problems: str) -> dict[str, list[str]]:
    """The cells of a list as text, by the problem's id."""
    cells_by_problem = {}
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", list_problems, re.DOTALL):
        cells = re.findall(r"<(?:td|th)>(.*?)</(?:td|th)>", row, re.DOTALL)
        texts = [re.sub("<[^>]+>", " ", cell).strip() for cell in cells]
        cells_by_problem[texts[0]] = texts[1:]
    return cells_by_problem


def test_a_folder_lists_the_answer_votes_reward_and_rhat_of_each_chain(folder):
    above, list_problems, below = show(folder)
    assert "4 of 4 problems." in above
    assert "still being filled" not in above
    assert 'id="results-error"' in above
    assert "What was run" in below
    rows = rows_of(list_problems)
    heads = rows.pop("id")
    assert heads[:6] == ["Problem", "Right", "Answer", "Votes", "Reward", "R-hat"]
    assert [*rows] == [problem.id for problem in PROBLEMS]
    for place, answer in enumerate(answers_in(folder, PROBLEMS)):
        cells = dict(zip(heads, rows[answer.id], strict=True))
        states = read_trace(trace_path(folder, place)).states
        rewards = [state.reward for state in states]
        verdict = "right" if answer.answer == ANSWER else "wrong"
        assert cells["Right"] == ANSWER
        assert cells["Answer"] == f"{answer.answer}, {verdict}"
        assert cells["Votes"] == f"{100 * answer.share:.0f}%"
        assert float(cells["Reward"].replace("−", "-")) == pytest.approx(
            sum(rewards) / len(rewards), rel=5e-3
        )
        assert cells["R-hat"].startswith(str(agreement([rewards])))
        assert f'href="?run=toys%2F{place:05}"' in list_problems
        assert html.escape(answer.text) in cells["Problem"]
    assert "</script>" not in list_problems


def test_a_folder_that_is_being_filled_shows_what_it_has_and_says_so(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "half")
    (tmp_path / "half" / "00002.jsonl").unlink()
    cut = tmp_path / "half" / "00001.jsonl"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    above, list_problems, _ = show(tmp_path / "half")
    assert "2 of 4 problems. The folder is still being filled" in above
    assert [*rows_of(list_problems)][1:] == ["toy-0", "toy-3"]
    shutil.copy(folder / "00002.jsonl", tmp_path / "half")  # it is read again
    assert "3 of 4 problems." in show(tmp_path / "half")[0]


@pytest.mark.parametrize("opened", ["broken", "."])
def test_a_broken_trace_shows_no_path_of_a_folder_that_was_named_without_one(
    folder, tmp_path, monkeypatch, opened, caplog
):
    shutil.copytree(folder, tmp_path / "broken")
    monkeypatch.chdir(tmp_path)
    (place,) = sets_in(Path(opened)).values()
    (tmp_path / "broken" / "00001.jsonl").write_text('{"type":"step"}\n')
    assert show(place) == (f'<p class="qc-sub">{html.escape(f"broken: {HIDDEN}")}</p>', "", "")
    assert str(tmp_path / "broken" / "00001.jsonl") in caplog.text


def test_prompts_without_a_right_answer_are_listed_without_a_verdict(tmp_path):
    texts = [Problem(id="a", prompt="Tell me more."), Problem(id="b", prompt="And more.")]
    above, list_problems, _ = show(draw_folder(tmp_path / "mine", texts, pool=0, extractor="none"))
    assert "2 of 2 problems." in above
    assert "results-error" not in above
    assert "wrong" not in re.sub("<input[^>]+>", "", list_problems)
    assert summarise(tmp_path / "mine").points == ()


def test_only_chains_of_the_folders_that_were_named_reach_the_page(folder):
    named = {"toys": folder}
    assert recorded_text("toys/00000", named)["text"] == (folder / "00000.jsonl").read_text("utf-8")
    assert "error" in recorded_text("toys/00000", NO_FOLDERS), "the control: it was not named"
    for name in (
        "toys/../set",
        "toys/set.json",
        "toys",
        "/etc/passwd",
        "other/00000",
        "toys/٠٠٠٠٠",
    ):
        assert "no recorded run" in recorded_text(name, named)["error"], name
    with pytest.raises(InvalidTrace, match="cannot be read"):
        recorded_text("toys/00099", named)


def test_a_folder_without_results_is_refused_in_one_sentence(folder, tmp_path):
    for empty in (tmp_path, ROOT / "docs"):
        with refusal(InvalidTrace, match=r"has no results; give a folder that"):
            app.build_app(opened=empty)
    assert sets_in(folder) == {"toys": folder}
    assert sets_in(folder.parent) == {"toys": folder}
    shutil.copytree(folder, tmp_path / "changed")
    with (tmp_path / "changed" / "problems.jsonl").open("a") as file:
        file.write('{"prompt": "one more"}\n')
    with pytest.raises(InvalidTrace, match="was changed; restore the set"):
        read_set(tmp_path / "changed")


def test_the_page_of_a_folder_has_its_numbers_and_the_chains_that_one_names(
    folder, tmp_path, capsys
):
    path_of_page = tmp_path / "page.html"
    assert main(["export", str(folder), "--html", str(path_of_page), "--play", "1", "3"]) == 0
    page = path_of_page.read_text("utf-8")
    assert [*rows_of(page)][1:5] == [problem.id for problem in PROBLEMS]
    assert re.findall(r'id="(chain-\d+)"', page) == ["chain-1", "chain-3"]
    assert re.findall(r'data-chain="(chain-\d+)"', page) == ["chain-1", "chain-3"]
    assert f'content="{PLAYS}"' in page
    assert page.count("</script>") == 4, "no text of a problem ends a script"
    for path, more in (
        (folder, ["--problem", "4"]),
        (folder, ["--live"]),
        (folder / "00000.jsonl", ["--problem", "0"]),
        (tmp_path, []),
    ):
        capsys.readouterr()
        assert main(["export", str(path), "--html", str(path_of_page), *more]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_page_that_lists_the_first_problems_only_tells_how_many(folder, monkeypatch):
    note = "The first 2 of 4 are listed."
    folder_results = evaluated(folder, "toys", load_results(folder))
    assert note not in folder_page(folder_results)
    monkeypatch.setattr("qalign_study.sheet.problems.MOST", 2)
    assert note in folder_page(folder_results)
    assert note in problems_html(folder_results)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_from_a_disk_sorts_filters_and_plays(folder, tmp_path, visitors):
    path_of_page = tmp_path / "page.html"
    assert await asyncio.to_thread(
        lambda: main(["export", str(folder), "--html", str(path_of_page), "--problem", "2"])
    ) == 0  # fmt: skip
    page = await visitors.new_page()
    try:
        await page.goto(path_of_page.as_uri())
        head = page.locator(".list thead button").first
        rows = "document.querySelectorAll('.list tbody tr:not([hidden]) > th')"
        ids = f"[...{rows}].map(head => head.innerText)"
        in_order = [problem.id for problem in PROBLEMS]
        await head.click()
        assert await page.evaluate(ids) == in_order
        await head.click()
        assert await page.evaluate(ids) == in_order[::-1]
        await page.locator(".filter input").fill("TOY-2")
        assert await page.evaluate(ids) == ["toy-2"]
        assert await page.text_content("output") == "1 of 4"
        await page.locator("[data-chain]").click()
        await page.wait_for_selector(".qp[data-t]")
        assert "toys, problem 2" in await page.text_content("#player")
    finally:
        await page.close()


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_folder_opens_on_results_and_leads_to_a_chain_on_watch(folder, visit, monkeypatch):
    monkeypatch.setattr("components.results.page.advice", lambda files: "")  # of all shipped sets
    runs = Runs(load=lambda lm, rm, sampling: (ToyLM(), toy_reward(rm)))
    demo = app.build_app(runs, folder)
    with serve(demo, **app.launch_options(runs)) as address:
        page = await visit(address)
        link = page.locator('#results-problems a[href="?run=toys%2F00002"]')
        await link.click()
        await page.wait_for_function("location.search.includes('run=toys%2F00002')")
        name = page.locator("#watch-player b", has_text="toys, problem 2")
        await name.wait_for(state="visible")
        again = await visit(f"{address}?run=toys%2F00001")  # a link works by itself
        await again.locator("#watch-player b", has_text="toys, problem 1").wait_for()
        is_selected = "document.querySelector('#tab-watch-button').ariaSelected"
        assert await again.evaluate(is_selected) == "true"
