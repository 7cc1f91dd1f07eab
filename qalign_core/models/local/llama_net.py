"""Llama-shaped decoders, written out over fused and packed weights: the fastest net."""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from qalign_core.models.local.int8 import Int8Linear, Int8Product, is_rounded
from qalign_core.models.local.rows import KVNet, Plan, attend, sliding_window

PACK_FROM = 2**17  # weights; smaller matrices take less time than the call of a packed product
LLAMA_SHAPED = ("llama", "mistral", "qwen2", "qwen3")

Part = tuple[Tensor, Tensor]
"""Keys [kv or m * kv, d, length] and values [kv or m * kv, length, d] of one layer."""


class Matrix:
    """A weight to multiply rows with: `x @ weight.T + added`.

    Large ones on a CPU with AVX are packed for oneDNN: MKL rearranges the whole weight in every
    product. Measured at 576 x 3072 on AVX-512: 4 rows take 0.39 ms (MKL 0.98, and 0.66 for one
    row of `linear`), 8 rows 0.54 ms (MKL 0.98).
    """

    def __init__(self, weight: Tensor) -> None:
        self._packed: Tensor | None = None
        if _packs(weight) and (operators := packed_product()) is not None:
            pack, self._linear = operators
            self._packed = pack(weight.contiguous(), 64)
        else:
            self._transposed = weight.t().contiguous()

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Rows [m, out]; `added` is a bias [out] or rows [m, out]."""
        if self._packed is None:
            if added is None:
                return torch.mm(x, self._transposed)
            return torch.addmm(added, x, self._transposed)
        if added is not None and added.ndim == 2:
            return self._linear.binary(x, added, self._packed, None, "add")
        return self._linear(x, self._packed, added, "none", [], "")


@cache
def packed_product() -> tuple[Callable[..., Tensor], Any] | None:
    """How torch 2.13 packs a weight for oneDNN and multiplies with it; None if that is gone.

    The operators are what torch compiles for itself, under private names. They are tried once;
    without them `Matrix` multiplies as everybody does.
    """
    try:
        pack, linear = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
        x, weight = torch.eye(4, 16), torch.arange(128.0).view(8, 16)
        packed, rows = pack(weight, 64), torch.ones(4, 8)
        added = linear.binary(x, rows, packed, None, "add")
        biased = linear(x, packed, rows[0], "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    right = x @ weight.T + rows  # whole numbers, so in any order of sums
    return (pack, linear) if torch.equal(added, right) and torch.equal(biased, right) else None


def _packs(weight: Tensor) -> bool:
    return bool(
        weight.numel() >= PACK_FROM
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    )


def _multiplier(
    weight: Tensor, scale: Tensor | None, gain: Tensor | None = None
) -> Matrix | Int8Product:
    """What multiplies by a weight, whose columns have a gain and, in 8 bits, rows a scale."""
    if scale is not None:
        return Int8Product(weight, scale, gain)
    return Matrix(weight if gain is None else weight * gain)


def _multiplier_of(*layers: Any, gain: Tensor | None = None) -> Matrix | Int8Product:
    """The same for linear layers without biases, one behind the other."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    eight = isinstance(layers[0], Int8Linear)
    scale = torch.cat([layer.scale for layer in layers]) if eight else None
    return _multiplier(weight, scale, gain)


