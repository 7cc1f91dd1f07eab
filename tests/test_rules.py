"""A deciding rule is one value: what is added to `RULES` is found wherever rules are listed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType

import numpy as np
import pytest
from browser import ROOT

from components.common.evaluated import FOLDER
from components.compare.figures import compute_curves, reward_histograms
from components.compare.view import view
from components.lab import worth, wrong
from components.results.findings import findings
from components.results.problems import problems_html
from qalign_core.decide.arrays import vote
from qalign_core.decide.rules import RULES, Rule
from qalign_core.record.trace import load_trace
from qalign_core.target import Target
from qalign_core.types import Response, ScoredResponse
from qalign_study.exact.decisions import Situation, explore
from qalign_study.exact.wrong_reward import Example
from qalign_study.exact.wrong_reward import outcomes as exactly
from qalign_study.export import dictionary
from qalign_study.measure.comparisons import Comparison, full_cut, ladder, outcomes
from qalign_study.measure.curves import curves, own_curves
from qalign_study.measure.record import draws_of, measure_of
from qalign_study.measure.report import Evaluated, Group, Report
from qalign_study.measure.results import Results, unpack
from qalign_study.sheet.figures import errors, proxy
from qalign_study.sheet.files import to_csv, to_latex
from qalign_study.sheet.page import table_html, to_html
from qalign_study.sheet.values import tables

WORD = "Upper half"
ANSWERS = ("none", "a", "b", "c")


def upper_half(reward: np.ndarray, beta: object, tilt: object) -> np.ndarray:
    """Equal weights of the rewards from the median up."""
    kept = reward >= np.median(reward, axis=-1, keepdims=True)
    return kept / kept.sum(axis=-1, keepdims=True)


@pytest.fixture
def upper(monkeypatch: pytest.MonkeyPatch) -> Rule:
    """A fifth rule, of one value and one entry of the dictionary."""
    rule = Rule("upper", "pool", weights=upper_half, needs_reward=True)
    idea = dictionary.Idea(
        part="Deciding", word=WORD, sentence="Vote with the better half.", formula="r ≥ median",
        lab="Best-of-n", colour="violet", marker="diamond", line="dash",
    )  # fmt: skip
    colours, ideas = dictionary.colours(), {**dictionary.ideas(), "upper": idea}
    monkeypatch.setattr(dictionary, "_read", lambda: (colours, MappingProxyType(ideas)))
    monkeypatch.setitem(RULES, rule.id, rule)
    return rule


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(load_trace(ROOT / "assets/runs/compare.jsonl"))


@pytest.fixture
def results() -> Results:
    whole = unpack(FOLDER / "in_distribution.zip")
    return replace(whole, records=whole.records[:12])


@pytest.mark.parametrize("id_", RULES)
def test_a_rule_decides_alike_for_one_and_for_many(id_):
    rule, rng = RULES[id_], np.random.default_rng(0)
    answer = rng.integers(-1, 3, (200, 9))
    reward = rng.normal(size=answer.shape).round(1)
    won, _ = rule.decide_many(answer, reward, 0.0, 0.7, partial(vote, n_answers=3))
    for k, answers in enumerate(answer):
        words = [ANSWERS[1 + a] for a in answers]
        texts = [Response((1 + a,), text, True) for a, text in zip(answers, words, strict=True)]
        draws = [ScoredResponse(t, r) for t, r in zip(texts, reward[k], strict=True)]
        one = rule.decide(draws, lambda text: None if text == "none" else text, Target(0.7)).answer
        assert one == (None if won[k] < 0 else ANSWERS[1 + won[k]])


def test_a_tie_of_votes_is_broken_by_first_appearance_whatever_the_rewards():
    draws = [
        ScoredResponse(Response((k,), text, True), reward)
        for k, (text, reward) in enumerate([("b1", -9.0), ("a1", 9.0), ("a2", 9.0), ("b2", -9.0)])
    ]
    for rule in (RULES["mv"], RULES["qalign"]):
        assert rule.decide(draws, lambda text: text[0], Target(1.0)).answer == "b"
        assert not rule.weights
    level = [replace(draw, reward=0.0) for draw in draws]
    assert RULES["wmv"].decide(level, lambda text: text[0], Target(1.0)).answer == "b"
    assert RULES["wmv"].decide(draws, lambda text: text[0], Target(1.0)).answer == "a"
    assert RULES["mv"].decide(draws, None, Target(1.0)).chosen == draws[0]  # no words in common


def test_only_the_majority_vote_is_not_charged_for_the_reward_model():
    assert [id_ for id_, rule in RULES.items() if not rule.reads_reward] == ["mv"]


def test_two_rules_do_not_decide_alike():
    """The control of the test above: its draws tell rules apart."""
    rng = np.random.default_rng(0)
    answer, reward = rng.integers(-1, 3, (200, 9)), rng.normal(size=(200, 9)).round(1)
    counted = partial(vote, n_answers=3)
    pool = [rule for rule in RULES.values() if rule.draws == "pool"]
    won = [rule.decide_many(answer, reward, 0.0, 0.7, counted)[0] for rule in pool]
    assert all((one != other).any() for one, other in combinations(won, 2))


def test_only_what_reads_beta_has_a_curve_at_its_own():
    assert own_curves() == {"qalign_own": "qalign", "wmv_own": "wmv"}
    assert not Rule("best state", "chain", pick="best").aims


def test_a_rule_that_is_added_decides_on_compare_and_is_drawn_there(upper, comparison):
    by_method = {o.method: o for o in outcomes(comparison, full_cut(comparison))}
    assert list(by_method) == list(RULES)
    weights = np.array(by_method["upper"].decision.weights)
    assert by_method["upper"].effective == pytest.approx((weights > 0).sum())
    last = json.loads(view(comparison, state="done"))["ladders"]["flops"][-1]
    (card,) = (card for card in last["cards"] if card["method"] == "upper")
    assert (card["name"], card["term"], card["sentence"]) == (
        WORD, "upper", "Vote with the better half.",
    )  # fmt: skip
    assert "has a weight" in card["rule"]
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, rungs=2), resamples=8)
    figure = compute_curves(comparison, points, measure_of(comparison))
    assert WORD in {line.name for line in figure.data}
    histograms = reward_histograms(comparison, full_cut(comparison), mixture=True)
    assert f"chosen by {WORD}" in {line.name for line in histograms.data}


def test_a_rule_that_is_added_is_in_the_figures_tables_and_words_of_results(upper, results):
    points = curves(results)
    assert {p.n for p in points if p.method == "upper"} == {p.n for p in points if p.method == "mv"}
    group = Group((Evaluated("", tuple(points), results),))
    for figure in (errors(points, group), proxy(group)):
        assert WORD in {line.name for line in figure.lines}
    accuracy, gaps = tables([Evaluated("", tuple(points), results).row(8)])
    assert WORD in table_html(accuracy)
    assert f"QAlign − {WORD}" in table_html(gaps)
    assert any(WORD.lower() in sentence for sentence in findings(points))


def test_a_number_of_a_rule_that_is_added_leads_to_its_problems(upper, results):
    points = tuple(curves(results))
    listed = problems_html(Evaluated("", tuple(points), results), "upper::4")
    assert f"{WORD.lower()} does worst" in listed
    assert f">{WORD}</button></th>" in listed


def test_a_rule_that_is_added_is_in_every_form_of_the_report(upper, results):
    report = Report({"toy": results})
    payload = report.json()
    assert "upper" in {row["method"] for row in payload["rows"]}
    assert ("qalign", "upper") in {(row["a"], row["b"]) for row in payload["paired"]}
    assert ",upper," in to_csv(report)
    assert WORD in to_latex(report)
    page = to_html(report)
    assert f">{WORD}<" in page
    assert "var(--c-upper)" in page


def test_a_rule_that_is_added_is_in_the_lab(upper):
    results = explore(Situation(), most=8, n_problems=20)
    assert results.right["upper"].shape == results.right["mv"].shape
    assert WORD in str(worth.curve_figure(results))
    exact = exactly(Example(hack_mass=0.02), (1, 4))
    (four,) = (o for o in exact if (o.method, o.n) == ("upper", 4))
    assert sum(four.answers) == pytest.approx(1)
    assert WORD in str(wrong.method_figure(exact, "accuracy"))


def test_nothing_lists_a_rule_that_is_not_there(comparison, results):
    """The control of the tests above: their words come from the rule alone."""
    assert WORD not in view(comparison, state="done")
    assert WORD not in to_html(Report({"toy": results}))
