"""Numbers for the browser: checked input, the core's values, plain words where there is none."""

from __future__ import annotations

import random
import re

import pytest

from components.common.beta import beta_facts
from components.watch.diagnostics import FEW, diagnose, rank_histograms
from qalign_study.measure.diagnostics import agreement, ess, mcse, split_rhat
from qalign_study.measure.mixture import best_of_n_as_alignment, fit_mixture
from qalign_study.sheet.convergence import ROUGH, trust
from qalign_study.sheet.words import number


def chains(n=2, length=200, seed=0):
    rng = random.Random(seed)
    return [[rng.gauss(0, 1) for _ in range(length)] for _ in range(n)]


def test_the_diagnostics_are_the_cores():
    sent = chains()
    report = diagnose({"rewards": sent, "chain": 0, "generated": 5000})
    values = {fact["name"]: fact["value"] for fact in report["facts"]}
    assert values["Effective sample size"] == f"{ess(sent):.3g}"
    assert values["Split R-hat"] == f"{split_rhat(sent):.3f}"
    assert [c["title"] for c in report["charts"]][1:] == ["Chain 1: flat is good",
                                                         "Chain 2: flat is good"]  # fmt: skip


def test_what_follows_is_said_in_words():
    apart = [[x + 3 * k for x in chain] for k, chain in enumerate(chains())]
    for sent, sentence in (
        (apart, "not yet: the rewards of the chains differ, since R-hat is above"),
        ([apart[0] + apart[1]], "; run longer, or run several chains"),
        (chains(), "the rewards of the chains agree"),
        (chains(1), "only several chains can show a place that one never found"),
    ):
        report = diagnose({"rewards": sent, "chain": 0, "generated": 1})
        (meaning,) = (f["meaning"] for f in report["facts"] if f["name"] == "Split R-hat")
        assert sentence in meaning
    assert "The number can fall as a run goes on" in report["about"]


@pytest.mark.parametrize("length", [40, 256, 4000])  # the limit is higher, and at its lowest
def test_one_limit_of_r_hat_is_shown_and_the_rule_by_which_it_varies(length):
    for n, gap in ((1, 0), (2, 0), (2, 3)):
        sent = [[x + gap * k for x in chain] for k, chain in enumerate(chains(n, length))]
        report = diagnose({"rewards": sent, "chain": 0, "generated": 1})
        agree = agreement(sent)
        limit = f"{agree.limit:.3f}"
        (fact,) = (each for each in report["facts"] if each["name"] == "Split R-hat")
        sentences = " ".join([report["about"], fact["meaning"], report["verdict"]["sentence"]])
        assert set(re.findall(r"1\.\d+", sentences)) <= {limit, str(agree)}
        assert limit in fact["meaning"]
        assert "The limit of R-hat depends on the number of states" in report["about"]
        assert ("the limit for so few states" in fact["meaning"]) == (
            agree.is_mixed and agree.limit > 1.01
        )


def test_the_verdict_comes_first_in_one_sentence_with_what_to_do_next():
    apart = [[x + 3 * k for x in chain] for k, chain in enumerate(chains())]
    few = [[x for x in chain for _ in range(4)] for chain in chains(1, 40)]
    alike = [[x - x % 0.5 for x in chain for _ in range(20)] for chain in chains(length=40)]
    for sent, level, start, then in (
        ([[0.5]], "unknown", "Too early to say: the chain has 1 state,", "Run longer."),
        ([[1.0] * 64], "no", "No: the reward has never changed", "it changes the target"),
        (
            apart,
            "no",
            "No: the rewards of the chains differ",
            "each chain. A larger β mixes faster",
        ),
        (
            [apart[0] + apart[1]],
            "no",
            "Not yet: the rewards of the chain’s halves",
            "several chains",
        ),
        (few, "rough", "Only roughly: the rewards of the chain’s halves agree", "steps in all"),
        (chains(1, 4000), "yes", "As far as one chain can show", "one cannot show"),
        (chains(4, 4000), "yes", "Yes: the rewards of the chains agree", "Nothing more"),
    ):
        verdict = diagnose({"rewards": sent, "chain": 0, "generated": 1})["verdict"]
        assert verdict["level"] == level
        assert verdict["sentence"].startswith(start)
        assert then in verdict["next"]
        assert "later step" not in verdict["next"]  # they are all that has been drawn
        assert verdict["sentence"].count(".") - verdict["sentence"].count(". ") >= 1
    # the reward can differ where the answers, which it does not read, are all the same
    assert "whatever their votes say" in trust(apart).sentence
    assert trust([[0.5]], whole=False).next == "Go on to a later step."  # there are some
    part = diagnose({"rewards": [[0.5]], "chain": 0, "generated": 1, "whole": False})
    assert part["verdict"]["next"] == "Go on to a later step."
    assert trust(alike).level != "yes"  # many states, few of them independent
    goal = int(re.search(r"Run ([\d,]+) steps in all", trust(few).next)[1].replace(",", ""))
    longer = goal // (len(few[0]) - 1)
    assert (longer - 1) * ess(few) < ROUGH <= longer * ess(few)


def test_numbers_have_three_digits_however_small():
    sent = [[x / 1e4 for x in chain] for chain in chains()]
    report = diagnose({"rewards": sent, "chain": 0, "generated": 5000})
    values = {fact["name"]: fact["value"] for fact in report["facts"]}
    assert values["Error of the mean"] == number(mcse(sent)) == "4.89 × 10⁻⁶"


def test_too_few_steps_are_said_and_not_estimated():
    report = diagnose({"rewards": [[0.1, 0.2]], "chain": 0, "generated": 10})
    *others, rhat = report["facts"]
    assert {fact["value"] for fact in others} == {FEW}
    assert (rhat["value"], rhat["meaning"]) == ("–", "needs 32 states per chain, has 2")
    assert report["charts"] == []


@pytest.mark.parametrize(
    "data",
    [
        {"rewards": [], "chain": 0, "generated": 0},
        {"rewards": [[1.0]] * 65, "chain": 0, "generated": 0},
        {"rewards": [["x"]], "chain": 0, "generated": 0},
        {"rewards": [[float("nan")]], "chain": 0, "generated": 0},
        {"rewards": [[0.0] * 100_001], "chain": 0, "generated": 0},
        {"rewards": "1", "chain": 0, "generated": 0},
    ],
)
def test_what_a_visitor_forges_is_refused(data):
    with pytest.raises(ValueError, match=r"expected|could not"):
        diagnose(data)


def test_rank_histograms_are_flat_for_equal_chains_and_not_for_shifted_ones():
    same, shifted = chains(), [[x + 3 for x in c] if k else c for k, c in enumerate(chains())]
    assert all(max(h) < 0.2 for h in rank_histograms(same))
    assert all(max(h) > 0.12 and min(h) < 0.02 for h in rank_histograms(shifted))
    for histogram in rank_histograms(shifted):
        assert sum(histogram) == pytest.approx(1)


def test_beta_facts_are_the_cores_spread_and_matching_best_of_n():
    rng = random.Random(1)
    rewards = [rng.gauss(-2, 1) for _ in range(60)] + [rng.gauss(3, 1.5) for _ in range(40)]
    facts = beta_facts(rewards)
    mixture = fit_mixture(rewards)
    n, beta = facts["matching"][-1]["n"], facts["matching"][-1]["beta"]
    assert beta == best_of_n_as_alignment(mixture, n).beta
    assert facts["spread"] > 1
    assert "Too few" in beta_facts([1.0, 2.0])["note"]
