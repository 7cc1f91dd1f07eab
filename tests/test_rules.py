"""A deciding rule is one decorated function: it is found wherever rules are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, groupby

import numpy as np
import pytest
from added_rules import ADDED, added_rule
from browser import ROOT

from components.compare.figures import compute_curves, reward_histograms
from components.compare.view import view
from components.lab import worth, wrong
from components.results.findings import findings
from components.results.problems import problems_html
from qalign_core.decide.arrays import vote
from qalign_core.decide.rules import RULES, Rule
from qalign_core.record.store import load_trace
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
from qalign_study.measure.subsets import Pool, votes
from qalign_study.sheet.evaluated import FOLDER
from qalign_study.sheet.figures import errors, proxy
from qalign_study.sheet.files import to_csv, to_latex
from qalign_study.sheet.page import table_html, to_html
from qalign_study.sheet.values import tables

ANSWERS = ("none", "a", "b", "c")


@pytest.fixture(params=ADDED, ids=lambda make: make.__name__)
def added(request: pytest.FixtureRequest) -> Iterator[Rule]:
    """A fifth rule: one decorated function with its words."""
    with added_rule(request.param) as rule:
        yield rule


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(load_trace(ROOT / "assets/runs/compare.jsonl"))


@pytest.fixture
def results() -> Results:
    whole = unpack(FOLDER / "in_distribution.zip")
    return replace(whole, records=whole.records[:12])


def decide_alike(rule: Rule) -> None:
    """Compare single decisions with many at once."""
    rng = np.random.default_rng(0)
    answer = rng.integers(-1, 3, (200, 9))
    reward = rng.normal(size=answer.shape).round(1)
    won, _ = rule.decide_many(answer, reward, 0.0, 0.7, partial(vote, n_answers=3))
    for k, answers in enumerate(answer):
        names = [ANSWERS[1 + a] for a in answers]
        texts = [Response((1 + a,), text, True) for a, text in zip(answers, names, strict=True)]
        draws = [ScoredResponse(t, r) for t, r in zip(texts, reward[k], strict=True)]
        one = rule.decide(draws, lambda text: None if text == "none" else text, Target(0.7)).answer
        assert one == (None if won[k] < 0 else ANSWERS[1 + won[k]])


@pytest.mark.parametrize("id_", RULES)
def test_a_rule_decides_alike_for_one_and_for_many(id_):
    decide_alike(RULES[id_])


def test_a_rule_that_is_added_decides_alike_for_one_and_for_many(added):
    decide_alike(added)


def test_a_tie_of_votes_is_broken_by_first_appearance_whatever_the_rewards():
    draws = [
        ScoredResponse(Response((k,), text, True), reward)
        for k, (text, reward) in enumerate([("b1", -9.0), ("a1", 9.0), ("a2", 9.0), ("b2", -9.0)])
    ]
    for rule in (RULES["mv"], RULES["qalign"]):
        assert rule.decide(draws, lambda text: text[0], Target(1.0)).answer == "b"
        assert rule.score is None
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


def test_a_rule_that_is_added_decides_on_compare_and_is_drawn_there(added, comparison):
    decisions = {o.method: o for o in outcomes(comparison, full_cut(comparison))}
    assert list(decisions) == list(RULES)
    outcome = decisions[added.id]
    if added.is_weighted:
        weights = np.array(outcome.decision.weights)
        assert outcome.effective == pytest.approx((weights > 0).sum())
    payload = json.loads(view(comparison, state="done"))["ladders"]["flops"][-1]
    (card,) = (card for card in payload["cards"] if card["method"] == added.id)
    words = added.word, added.id, added.sentence
    assert (card["name"], card["term"], card["sentence"]) == words
    if added.is_weighted:
        assert "has a weight" in card["rule"]
        assert card["bars"]
    else:
        score = f"The highest {added.maximizes} of" if added.maximizes else "its reward is"
        assert score in card["rule"]
        assert card["unvoted"].startswith("No vote: ")
        assert not card["bars"]
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, rungs=2))
    figure = compute_curves(comparison, points, measure_of(comparison))
    assert added.word in {line.name for line in figure.data}
    histograms = reward_histograms(comparison, full_cut(comparison), mixture=True)
    assert f"chosen by {added.word}" in {line.name for line in histograms.data}


def test_a_rule_that_is_added_is_a_method_of_results_and_of_every_form_of_the_report(
    added, results
):
    points = tuple(curves(results))
    assert {p.n for p in points if p.method == added.id} <= {p.n for p in points}
    group = Group((Evaluated("", points, results),))
    for figure in (errors(points, group), proxy(group)):
        assert added.word in {line.name for line in figure.lines}
    accuracy, gaps = tables([Evaluated("", points, results).row(8)])
    assert added.word in table_html(accuracy)
    listed = problems_html(Evaluated("", points, results), f"{added.id}::4")
    assert f"{added.word.lower()} does worst" in listed
    assert f">{added.word}</button></th>" in listed
    report = Report({"toy": results})
    payload = report.json()
    assert added.id in {row["method"] for row in payload["rows"]}
    assert f",{added.id}," in to_csv(report)
    assert added.word in to_latex(report)
    page = to_html(report)
    assert f">{added.word}<" in page
    assert f"var(--c-{added.id})" in page
    if added.draws == "pool":
        assert f"QAlign − {added.word}" in table_html(gaps)
        assert ("qalign", added.id) in {(row["a"], row["b"]) for row in payload["paired"]}
        assert any(added.word.lower() in sentence.lower() for sentence in findings(points))


def test_the_share_of_right_answers_is_that_of_decisions_on_all_subsets(added, results):
    record = results.records[0]
    reward, answer = record.pool_reward[:7].astype(float), record.pool_answer[:7].astype(int)
    right = record.is_right(answer)
    pool = Pool(answer, reward, np.zeros(7), right)
    share, mean = votes(pool, 3, added, (0.7,))
    parts = np.array([*combinations(range(7), 3)])
    counted = partial(vote, n_answers=len(record.answers))
    won, rewards = added.decide_many(answer[parts], reward[parts], 0.0, 0.7, counted)
    assert share[0] == pytest.approx(record.is_right(won).mean(), abs=1 / 7)
    assert mean == pytest.approx(rewards.mean())


def test_a_rule_that_is_added_is_in_the_glossary_and_in_the_lab(added):
    ideas = dictionary.ideas()
    assert (ideas[added.id].part, ideas[added.id].sentence) == ("Deciding", added.sentence)
    assert f"--c-{added.id}:" in dictionary.style()
    parts = [part for part, _ in groupby(ideas.values(), key=lambda idea: idea.part)]
    assert len(parts) == len(set(parts)), "a part of the glossary is interrupted"
    study = explore(Situation(), most=8, n_problems=20)
    assert study.right[added.id].shape == study.right["mv"].shape
    assert added.word in str(worth.curve_figure(study))
    exact = exactly(Example(hack_mass=0.02), (1, 4))
    (four,) = (o for o in exact if (o.method, o.n) == (added.id, 4))
    assert sum(four.answers) == pytest.approx(1)
    assert added.word in str(wrong.method_figure(exact, "accuracy"))


def test_nothing_lists_a_rule_that_is_not_there(comparison, results):
    """The control of the tests above: their words come from the rule alone."""
    page = view(comparison, state="done") + to_html(Report({"toy": results}))
    for make in ADDED:
        with added_rule(make) as rule:
            word = rule.word
        assert word not in page
