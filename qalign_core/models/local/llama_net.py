"""Llama-shaped decoders, written out over fused and packed weights: the fastest net."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from qalign_core.models.local.int8 import Int8Linear, Int8Product
from qalign_core.models.local.rows import KVNet, Plan, attend, sliding_window

PACK_FROM = 2**17  # weights; smaller matrices take less time than the call of a packed product
LLAMA_SHAPED = ("llama", "mistral", "qwen2", "qwen3")


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
            return self._linear.binary(x, added, self._packed, None, "add")  # type: ignore[no-any-return]
        return self._linear(x, self._packed, added, "none", [], "")  # type: ignore[no-any-return]


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
    return (
        weight.numel() >= PACK_FROM
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
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

    Args:
        model: a transformers model whose decoder is Llama-shaped, in float32 or rounded (`int8`).

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
        self.alone = isinstance(decoder.layers[0].mlp.down_proj, Int8Linear)
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
