"""The contract of language and reward models, held by a real vLLM; and its failures in mid-run."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import transformers
from fake_server import Proxy
from test_contract import (  # noqa: F401  the suite that every language model passes
    LIMIT,
    NARROW,
    PROMPT,
    SETTINGS,
    displayed_log_probs,
    draws,
    first_tokens_follow,
    run_law,
    test_a_batch_gives_what_single_requests_give,
    test_a_language_model_obeys_every_law,
    test_the_last_token_counts_and_is_eos_exactly_if_finished,
    test_there_is_a_piece_for_every_token_and_they_join_to_the_text,
)

from qalign_core import Sampling, run_chain
from qalign_core.contract import verify_log_probs
from qalign_core.errors import ModelContractError, ModelLoadError
from qalign_core.models.served.language_model import ServedLanguageModel
from qalign_core.record.store import load_trace
from qalign_core.registry import load_reward_model
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.rewards.served import ServedRewardModel
from qalign_study.commands import main

SAMPLING = Sampling(max_new_tokens=LIMIT)


def connect(address, **options):
    return ServedLanguageModel.connect(address, sampling=SAMPLING, **options)


@pytest.fixture
def lm(servers):
    return connect(servers[0].address)


@pytest.fixture
def torch_lm(servers, lm):
    """The served model, and the plain transformers model in the same folder."""
    folder = servers[0].folder
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return lm, plain.eval()


@pytest.fixture
def rm(servers):
    return ServedRewardModel.connect(servers[1].address)


@pytest.fixture
def proxy(servers):
    forwarder = Proxy(servers[0].address)
    yield forwarder
    forwarder.hold.set()
    forwarder.stop()


async def steps_of(lm, rm, n, **options):
    chain = run_chain(lm, rm, PROMPT, beta=0.5, steps=n, seed=9, **options)
    return [step async for step in chain]


def tokens_of(steps):
    """What has the same bits again; a reward may differ in the last place in other company."""
    return [(step.t, step.index, step.proposal.response, step.accepted) for step in steps]


async def test_scores_are_those_of_transformers_alone_and_in_a_batch(lm, rm, servers):
    local = HFRewardModel.from_pretrained(servers[1].folder, device="cpu")
    responses = await draws(lm, 24)
    together = await asyncio.gather(*(rm.score(PROMPT, response) for response in responses))
    for response, reward in zip(responses, together, strict=True):
        expected = float(await local.score(PROMPT, response))
        assert abs(reward - expected) < 1e-4 * max(1.0, abs(expected))
        assert abs(await rm.score(PROMPT, response) - reward) < 1e-5
    assert len(set(map(float, together))) > 1
    local.close()


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
async def test_first_tokens_follow_the_distribution_that_the_settings_show(torch_lm, sampling):
    await first_tokens_follow(torch_lm, sampling)


async def test_log_probabilities_are_those_of_the_distribution_that_is_sampled(torch_lm):
    lm, plain = torch_lm
    ids = lm.encode("Hi")
    logits = plain(torch.tensor([ids])).logits[0, -1]
    for sampling in SETTINGS:
        p = displayed_log_probs(logits, sampling)
        for response in await draws(lm.with_sampling(sampling), 12, prompt="Hi"):
            assert response.log_prob == pytest.approx(math.log(p[response.tokens[0]]), abs=1e-4)
    holds, evidence = await run_law(verify_log_probs, lm.with_sampling(NARROW))
    assert holds, evidence


async def test_a_chain_of_a_sharper_target_has_the_factor_that_the_server_told(lm, rm):
    steps = await steps_of(lm.with_sampling(replace(SAMPLING, temperature=0.7)), rm, 24, alpha=4.0)
    for step in steps[1:]:
        old, new = step.current, step.proposal
        lead = (new.reward - old.reward) / 0.5 + math.log(len(old.response) / len(new.response))
        lead += 3 * (new.response.log_prob - old.response.log_prob)
        assert step.log_alpha == pytest.approx(min(0.0, lead))


def log_probs_of(plain, ids, tokens):
    """Return the log-probability of each token behind the ids, by transformers alone."""
    logits = plain(torch.tensor([[*ids, *tokens]])).logits[0, len(ids) - 1 : -1]
    return logits.log_softmax(-1)[range(len(tokens)), list(tokens)].tolist()


async def test_given_tokens_are_weighed_as_transformers_computes_them(torch_lm):
    lm, plain = torch_lm
    ids = lm.encode(PROMPT)
    for response in sorted(await draws(lm, 8), key=len):
        log_ps = [each.log_p for each in await lm.score_tokens(ids, response.tokens)]
        assert log_ps == pytest.approx(log_probs_of(plain, ids, response.tokens), abs=1e-3)
        rest = [each.log_p for each in await lm.score_tokens(ids, response.tokens, first=1)]
        assert rest == pytest.approx(log_ps[1:], abs=1e-3)
    others = log_probs_of(plain, lm.encode("Hi"), response.tokens)
    assert log_ps != pytest.approx(others, abs=0.1)  # the control: behind another prompt


async def test_a_draw_up_to_an_id_is_the_beginning_of_the_whole_draw(lm):
    every = await draws(lm, 8)
    whole = max(every, key=len)
    until = frozenset({whole.tokens[len(whole) // 2]})
    seed = every.index(whole)
    part = await lm.extend(lm.encode(PROMPT), (), seed=seed, until=until)
    end = whole.tokens.index(*until) + 1
    assert part.tokens == whole.tokens[:end] != whole.tokens
    assert part.log_probs == pytest.approx(whole.log_probs[:end], abs=1e-3)
    assert not part.finished


BYTES = "\ufffd"  # half of the tiny tokenizer's ids, each by itself


async def test_block_moves_keep_the_rest_and_have_the_factor_of_transformers(torch_lm):
    lm, plain = torch_lm
    lm.eos = *lm.eos, *range(70, 100)  # most responses end before the limit: others have no blocks
    how = {"rm": load_reward_model("none"), "beta": 1.0, "move": f"suffix+block({BYTES})"}
    chains = [run_chain(lm, prompt=PROMPT, steps=12, seed=seed, **how) for seed in range(6)]
    ids, delimiters = lm.encode(PROMPT), lm.delimiters(BYTES)
    blocks = [step for chain in chains async for step in chain if step.kept_again]
    assert any(abs(step.log_correction) > 0.1 for step in blocks)
    for step in blocks:
        old, new, n = step.current.response.tokens, step.proposal.response.tokens, step.kept_again
        assert (new[: step.index], new[-n:]) == (old[: step.index], old[-n:])
        written = [token in delimiters for token in new[step.index : -n]]
        assert written == [False] * (len(written) - 1) + [True]
        factor = sum(log_probs_of(plain, ids, new)[-n:]) - sum(log_probs_of(plain, ids, old)[-n:])
        assert step.log_correction == pytest.approx(factor, abs=1e-2)
        assert step.log_alpha == pytest.approx(min(0.0, factor), abs=1e-2)


async def test_no_block_is_rewritten_at_another_temperature(lm, rm):
    colder = lm.with_sampling(replace(SAMPLING, temperature=0.7))
    with pytest.raises(ModelContractError, match="only at temperature 1 without top-p and top-k"):
        await steps_of(colder, rm, 2, move=f"suffix+block({BYTES})")
    assert len(await steps_of(colder, rm, 2, move="suffix")) == 3  # the control


async def test_a_chain_is_the_same_again_and_when_it_is_continued(lm, rm):
    whole = await steps_of(lm, rm, 24)
    assert [step.t for step in whole] == list(range(25))
    assert len({step.accepted for step in whole}) == 2
    assert tokens_of(await steps_of(lm, rm, 24, start=whole[10])) == tokens_of(whole[11:])


def test_hundreds_of_chains_run_side_by_side_from_the_command_line(servers, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Say {k}."}) + "\n" for k in range(64)))
    out = tmp_path / "out"
    command = ["run", "--lm", servers[0].address, "--rm", servers[1].address, "--chains", "4"]
    command += ["--prompts", str(prompts), "--out", str(out), "--steps", "3"]
    command += ["--at-once", "256", "--rows", "256"]
    assert main([*command, "--max-new-tokens", "12", "--quiet"]) == 0
    assert "64 prompts, 1024 states" in capsys.readouterr().out
    for path in out.glob("0*.jsonl"):
        assert len(load_trace(path).steps) == 16


def test_processes_with_a_server_each_of_which_one_is_killed_draw_what_one_does(
    servers, other, proxy, tmp_path
):
    prompts, rm = tmp_path / "prompts.jsonl", servers[1]
    prompts.write_text("".join(json.dumps({"prompt": f"Say {k}."}) + "\n" for k in range(12)))

    def command(address, name):
        models = ["--lm", address, "--rm", rm.address, "--max-new-tokens", "12", "--quiet"]
        options = ["--steps", "6", "--pool", "3", "--at-once", "4"]
        return ["run", *models, *options, "--prompts", str(prompts), "--out", str(tmp_path / name)]

    def worker(address):
        return subprocess.Popen([sys.executable, "-m", "qalign_study", *command(address, "shared")])

    def traces(name):
        read = [load_trace(path) for path in sorted((tmp_path / name).glob("0*.jsonl"))]
        return [(tokens_of(t.steps), sorted(s.response.tokens for s in t.pool)) for t in read]

    proxy.faults.extend([*(40 * [""]), *(64 * ["slow"])])
    workers = worker(proxy.address), worker(other.address)
    assert proxy.stuck.wait(300)  # it holds problems, and waits for its server
    workers[0].kill()
    assert workers[0].wait() == -signal.SIGKILL
    assert workers[1].wait() == 0
    assert main(command(other.address, "alone")) == 0
    assert len(traces("alone")) == 12
    assert traces("shared") == traces("alone")


@pytest.mark.parametrize("fault", ["429", "500", "gone", "half", "html", "lost ids", "slow"])
async def test_a_failure_that_passes_changes_nothing(proxy, lm, rm, fault):
    expected = await steps_of(lm, rm, 6)
    through = connect(proxy.address, pause=0.01, timeout=5.0 if fault == "slow" else 300.0)
    proxy.faults.extend(["", "", fault, fault])
    assert tokens_of(await steps_of(through, rm, 6)) == tokens_of(expected)
    assert not proxy.faults


@pytest.mark.parametrize("fault", ["other prompt", "no end", "eos within"])
async def test_ids_that_are_not_those_that_were_asked_for_end_the_run(proxy, rm, fault):
    through = connect(proxy.address)
    proxy.faults.extend(["", "", fault])
    with pytest.raises(ModelContractError):
        await steps_of(through, rm, 6)


def test_each_server_is_refused_in_the_others_place(servers):
    lm, rm = servers
    with pytest.raises(ModelLoadError, match="vllm serve"):
        connect(rm.address)
    with pytest.raises(ModelLoadError, match="vllm serve"):
        ServedRewardModel.connect(lm.address)


async def test_a_server_killed_and_restarted_in_mid_run_does_not_change_the_chain(servers, rm):
    lm = connect(servers[0].address, patience=600.0)
    expected = await steps_of(lm, rm, 12)
    steps = []
    async for step in run_chain(lm, rm, PROMPT, beta=0.5, steps=12, seed=9):
        steps.append(step)
        if step.t == 5:
            servers[0].kill()
            servers[0].start()  # it serves again in a minute; the chain waits for it
    assert tokens_of(steps) == tokens_of(expected)
