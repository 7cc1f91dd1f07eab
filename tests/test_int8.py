"""Weights of 8 bits: exact sums, and the same bits in any company and on every processor."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch
from processors import PROCESSORS
from tiny_models import save

from qalign_core.chain.cost import reads_all, reads_on
from qalign_core.errors import ModelLoadError
from qalign_core.models.local import int8
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.models.local.llama_net import Int8LlamaNet, round_heads
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


HAS_AVX2 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
PACKS = (int8.plain_product, int8.onednn_product, int8.fbgemm_product)


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(("n_out", "n_in"), SHAPES)
def test_sums_are_exact_for_the_largest_numbers_too(pack, n_out, n_in):
    if pack is int8.fbgemm_product and not HAS_AVX2:
        with pytest.raises(RuntimeError, match="AVX2"):
            pack(*int8.round_weight(torch.rand(4, 4)))
        return
    weight, digits = largest(n_out, n_in, 6)
    expected = (digits.double() - int8.MIDDLE) @ weight.double().T
    assert torch.equal(pack(weight, torch.ones(n_out))(digits), expected.float())


@pytest.mark.parametrize("without", [("fbgemm",), ("onednn",), ("fbgemm", "onednn")])
def test_what_is_missing_or_inexact_is_replaced_and_no_bit_changes(monkeypatch, without):
    weight, x = torch.randn(300, 576), torch.randn(5, 576)
    expected = int8.Int8Product(*int8.round_weight(weight))(x)

    def is_off_by_one(weight, scale):
        multiply = int8.plain_product(weight, scale)
        return lambda digits: multiply(digits) + scale

    def is_missing(weight, scale):
        raise AttributeError("no such operator")

    replacements = zip(without, (is_off_by_one, is_missing), strict=False)
    for name, replacement in replacements:
        monkeypatch.setattr(int8, f"{name}_product", replacement)
    int8.packed_product.cache_clear()
    try:
        left = {"onednn", *(["fbgemm"] * HAS_AVX2)} - {*without}
        assert (int8.packed_product() is None) == (not left)
        assert torch.equal(int8.Int8Product(*int8.round_weight(weight))(x), expected)
    finally:
        int8.packed_product.cache_clear()


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
from qalign_core.models.local import int8
draw = torch.Generator().manual_seed(3)
weight, x = (torch.randint(-999, 1000, s, generator=draw) / 777 for s in ((300, 576), (9, 576)))
assert int8.packed_product() is not None
y = int8.Int8Product(*int8.round_weight(weight))(x, weight[:, 0])
print(hashlib.sha256(y.numpy().tobytes()).hexdigest())
"""


def output_on(processor, program, folders):
    """What a program of Python prints when its libraries compute as on a processor."""
    if not PROCESSORS[processor]:  # this one
        with redirect_stdout(io.StringIO()) as output:
            exec(program, {"folders": folders})
        return output.getvalue()
    command = [sys.executable, "-c", f"import sys; folders = sys.argv[1:]{program}", *folders]
    env = os.environ | PROCESSORS[processor]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


HASH_NET = """
import hashlib
import numpy as np
import torch
from qalign_core.models.local.engine import HFLanguageModel
torch.set_num_threads(1)
for folder in folders:
    digest = hashlib.sha256()
    lm = HFLanguageModel.from_pretrained(folder, device="cpu", dtype="int8", rows=8, window=64)
    net = lm.engine.net
    with torch.inference_mode():
        digest.update(net.logits(net.read_in(0, range(20, 60), 0)).numpy().tobytes())
        for at in range(40, 60):
            tokens = np.arange(8) * 7 + at
            digest.update(net.decode(tokens, np.full(8, at)).numpy().tobytes())
    print(type(net).__name__, lm.exact, digest.hexdigest())
"""


