"""Inventories: every decision counts and can be read, and none was trained on."""

import json
import random
from itertools import product
from pathlib import Path

import pytest

from benchmarks import choose_beta
from qalign_core.decide.answers.equality import same_answer
from qalign_core.decide.answers.extraction import extract_amounts
from qalign_core.errors import InvalidTask
from qalign_core.run import default_extractor
from qalign_study.sets.generated import LARGEST, generate_problem, kind_of, split_of
from qalign_study.sets.inventory import N_THINGS, generate_inventory
from qalign_study.sets.problem_sets import load_problems
from qalign_study.sets.seeded import N_PROBLEMS, held_out

pytestmark = pytest.mark.more

TASKS = Path(__file__).parent.parent / "assets" / "tasks"
MISTAKEN = tuple(product((False, True), repeat=2))


def held(n=200, **more):
    rng = random.Random("test inventory")
    return [generate_inventory(rng, **more) for _ in range(n)]


def test_an_inventory_takes_ten_decisions_or_more_and_its_answer_is_all_amounts():
    for inventory in held():
        assert len(inventory.events) == 2 * N_THINGS >= 10
        amounts = [part.amounts()[-1] for part in inventory.parts]
        text = " ".join(f"The {p.things}: So 1 + 1 = {p.amounts()[-1]}." for p in inventory.parts)
        assert extract_amounts(text) == inventory.answer
        for n in range(N_THINGS):
            other = [amount + (i == n) for i, amount in enumerate(amounts)]
            wrong = ", ".join(
                f"{amount} {part.things}"
                for amount, part in zip(other, inventory.parts, strict=True)
            )
            assert not same_answer(wrong, inventory.answer)


def test_no_pattern_of_mistakes_gives_a_thing_its_right_amount():
    for inventory in held():
        for part in inventory.parts:
            last = [part.amounts(mistaken)[-1] for mistaken in MISTAKEN]
            assert last[0] not in last[1:], part


def test_amounts_stay_whole_and_in_range_whatever_is_mistaken():
    for inventory in held():
        for part, mistaken in product(inventory.parts, MISTAKEN):
            amounts = [part.start, *part.amounts(mistaken)]
            for event, before, after in zip(part.events, amounts, amounts[1:], strict=False):
                assert event.kind != "half" or before % 2 == 0
                assert 2 <= after <= LARGEST


def test_the_prompt_tells_every_event_in_order_and_nothing_twice():
    for inventory in held():
        at = 0
        for part in inventory.parts:
            at = inventory.prompt.index(f"has {part.start} {part.things}.", at)
            for event in part.events:
                at = inventory.prompt.index(event.text, at)
        distractors = [event.subject for event in inventory.events if event.kind == "distractor"]
        assert len(distractors) == len(set(distractors))
        assert "{" not in inventory.prompt


def test_held_out_inventories_and_training_inventories_never_meet():
    assert {split_of(i.key) for i in held()} == {"held_out"}
    assert {split_of(i.key) for i in held(split="train")} == {"train"}


def test_a_reader_of_decisions_finds_what_the_corpus_wrote():
    from tools.embedded.decisions import read_decisions
    from tools.embedded.solutions import draw_mistakes, write_inventory

    rng = random.Random(0)
    for inventory in held(split="train"):
        mistaken = draw_mistakes(rng, inventory)
        text = write_inventory(rng, inventory, mistaken)
        decisions = read_decisions(inventory, text)
        assert [d.outcome for d in decisions] == ["mistaken" if m else "right" for m in mistaken]
        assert [text[d.end - 1] for d in decisions] == ["."] * len(mistaken)
        assert same_answer(extract_amounts(text), inventory.answer) == (not any(mistaken))