class LlamaNet(KVNet):
    """The Llama shape (also Qwen2's biases and Qwen3's head norms), written out over fused weights.

    `build_llama` chooses between this class and `Int8LlamaNet`.

    Args:
        model: a transformers model whose decoder is Llama-shaped, in float32.

    Raises:
        ValueError: the model is of another shape.
    """

    def __init__(self, model: Any, rows: int, window: int) -> None:
        if not self.fits(model, window):
            raise ValueError("not Llama-shaped")
        decoder, config = model.base_model, model.config
        norm = decoder.norm.weight.detach().clone()  # a view would keep the whole file in memory
        super().__init__(rows, window, norm.device, norm.dtype)
        head_dim = decoder.layers[0].self_attn.head_dim
        n_kv, n_heads = config.num_key_value_heads, config.num_attention_heads
        self._n_kv, self._group, self._head_dim = n_kv, n_heads // n_kv, head_dim
        self._eps, self._scale = config.rms_norm_eps, head_dim**-0.5
        self._embed, self._norm = deepcopy(decoder.embed_tokens), norm
        # x / rms(x) = x * sqrt(n) / |x|; the next product's weights hold sqrt(n) and the norm's
        self._gain = len(norm) ** 0.5
        self._floor = torch.tensor(self._gain * self._eps**0.5, device=norm.device)
        head = getattr(model, "lm_head", None)
        self._head = None if head is None else _multiplier_of(head)
        self._layers = [self._fuse(layer) for layer in decoder.layers]
        self._rope = self._rotations(decoder.rotary_emb)
        self._allocate(len(self._layers), n_kv, head_dim)

    @staticmethod
    def fits(model: Any, window: int) -> bool:
        """Whether this class computes what `model` does within `window` (numbers are checked).

        Raises:
            AttributeError: transformers lays its models out otherwise than in 5.23.
        """
        config = model.config
        if config.model_type not in LLAMA_SHAPED or config.hidden_act != "silu":
            return False
        if (sliding_window(config) or window) < window:
            return False
        first = model.base_model.layers[0]
        unbiased = (first.self_attn.o_proj, first.mlp.gate_proj, first.mlp.down_proj)
        known = first.mlp.gate_proj.weight.dtype in (torch.float32, torch.int8)
        return known and all(linear.bias is None for linear in unbiased)

    def _fuse(self, layer: Any) -> tuple[Any, ...]:
        """Weights of a layer; q, k, v in the order of the cache, rotated pairs side by side."""
        attention, mlp = layer.self_attn, layer.mlp

        def arrange(name: str) -> Tensor | None:
            q, k, v = (
                getattr(getattr(attention, f"{p}_proj"), name, None) for p in ("q", "k", "v")
            )
            if q is None or k is None or v is None:
                return None
            d, n = self._head_dim, self._n_kv
            paired = [_pair(q.detach(), d).view(n, self._group * d, -1), _pair(k.detach(), d)]
            parts = [paired[0], paired[1].view(n, d, -1), v.detach().view(n, d, -1)]
            return torch.cat(parts, 1).flatten(0, 1)

        weight, bias, scale = arrange("weight"), arrange("bias"), arrange("scale")
        assert weight is not None
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        scales = [
            _pair(norm.weight.detach()[:, None], self._head_dim)[:, 0] for norm in norms if norm
        ]
        before = layer.input_layernorm.weight.detach() * self._gain
        between = layer.post_attention_layernorm.weight.detach() * self._gain
        return (
            _multiplier(weight, None if scale is None else scale[:, 0], before),
            None if bias is None else bias[:, 0],
            scales or None,
            _multiplier_of(attention.o_proj),
            _multiplier_of(mlp.gate_proj, mlp.up_proj, gain=between),
            _multiplier_of(mlp.down_proj),
        )

    def _rotations(self, rotary: Any) -> Tensor:
        """exp(i * angle) for q and k at every position, 1 for v: [slots, kv, group + 2, d / 2]."""
        at = torch.arange(self.slots, device=self.device)[None]
        cos, sin = rotary(self._norm[None, None], at)
        half = self._head_dim // 2
        turn = torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())
        table = torch.ones(self.slots, self._group + 2, half, dtype=turn.dtype, device=self.device)
        table[:, :-1] = turn[:, None]
        return table[:, None].expand(-1, self._n_kv, -1, -1).contiguous()

    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Final hidden states [m, hidden size], normalised; writes keys and values."""
        m, n_kv, group, d = len(tokens), self._n_kv, self._group, self._head_dim
        x = self._embed(tokens)
        eps = self._eps
        rope = self._rope[plan.positions]
        for layer, (w_qkv, bias, scales, w_o, w_gate_up, w_down) in enumerate(self._layers):
            qkv = w_qkv(self._unit(x), bias).view(m, n_kv, group + 2, d)
            if scales is not None:
                qkv[:, :, :group] = functional.rms_norm(qkv[:, :, :group], (d,), scales[0], eps)
                qkv[:, :, group] = functional.rms_norm(qkv[:, :, group], (d,), scales[1], eps)
            torch.view_as_complex(qkv.view(m, n_kv, group + 2, d // 2, 2)).mul_(rope)
            self._write(layer, plan, qkv[:, :, group], qkv[:, :, group + 1])
            k, v = self._attended(layer, plan)
            mixed = attend(qkv[:, :, :group], k, v, plan.mask, self._scale)
            x = w_o(mixed.reshape(m, -1), x)
            gate, up = w_gate_up(self._unit(x)).chunk(2, -1)
            x = w_down(functional.silu(gate).mul_(up), x)
        return functional.rms_norm(x, x.shape[1:], self._norm, eps)

    def _unit(self, x: Tensor) -> Tensor:
        """Rows of length 1 (up to epsilon): RMS norm without its gain, in a third of the time."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / torch.hypot(length, self._floor)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits: [m, vocabulary]."""
        assert self._head is not None, "a reward model has no vocabulary"
        return self._head(hidden)