KINDS = ("llama", "qwen2", "qwen3")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What a product and the nets of some models come to on each processor."""
    folder = tmp_path_factory.mktemp("nets")
    folders = [save(folder / kind, kind, hidden_size=192, head_dim=48) for kind in KINDS]
    program = HASH + HASH_NET
    return [output_on(processor, program, folders).splitlines() for processor in PROCESSORS]


def test_a_product_has_the_same_bits_on_every_processor(outputs):
    assert len({product for product, *_ in outputs}) == 1


def test_logits_of_a_llama_have_the_same_bits_on_every_processor(outputs):
    lines = [nets for _, *nets in outputs]
    assert [line.split()[:2] for line in lines[0]] == [["Int8LlamaNet", "True"]] * len(KINDS)
    assert all(each == lines[0] for each in lines)


def heads(turn, power):
    """Queries and keys [1, 1, 3, 64], the first two nearly parallel, and values."""
    draw = torch.Generator().manual_seed(turn)
    query, value = torch.randint(-999, 1000, (2, 64), generator=draw).double() / 7
    key = query * (1 + torch.randint(-9, 10, (64,), generator=draw) / 1e4)
    return torch.stack([query, key * 2.0**power * 0.999, value]).view(1, 1, 3, 64)


@pytest.mark.parametrize("power", [-40, 0, 9])
def test_scores_of_rounded_heads_are_exact_in_float32(power):
    def is_exact(qkv):
        query, key, _ = qkv.float().flatten(0, 2)
        products = (query * key).double()
        return all(part == part.float().double() for part in products.cumsum(0))

    for turn in range(20):
        qkv = heads(turn, power)
        assert not is_exact(qkv), "a control: without rounding the sums depend on their order"
        rounded = round_heads(qkv.clone(), 2.0**-20)
        assert is_exact(rounded)
        far = (rounded - qkv).abs().amax(-1) / qkv.norm(dim=-1)
        assert (far[..., :2] <= 2**-12).all()
        assert (rounded[..., 2, :] - qkv[..., 2, :]).abs().max() <= 2**-21


def test_sums_of_values_are_exact_in_float64(tmp_path):
    """Values are whole units, and no more than 2**30 of them however they come about."""
    folder = save(tmp_path, "qwen2")
    lm = HFLanguageModel.from_pretrained(folder, dtype="int8", device="cpu", rows=4, window=64)
    net = lm.engine.net
    with torch.inference_mode():
        net.read_in(0, range(5, 65), 0)
        for values, unit in zip(net.values[:, 0, :, :60].double(), net.value_units, strict=True):
            whole = values / unit
            assert torch.equal(whole, whole.round())
            assert 2**20 < whole.abs().max() <= 2**30
    lm.close()


def test_what_rows_have_in_common_is_read_from_one_row_with_the_same_bits(tmp_path):
    folder = save(tmp_path, "qwen3")
    lm = HFLanguageModel.from_pretrained(folder, dtype="int8", device="cpu", rows=8, window=64)
    net = lm.engine.net
    with torch.inference_mode():
        for row in range(1, 6):
            net.read_in(row, [*range(20, 53), *range(row, row + 7)], 0)
        step = np.arange(6), np.array([-1, 40, 40, 40, -1, 40])
        alone = net.decode(*step).clone()
        assert torch.equal(net.decode(*step, 33)[[1, 2, 3, 5]], alone[[1, 2, 3, 5]])
        net.keys[:, 2:, :, :, :32], net.values[:, 2:, :, :32] = 0, 0
        assert torch.equal(net.decode(*step, 33)[[1, 2, 3, 5]], alone[[1, 2, 3, 5]])
        assert not torch.equal(net.decode(*step, 31)[[1, 2, 3, 5]], alone[[1, 2, 3, 5]])
    lm.close()


NETS = {
    **dict.fromkeys(("llama", "qwen2", "qwen3"), Int8LlamaNet),
    **{"gemma3": HFNet, "lfm2": PlainNet},
}


@pytest.mark.parametrize("name", NETS)
def test_each_kind_of_net_draws_the_same_alone_and_together(tmp_path, name):
    folder = save(tmp_path / name, name)
    options = {"device": "cpu", "rows": 8, "window": 64, "cache_bytes": 2**20}
    sampling = Sampling(max_new_tokens=8)
    lm = HFLanguageModel.from_pretrained(folder, dtype="int8", sampling=sampling, **options)
    assert type(lm.engine.net) is NETS[name]
    assert lm.exact
    ids, common, n_common = lm.encode("Why is the sky blue?"), set(), lm.engine._n_common
    lm.engine._n_common = lambda rows: common.add(n := n_common(rows)) or n

    async def draw():
        alone = [await lm.extend(ids, (), seed=seed) for seed in range(3)]
        return alone, await asyncio.gather(*(lm.extend(ids, (), seed=seed) for seed in range(8)))

    alone, together = asyncio.run(draw())
    assert together[:3] == alone
    assert (max(common) >= len(ids) - 1) == lm.engine.net.reads_common
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
        assert rm.n_read is (reads_on if name == "llama" else reads_all), "one reads on, one again"
        rm.close()
    assert values[0] == pytest.approx(values[1], abs=0.05)
