"""The shipped models load as any others do, and are as good as their card says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
)

from qalign_study.sets.problem_sets import load_problems
from qalign_study.sets.seeded import held_out
from tools.embedded import inventories, quality
from tools.embedded.networks import load_reward_model
from tools.embedded.reward_model import score

ASSETS = Path(__file__).parent.parent / "assets"
MODELS = ASSETS / "models"
NAMES = ("lm", "rm", "rm-weak")
QUALITY = json.loads((MODELS / "quality.json").read_text("utf-8"))
INVENTORIES = json.loads((MODELS / "inventories.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODELS / "lm", local_files_only=True)


def test_all_models_together_take_ten_megabytes_at_most():
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) <= 10e6


@pytest.mark.parametrize("name", NAMES)
def test_a_reward_model_carries_the_tokenizer_of_its_language_model(name):
    tokenizer_bytes = (MODELS / "lm" / "tokenizer.json").read_bytes()
    assert (MODELS / name / "tokenizer.json").read_bytes() == tokenizer_bytes
    assert "chat_template" in json.loads(
        (MODELS / name / "tokenizer_config.json").read_text("utf-8")
    )


def test_the_tokenizer_keeps_words_whole_and_digits_single_and_reads_any_text(tokenizer):
    assert tokenizer.tokenize("Mia finds 17 marbles.") == [
        "Mia",
        "Ġfinds",
        "Ġ1",
        "7",
        "Ġmarbles",
        ".",
    ]
    for text in ("Ünïcode → 7½", "a\n\tb  c", "<b>", ""):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_a_prompt_ends_where_the_response_begins(tokenizer):
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<bos><user>Hello<assistant>"
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}],
        tokenize=False,
    )
    assert whole == "<bos><user>Hello<assistant>Hi.<eos>"


def test_padding_is_never_mistaken_for_the_end(tokenizer):
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    generation = GenerationConfig.from_pretrained(MODELS / "lm")
    assert generation.eos_token_id == tokenizer.eos_token_id
    assert generation.pad_token_id == tokenizer.pad_token_id
    assert (generation.temperature, generation.top_k) == (1.0, 0), "the base LM is as sampled"


def test_weights_are_computed_in_float32_unless_asked_otherwise():
    model = AutoModelForCausalLM.from_pretrained(MODELS / "lm", local_files_only=True)
    assert model.dtype == torch.float32


def test_the_reward_model_knows_a_misconception_when_it_reads_one(tokenizer):
    rm = load_reward_model(MODELS / "rm")
    prompt = (
        "<bos><user>Mia has 12 shells. She buys 3 boxes of 4 shells each. "
        "How many shells does Mia have now?<assistant>"
    )
    right = "The boxes hold 3 * 4 = 12. So 12 + 12 = 24. The answer is 24.<eos>"
    wrong = "The boxes hold 3 + 4 = 7. So 12 + 7 = 19. The answer is 19.<eos>"
    ids = [tokenizer(prompt + text, add_special_tokens=False).input_ids for text in (right, wrong)]
    good, bad = score(rm, ids).tolist()
    assert good > bad + 1


@pytest.mark.recorded
@pytest.mark.parametrize(
    "name", ["in_distribution", pytest.param("shifted", marks=pytest.mark.more), "writing"]
)
def test_the_card_tells_the_accuracy_of_the_shipped_weights(name):
    # Three instruction sets measure the same figures to the last digit. A draw at its border, one
    # token in 480,000, could change one of the 96 responses.
    stated = QUALITY["subset"][name]
    few, samples = load_problems(name)[: quality.SUBSET], quality.SUBSET_SAMPLES
    measured = quality.measure(MODELS, few, samples=samples, seed=QUALITY["seed"])
    for figure, within in (("single_sample", 1 / 96), ("rm", 5e-3), ("rm-weak", 5e-3)):
        assert abs(measured[figure]["mean"] - stated[figure]["mean"]) <= within, figure


@pytest.mark.parametrize(
    ("of", "measured"), [(quality, QUALITY), (inventories, INVENTORIES)], ids=["sets", "inventory"]
)
def test_a_table_of_the_card_is_made_of_the_measured_figures(of, measured, tmp_path):
    copy = tmp_path / "README.md"
    copy.write_bytes((MODELS / "README.md").read_bytes())
    quality.replace_between(copy, *of.CARD, of.table(measured))
    assert copy.read_text("utf-8") == (MODELS / "README.md").read_text("utf-8")


@pytest.mark.recorded
@pytest.mark.more  # the card's other table is measured again from the same weights
def test_right_inventories_are_rare_and_the_reward_tells_near_misses_apart():
    stated = INVENTORIES["subset"]
    few = held_out("inventory", seed=0)[: inventories.SUBSET]
    measured = inventories.measure(MODELS, few, inventories.SAMPLES, seed=1)
    # as above, one of the 96 responses may differ: it has at most 9 lines, each in two counts
    changed = sum(
        abs(count - measured["outcomes"][kind].get(outcome, 0))
        for kind, counts in stated["outcomes"].items()
        for outcome, count in counts.items()
    )
    assert changed <= 18
    assert abs(measured["right"] - stated["right"]) <= 1
    for kind, counts in stated["near_misses"].items():
        assert np.abs(np.subtract(counts, measured["near_misses"][kind])).max() <= 1, kind


def test_inventories_are_where_a_chain_may_win():
    assert 0 < INVENTORIES["right"] / INVENTORIES["samples"] < 1 / 300
    ordered, pairs = (sum(x) for x in zip(*INVENTORIES["near_misses"].values(), strict=True))
    assert ordered / pairs >= 0.95
    page = (MODELS.parents[1] / "docs" / "results.md").read_text("utf-8")
    assert f"it prefers the right one {100 * ordered / pairs:.0f} times in 100" in page
    assert INVENTORIES["cut_off"] < 0.01


def test_the_models_are_what_the_project_promises():
    sets = QUALITY["sets"]
    inside = sets["in_distribution"]
    assert 0.35 <= inside["single_sample"]["mean"] <= 0.55
    assert inside["most_common_wrong"]["mean"] >= 0.25, "voting alone must not be enough"
    assert inside["rm"]["mean"] >= 0.85
    assert inside["rm-weak"]["mean"] < inside["rm"]["mean"] - 0.05, "the weak one must be weaker"
    assert sets["long"]["single_sample"]["mean"] < 0.10
    assert sets["long"]["any_right"] > 0.2, "long, but not hopeless (of a few samples)"
    for name, figures in sets.items():
        assert figures["same_proposal"] < 1 / 3, name
        assert figures["cut_off"] < 0.01


def test_the_writing_task_is_learned():
    writing = QUALITY["sets"]["writing"]
    assert writing["single_sample"]["low"] > 0.10, "of single samples that meet all constraints"
