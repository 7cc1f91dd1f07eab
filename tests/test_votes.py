"""Thousands of votes at once are the votes one by one."""

import numpy as np
import pytest

from qalign_core.decide.arrays import least_risk, vote
from qalign_core.decide.methods import majority_vote, minimum_bayes_risk
from qalign_core.decide.rouge import rouge1
from qalign_core.types import Response, ScoredResponse


def samples_of(texts, rewards):
    return [
        ScoredResponse(Response((i,), text, True), float(reward))
        for i, (text, reward) in enumerate(zip(texts, rewards, strict=True))
    ]


def test_a_vote_is_majority_vote():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, k = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        answer = rng.integers(-1, k, size=(1, n))
        reward = rng.integers(-2, 3, size=(1, n)).astype(float)
        weight = rng.integers(1, 4, size=(1, n)).astype(float)
        won = int(vote(answer, weight, k)[0])
        decision = majority_vote(
            samples_of(answer[0].astype(str), reward[0]),
            lambda text: None if text == "-1" else text,
            weights=weight[0],
        )
        if decision.answer is None:
            assert won == -1
            continue
        assert won == int(decision.answer)  # small whole numbers: many ties down to the last one


@pytest.mark.parametrize("n", range(2, 9))
def test_an_answer_that_came_first_wins_a_vote_that_is_tied_in_all_else(n):
    rng = np.random.default_rng(n)
    answer = rng.integers(-1, 3, (100, n))
    won = vote(answer, np.ones(answer.shape), 3)
    for one, row in zip(won, answer.tolist(), strict=True):
        voters = [a for a in row if a >= 0]
        most = [a for a in voters if voters.count(a) == max(map(voters.count, voters))]
        assert one == (most[0] if most else -1)


def test_votes_do_not_depend_on_their_company():
    rng = np.random.default_rng(6)
    answer, weight = rng.integers(-1, 4, (50, 9)), rng.random((50, 9))
    alone = [vote(answer[[i]], weight[[i]], 4)[0] for i in range(50)]
    assert vote(answer, weight, 4).tolist() == alone
    assert vote(np.full((2, 3), -1), np.ones((2, 3)), 0).tolist() == [-1, -1]


def test_minimum_bayes_risk_is_that_of_the_core():
    rng = np.random.default_rng(7)
    words = np.array(["a", "b", "c", "d"])
    texts = [" ".join(rng.choice(words, rng.integers(1, 5))) for _ in range(12)]
    texts = list(dict.fromkeys(texts))
    utility = rouge1.matrix(texts)
    for _ in range(200):
        samples = rng.integers(len(texts), size=(1, 7))
        weight, reward = rng.random((1, 7)), rng.normal(size=(1, 7))
        won = int(least_risk(samples, weight, utility)[0])
        decision = minimum_bayes_risk(
            samples_of([texts[i] for i in samples[0]], reward[0]), rouge1, weight[0]
        )
        assert texts[won] == decision.chosen.response.text


@pytest.mark.parametrize("first", [0, 1])
def test_of_texts_of_equal_risk_the_first_to_appear_is_chosen(first):
    samples = np.array([[first, 1 - first]])
    assert least_risk(samples, np.ones((1, 2)), np.eye(2))[0] == first
