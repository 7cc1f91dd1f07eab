"""Nets: any causal model, by the fastest way that gives its own logits, in the same bits."""

import asyncio
import ctypes
import mmap
from copy import deepcopy

import numpy as np
import pytest
import torch
import transformers
from tiny_models import N_VOCABULARY, model_of, save, tokenizer

from qalign_core.errors import EngineError
from qalign_core.models.chat import Text
from qalign_core.models.local import llama_net as net_llama
from qalign_core.models.local import net_selection as nets
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.models.local.rows import attend
from qalign_core.models.local.transformers_net import HFNet, PlainNet
from qalign_core.run import Sampling

PROMPT = "What is 12 + 5?"

# keys and values of two widths; a bias by distance; states that cannot be cut; experts
OTHERS = {
    "bloom": {},
    "lfm2": {},
    "rwkv": {"attention_hidden_size": 64},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "deepseek-v3": {
        **{"head_dim": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16},
        **{"q_lora_rank": 16, "kv_lora_rank": 16, "num_key_value_heads": 2},
        **{"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2},
        **{"moe_intermediate_size": 32, "first_k_dense_replace": 1},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture
def llama(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def lm_of(model, **options):
    sampling = Sampling(max_new_tokens=10)
    return HFLanguageModel(
        model, Text(tokenizer()), id="tiny", sampling=sampling, rows=8, **options
    )


# Which net


@pytest.mark.parametrize("architecture", OTHERS)
async def test_any_causal_model_runs_with_its_own_logits_and_the_same_bits_alone(architecture):
    model = model_of(architecture, **OTHERS[architecture])
    plain = deepcopy(model)
    lm = lm_of(model)
    assert isinstance(lm.engine.net, PlainNet)
    assert lm.exact
    ids = lm.encode(PROMPT)

    async def complete(seed, prefix=()):
        return await lm.engine.complete(ids, prefix, sampling=lm.sampling, seed=seed)

    together = await asyncio.gather(*(complete(seed) for seed in range(9)))  # of 8 rows
    assert [await complete(seed) for seed in range(9)] == together
    for done in together[:4]:
        logits = plain(torch.tensor([[*ids, *done.tokens]])).logits[0, len(ids) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(done.tokens)), list(done.tokens)]
        assert np.abs(np.array(done.log_probs) - expected.detach().numpy()).max() < 1e-4
    assert len({done.tokens for done in together}) > 1
    lm.close()


def test_each_shape_has_the_fastest_net_that_computes_it(llama):
    with torch.inference_mode():
        assert isinstance(nets.build(llama, 4, 64), net_llama.LlamaNet)
        near = nets.build(model_of("mistral"), 4, 16)  # nothing is further away than it sees
        far = nets.build(model_of("mistral"), 4, 64)
    assert isinstance(near, net_llama.LlamaNet)
    assert isinstance(far, HFNet)


def test_the_check_at_load_notices_a_window_that_does_not_slide(monkeypatch):
    net = "qalign_core.models.local.transformers_net"
    monkeypatch.setattr(f"{net}.sliding_window", lambda config: None)
    with torch.inference_mode():
        net = nets.build(model_of("gemma3"), 4, 64)
    assert isinstance(net, PlainNet)


def test_the_check_at_load_notices_a_net_that_is_wrong_only_in_company(monkeypatch):
    """Not just in other bits: those it may have, and the model is then said not to be exact."""
    sound = HFNet.hidden

    def hidden(self, tokens, plan):
        beside_longer = plan.row is None and plan.length > self.slots // 2
        return sound(self, tokens, plan) * (0.5 if beside_longer else 1.0)

    monkeypatch.setattr(HFNet, "hidden", hidden)
    with torch.inference_mode():
        assert isinstance(nets.build(model_of("gemma3"), 4, 64), PlainNet)


def test_a_model_that_is_not_causal_is_refused(llama):
    forward = llama.forward

    def seeing_all(*ids, **options):
        out = forward(*ids, **options)
        out.logits = out.logits + out.logits.mean(1, keepdim=True)
        return out

    llama.forward = seeing_all
    with torch.inference_mode(), pytest.raises(ValueError, match="logits differ by"):
        nets.build(llama, 4, 64)


def test_the_check_at_load_notices_a_net_whose_results_depend_on_company(llama):

    class Leaky(net_llama.LlamaNet):
        def hidden(self, tokens, plan):
            return super().hidden(tokens, plan) * (1 + 2.0**-22 * int(tokens.sum() % 3))

    with torch.inference_mode():
        assert nets.verify(net_llama.LlamaNet(llama, 8, 128), range(20, 32))
        assert not nets.verify(Leaky(llama, 8, 128), range(20, 32))


@pytest.mark.parametrize("rows", [4, 8])
def test_a_net_that_needs_constant_shapes_gets_them(llama, rows):

    class ShapeSensitive(net_llama.LlamaNet):
        def hidden(self, tokens, plan):
            return super().hidden(tokens, plan) * (1 + 2.0**-20 * (len(tokens) + plan.length))

    with torch.inference_mode():
        net = ShapeSensitive(llama, rows, 128)
        assert nets.verify(net, range(20, 32))
        assert net.fixed
        assert (net.n_rows(1), net.chunk) == (rows, rows)


def test_a_net_that_divides_only_long_sums_by_their_length_gets_constant_shapes(llama):

    class LengthSensitive(net_llama.LlamaNet):
        def hidden(self, tokens, plan):
            long = plan.length * (plan.positions > 64)
            return super().hidden(tokens, plan) * (1 + 2.0**-20 * long[:, None])

    with torch.inference_mode():
        net = LengthSensitive(llama, 8, 192)
        assert nets.verify(net, range(20, 32))
        assert net.fixed


@pytest.mark.parametrize(
    ("architecture", "head_dim", "n_heads"), [("llama", 128, 8), ("gemma3", 256, 4)]
)
def test_with_wide_heads_a_long_prompt_has_the_same_bits_however_it_is_read(
    architecture, head_dim, n_heads
):
    """One product over all positions had other bits at length 192 than at 240."""
    shape = {"head_dim": head_dim, "num_attention_heads": n_heads, "max_position_embeddings": 512}
    layers = {"layer_types": ["full_attention"] * 2} if architecture == "gemma3" else {}
    ids, reads = list(range(6, 206)), []
    with torch.inference_mode():
        net = nets.build(model_of(architecture, **shape, **layers), 8, 510)
        for size in (8, 40, 64):
            n = min(size, net.chunk)
            for start in range(0, len(ids), n):
                net.read_in(0, ids[start : start + n], start)
            reads.append(net.copy_out(0, 0, len(ids)).clone())
    assert net.exact
    assert all(torch.equal(reads[0], read) for read in reads[1:])


@pytest.mark.parametrize("head_dim", [32, 64])
def test_attention_has_the_same_bits_however_many_positions_are_hidden_behind_its_own(head_dim):
    """Otherwise rows need constant shapes, and a step takes as long as one with all rows in use."""
    draw = torch.Generator().manual_seed(head_dim)
    q = torch.randn((4, 2, 3, head_dim), generator=draw)
    k = torch.randn((4, 2, head_dim, 528), generator=draw)
    v = torch.randn((4, 2, 528, head_dim), generator=draw)
    for own in (8, 44, 172, 300, 428):
        mask = torch.full((8, 1, 528), -torch.inf)
        mask[..., :own] = 0.0
        first, *others = (
            attend(q, k[..., :length], v[:, :, :length], mask[..., :length], head_dim**-0.5)
            for length in (-(-own // 16) * 16, 448, 528)
        )
        assert all(torch.equal(first, other) for other in others)


def n_resident(tensor):
    """Return how many pages of a tensor are in memory."""
    start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    n_bytes = tensor.data_ptr() + tensor.nbytes - start
    pages = (ctypes.c_ubyte * -(-n_bytes // mmap.PAGESIZE))()
    address, size = ctypes.c_void_p(start), ctypes.c_size_t(n_bytes)
    assert ctypes.CDLL(None, use_errno=True).mincore(address, size, pages) == 0
    return sum(page & 1 for page in pages)


def test_rows_take_no_memory_until_they_are_used(llama):
    net = nets.build(llama, 8, 512)
    with torch.inference_mode():
        assert n_resident(net.keys) == n_resident(net.values) == 0
        net.decode(np.array([5]), np.array([0]))
    assert n_resident(net.keys) > 0


def test_the_fast_net_and_the_generic_one_agree(llama):
    tokens = list(range(10, 70))
    with torch.inference_mode():
        fast = net_llama.LlamaNet(llama, 8, 128)
        slow = HFNet(llama, 8, 128, attention="qalign_rows")
        logits = [net.logits(net.read_in(2, tokens, 0)) for net in (fast, slow)]
    assert (logits[0] - logits[1]).abs().max() < 1e-4


def test_a_row_takes_no_more_time_than_it_must(llama):
    """Idle rows are not computed: one request costs the smallest step that is exact."""
    net = net_llama.LlamaNet(llama, 64, 128)
    assert [net.n_rows(n) for n in (1, 4, 5, 33)] == [4, 4, 8, 36]
    net.fixed = True
    assert net.n_rows(1) == 64


async def test_a_row_that_fails_changes_no_bit_of_the_others():
    model = model_of("bloom")
    lm = lm_of(model)
    ids = lm.encode(PROMPT)
    alone = [await lm.extend(ids, (), seed=seed) for seed in range(6)]
    poison = N_VOCABULARY - 1
    forward = model.forward

    def failing(input_ids, **options):
        if poison in input_ids:
            raise RuntimeError("out of order")
        return forward(input_ids, **options)

    model.forward = failing
    requests = [lm.extend(ids, (), seed=seed) for seed in range(6)]
    requests.insert(3, lm.extend((*ids, poison), (), seed=1))
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(results.pop(3), EngineError)
    assert results == alone
    lm.close()
