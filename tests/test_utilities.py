import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from qalign_core.decide import rouge
from qalign_core.decide.answers.extraction import EXTRACTORS
from qalign_core.decide.answers.graders import get_grader
from qalign_core.decide.methods import minimum_bayes_risk
from qalign_core.decide.rouge import rouge1
from qalign_core.decide.rules import RULES
from qalign_core.target import Target
from qalign_core.types import Response, ScoredResponse

REFERENCE = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False)


def reference(y, other):
    return REFERENCE.score(other, y)["rouge1"].fmeasure


def by_matrix(y, other):
    return rouge1.matrix([y, other])[0, 1]


words = st.lists(st.sampled_from(["the", "The", "cat", "sat", "it's", "3.5", "é", "x_y", "-"]))


@pytest.mark.filterwarnings("ignore:ROUGE-1 counts")
@settings(max_examples=300)
@given(words.map(" ".join), words.map(" ".join))
def test_the_matrix_has_the_scorers_value_to_1e_12(y, other):
    assert by_matrix(y, other) == pytest.approx(reference(y, other), abs=1e-12)


@settings(max_examples=200)
@given(st.text(max_size=60), st.text(max_size=60))
@pytest.mark.filterwarnings("ignore:ROUGE-1 counts")
def test_the_matrix_splits_any_text_into_the_words_of_the_scorer(y, other):
    assert by_matrix(y, other) == pytest.approx(reference(y, other), abs=1e-12)


@pytest.mark.filterwarnings("ignore:ROUGE-1 counts")
@settings(max_examples=200)
@given(st.lists(words.map(" ".join), min_size=1, max_size=6))
def test_the_matrix_is_the_pairwise_values(texts):
    pairs = [[rouge1(y, other) for other in texts] for y in texts]
    np.testing.assert_allclose(rouge1.matrix(texts), pairs, rtol=0, atol=1e-12)


def test_repeated_words_are_clipped_and_no_words_score_nothing():
    assert rouge1("a a a b", "a a c") == pytest.approx(2 * 2 / 7)
    assert rouge1("", "") == rouge1("!?", "word") == 0.0
    assert rouge1.matrix(["", "!?"]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_texts_that_rouge_cannot_read_are_warned_of_in_one_sentence():
    greek, mixed = "η απάντηση είναι δέκα", "the café sells 10 cakes a day " + "and some tea " * 5
    with pytest.warns(UserWarning, match=r"Latin letters .* some texts are mostly others"):
        assert not rouge1.matrix([greek, mixed])[0].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rouge1.matrix([mixed, "10 + 5 = 15", ""])


@pytest.mark.parametrize(
    ("y", "other"),
    [("größer", "gr er"), ("la réponse est 10", "la r ponse est 10"), ("Ärger", "rger")],
)
def test_words_that_accents_cut_are_warned_of(y, other):
    for compare in (rouge1, by_matrix):
        with pytest.warns(UserWarning, match="accents cut words in some texts"):
            assert compare(y, other) == 1.0


@pytest.mark.parametrize("name", EXTRACTORS)
def test_chinese_texts_with_an_extractor_are_no_matter_of_rouge(name):
    texts = ["每盒6个，答案是18。", "答案是B。", "小明有3个盒子。"]
    samples = [ScoredResponse(Response((k,), text, True), 1.0) for k, text in enumerate(texts)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rule in RULES.values():
            rule.decide(samples, get_grader(name).extract, Target(1.0))
        with pytest.raises(UserWarning, match="Latin letters"):  # the control
            RULES["mv"].decide(samples, None, Target(1.0))


def test_minimum_bayes_risk_over_512_responses_compares_no_pair_by_itself(monkeypatch):
    rng = random.Random(0)
    vocabulary = [f"word{k}" for k in range(2000)]
    samples = []
    for k in range(512):
        text = " ".join(rng.choices(vocabulary, k=100))
        samples.append(ScoredResponse(Response((k,), text, True), rng.gauss(0, 1)))
    with monkeypatch.context() as only:
        only.setattr(rouge, "_scorer", lambda: pytest.fail("a pair was compared"))
        decision = minimum_bayes_risk(samples, rouge1)
        with pytest.raises(pytest.fail.Exception, match="a pair"):  # the control
            minimum_bayes_risk(samples[:2], lambda y, other: rouge1(y, other))
    chosen = decision.chosen.response.text
    others = [s.response.text for s in samples[:40]]
    expected = [reference(chosen, other) for other in others]
    assert [rouge1(chosen, other) for other in others] == pytest.approx(expected, abs=1e-12)
