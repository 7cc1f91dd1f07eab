"""The Compare page shows the core's numbers: in words, in figures, and in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import pytest_asyncio
from browser import SET
from traces import with_run

from components.compare.figures import compute_curves, reward_bins, reward_histograms, shares
from components.compare.notes import reward_note
from components.compare.page import RECORDED
from components.compare.selection import Selection, link_of
from components.compare.view import conclusion, level_line, ranking, rule, view
from components.session.runs import Feed
from components.watch.gallery import WATCH as WATCHED
from qalign_core.decide.rules import RULES
from qalign_core.record.format import parse_trace
from qalign_core.record.store import load_trace
from qalign_core.types import Cost, Response, ScoredResponse
from qalign_study.measure.comparisons import (
    Comparison,
    full_cut,
    ladder,
    outcomes,
    recycled,
)
from qalign_study.measure.curves import curves
from qalign_study.measure.record import draws_of
from qalign_study.sheet.convergence import trust
from qalign_study.sheet.words import number, percent, si

pytestmark = pytest.mark.recorded

Visit = Callable[..., Awaitable[Any]]
HOSTILE = '</script><img src=x onerror="document.title=1">${document.title=2}{{3}}'


def recorded_comparison() -> Comparison:
    return Comparison(load_trace(RECORDED))


def changed(comparison: Comparison, **changes: Any) -> Comparison:
    return Comparison(replace(comparison.trace, **changes))


def saved_comparison(path: Path) -> Comparison:
    return Comparison(parse_trace(path.read_text(encoding="utf-8")))


def view_data(comparison: Comparison, **more: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(view(comparison, state="done", **more))
    return data


def test_every_rung_of_the_slider_has_the_cores_decisions() -> None:
    comparison = recorded_comparison()
    data = view_data(comparison)
    for budget in ("flops", "samples"):
        cuts = ladder(comparison, budget)
        assert [(r["t"], r["n"]) for r in data["ladders"][budget]] == [(c.t, c.n) for c in cuts]
        for rung, cut in zip(data["ladders"][budget], cuts, strict=True):
            for card, outcome in zip(rung["cards"], outcomes(comparison, cut), strict=True):
                assert card["method"] == outcome.method
                assert card["answer"] == outcome.decision.answer
                assert card["correct"] == outcome.correct
                chosen = outcome.decision.chosen
                assert chosen is not None
                assert data["texts"][card["text"]] == chosen.response.text
                assert dict(f[:2] for f in card["facts"])["Compute"] == si(outcome.spent, "FLOPs")


def test_vote_bars_sum_to_the_whole_equal_ones_look_equal_and_the_right_one_is_named() -> None:
    comparison = recorded_comparison()
    for rung in view_data(comparison)["ladders"]["flops"]:
        for card in rung["cards"]:
            if card["bars"]:
                assert sum(bar["share"] for bar in card["bars"]) == pytest.approx(1.0)
                by_share = {bar["share"]: bar["label"] for bar in card["bars"]}
                assert all(bar["label"] == by_share[bar["share"]] for bar in card["bars"])
            for bar in card["bars"]:
                if bar["right"] is None:
                    assert len(bar["name"]) <= 10  # the column holds it whole
                else:
                    assert bar["right"] == (bar["name"] == comparison.header.run.reference)


def test_the_rule_has_this_runs_numbers() -> None:
    comparison = recorded_comparison()
    results = outcomes(comparison, full_cut(comparison))
    lines = {outcome.method: rule(comparison, outcome) for outcome in results}
    assert f"of {results[0].n} states" in lines["qalign"].replace(",", "")
    best, second = sorted((s.reward for s in comparison.pool[: results[1].n]), reverse=True)[:2]
    assert number(best) in lines["bon"]
    assert number(second) in lines["bon"]
    share = dict(results[3].decision.shares)[results[3].decision.answer or ""]
    assert percent(share) in lines["wmv"]


def test_a_tie_is_said_to_be_one() -> None:
    comparison = recorded_comparison()
    by_answer = {comparison.extract(s.response.text): s for s in comparison.pool}  # type: ignore[misc]
    tied = changed(comparison, pool=tuple(by_answer.values())[:3])
    outcome = outcomes(tied, full_cut(tied))[2]
    assert "tied with another answer: the first to appear wins" in rule(tied, outcome)


def test_what_is_equal_and_what_is_not_is_always_said() -> None:
    comparison = recorded_comparison()
    equal = outcomes(comparison, full_cut(comparison))
    line = level_line(comparison, equal, "flops")
    apart = abs(equal[0].spent - equal[1].spent) / equal[1].spent
    assert line.startswith("Equal compute")
    assert percent(apart) in line
    # how 257 states and 138 samples come to the same, and what the 256 of the set are here
    assert "257 chain states and 138 independent samples (a state costs 0.54 times as much)" in line
    assert round(138 / 257, 2) == 0.54
    samples = outcomes(comparison, full_cut(comparison, "samples"))
    assert "The compute is not equal" in level_line(comparison, samples, "samples")


def test_the_conclusion_names_every_method_once_beside_what_it_chose() -> None:
    comparison = recorded_comparison()
    for cut in ladder(comparison):
        results = outcomes(comparison, cut)
        sentence = conclusion(comparison, results)
        answers = {o.decision.answer for o in results}
        assert all(f"chose {answer}" in sentence for answer in answers)
        assert sentence.count("chose") == len(answers)
        if len(answers) > 1:
            for name in ("QAlign", "best-of-n", "majority vote", "weighted vote"):
                assert sentence.count(name) == 1
        for outcome in results:
            verdict = "right" if outcome.correct else "wrong"
            assert f"chose {outcome.decision.answer}, which is {verdict}" in sentence


def test_a_conclusion_without_a_known_answer_judges_nothing() -> None:
    comparison = recorded_comparison()
    header = with_run(comparison.header, reference=None)
    unknown = changed(comparison, header=header)
    sentence = conclusion(unknown, outcomes(unknown, full_cut(unknown)))
    assert "which is" not in sentence
    opened = changed(comparison, header=with_run(header, extractor=None))
    sentence = conclusion(opened, outcomes(opened, full_cut(opened)))
    assert "a text of reward" in sentence
    assert "weighted MBR" in sentence


def test_that_no_sample_is_right_and_the_chain_is_is_said_where_it_is_so() -> None:
    comparison = recorded_comparison()
    extract = comparison.extract
    assert extract is not None
    wrong = tuple(
        s for s in comparison.pool if not comparison.problem.is_right(extract(s.response.text))
    )
    assert 0 < len(wrong) < len(comparison.pool)
    for pool, unseen in ((comparison.pool, False), (wrong, True)):
        these = changed(comparison, pool=pool)
        results = outcomes(these, full_cut(these))
        assert results[0].correct
        assert (
            "is right, so no rule that chooses among them can be right"
            in conclusion(these, results)
        ) == unseen


def test_compare_goes_on_with_the_chain_and_the_samples_of_watch() -> None:
    compared, watched = recorded_comparison().trace, load_trace(WATCHED)
    assert compared.header.run.prompt == watched.header.run.prompt
    assert compared.header.run.reference == watched.header.run.reference
    steps = watched.chains[0]
    assert compared.chains[0][: len(steps)] == steps
    assert compared.pool[: len(watched.pool)] == watched.pool


def test_the_chain_has_the_verdict_that_watch_gives_the_same_states() -> None:
    comparison = recorded_comparison()
    data = view_data(comparison)
    for rung, cut in zip(data["ladders"]["flops"], ladder(comparison), strict=True):
        chains = [[s.state.reward for s in chain[: cut.t + 1]] for chain in comparison.chains]
        verdict = trust(chains)
        assert rung["cards"][0]["trust"] == f"Can I trust it? {verdict.sentence} {verdict.next}"
        assert all(card["trust"] is None for card in rung["cards"][1:])


def test_recycled_votes_stand_beside_the_plain_ones() -> None:
    comparison = recorded_comparison()
    cut = full_cut(comparison)
    card = view_data(comparison)["ladders"]["flops"][-1]["cards"][0]
    also = dict(recycled(comparison, cut).shares)
    for bar in card["bars"]:
        if bar["name"] in also:
            assert bar["recycled"] == also[bar["name"]]
    assert "waste recycling" in card["recycled"]


def test_hostile_text_stays_text_in_the_view() -> None:
    comparison = recorded_comparison()
    bad = ScoredResponse(Response((1,), HOSTILE, True), 99.0, Cost(1, 1))
    text = view(changed(comparison, pool=(bad, *comparison.pool)), state="done")
    assert "<" not in text
    assert HOSTILE in json.loads(text)["texts"]


def test_an_open_prompt_has_mbr_in_place_of_votes() -> None:
    comparison = recorded_comparison()
    header = with_run(comparison.header, extractor=None, reference=None)
    data = view_data(changed(comparison, header=header), every_rung=False)
    cards = data["ladders"]["flops"][-1]["cards"]
    assert [card["name"] for card in cards] == ["QAlign", "Best-of-n", "MBR", "Weighted MBR"]
    assert all(card["answer"] is None and card["correct"] is None for card in cards)
    assert "ROUGE-1" in cards[0]["rule"]


def test_the_rewards_are_told_in_the_words_of_the_prompt_and_of_the_model() -> None:
    comparison = recorded_comparison()
    opened = with_run(comparison.header, extractor=None, reference=None)
    for header, sentence, learned in (
        (comparison.header, "QAlign and weighted vote aim", "from problems with known answers"),
        (opened, "QAlign and weighted MBR aim", "how many constraints of a writing task are met"),
        (with_run(opened, rm="length:30"), "QAlign and weighted MBR aim", ""),
    ):
        note = reward_note(changed(comparison, header=header))
        assert sentence in note
        assert learned in note
        assert ("The embedded reward model" in note) == bool(learned)


def test_nothing_drawn_yet_shows_progress_and_no_columns() -> None:
    comparison = changed(recorded_comparison(), steps=(), pool=())
    data = json.loads(view(comparison, state="live"))
    assert data["ladders"] == {}
    assert data["progress"]["done"] == 0


def test_histograms_share_their_bins_and_weigh_as_the_methods_do() -> None:
    comparison = recorded_comparison()
    cut = full_cut(comparison)
    figure = reward_histograms(comparison, cut)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == 3
    assert all(np.array_equal(bar.x, bars[0].x) for bar in bars)
    assert [float(np.sum(bar.y)) for bar in bars] == pytest.approx([1.0, 1.0, 1.0])
    pool = [s.reward for s in comparison.pool[: cut.n]]
    weights = outcomes(comparison, cut)[3].decision.weights
    everything = [s.reward for s in comparison.pool] + [
        s.state.reward for s in comparison.trace.steps
    ]
    assert np.allclose(bars[1].y, shares(pool, weights, reward_bins(everything)))
    highest = max(float(np.max(bar.y)) for bar in bars)
    for axis in (figure.layout.yaxis, figure.layout.yaxis2, figure.layout.yaxis3):
        assert highest < axis.range[1] < 1.2 * highest


def test_the_mixture_can_be_laid_over_the_histograms() -> None:
    comparison = recorded_comparison()
    plain = reward_histograms(comparison, full_cut(comparison))
    overlaid = reward_histograms(comparison, full_cut(comparison), mixture=True)
    assert len(overlaid.data) == len(plain.data) + 3


def test_the_curve_figure_has_every_method_and_its_band() -> None:
    comparison = recorded_comparison()
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, rungs=4))
    figure = compute_curves(comparison, points, draws.measure)
    assert len(figure.data) == 3 * len(RULES)
    assert figure.layout.xaxis.type == "log"
    # a line that lies under others can be seen: each is wider than those drawn over it
    lines = [trace.line for trace in figure.data if trace.mode == "lines+markers"]
    assert len({(line.color, line.dash) for line in lines}) == len(lines) == len(RULES)
    assert all(under.width >= over.width + 1 for under, over in pairwise(lines))


def test_a_link_draws_the_recorded_comparison_again() -> None:
    header = recorded_comparison().header
    query = link_of(header.run, "samples")
    assert f"steps={header.run.steps}" in query or header.run.steps == 64
    assert query.endswith("budget=samples")


def test_each_visitor_looks_at_their_own_comparison() -> None:
    from copy import deepcopy

    first = Selection(recorded_comparison())
    second = deepcopy(first)
    second.follow(Feed())
    assert second.comparison is None
    assert first.comparison is not None


# --- in a real browser ---------------------------------------------------------------------------


FEW = {"steps": 8, "seed": 3}


@pytest_asyncio.fixture(loop_scope="session")
async def compare(revisit: Visit, toy_app: str) -> Any:
    """Compare of the whole app, loaded once; few steps are drawn, as its link says."""
    page = await revisit(f"{toy_app}?steps=8&seed=3")
    await page.click("#tab-compare-button")
    # a run of an earlier test may be hidden, since the next one has another problem
    await page.wait_for_selector("#compare-panel .qc-card >> nth=3", state="attached")
    place = "document.querySelector('#compare-steps [type=number]').value"
    await page.wait_for_function(f"{place} !== '{recorded_comparison().header.run.steps}'")
    return page


async def fill(page: Any, settings: dict[str, Any]) -> None:
    """Give the next run settings, as typing does."""
    await page.evaluate(SET.replace("#watch-", "#compare-"), settings)


async def cards(page: Any) -> list[tuple[str, str]]:
    rows: list[list[str]] = await page.eval_on_selector_all(
        "#compare-panel .qc-card",
        "all => all.map(c => [c.dataset.method, c.querySelector('.qc-answer b').textContent])",
    )
    return [(method, answer) for method, answer in rows]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_recorded_comparison_agrees_with_the_core_and_makes_room_for_watchs_problem(
    compare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Results, which is opened, sums up all shipped sets for these
    monkeypatch.setattr("components.results.page.show", lambda path: ("", "", ""))
    monkeypatch.setattr("components.results.page.advice", lambda files: "")
    page = compare
    await page.wait_for_selector("#compare .q-status >> text=settings are in place")
    await page.set_viewport_size({"width": 360, "height": 740})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.set_viewport_size({"width": 1280, "height": 900})
    comparison = recorded_comparison()
    # the conclusion stands above the cards, and the rest unfolds
    conclusion_text = f"{conclusion(comparison, outcomes(comparison, full_cut(comparison)))} "
    conclusion_text += f"{ranking(comparison)} See Results"
    await page.wait_for_function(
        "said => document.querySelector('#compare-panel .qc-conclusion').textContent === said",
        arg=conclusion_text,
    )
    sentence, card = [
        await page.locator(f"#compare-panel .qc-{name} >> nth=0").bounding_box()
        for name in ("conclusion", "card")
    ]
    assert sentence["y"] + sentence["height"] <= card["y"]
    text = page.locator("#compare-panel .qc-text >> nth=0")
    assert not await text.is_visible()
    await page.get_by_role("button", name="Show the texts and the costs").click()
    assert await text.is_visible()
    slider = page.locator("#compare-panel .qc-n")
    cuts = ladder(comparison)
    for rung in (len(cuts) - 1, 0, len(cuts) // 2):
        await slider.evaluate(
            "(s, to) => { s.value = to; s.dispatchEvent(new Event('input', { bubbles: true })); }",
            rung,
        )
        results = outcomes(comparison, cuts[rung])
        assert await cards(page) == [(o.method, o.decision.answer or "no answer") for o in results]
        line = await page.text_content("#compare-panel .qc-line")
        assert line == level_line(comparison, results, "flops")
    await page.get_by_role("link", name="See Results").click()
    await page.locator("#results-set").wait_for()
    await page.click("#tab-compare-button")
    # it takes Watch's problem until it is asked for another
    prompt_text = "document.querySelector('#compare-panel .qc-prompt').textContent"
    link = await page.evaluate("QAlignShell.link()")

    async def watch(problem: str) -> None:
        await page.click("#tab-watch-button")
        await page.click("#watch-settings")
        await page.fill("#watch-prompt textarea", problem)
        await page.keyboard.press("Escape")
        await page.click("#tab-compare-button")

    await watch("Tom has 2 eggs. How many?")
    await page.wait_for_function(f"{prompt_text} === 'Tom has 2 eggs. How many?'")
    assert not await page.locator("#compare-panel .qc-card").first.is_visible()
    await page.wait_for_function("link => QAlignShell.link() === link", arg=link)
    await page.click("#compare-run")
    await page.wait_for_selector("#compare-panel .qc[data-state=done] .qc-card >> nth=3")
    assert await page.evaluate(prompt_text) == "Tom has 2 eggs. How many?"
    await page.get_by_text("Change the problem or the settings").click()
    await page.fill("#compare-prompt textarea", "What is 40+2?")
    await page.wait_for_function(f"{prompt_text} === 'What is 40+2?'")
    await watch("Ben has 3 nuts. How many?")
    assert await page.input_value("#compare-prompt textarea") == "What is 40+2?"
    assert page.errors == []


@pytest.mark.asyncio(loop_scope="session")
async def test_a_live_run_streams_stops_and_leaves_a_fair_comparison(
    compare: Any,
) -> None:
    page = compare
    # long enough to be stopped on a busy machine
    await fill(page, {"steps": 1024})
    await page.click("#compare-run")
    live = "#compare-panel .qc[data-state=live] .qc-card >> nth=3"
    await page.wait_for_selector(live, state="attached")  # a busy page draws it anew all the time
    await page.wait_for_function(  # columns fill while samples arrive
        """() => {
            const n = Number(document.querySelector("#compare-panel .qc").dataset.n);
            window.first ??= n;
            return n > window.first;
        }"""
    )
    await page.click("#compare-stop")
    await page.wait_for_selector("#compare-panel .qc[data-state=stopped] .qc-card >> nth=3")
    assert [method for method, _ in await cards(page)] == list(RULES)
    line = await page.text_content("#compare-panel .qc-line")
    assert re.match(r"Equal compute: [\d,]+ chain states? and [\d,]+ independent samples? \(", line)
    async with page.expect_download() as download:
        await page.click(".qc-save-json")
    saved = await (await download.value).path()
    comparison = saved_comparison(saved)
    results = outcomes(comparison, full_cut(comparison))
    assert await cards(page) == [(o.method, o.decision.answer or "no answer") for o in results]
    assert page.errors == []


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_an_open_ended_prompt_is_decided_by_mbr_and_a_writing_task_told_in_its_own_words(
    compare: Any,
) -> None:
    page = compare
    await fill(page, FEW)
    settings = page.get_by_text("Change the problem or the settings")
    if not await page.is_visible("#compare-prompt textarea"):
        await settings.click()
    await page.fill("#compare-prompt textarea", "Tell me of shells.")
    await page.click("#compare-extractor input")
    await page.get_by_role("option", name="None: open-ended", exact=True).click()
    await page.click("#compare-run")
    await page.wait_for_selector("#compare-panel .qc[data-state=done] .qc-card >> nth=3")
    async with page.expect_download() as download:
        await page.click(".qc-save-json")
    saved = await (await download.value).path()
    comparison = saved_comparison(saved)
    assert comparison.extract is None
    results = outcomes(comparison, full_cut(comparison))
    columns = await page.eval_on_selector_all(
        "#compare-panel .qc-card",
        "all => all.map(c => ['h3', '.qc-rule', '.qc-text'].map(at => c.querySelector(at)"
        ".textContent))",
    )
    assert [name for name, _, _ in columns] == ["QAlign", "Best-of-n", "MBR", "Weighted MBR"]
    for (_, line, text), outcome in zip(columns, results, strict=True):
        assert rule(comparison, outcome) in line
        assert outcome.decision.chosen is not None
        assert text == outcome.decision.chosen.response.text
    prompt = 'Write one sentence. Use the word "answer" and end with the word "is".'
    await page.fill("#compare-prompt textarea", prompt)
    await page.click("#compare-extractor input")  # a writing task asks for no answer by itself
    await page.get_by_role("option", name="As the problem asks", exact=True).click()
    await settings.click()
    await page.click("#compare-run")
    await page.wait_for_selector(
        "#compare-panel .qc[data-state=done] .qc-answer >> text=constraints met >> nth=3"
    )
    # every text of the toys ends "The answer is 18." and has more than one sentence
    headlines = await page.locator("#compare-panel .qc-answer").all_inner_texts()
    assert [text.strip() for text in headlines] == ["2 of 3 constraints met"] * 4
    facts = await page.text_content("#compare-panel .qc-facts >> nth=0")
    assert "uses “answer”; ends with “is”" in facts
    assert "Not methas one sentence" in facts
    everything = await page.inner_text("#compare")
    assert "cross" not in everything
    assert "right if" not in everything
    assert "how many constraints its text meets" in everything
    assert "QAlign and weighted MBR aim at the same target" in everything
    for arithmetic in ("vote aim", "known answers", "above wrong ones", "−14"):
        assert arithmetic not in everything
    await page.get_by_text("What would more compute buy?").scroll_into_view_if_needed()
    await page.wait_for_function(  # in the figure, which is drawn once it is looked at
        "document.querySelector('#compare').textContent.includes('2/3')"
    )
    assert page.errors == []


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_figure_of_plotlys_is_saved_in_a_typeface_that_is_there(
    compare: Any, tmp_path: Path
) -> None:
    page = compare
    await page.wait_for_selector("#compare-curves .main-svg >> nth=0")
    async with page.expect_download() as saving:
        await page.click("[data-figure=compare-curves][data-save=svg]")
    path = tmp_path / (await saving.value).suggested_filename
    await (await saving.value).save_as(path)
    assert path.name == "compare-curves.svg"
    text = "".join(ElementTree.parse(path).getroot().itertext())
    assert "QAlign" in text
    assert "Best-of-n" in text
    assert "Plex" not in path.read_text("utf-8")
