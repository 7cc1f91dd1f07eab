"""SmolLM2-135M in int8: near float32, and the same tokens in company and on every processor."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processors import PROCESSORS

from qalign_core import registry
from qalign_core.models.local.engine import log_law
from qalign_core.run import Sampling

ID = "smollm2-135m"
PROMPTS = ("Why is the sky blue?", "Write two sentences about a rainy Monday.")
SAMPLING = Sampling(max_new_tokens=32)
OPTIONS = {"sampling": SAMPLING, "device": "cpu", "rows": 8, "window": 128}


@pytest.fixture(scope="module")
def lm():
    return registry.load_language_model(ID, dtype="int8", **OPTIONS)


def laws(lm, prompt, response):
    """The distribution of each token of a response, as its log: [tokens, vocabulary]."""
    net, ids = lm.engine.net, [*prompt, *response]
    read = [net.read_in(0, ids[at : at + net.chunk], at) for at in range(0, len(ids), net.chunk)]
    logits = net.logits(torch.cat(read)[len(prompt) - 1 : -1])
    return torch.stack([log_law(row) for row in logits])


async def draw(lm, n):
    """Return n responses to each prompt, drawn together."""
    ids = [lm.encode(prompt) for prompt in PROMPTS]
    requests = [(each, lm.extend(each, (), seed=seed)) for each in ids for seed in range(n)]
    responses = await asyncio.gather(*(request for _, request in requests))
    return [
        (each, response.tokens) for (each, _), response in zip(requests, responses, strict=True)
    ]


async def test_the_mean_divergence_from_float32_is_below_a_hundredth_of_a_nat(lm):
    wide = registry.load_language_model(ID, dtype="float32", **OPTIONS)
    responses = await draw(wide, 10)
    divergences = []
    with torch.inference_mode():
        for prompt, response in responses:
            p, q = laws(wide, prompt, response), laws(lm, prompt, response)
            divergences += (p.exp() * (p - q)).sum(-1).tolist()
    assert 0 < sum(divergences) / len(divergences) < 0.01


DRAW = f"""
import asyncio, json, sys
sys.path[:0] = {[str(Path(__file__).parent)]}
from test_int8 import ID, OPTIONS, draw, registry
lm = registry.load_language_model(ID, dtype="int8", **OPTIONS)
print(json.dumps([tokens for _, tokens in asyncio.run(draw(lm, 10))]))
"""


async def test_20_responses_have_the_same_tokens_on_every_processor(lm):
    here = [list(tokens) for _, tokens in await draw(lm, 10)]
    assert len({tuple(tokens) for tokens in here}) == 20
    for variables in list(PROCESSORS.values())[1:]:
        env = os.environ | variables | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", DRAW]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert json.loads(run.stdout) == here


async def test_a_response_has_the_same_bits_alone_and_in_company(lm):
    assert lm.exact
    together = await draw(lm, 4)
    ids = lm.encode(PROMPTS[0])
    alone = [(await lm.extend(ids, (), seed=seed)).tokens for seed in range(4)]
    assert alone == [tokens for _, tokens in together[:4]]


async def test_the_file_in_the_package_is_the_same_model_and_needs_no_hub(lm, monkeypatch):
    monkeypatch.syspath_prepend(Path(os.environ["HF_HOME"]).parent / "lib")
    entry = registry.entries()["lm", ID]
    assert entry.is_present
    packaged = registry.load_language_model(entry.location, **OPTIONS)
    assert packaged.revision.endswith(" int8")
    assert await draw(packaged, 2) == await draw(lm, 2)
    registry.unload(entry.location)
