"""The contract of language models, held by a real llama.cpp; and what it does not promise."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
import transformers
from llamacpp_options import SLOTS, USUAL
from test_contract import (  # noqa: F401  the suite that every language model passes
    FALSE_ALARM,
    LIMIT,
    NARROW,
    PROMPT,
    SETTINGS,
    chi_square,
    displayed_log_probs,
    draws,
    first_tokens_follow,
    run_law,
    test_a_batch_gives_what_single_requests_give,
    test_a_language_model_obeys_every_law,
    test_the_last_token_counts_and_is_eos_exactly_if_finished,
    test_there_is_a_piece_for_every_token_and_they_join_to_the_text,
)
from test_serve import answering, served_by, talking, trace_of
from tiny_models import tokenizer

from qalign_core import Sampling, run_chain
from qalign_core.contract import verify_log_probs
from qalign_core.errors import ModelContractError, ModelLoadError
from qalign_core.messages import messages_of
from qalign_core.models.served import language_model
from qalign_core.models.served.language_model import LlamaCppLanguageModel, ServedLanguageModel
from qalign_core.registry import load_reward_model
from qalign_study.commands import main

SAMPLING = Sampling(max_new_tokens=LIMIT)


def connect(server, **options):
    where = {"tokenizer": str(server.folder), "sampling": SAMPLING}
    return ServedLanguageModel.connect(server.address, **{**where, **options})


def plain_model(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


@pytest.fixture
def lm(server):
    return connect(server)


@pytest.fixture
def torch_lm(server, lm):
    """The served model, and the plain transformers model that it was converted from."""
    return lm, plain_model(server.folder)


def first_logits(plain, ids):
    return plain(torch.tensor([ids])).logits[0, -1]


def test_the_kind_of_server_is_found_out_and_what_it_says_of_itself_is_used(lm, server):
    assert type(lm) is LlamaCppLanguageModel
    assert lm.id == "letters.gguf"
    assert lm.context_length == 192
    assert lm.n_parameters == sum(p.numel() for p in plain_model(server.folder).parameters())
    assert lm.eos == (2, 5)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
async def test_first_tokens_follow_the_distribution_that_the_settings_show(torch_lm, sampling):
    await first_tokens_follow(torch_lm, sampling)


async def test_log_probabilities_are_those_of_the_distribution_that_is_sampled(torch_lm):
    lm, plain = torch_lm
    logits = first_logits(plain, lm.encode("Hi"))
    for sampling in SETTINGS:
        p = displayed_log_probs(logits, sampling)
        for response in await draws(lm.with_sampling(sampling), 12, prompt="Hi"):
            assert response.log_prob == pytest.approx(math.log(p[response.tokens[0]]), abs=1e-4)
    holds, evidence = await run_law(
        verify_log_probs, lm.with_sampling(replace(NARROW, temperature=0.6))
    )
    assert holds, evidence


async def test_samplers_in_the_order_of_the_servers_default_are_another_distribution(
    torch_lm, monkeypatch
):
    """The control of the tests that compare what is drawn and told with what the settings show."""
    lm, plain = torch_lm
    p, n = displayed_log_probs(first_logits(plain, lm.encode("Hi")), SETTINGS[2]), 800
    order = ["top_k", "top_p", "temperature"]
    monkeypatch.setitem(language_model.LLAMA_CPP, "samplers", order)
    responses = await draws(lm.with_sampling(SETTINGS[2]), n, prompt="Hi")
    counts = np.bincount([response.tokens[0] for response in responses], minlength=len(p))
    assert chi_square(counts, p, n) < FALSE_ALARM
    assert max(abs(r.log_prob - math.log(max(p[r.tokens[0]], 1e-9))) for r in responses) > 0.1


async def test_whole_responses_are_told_as_transformers_computes_them(torch_lm):
    lm, plain = torch_lm
    ids = lm.encode(PROMPT)
    for response in await draws(lm, 16):
        logits = plain(torch.tensor([[*ids, *response.tokens]])).logits[0, len(ids) - 1 : -1]
        log_p = logits.log_softmax(-1)[range(len(response)), list(response.tokens)]
        assert list(response.log_probs) == pytest.approx(log_p.tolist(), abs=1e-4)


@pytest.mark.parametrize(("options", "same"), [((), True), (USUAL, False)])
async def test_a_seed_draws_the_same_alone_and_in_company_with_the_options_of_the_docs(
    start, options, same
):
    """The control is what llama-server does on its own."""
    lm, n = connect(start("8 bits", *options)), 60
    ids = lm.encode(PROMPT)
    alone = [await lm.extend(ids, (), seed=seed) for seed in range(n)]
    assert (await draws(lm, n) == alone) == same


async def test_the_server_keeps_a_prefix_and_reads_its_last_id_alone(lm, server):
    ids = list(lm.encode(PROMPT))
    prefix = max(await draws(lm, 4), key=len).tokens[:-1]
    sent = [*ids, *prefix]

    def n_kept(**changes):
        body = {**lm._body(sent, 1, 7), "response_fields": ["timings"], **changes}
        return httpx.post(f"{server.address}/completion", json=body, timeout=60).json()["timings"][
            "cache_n"
        ]

    first = await lm.extend(ids, prefix, seed=7)
    assert n_kept() == len(sent) - 1
    assert n_kept(cache_prompt=False) == 0  # the control
    assert await lm.extend(ids, prefix, seed=7) == first  # now computed as a whole


def test_no_more_requests_are_sent_than_run_at_once(lm):
    assert lm._at.server.rows == SLOTS


async def test_ids_come_back_where_their_text_would_be_others(start):
    lm = connect(start("bytes"))
    responses = await draws(lm, 40)
    texts = [lm._text.tokenize(lm._text.decode(r.tokens, special=True)) for r in responses]
    changed = [r for r, ids in zip(responses, texts, strict=True) if ids != r.tokens]
    assert len(changed) > 20
    ids, whole = lm.encode(PROMPT), max(changed, key=len)
    for cut in (1, len(whole) // 2, len(whole) - 1):
        again = await lm.extend(ids, whole.tokens[:cut], seed=cut)
        assert again.tokens[:cut] == whole.tokens[:cut]


async def test_a_response_has_log_probabilities_unless_a_character_came_apart(start):
    """What llama.cpp tells nothing of: tokens after which the text ends within a character."""
    lm = connect(start("bytes"))
    known, silent = [], []
    for response in await draws(lm.with_sampling(Sampling(max_new_tokens=3)), 60):
        (silent if response.log_prob is None else known).append(response)
    assert known
    assert silent
    ids, plain = lm.encode(PROMPT), plain_model(start("bytes").folder)
    for response in known:
        logits = plain(torch.tensor([[*ids, *response.tokens]])).logits[0, len(ids) - 1 : -1]
        log_p = logits.log_softmax(-1)[range(len(response)), list(response.tokens)]
        assert list(response.log_probs) == pytest.approx(log_p.tolist(), abs=1e-4)


def test_ids_that_only_the_server_ends_at_end_a_response_too(server, tmp_path):
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "eos_token_id": 2}')
    assert connect(server, tokenizer=str(tmp_path)).eos == (2, 5)


async def test_ids_that_the_server_goes_on_after_end_a_response_all_the_same(start, lm):
    sent = []

    class Deaf(LlamaCppLanguageModel):
        def _parse_reply(self, answer, *more):
            sent.append(answer["tokens"])
            return super()._parse_reply(answer, *more)

    ends = {*lm.eos, *range(70, 100)}
    other = Deaf(replace(lm._at, eos=tuple(ends)), id="other", sampling=SAMPLING)
    for response in await draws(other, 24):
        at = [token in ends for token in response.tokens]
        assert not any(at[:-1])
        assert response.finished == at[-1]
        assert len(response.log_probs) == len(response) <= LIMIT
    assert any(token in ends for tokens in sent for token in tokens[:-1])


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("antiprompt=['stop here']", "samples with stop = ['stop here'] whatever"),
        (
            "sampling.grammar=CommonGrammar(common_grammar_type.COMMON_GRAMMAR_TYPE_USER, "
            "'root ::= [a-z]+')",
            "samples with grammar = 'root ::= [a-z]+' whatever",
        ),
    ],
)
def test_a_server_with_options_that_no_request_can_change_is_refused(start, option, sentence):
    with pytest.raises(ModelLoadError) as raised:
        connect(start("letters", option))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_all_other_options_of_the_server_change_nothing(start, lm):
    bent = "sampling.top_k=3", "sampling.temp=0.1", "sampling.penalty_repeat=3.0", "n_predict=2"
    bent = *bent, "sampling.ignore_eos=True", "sampling.mirostat=2", "sampling.dry_multiplier=2.0"
    assert await draws(connect(start("letters", *bent)), 24) == await draws(lm, 24)


async def test_given_ids_are_not_weighed_and_no_block_is_rewritten(lm):
    with pytest.raises(ModelContractError, match="returns no probabilities of given tokens"):
        await lm.score_tokens(lm.encode(PROMPT), (70, 71))
    with pytest.raises(ModelContractError, match="or move = suffix"):
        lm.delimiters(".")


async def steps_of(lm, n, **options):
    rm = load_reward_model("contains:a")
    chain = run_chain(lm, rm, PROMPT, beta=0.5, steps=n, seed=9, **options)
    return [step async for step in chain]


async def test_a_chain_is_the_same_again_beside_others_and_when_it_is_continued(lm):
    alone = await steps_of(lm, 24)
    assert len({step.accepted for step in alone}) == 2
    company = await asyncio.gather(steps_of(lm, 24), *(steps_of(lm, 8) for _ in range(SLOTS)))
    assert company[0] == alone
    assert await steps_of(lm, 24, start=alone[10]) == alone[11:]


async def test_a_chain_of_a_sharper_target_has_the_factor_that_the_server_told(lm):
    steps = await steps_of(lm.with_sampling(replace(SAMPLING, temperature=0.7)), 24, sharpness=4.0)
    for step in steps[1:]:
        old, new = step.current, step.proposal
        lead = (new.reward - old.reward) / 0.5 + math.log(len(old.response) / len(new.response))
        lead += 3 * (new.response.log_prob - old.response.log_prob)
        assert step.log_alpha == pytest.approx(min(0.0, lead))


def test_qalign_check_finds_that_every_law_holds(server, capsys):
    command = ["check", "--lm", server.address, "--lm-tokenizer", str(server.folder)]
    assert main([*command, "--rm", "contains:a", "--max-new-tokens", "14"]) == 0
    output = capsys.readouterr().out
    assert output.count("holds:") == 5, output
    assert "FAILS" not in output


def test_two_turns_through_the_serve_layer_are_the_run_drawn_directly(server):
    reward, few = load_reward_model("contains:a"), {"qalign": {"steps": 6, "beta": 0.5}}
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    with answering(served_by(connect(server), reward)) as address, talking(address) as client:
        options = {"model": f"{connect(server).id}/qalign", "max_tokens": LIMIT, "extra_body": few}
        first = client.chat.completions.create(messages=turns, seed=9, **options)
        turns += [first.choices[0].message, {"role": "user", "content": "And then?"}]
        second = client.chat.completions.create(messages=turns, seed=9, **options)
        traces = [trace_of(address, answer) for answer in (first, second)]
    assert traces[0].header.run.prompt != traces[1].header.run.prompt

    async def direct(trace, seed):
        how = {"beta": 0.5, "steps": 6, "seed": seed}
        chain = run_chain(connect(server), reward, trace.header.run.prompt, **how)
        return tuple([step async for step in chain])

    for answer, trace in zip((first, second), traces, strict=True):
        assert trace.steps == asyncio.run(direct(trace, 9)) != asyncio.run(direct(trace, 8))
        texts = [step.state.response.text for step in trace.steps]
        assert answer.choices[0].message.content in texts
        assert "left_out" not in answer.choices[0].qalign
    assert [each["role"] for each in messages_of(traces[1].header.run.prompt)] == [
        *("system", "user", "assistant", "user")
    ]
