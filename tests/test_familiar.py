"""What the embedded model was made for is told from what it was not, before anything is loaded."""

from __future__ import annotations

import random

import pytest

from components.common.new_problem import KINDS, new_problem
from qalign_core.assets import ASSETS
from qalign_core.models.prompt_fit import tokens_per_character
from qalign_core.registry import entries, is_foreign
from qalign_study.sets.problem_sets import load_problems

pytestmark = pytest.mark.more

SETS = ("in_distribution", "shifted", "long", "writing")
FOREIGN = {
    "prose": "It was a bright cold day in April, and the clocks were striking thirteen.",
    "question": "What is the capital of France?",
    "poem": "Write a haiku about autumn leaves.",
    "word problem of another kind": "Natalia sold clips to 48 of her friends in April, and then "
    "she sold half as many clips in May. How many clips did Natalia sell altogether?",
    "German": "Anna hat 3 Äpfel. Sie kauft 4 weitere Äpfel. Wie viele Äpfel hat sie jetzt?",
    "Chinese": "法国的首都是哪里？",
    "code": "def f(x):\n    return x ** 2 + 1\n",
    "sum": "2+2=?",
    "rubbish": "asdf qwer zxcv hjkl",
}
OWN = {
    "a visitor's": "Anna has 3 apples. She buys 4 more apples. How many apples does she have now?",
    "with an unknown name": "Peter owns 20 coins. He finds 3 more. How many coins does Peter have?",
    "with much white space": "Tom has 12 marbles.\n\n\n   He gives 5 to Ivy.\nHow many are left?",
    "nothing": "",
}


@pytest.mark.parametrize("name", SETS)
def test_no_problem_of_the_shipped_sets_is_foreign(name):
    problems = load_problems(ASSETS / "tasks" / f"{name}.jsonl")
    assert len(problems) >= 100
    assert not [p.prompt for p in problems if is_foreign("embedded", p.prompt)]


@pytest.mark.parametrize("kind", KINDS.values())
def test_no_new_problem_is_foreign_with_a_margin(kind):
    """A tenth of the way from the finest of the sets to the bound is left at the least."""
    entry = entries()["lm", "embedded"]
    foreign = [
        tokens_per_character(entry.location, new_problem(kind, random.Random(seed))[0])
        for seed in range(300)
    ]
    assert max(foreign) < 0.9 * entry.finest


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_other_texts_are_foreign(text):
    assert is_foreign("embedded", text)


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_a_problem_like_those_of_the_sets_is_not(text):
    assert not is_foreign("embedded", text)


@pytest.mark.parametrize("lm", ["smollm2-135m", "owner/name", "http://localhost:1"])
def test_other_models_are_made_for_any_text(lm):
    assert not is_foreign(lm, FOREIGN["prose"])
