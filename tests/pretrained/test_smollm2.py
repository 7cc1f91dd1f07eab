"""A pretrained model of the registry, by its hub id: SmolLM2-135M-Instruct with 4-bit weights."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import torch
import transformers
from convert import REVISION
from test_contract import chi_square, displayed_log_probs

from qalign_core import registry
from qalign_core.models.local.llama_net import LlamaNet
from qalign_core.record.store import load_trace
from qalign_core.run import Sampling
from qalign_study.commands import main

ID = "smollm2-135m"
PROMPT = "Why is the sky blue?"
SAMPLING = Sampling(max_new_tokens=40)


@pytest.fixture(scope="module")
def lm():
    return registry.load_language_model(ID, sampling=SAMPLING, rows=8)


@pytest.fixture(scope="module")
def plain():
    source = registry.entries()["lm", ID].source
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    return model.eval()


async def complete(lm, n):
    ids = lm.encode(PROMPT)
    requests = (lm.engine.complete(ids, (), sampling=lm.sampling, seed=seed) for seed in range(n))
    return ids, await asyncio.gather(*requests)


def test_it_is_what_the_registry_says(lm):
    entry = registry.entries()["lm", ID]
    assert lm.n_parameters / 1e6 == pytest.approx(entry.parameters, abs=0.1)
    assert (lm.id, lm.revision) == (ID, REVISION)
    assert isinstance(lm.engine.net, LlamaNet)
    assert lm.exact


def test_its_chat_template_is_applied_once(lm):
    source = registry.entries()["lm", ID].source
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    messages = [{"role": "user", "content": PROMPT}]
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert lm.encode(PROMPT) == tuple(expected["input_ids"])
    assert lm.engine.eos == {tokenizer.convert_tokens_to_ids("<|im_end|>")}


async def test_its_log_probabilities_are_those_of_transformers_and_its_bits_of_no_company(
    lm, plain
):
    ids, together = await complete(lm, 4)
    alone = [
        await lm.engine.complete(ids, (), sampling=lm.sampling, seed=seed) for seed in range(4)
    ]
    assert [(d.tokens, d.log_probs) for d in alone] == [(d.tokens, d.log_probs) for d in together]
    for done in together:
        with torch.inference_mode():
            logits = plain(torch.tensor([[*ids, *done.tokens]])).logits[0, len(ids) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(done.tokens)), list(done.tokens)]
        assert np.abs(np.array(done.log_probs) - expected.numpy()).max() < 1e-3


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 20}])
async def test_its_first_tokens_follow_the_distribution_that_the_settings_show(lm, plain, settings):
    sampling = Sampling(max_new_tokens=1, **settings)
    ids, responses = await complete(lm.with_sampling(sampling), 300)
    with torch.inference_mode():
        p = displayed_log_probs(plain(torch.tensor([ids])).logits[0, -1], sampling)
    counts = np.bincount([done.tokens[0] for done in responses], minlength=len(p))
    assert chi_square(counts, p, len(responses)) > 1e-4


async def test_a_text_is_the_join_of_its_pieces(lm):
    ids = lm.encode("Write a sentence in Chinese, and one with emojis.")
    for seed in range(2):
        response = await lm.extend(ids, (), seed=seed)
        pieces = response.pieces[:-1] if response.finished else response.pieces
        assert "".join(pieces) == response.text


def test_a_chain_runs_from_the_command_line_and_a_longer_one_begins_like_it(tmp_path, capsys):
    rule = tmp_path / "rule.py"
    rule.write_text("def short(prompt, response):\n    return -len(response.split()) / 10\n")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": PROMPT}) + "\n")
    command = ["run", "--lm", ID, "--rm", f"{rule}:short", "--prompts", str(prompts), "--quiet"]
    command += ["--beta", "0.5", "--temperature", "0.7", "--max-new-tokens", "40"]
    for steps in ("3", "6"):
        assert main([*command, "--steps", steps, "--out", str(tmp_path / steps)]) == 0
    three, six = (
        load_trace(next((tmp_path / steps).glob("0*.jsonl"))).steps for steps in ("3", "6")
    )
    assert six[:4] == three
    assert len({step.state.response.text for step in six}) > 1
