"""Rewards read off the text alone: what they see, what they cannot, and whatever a text may be."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal
from toys import PROMPT, ToyLM

from components.compare.view import view
from components.session.drawing import draw_run
from components.session.offer import Offer, needs_gpu
from components.session.runs import Runs
from qalign_core.chain.cost import draw_cost, meter_of, prompt_scored, reading_of
from qalign_core.errors import InvalidSetting, ModelLoadError
from qalign_core.record.format import parse_trace
from qalign_core.registry import entries_of, load_reward_model
from qalign_core.rewards.kinds.texts import MOST_MOOD, WORST_GRADE
from qalign_core.run import Limits, Run
from qalign_core.types import Response
from qalign_study.commands import main
from qalign_study.measure.comparisons import Comparison, matched_run

NAMES = ("mood", "plain", "length:12", "contains:sun", "none")
HOSTILE = (
    *("", " ", "\x00", "\u2028", "</script>", "but " * 400, "no " * 400, "😀" * 400),
    *("great " * 400, "GREAT!!! " * 400, "a" * 5000, "." * 5000, "-" * 5000, "ﷺ" * 100),
)


def score(name: str, text: str) -> float:
    return asyncio.run(load_reward_model(name).score("How was it?", Response((), text, True)))


def ascending(name: str, *texts: str) -> bool:
    scores = [score(name, text) for text in texts]
    return all(low < high for low, high in pairwise(scores))


def test_mood_orders_sentences_as_a_reader_would():
    assert ascending(
        "mood",
        "It was a horrible, disgusting flight and I hated it.",
        "It was a bad flight.",
        "It was a flight.",
        "It was a good flight.",
        "It was a wonderful flight and I loved every happy moment.",
    )
    assert score("mood", "The plane landed at noon.") == 0.0
    assert score("mood", "The flight was not good.") < 0


def test_mood_does_not_saturate_where_its_compound_score_does():
    praise = [score("mood", "great " * n) for n in (2, 8, 32)]
    compounds = [math.tanh(value) for value in praise]
    assert compounds[2] - compounds[1] < 0.02
    assert praise[2] - praise[1] > 1
    assert praise[1] == pytest.approx(math.asinh(8 * 3.1 / math.sqrt(15)), abs=0.01)


def test_mood_cannot_see_sarcasm():
    assert score("mood", "Great, we lost my luggage again. What a wonderful start.") > 0.5


def test_plain_is_minus_the_published_grade():
    # The quick brown fox jumps over the lazy dog: 35 letters, 9 words, 1 sentence
    fox = "The quick brown fox jumps over the lazy dog."
    assert score("plain", fox) == pytest.approx(-(4.71 * 35 / 9 + 0.5 * 9 - 21.43))
    assert ascending(
        "plain",
        "Notwithstanding considerable meteorological inconveniences, transportation proceeded "
        "satisfactorily throughout the aforementioned metropolitan administrative district.",
        "The train was late because of heavy rain, and many passengers missed their connections.",
        "The train was late. It rained. We had to wait.",
    )


def test_plain_gains_nothing_by_saying_nothing():
    assert score("plain", "") == score("plain", "... !!") == -WORST_GRADE
    assert score("plain", "I am.") == 0.0


def test_length_counts_words_and_contains_finds_whole_ones():
    assert score("length:3", "Don't stop now.") == 0.0
    assert score("length:3", "Stop.") == score("length:3", "one two three four five") == -2.0
    assert score("contains:sun", "The SUN rose.") == 1.0
    assert score("contains:sun", "On Sunday, in a sunny place.") == 0.0
    assert score("contains:thank you", "Yes, thank you!") == 1.0
    assert score("contains:(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!") == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_hostile_texts_have_finite_rewards_within_the_scale(name):
    for text in HOSTILE:
        value = score(name, text)
        assert math.isfinite(value)
        assert value == score(name, text)
        if name == "mood":
            assert abs(value) <= math.atanh(MOST_MOOD)
        if name == "plain":
            assert -WORST_GRADE <= value <= 0


@given(st.text(max_size=200))
def test_any_text_has_a_reward(text):
    for name in NAMES:
        rm = load_reward_model(name)
        assert math.isfinite(rm.function("", text))


@pytest.mark.parametrize("name", NAMES)
def test_they_cost_nothing_and_take_no_options(name):
    rm = load_reward_model(name)
    assert (rm.id, rm.n_parameters, prompt_scored(30, reading_of(rm))) == (name, 0, 0)
    cost = draw_cost(30, 4, 20, reading_of(rm))
    assert (cost.generated, cost.scored) == (16, 0)
    assert meter_of(object(), rm).unit == "tokens processed"
    with pytest.raises(ModelLoadError, match="has no option device; it has none"):
        load_reward_model(name, device="cpu")


@pytest.mark.parametrize(
    "name",
    [
        "mood:happy",
        "plain:3",
        "none:0",
        "length",
        "length:",
        "length:-3",
        "length:1e9",
        "contains:",
    ],
)
def test_an_argument_that_cannot_be_is_refused_in_one_sentence(name):
    with refusal(InvalidSetting, match="; write "):
        load_reward_model(name)


def test_each_is_in_the_registry_with_what_it_cannot_see():
    titles = {entry.id: entry.title for entry in entries_of("rm") if entry.reads_text}
    assert tuple(titles) == NAMES
    for title in titles.values():
        assert "does not" in title or "sees nothing else" in title


def test_every_server_offers_them_with_any_word_and_no_gpu():
    offer = Offer(names=())
    assert set(NAMES) <= set(offer.models["rm"])
    offer.check("embedded", "0.5*contains:rain + 0.5*length:30")
    with pytest.raises(ModelLoadError):
        offer.check("mood", "embedded")
    assert not needs_gpu("embedded", "0.5*mood + 0.5*contains:rain")
    assert needs_gpu("smollm2-135m", "mood")


def test_a_sum_of_them_and_a_model_is_a_reward():
    text = "The sun is good."
    both = score("0.5*mood + 2*contains:sun", text)
    assert both == pytest.approx(0.5 * score("mood", text) + 2.0)


def test_a_chain_of_the_command_line_is_steered_by_one(capsys):
    run = ["run", "--prompt", "Write a sentence.", "--steps", "8", "--max-new-tokens", "24"]
    assert main([*run, "--rm", "length:5", "--beta", "0.3"]) == 0
    output = capsys.readouterr().out
    assert output.count("\n") > 8
    assert main(["compare", *run[1:5], "--rm", "mood", "--beta", "0.3"]) == 0


async def test_a_page_draws_and_compares_with_one():
    models = ToyLM(), load_reward_model("0.5*mood + 0.5*contains:shells")
    runs = Runs(Limits(), load=lambda *_: models)
    run = matched_run(Run(PROMPT, rm=models[1].id, steps=6, pool=8), "samples", 64)
    async for now in runs.stream("visitor", lambda feed: draw_run(feed, runs, run)):
        last = now
    assert last.status.state == "finished"
    trace = parse_trace(last.text)
    assert trace.header.run.rm == run.rm
    assert len({step.proposal.reward for step in trace.steps}) > 0
    assert view(Comparison(trace), state="done", budget="samples")
