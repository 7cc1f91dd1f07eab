"""Weights of 8 bits: exact sums, and the same bits in any company and on every processor."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
import torch
from tiny_models import save

from qalign_core.errors import ModelLoadError
from qalign_core.models.local import int8
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.models.local.llama_net import LlamaNet
from qalign_core.models.local.transformers_net import HFNet, PlainNet
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.run import Sampling
from qalign_core.types import Response

SHAPES = [(48, 32), (97, 201), (960, 576), (64, 5000)]


def largest(n_out, n_in, rows):
    """Digits and weights of which some are as large as they can be."""
    draw = torch.Generator().manual_seed(n_in)
    weight = torch.randint(-127, 128, (n_out, n_in), generator=draw).to(torch.int8)
    digits = torch.randint(0, 128, (rows, n_in), generator=draw).to(torch.uint8)
    weight[0], weight[1], digits[0], digits[-1] = 127, -127, 128, 0
    return weight, digits


@pytest.mark.parametrize("pack", [int8.plain_product, int8.packed_product()])
@pytest.mark.parametrize(("n_out", "n_in"), SHAPES)
def test_sums_are_exact_for_the_largest_numbers_too(pack, n_out, n_in):
    assert pack is not None, "torch no longer has the operators; plain_product is used"
    weight, digits = largest(n_out, n_in, 6)
    expected = (digits.double() - int8.MIDDLE) @ weight.double().T
    assert torch.equal(pack(weight)(digits, torch.ones(n_out)), expected.float())


def test_a_row_is_rounded_to_14_bits_of_its_largest_number():
    x = torch.randn(5, 300) * torch.tensor([1e-20, 1e-3, 1.0, 1e6, 0.0])[:, None]
    digits, scale = int8.split(x)
    high, low = (digits.double() - int8.MIDDLE).chunk(2)
    error = ((128 * high + low) * scale - x).abs()
    assert (error <= scale.double() * 0.501).all()
    assert torch.allclose(scale[:4, 0], x[:4].abs().amax(1) / 2**13)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_stay_so(bad):
    x = torch.randn(3, 64)
    x[1, 7] = bad
    y = int8.Int8Product(*int8.round_weight(torch.randn(32, 64)))(x)
    assert y.isfinite().all(1).tolist() == [True, False, True]


def test_a_row_has_the_same_bits_alone_and_in_every_batch():
    multiply = int8.Int8Product(*int8.round_weight(torch.randn(960, 576)), gain=torch.rand(576))
    x, bias = torch.randn(70, 576), torch.randn(960)
    whole = multiply(x, bias)
    for n in (1, 2, 3, 5, 16, 64):
        assert torch.equal(multiply(x[7 : 7 + n], bias), whole[7 : 7 + n])


HASH = """
import hashlib, torch
from qalign_core.errors import ModelLoadError
from qalign_core.models.local import int8
draw = torch.Generator().manual_seed(3)
weight, x = (torch.randint(-999, 1000, s, generator=draw) / 777 for s in ((300, 576), (9, 576)))
assert int8.packed_product() is not None
y = int8.Int8Product(*int8.round_weight(weight))(x, weight[:, 0])
print(hashlib.sha256(y.numpy().tobytes()).hexdigest())
"""
SSE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.mark.slow
def test_a_product_has_the_same_bits_on_every_processor():
    def digest_on(processor):
        command = [sys.executable, "-c", HASH]
        return subprocess.run(
            command, env=os.environ | processor, capture_output=True, text=True, check=True
        ).stdout

    assert len({digest_on(processor) for processor in ({}, SSE, AVX2)}) == 1


NETS = {"llama": LlamaNet, "qwen2": LlamaNet, "qwen3": LlamaNet, "gemma3": HFNet, "lfm2": PlainNet}


@pytest.mark.parametrize("name", NETS)
def test_each_kind_of_net_draws_the_same_alone_and_together(tmp_path, name):
    folder = save(tmp_path / name, name)
    options = {"device": "cpu", "rows": 8, "window": 64, "cache_bytes": 2**20}
    sampling = Sampling(max_new_tokens=8)
    lm = HFLanguageModel.from_pretrained(folder, dtype="int8", sampling=sampling, **options)
    assert type(lm.engine.net) is NETS[name]
    assert lm.exact
    ids = lm.encode("Why is the sky blue?")

    async def draw():
        alone = [await lm.extend(ids, (), seed=seed) for seed in range(3)]
        return alone, await asyncio.gather(*(lm.extend(ids, (), seed=seed) for seed in range(8)))

    alone, together = asyncio.run(draw())
    assert together[:3] == alone
    plain = HFLanguageModel.from_pretrained(folder, dtype="float32", sampling=sampling, **options)
    assert lm.n_parameters == plain.n_parameters
    assert lm.revision == f"{plain.revision} int8"
    scores = [asyncio.run(each.score_tokens(ids, alone[0].tokens)) for each in (lm, plain)]
    far = [abs(a.log_p - b.log_p) for a, b in zip(*scores, strict=True)]
    assert 0 < max(far) < 0.1
    for each in (lm, plain):
        each.close()


def test_a_model_that_reads_its_weights_itself_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"found Char.*choose another model or dtype"):
        HFLanguageModel.from_pretrained(save(tmp_path, "mamba"), dtype="int8", device="cpu")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_reward_model_can_be_rounded_too(tmp_path, name):
    folder = save(tmp_path / name, name, n_outputs=1)
    values = []
    for dtype in ("float32", "int8"):
        rm = HFRewardModel.from_pretrained(folder, device="cpu", dtype=dtype, window=128)
        response = Response((70, 71), "ab", False)
        values.append(asyncio.run(rm.score("Why?", response)))
        rm.close()
    assert values[0] == pytest.approx(values[1], abs=0.05)