def test_a_slip_is_told_from_a_mistake_and_costs_no_other_decision():
    from tools.embedded.decisions import read_decisions
    from tools.embedded.solutions import write_inventory

    rng, n, lucky, followed = random.Random(0), 0, 0, 0
    for inventory in held(split="train"):
        mistaken, at = [False] * len(inventory.events), rng.randrange(len(inventory.events))
        if inventory.events[at].kind == "distractor":
            continue  # nothing is read there that could be misread
        text = write_inventory(rng, inventory, mistaken, slip=at)
        outcomes = [d.outcome for d in read_decisions(inventory, text)]
        n += 1
        lucky += same_answer(extract_amounts(text), inventory.answer)
        followed += outcomes.count("right") == len(outcomes) - 1
    assert lucky < 0.05 * n, "33 / 2 = 16 is as good as 32 / 2 = 16, and little else"
    assert followed > 0.9 * n, "what follows from a slip is right"


@pytest.mark.parametrize(
    ("text", "outcomes"),
    [
        ("The nuts: So 8 / 2 = 4. First 2 * 3 = 6. So 4 + 6 = 10.", ["right", "right"]),
        ("The nuts: So 8 - 2 = 6. First 2 + 3 = 5. So 6 + 5 = 11.", ["mistaken", "mistaken"]),
        ("The nuts: So 8 / 2 = 5. First 2 * 3 = 6. So 5 + 6 = 11.", ["slip", "right"]),
        ("The nuts: So 8 / 2 = 4. First 2 * 3 = 6. So 4 + 7 = 11.", ["right", "slip"]),
        ("The nuts: First 2 * 3 = 6. So 8 + 6 = 14.", ["slip", "right"]),
        ("The nuts: So 8 / 2 = 4.", ["right", "slip"]),
        ("The eggs: So 8 / 2 = 4.", ["slip", "slip"]),
        ("", ["slip", "slip"]),
    ],
)
def test_decisions_are_read_as_a_person_would(text, outcomes):
    from qalign_study.sets.generated import Event
    from qalign_study.sets.inventory import Inventory, Part
    from tools.embedded.decisions import read_decisions

    inventory = Inventory("", (Part("nuts", 8, (Event("half"), Event("boxes", 2, 3))),), {})
    assert [d.outcome for d in read_decisions(inventory, text)] == outcomes


def test_an_inventory_is_known_by_its_prompt_and_read_as_amounts():
    prompt = generate_inventory(random.Random(1)).prompt
    assert kind_of(prompt) == "inventory"
    assert default_extractor(prompt) == "amounts"
    assert kind_of(generate_problem(random.Random(1), "long").prompt) == "long"


def test_the_set_is_held_out_and_made_by_the_generator():
    rows = [
        json.loads(line) for line in (TASKS / "inventory.jsonl").read_text("utf-8").splitlines()
    ]
    held = held_out("inventory", seed=0)
    assert len(rows) == len(held) == 350
    assert [(row["prompt"], row["answer"]) for row in rows] == [(i.prompt, i.answer) for i in held]
    assert {row["extractor"] for row in rows} == {"amounts"}
    assert {split_of(i.key) for i in held} == {"held_out"}


@pytest.mark.parametrize("name", N_PROBLEMS)
def test_every_set_is_drawn_again_by_its_name_and_seed(name):
    embedded = load_problems(name)
    assert load_problems(f"{name}@0") == embedded
    fresh = load_problems(f"{name}@2")
    assert len(fresh) == len(embedded) == N_PROBLEMS[name]
    assert fresh[0].id == f"{name}@2-000"
    if name != "writing":  # of which there are few
        assert not {p.prompt for p in embedded} & {p.prompt for p in fresh}


@pytest.mark.parametrize("task", ["inventory@", "inventory@-1", "inventory@01", "other@2"])
def test_another_name_with_an_at_sign_is_that_of_a_file(task):
    with pytest.raises(InvalidTask, match="give the name of a set"):
        load_problems(task)


def test_the_beta_of_inventories_is_chosen_by_the_stated_rule():
    assert choose_beta.chosen({0.4: 0.1, 0.8: 0.3, 1.6: 0.2}) == 0.8
    assert choose_beta.chosen({1.6: 0.3, 0.4: 0.3, 0.8: 0.2}) == 0.4, "of equals, the smaller"
    assert choose_beta.FIRST >= 300, "no result reports those"
