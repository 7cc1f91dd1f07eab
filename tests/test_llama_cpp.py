"""The words of llama.cpp's interface, on a fake of it; a real one is in tests/llamacpp."""

from __future__ import annotations

import asyncio

import pytest
from fake_server import EOS, IDS, FakeLlamaCpp
from refusals import refusal
from tiny_models import N_VOCABULARY, save

from qalign_core import Sampling, registry, run_chain
from qalign_core.errors import InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models.served.language_model import LlamaCppLanguageModel, ServedLanguageModel
from qalign_core.registry import load_reward_model
from qalign_core.rewards.served import ServedRewardModel

PROMPT = "Mia has 12 books. How many?"
QUICK = {"pause": 0.001, "timeout": 20.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("served"), "llama")


@pytest.fixture
def server(folder):
    fake = FakeLlamaCpp(folder)
    yield fake
    fake.stop()


def connect(server, limit=14, **options):
    where = {"tokenizer": str(server.root), "sampling": Sampling(max_new_tokens=limit)}
    return ServedLanguageModel.connect(server.address, **{**QUICK, **where, **options})


async def test_ids_go_both_ways_and_the_eos_counts(server):
    lm = connect(server)
    assert type(lm) is type(connect(server, approximate=True)) is LlamaCppLanguageModel
    assert (lm.id, lm.context_length, lm.n_parameters, lm.eos) == ("tiny.gguf", 192, 95_296, EOS)
    ids = lm.encode(PROMPT)
    responses = await asyncio.gather(*(lm.extend(ids, (), seed=k) for k in range(40)))
    assert {r.finished for r in responses} == {True, False}
    for response in responses:
        assert response.finished == (response.tokens[-1] in EOS)
        assert response.finished or len(response) == 14
        assert list(response.log_probs) == pytest.approx([-1 - id / 100 for id in response.tokens])
    longest = max(responses, key=len)
    again = await lm.extend(ids, longest.tokens[:9], seed=1)
    assert again.tokens[:9] == longest.tokens[:9]
    assert server.bodies[-1]["prompt"] == [*ids, *longest.tokens[:9]]
    assert server.bodies[-1]["n_predict"] == 5
    assert server.most <= server.slots


async def test_every_sampler_is_named_so_that_no_option_of_the_server_leaks_in(server):
    lm = connect(server).with_sampling(
        Sampling(temperature=0.7, top_p=0.8, top_k=9, max_new_tokens=14)
    )
    await lm.extend(lm.encode(PROMPT), (), seed=2**64 - 1)
    body = server.bodies[-1]
    assert body["samplers"] == ["temperature", "top_k", "top_p"]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.8, 9)
    assert (body["min_p"], body["typical_p"], body["top_n_sigma"]) == (0, 1, -1)
    assert (body["repeat_penalty"], body["dry_multiplier"], body["xtc_probability"]) == (1, 0, 0)
    assert (body["mirostat"], body["dynatemp_range"], body["logit_bias"]) == (0, 0, [])
    assert (body["cache_prompt"], body["n_cache_reuse"]) == (True, 0)
    assert 0 <= body["seed"] < 2**32 - 1  # which would ask for any


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"grammar": "root ::= [a-z]"}, "samples with grammar = 'root ::= [a-z]' whatever"),
        ({"stop": ["\n"]}, r"samples with stop = ['\n'] whatever"),
        ({"samplers": ["top_k", "temperature"]}, "samples with samplers = ['top_k',"),
        ({"top_k": 40}, "samples with top_k = 40 whatever"),
        ({"logit_bias": [{"token": 9, "bias": -1}]}, "samples with logit_bias ="),
        ({"logit_bias": 5}, "an answer without generation_settings"),
    ],
)
def test_a_server_that_samples_otherwise_than_it_is_asked_to_is_refused(server, fixed, words):
    server.fixed = fixed
    with refusal(ModelLoadError, words):
        connect(server)