def _pair(weight: Tensor, d: int) -> Tensor:
    """Rows of a projection so that the two halves of each rotated pair stand side by side."""
    weight = weight.view(weight.shape[0], -1)
    return weight.view(-1, 2, d // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


class Int8LlamaNet(LlamaNet):
    """The same decoder with weights of 8 bits; its states have the same bits on every processor.

    Products of whole numbers are exact. What is between them differs on processors in two ways: in
    the order of sums, and in the last bit of exponentials and roots. Queries, keys, values and
    probabilities are therefore rounded to multiples of a power of two so that every sum of their
    products is exact. Exponentials and roots are computed in float64 and then rounded, and two
    float64 numbers that differ in their last bit are almost always rounded to the same number:
    one pair in 10**8 is not, and the next 14-bit rounding hides most of those.

    Attributes:
        value_units: for each layer the power of two that its values are multiples of.
    """

    reads_common = True

    def __init__(self, model: Any, rows: int, window: int) -> None:
        self.value_units: list[float] = []
        super().__init__(model, rows, window)
        self.alone = True
        self._floor = self._floor.double()

    def _fuse(self, layer: Any) -> tuple[Any, ...]:
        value = layer.self_attn.v_proj
        gain = layer.input_layernorm.weight.detach() * self._gain
        largest = (value.weight.float() * value.scale[:, None] * gain).norm(dim=1)
        if value.bias is not None:
            largest = largest + value.bias.abs()
        # no value exceeds 2**30 units, and rounded probabilities add up to less than 2
        self.value_units.append(2.0 ** (math.frexp(float(largest.max()))[1] - 29))
        *weights, scales, w_o, w_gate_up, w_down = super()._fuse(layer)
        scales = scales and [scale.double() for scale in scales]
        return *weights, scales, w_o, w_gate_up, w_down

    def _rotations(self, rotary: Any) -> Tensor:
        """exp(i * angle) for q, with the scores' scale, and k: [slots, 1, group + 1, d / 2]."""
        at = torch.arange(self.slots)
        rotary(self._norm[None, None], at[None])  # some kinds choose frequencies by the length
        frequencies = rotary.inv_freq.float()
        if rotary.rope_type == "default":  # powers in float32 differ in their last bit too
            share = torch.arange(len(frequencies), dtype=torch.float64) / len(frequencies)
            frequencies = (rotary.config.rope_parameters["rope_theta"] ** -share).float()
        angles = (at.float()[:, None] * frequencies).double()
        length = torch.full((self._group + 1, 1), float(rotary.attention_scaling))
        length[:-1] *= self._scale
        # products of two float32 numbers are exact in float64
        cos, sin = ((part[:, None] * length).float() for part in (angles.cos(), angles.sin()))
        return torch.complex(cos.double(), sin.double())[:, None]

    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Final hidden states [m, hidden size], normalised; writes keys and values."""
        m, n_kv, group, d = len(tokens), self._n_kv, self._group, self._head_dim
        x = self._embed(tokens)
        rope, parts = self._rope[plan.positions], self._parts(m, plan)
        mask = plan.mask.view(m, -1, 1, plan.length)
        for layer, (w_qkv, bias, scales, w_o, w_gate_up, w_down) in enumerate(self._layers):
            qkv = w_qkv(x, bias, self._per_length(x)).double().view(m, n_kv, group + 2, d)
            if scales is not None:
                for part, scale in zip((qkv[:, :, :group], qkv[:, :, group]), scales, strict=True):
                    part.copy_(functional.rms_norm(part, (d,), scale, self._eps))
            pairs = torch.view_as_complex(qkv.view(m, n_kv, group + 2, d // 2, 2))
            pairs[:, :, : group + 1].mul_(rope)
            qkv = round_heads(qkv, self.value_units[layer]).float()
            self._write(layer, plan, qkv[:, :, group], qkv[:, :, group + 1])
            x = w_o(_mix(qkv[:, :, :group], *parts[layer], mask), x)
            gate, up = w_gate_up(x, None, self._per_length(x)).chunk(2, -1)
            x = w_down(torch.mul(functional.silu(gate.double()), up).float(), x)
        final: Tensor = x * self._per_length(x).mul_(self._gain)
        return final.mul_(self._norm)

    def _per_length(self, x: Tensor) -> Tensor:
        """1 / |x| of each row (up to epsilon) [m, 1], rounded to 17 bits."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
        inverse = torch.hypot(length, self._floor).reciprocal_().float()
        inverse.view(torch.int32).bitwise_and_(_HIGH_17_BITS)
        return inverse

    def _parts(self, m: int, plan: Plan) -> list[tuple[Part | None, Part | None]]:
        """By layer what rows attend to: the positions that all have in common, and the others.

        Those in common are read from one row: an exact sum may be taken in two parts.
        """
        n, none = plan.length, [None] * len(self._layers)
        row, common = (plan.source, plan.common) if plan.row is None else (plan.row, n)
        keys, values = (every[:, :m].flatten(1, 2) for every in (self.keys, self.values))
        shared = zip(self.keys[:, row, :, :, :common], self.values[:, row, :, :common], strict=True)
        own = zip(keys[..., common:n], values[:, :, common:n], strict=True)
        return list(zip(shared if common else none, own if common < n else none, strict=True))


# Numbers as tensors: an operation with a number of Python makes one first.
_HIGH_17_BITS = torch.tensor(-128, dtype=torch.int32)
_EXPONENT = torch.tensor(0x7FF << 52)
_LONGER = torch.tensor(1 + 2**-8, dtype=torch.float64)
_LAST_BIT = 1.5 * 2.0**52
"""A float64 number of this size times a unit: adding and subtracting it rounds to whole units."""
_TO_2_20, _TO_4096 = torch.tensor([2.0**-20, 2.0**-11], dtype=torch.float64).mul_(_LAST_BIT)


def _mix(q: Tensor, shared: Part | None, own: Part | None, mask: Tensor) -> Tensor:
    """Attention [m, hidden size] of q [m, kv, group, d]; both products are exact."""
    m, n_kv, group, d = q.shape

    def by_head(rows: Tensor) -> Tensor:
        return rows.transpose(0, 1).reshape(n_kv, m * group, -1)

    def by_row(heads: Tensor) -> Tensor:
        return heads.view(n_kv, m, group, -1).transpose(0, 1)

    scores, mixed, common = [], [], 0
    if shared is not None:
        scores.append(by_row(torch.bmm(by_head(q), shared[0])))
        common = shared[0].shape[-1]
    if own is not None:
        scores.append(torch.bmm(q.reshape(m * n_kv, group, d), own[0]).view(m, n_kv, group, -1))
    every = (scores[0] if len(scores) == 1 else torch.cat(scores, -1)).add_(mask)
    p = torch.softmax(every, -1, dtype=torch.float64).add_(_TO_2_20).sub_(_TO_2_20)
    if shared is not None:
        mixed.append(by_row(torch.bmm(by_head(p[..., :common]), shared[1].double())))
    if own is not None:
        own_p = p[..., common:].reshape(m * n_kv, group, -1)
        mixed.append(torch.bmm(own_p, own[1].double()).view(m, n_kv, group, d))
    return sum(mixed[1:], mixed[0]).float().reshape(m, -1)


def round_heads(qkv: Tensor, value_unit: float) -> Tensor:
    """Round queries and keys to 4,096 units of a power of two at most, and values to their unit.

    A query and a key that are no longer than 2**12 units have a product, and partial sums of it,
    of at most 2**24 of their units: whole numbers that float32 has.
    """
    length = torch.linalg.vector_norm(qkv, dim=-1, keepdim=True).mul_(_LONGER)
    length.view(torch.int64).bitwise_and_(_EXPONENT)  # a power of two remains
    shift = length.mul_(_TO_4096)
    shift[:, :, -1] = value_unit * _LAST_BIT
    return qkv.add_(shift).sub_(shift)


def build_llama(model: Any, rows: int, window: int) -> LlamaNet:
    """The net for a Llama-shaped model in float32 or rounded by `int8.quantize`.

    Raises:
        ValueError: the model is of another shape.
    """
    return (Int8LlamaNet if is_rounded(model) else LlamaNet)(model, rows, window)