async def test_what_either_side_takes_for_an_end_is_one(server, folder):
    server.ends = (*EOS, 80)
    assert connect(server).eos == (*EOS, 80)
    server.ends = (2,)  # it goes on behind a 5, which is cut off here
    lm = connect(server)
    assert lm.eos == EOS
    responses = [await lm.extend(lm.encode(PROMPT), (), seed=k) for k in range(40)]
    assert {r.tokens[-1] for r in responses if r.finished} == {*EOS}
    for response in responses:
        assert not any(token in EOS for token in response.tokens[:-1])
        assert len(response.log_probs) == len(response)


async def test_a_response_with_a_token_of_which_nothing_is_told_has_no_log_probabilities(server):
    server.parts = True
    lm, rm = connect(server), load_reward_model("none")
    ids = lm.encode(PROMPT)
    for response in [await lm.extend(ids, (), seed=k) for k in range(20)]:
        assert (response.log_prob is None) == (len(response) > 2)
    chain = run_chain(lm, rm, PROMPT, beta=1.0, steps=6, seed=2)  # the paper's target reads none
    assert len([step async for step in chain]) == 7
    with pytest.raises((ModelContractError, InvalidSetting), match="log-probabilit"):
        [s async for s in run_chain(lm, rm, PROMPT, beta=1.0, sharpness=4.0, steps=40, seed=2)]


async def test_given_ids_are_not_weighed_and_no_block_is_rewritten(server):
    lm = connect(server)
    for ask in (lambda: lm.delimiters("a"), lambda: asyncio.run(lm.score_tokens((1,), (70,)))):
        with refusal(ModelContractError, match="probabilities of given tokens"):
            await asyncio.to_thread(ask)


@pytest.mark.parametrize("fault", ["503", "500", "half", "html", "lost ids", "aborted"])
async def test_what_may_pass_is_tried_again_with_the_same_seed(server, fault):
    lm = connect(server)
    expected = await lm.extend(lm.encode(PROMPT), (), seed=8)
    server.bodies.clear()
    server.faults.extend([fault] * 3)
    assert await lm.extend(lm.encode(PROMPT), (), seed=8) == expected
    assert len(server.bodies) == 4
    assert all(body == server.bodies[0] for body in server.bodies)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("other prompt", "changes ids"),
        ("no end", "up to the first EOS"),
        *((fault, f"ids from 0 to {N_VOCABULARY - 1}") for fault in IDS),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(server, fault, words):
    lm = connect(server)
    server.bodies.clear()
    server.lasting = fault
    with refusal(ModelContractError, words):
        await lm.extend(lm.encode(PROMPT), (), seed=1)
    assert len(server.bodies) == 1


def test_its_tokenizer_must_be_named_and_its_own(server):
    from qalign_core.assets import ASSETS

    for tokenizer in (None, str(ASSETS / "models" / "lm")):
        with refusal(ModelLoadError, match="--lm-tokenizer"):
            connect(server, tokenizer=tokenizer)


def test_it_is_no_reward_model(server, folder):
    server.lasting = "404"  # what llama.cpp answers to /classify
    with refusal(ModelLoadError, match="runner pooling"):
        ServedRewardModel.connect(server.address, tokenizer=str(folder), **QUICK)


def test_an_address_or_an_entry_of_ones_own_registry_names_it(
    server, folder, tmp_path, monkeypatch
):
    own = tmp_path / "own.toml"
    own.write_text(
        f'[[lm]]\nid = "laptop"\nsource = "{server.address}"\n'
        f'options = {{ tokenizer = "{folder}" }}\n'
    )
    monkeypatch.setenv("QALIGN_REGISTRY", str(own))
    registry.entries.cache_clear()
    try:
        lm = registry.load_language_model("laptop")
        assert lm.n_parameters == 95_296
        assert isinstance(lm, LlamaCppLanguageModel)
    finally:
        registry.unload("laptop")
        registry.entries.cache_clear()
