"""One decoding step of a transformer over rows of preallocated keys and values.

A *step* runs m tokens through the network. Either token i belongs to row i (decoding), or all of
them are consecutive tokens of one row (reading a prompt). Both are the same matrix products on
the same shapes, so a position's keys and values have the same bits however they came about: that
is what lets a kept prefix stand in for a computed one without changing a trajectory.

Measured on AVX-512 with MKL and oneDNN, and checked on the machine at hand by `verify`: a row of a
product does not depend on the other rows, nor on their number if there are at least 4; and
attending to more masked positions (in multiples of 16) adds exact zeros. So the number of rows and
the attended length may follow the load. Where that does not hold, both are held constant.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

QUANTUM = 16  # the attended length is a multiple of this
MIN_ROWS = 4  # fewer rows take other kernels (matrix times vector), which round otherwise
TOLERANCE = 2e-3  # largest difference to transformers' own logits at load, relative to their size

HUGE_PAGE = 2**21  # bytes
PACK_FROM = 2**17  # weights; smaller matrices take less time than the call of a packed product
LLAMA_SHAPED = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the tokens of one step stand: `row` is None if token i belongs to row i."""

    positions: Tensor  # [m]
    mask: Tensor  # [m, 1, length], 0 or -inf; [m * kv_heads, 1, length] if row is None
    length: int
    row: int | None
    span: slice  # the slots of `row` that the tokens fill; those behind the last are padding
    keys_at: Tensor  # [m * kv_heads * head_dim], where keys go in one layer; empty if row is given
    values_at: Tensor  # the same for values


class Net:
    """Rows of keys and values, and steps over them; subclasses implement `hidden` and `logits`.

    Keys lie side by side for one number of all positions ([head_dim, slots]), values the other way
    round: so both products of attention read memory in order. On cold memory at 16 rows of the
    embedded model, keys by position take 139 µs a layer instead of 83, and 35 in huge pages.

    Attributes:
        keys: [layers, rows, kv_heads, head_dim, slots].
        values: [layers, rows, kv_heads, slots, head_dim].
        window: positions a sequence may have.
        held: for each row the ids whose keys and values stand at its start.
        exact: True if `verify` found that results do not depend on company or history.
    """

    keys: Tensor
    values: Tensor
    exact = False

    def __init__(self, rows: int, window: int, device: torch.device, dtype: torch.dtype) -> None:
        self.rows, self.window, self.device, self.dtype = rows, window, device, dtype
        self.held: list[Sequence[int]] = [()] * rows
        self.fixed = False  # True: the number of rows and the attended length never change
        self.slots = (window // QUANTUM + 1) * QUANTUM  # the last one takes what nobody reads
        at = torch.arange(self.slots, device=device)
        self._causal = torch.zeros(self.slots, self.slots, dtype=dtype, device=device)
        self._causal.masked_fill_(at[None, :] > at[:, None], -torch.inf)

    def _allocate(self, layers: int, kv_heads: int, head_dim: int) -> None:
        shape = (layers, self.rows, kv_heads, head_dim, self.slots)
        self.keys = _zeros(shape, self.dtype, self.device)
        self.values = _zeros((*shape[:3], self.slots, head_dim), self.dtype, self.device)
        self._flat_keys = self.keys.view(layers, -1)
        self._flat_values = self.values.view(layers, -1)
        # where slot 0 of (row, head, number) stands in a layer
        at = torch.arange(self.rows * kv_heads * head_dim, device=self.device)
        self._key_base = (at * self.slots).view(self.rows, kv_heads, head_dim)
        heads = torch.arange(self.rows * kv_heads, device=self.device) * self.slots * head_dim
        number = torch.arange(head_dim, device=self.device)
        self._value_base = heads.view(self.rows, kv_heads, 1) + number

    @property
    def width(self) -> int:
        """Values of one position, all layers together."""
        return 2 * self.keys[:, 0, :, :, 0].numel()

    @property
    def n_bytes(self) -> int:
        """Memory of the rows (bytes)."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def decode(self, tokens: np.ndarray, positions: np.ndarray) -> Tensor:
        """Logits [m, vocabulary] after token i of row i; a position of -1 marks an idle row."""
        return self.logits(self.hidden(*self._plan(tokens, positions, None)))

    def read_in(self, row: int, tokens: Sequence[int], start: int) -> Tensor:
        """Run consecutive tokens of one row through the network: hidden states [n, width]."""
        n = len(tokens)
        m = self.n_rows(n)
        padded, positions = np.zeros(m, np.int64), np.full(m, -1)
        padded[:n] = tokens
        positions[:n] = range(start, start + n)
        return self.hidden(*self._plan(padded, positions, row))[:n]

    def n_rows(self, n: int) -> int:
        """How many tokens a step has that must hold `n`."""
        return self.rows if self.fixed else max(MIN_ROWS, -(-n // 4) * 4)

    @property
    def chunk(self) -> int:
        """The most tokens that one `read_in` takes."""
        return self.rows if self.fixed else 64

    def _plan(
        self, tokens: np.ndarray, positions: np.ndarray, row: int | None
    ) -> tuple[Tensor, Plan]:
        longest = self.slots if self.fixed else int(positions.max()) + 1
        length = -(-longest // QUANTUM) * QUANTUM
        idle = positions < 0
        at = torch.from_numpy(np.where(idle, 0, positions)).to(self.device)
        mask = self._causal[:, :length][at][:, None]
        keys_at = values_at = at[:0]
        if row is None:
            slot = torch.from_numpy(np.where(idle, self.slots - 1, positions)).to(self.device)
            slot = slot[:, None, None]
            keys_at = (self._key_base[: len(slot)] + slot).view(-1)
            values_at = (self._value_base[: len(slot)] + slot * self.values.shape[-1]).view(-1)
            mask = mask.repeat_interleave(self.keys.shape[2], 0)
        span = slice(int(positions[0]), int(positions.max()) + 1)
        plan = Plan(at, mask, length, row, span, keys_at, values_at)
        return torch.from_numpy(tokens).to(self.device), plan

    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Final hidden states [m, hidden size]; writes the tokens' keys and values."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits in float32: [m, vocabulary]."""
        raise NotImplementedError

    def copy_out(self, row: int, start: int, stop: int) -> Tensor:
        """Keys and values of positions start to stop of a row: [stop - start, width]."""
        keys = self.keys[:, row, :, :, start:stop].permute(3, 0, 1, 2)
        values = self.values[:, row, :, start:stop].permute(2, 0, 1, 3)
        return torch.stack([keys, values], 1).view(stop - start, -1)

    def copy_in(self, row: int, start: int, kept: Tensor) -> None:
        """Put keys and values at positions from `start` on: the reverse of `copy_out`."""
        layers, _, kv_heads, head_dim, _ = self.keys.shape
        keys, values = kept.view(-1, 2, layers, kv_heads, head_dim).unbind(1)
        stop = start + len(kept)
        self.keys[:, row, :, :, start:stop] = keys.permute(1, 2, 3, 0)
        self.values[:, row, :, start:stop] = values.permute(1, 2, 0, 3)

    def n_held(self, row: int, tokens: Sequence[int]) -> int:
        """How many of the first `tokens` the row holds already, from the sequence before."""
        pairs = enumerate(zip(self.held[row], tokens, strict=False))
        differing = (i for i, (old, new) in pairs if old != new)
        return next(differing, min(len(self.held[row]), len(tokens)))

    def clear(self, row: int) -> None:
        """Forget a row that is not finite: not a number times a masked zero is not a number."""
        self.keys[:, row].zero_()
        self.values[:, row].zero_()
        self.held[row] = ()

    def _write(self, layer: int, plan: Plan, keys: Tensor, values: Tensor) -> None:
        """Store what a layer made of the step's tokens: [m, kv_heads, head_dim] each."""
        if plan.row is None:
            self._flat_keys[layer].scatter_(0, plan.keys_at, keys.reshape(-1))
            self._flat_values[layer].scatter_(0, plan.values_at, values.reshape(-1))
        else:
            n = plan.span.stop - plan.span.start
            self.keys[layer, plan.row, :, :, plan.span] = keys[:n].permute(1, 2, 0)
            self.values[layer, plan.row, :, plan.span] = values[:n].transpose(0, 1)

    def _attended(self, layer: int, plan: Plan) -> tuple[Tensor, Tensor]:
        """What the step attends to: keys [m, kv, head_dim, length], values [m, kv, length, ...]."""
        m, k, v = len(plan.positions), self.keys[layer], self.values[layer]
        if plan.row is None:
            k, v = k[:m], v[:m]
        else:
            k, v = (rows[plan.row, None].expand(m, -1, -1, -1) for rows in (k, v))
        return k[..., : plan.length], v[:, :, : plan.length]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; in huge pages on a CPU under Linux."""
    if device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    n_bytes = math.prod(shape) * dtype.itemsize
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # the kernel gives shared memory small pages
    memory = mmap.mmap(-1, n_bytes + HUGE_PAGE, flags=private)
    with contextlib.suppress(OSError):  # the kernel may be built without
        memory.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE
    part = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=start)
    return part.view(shape)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one token a row, its result like q [m, kv, group, d].

    Keys are [m, kv, d, length], values [m, kv, length, d]. The mask is [m * kv, 1, length]; or
    [m, 1, length] if all rows are views of one: then heads are taken one by one, which needs no
    copy and gives the same products, bit for bit.
    """
    m, n_kv, group, d = q.shape
    if len(mask) == m and n_kv > 1:
        heads = [_attend(q[:, h], k[:, h], v[:, h], mask, scale) for h in range(n_kv)]
        return torch.stack(heads, 1)
    out = _attend(q.reshape(m * n_kv, group, d), k.flatten(0, 1), v.flatten(0, 1), mask, scale)
    return out.view(m, n_kv, group, -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    scores = torch.baddbmm(mask, q, k, alpha=scale)
    return torch.bmm(torch.softmax(scores, -1), v)


def attend_jointly(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """`attend` for m tokens of one row in one product a head: faster, and rounded otherwise."""
    m, n_kv, group, d = q.shape
    joined = q.transpose(0, 1).reshape(n_kv, m * group, d)
    mask = mask.expand(m, group, -1).reshape(1, m * group, -1)
    out = _attend(joined, k[0], v[0], mask, scale)
    return out.view(n_kv, m, group, -1).transpose(0, 1)


class Matrix:
    """A weight to multiply rows with: `x @ weight.T + added`.

    Large ones on a CPU with AVX are packed for oneDNN: MKL arranges the whole weight anew in every
    product. Measured at 576 x 3072 on AVX-512: 4 rows take 0.39 ms (MKL 0.98, and 0.66 for one
    row of `linear`), 8 rows 0.54 ms (MKL 0.98).
    """

    def __init__(self, weight: Tensor) -> None:
        self._packed: Tensor | None = None
        if _packs(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 64)
        else:
            self._transposed = weight.t().contiguous()

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Rows [m, out]; `added` is a bias [out] or rows [m, out]."""
        if self._packed is None:
            if added is None:
                return torch.mm(x, self._transposed)
            return torch.addmm(added, x, self._transposed)
        linear = torch.ops.mkldnn._linear_pointwise
        if added is not None and added.ndim == 2:
            return linear.binary(x, added, self._packed, None, "add")  # type: ignore[no-any-return]
        return linear(x, self._packed, added, "none", [], "")  # type: ignore[no-any-return]


def _packs(weight: Tensor) -> bool:
    return (
        weight.numel() >= PACK_FROM
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    )


class LlamaNet(Net):
    """The Llama shape (also Qwen2's biases and Qwen3's head norms), written out over fused weights.

    Args:
        model: a transformers model whose decoder is Llama-shaped, in float32.
        joint: only ever read in, never decode: attention in one product a head (reward models).
    """

    def __init__(self, model: Any, rows: int, window: int, *, joint: bool = False) -> None:
        decoder, config = model.base_model, model.config
        embed = decoder.embed_tokens.weight.detach()
        super().__init__(rows, window, embed.device, embed.dtype)
        head_dim = decoder.layers[0].self_attn.head_dim
        n_kv, n_heads = config.num_key_value_heads, config.num_attention_heads
        self._attend = attend_jointly if joint else attend
        self._n_kv, self._group, self._head_dim = n_kv, n_heads // n_kv, head_dim
        self._eps, self._scale = config.rms_norm_eps, head_dim**-0.5
        self._embed = embed
        self._norm = decoder.norm.weight.detach()
        # x / rms(x) = x * sqrt(n) / |x|; the next product's weights hold sqrt(n) and the norm's
        self._gain = embed.shape[1] ** 0.5
        self._floor = torch.tensor(self._gain * self._eps**0.5, device=embed.device)
        head = getattr(model, "lm_head", None)
        self._head = None if head is None else Matrix(head.weight.detach())
        self._layers = [self._fuse(layer) for layer in decoder.layers]
        self._rope = self._rotations(decoder.rotary_emb)
        self._allocate(len(self._layers), n_kv, head_dim)

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether this class computes what `model` does (`verify` checks the numbers)."""
        config = model.config
        if config.model_type not in LLAMA_SHAPED or config.hidden_act != "silu":
            return False
        first = model.base_model.layers[0]
        unbiased = (first.self_attn.o_proj, first.mlp.gate_proj, first.mlp.down_proj)
        float32 = first.mlp.gate_proj.weight.dtype == torch.float32
        return float32 and all(linear.bias is None for linear in unbiased)

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

        weight, bias = arrange("weight"), arrange("bias")
        assert weight is not None
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        scales = [
            _pair(norm.weight.detach()[:, None], self._head_dim)[:, 0] for norm in norms if norm
        ]
        gate_up = torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()])
        before = layer.input_layernorm.weight.detach() * self._gain
        between = layer.post_attention_layernorm.weight.detach() * self._gain
        return (
            Matrix(weight * before),
            None if bias is None else bias[:, 0],
            scales or None,
            Matrix(attention.o_proj.weight.detach()),
            Matrix(gate_up * between),
            Matrix(mlp.down_proj.weight.detach()),
        )

    def _rotations(self, rotary: Any) -> Tensor:
        """exp(i * angle) for q and k at every position, 1 for v: [slots, kv, group + 2, d / 2]."""
        at = torch.arange(self.slots, device=self.device)[None]
        cos, sin = rotary(self._embed[:1, None], at)
        half = self._head_dim // 2
        turn = torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())
        table = torch.ones(self.slots, self._group + 2, half, dtype=turn.dtype, device=self.device)
        table[:, :-1] = turn[:, None]
        return table[:, None].expand(-1, self._n_kv, -1, -1).contiguous()

    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Final hidden states [m, hidden size], normalised; writes keys and values."""
        m, n_kv, group, d = len(tokens), self._n_kv, self._group, self._head_dim
        x = self._embed[tokens]
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
            mixed = self._attend(qkv[:, :, :group], k, v, plan.mask, self._scale)
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


class HFNet(Net):
    """Any full-attention decoder of transformers, through its own forward with our cache in it."""

    def __init__(self, model: Any, rows: int, window: int, *, attention: str) -> None:
        from transformers import AttentionInterface
        from transformers.cache_utils import Cache

        super().__init__(rows, window, model.device, model.dtype)
        probe = model(torch.zeros(1, 1, dtype=torch.int64, device=model.device), use_cache=True)
        shapes = {
            layer.keys.shape + layer.values.shape[-1:] for layer in probe.past_key_values.layers
        }
        if len(shapes) != 1:
            raise ValueError("layers with different caches")
        _, n_kv, _, d_k, d_v = shapes.pop()
        if d_k != d_v:
            raise ValueError("keys and values of different widths")
        n_layers = len(probe.past_key_values.layers)
        self._allocate(n_layers, n_kv, d_k)
        AttentionInterface.register("qalign_rows", _transformers_attention)
        model.set_attn_implementation(attention)
        self._model = model
        self._cache = Cache(layers=[_row_layer(self, i) for i in range(n_layers)])
        self.plan: Plan | None = None

    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Logits [m, vocabulary], as the model's own forward gives them."""
        self.plan = plan
        out = self._model(
            input_ids=tokens[:, None],
            position_ids=plan.positions[:, None],
            attention_mask=plan.mask.view(len(tokens), -1, 1, plan.length),
            past_key_values=self._cache,
            use_cache=True,
        )
        return out.logits[:, 0]  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """The same in float32."""
        return hidden.float()


def _row_layer(net: HFNet, layer: int) -> Any:
    """A cache layer of transformers that writes to the net's rows and returns views of them."""
    from transformers.cache_utils import CacheLayerMixin

    class RowLayer(CacheLayerMixin):  # type: ignore[misc]
        def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
            plan = net.plan
            assert plan is not None
            net._write(layer, plan, keys[:, :, 0], values[:, :, 0])
            k, v = net._attended(layer, plan)
            return k.transpose(2, 3), v

        def lazy_initialization(self, keys: Tensor, values: Tensor) -> None:
            self.is_initialized = True

        def get_seq_length(self) -> int:
            return net.plan.length - 1 if net.plan is not None else 0

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            return self.get_seq_length() + query_length, 0

        def get_max_length(self) -> int:
            return net.slots

    return RowLayer()


def _transformers_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any
) -> tuple[Tensor, None]:
    """`attend` behind transformers' attention interface."""
    if options.get("softcap") is not None or options.get("s_aux") is not None:
        raise ValueError("soft-capped scores or attention sinks")
    m, n_heads, _, d = query.shape
    n_kv = key.shape[1]
    q = query.reshape(m, n_kv, n_heads // n_kv, d)
    out = attend(
        q, key.transpose(2, 3), value, mask.flatten(0, 1), options.get("scaling") or d**-0.5
    )
    return out.reshape(m, 1, n_heads, -1), None


def build(model: Any, rows: int, window: int) -> Net:
    """The fastest net that computes what `model` does, checked against its own forward.

    Raises:
        ValueError: none does (not a decoder with full attention over a plain cache).
    """
    n = min(12, window - 1)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    probe = [(7 * i + 1) % vocabulary for i in range(n)]
    expected = model(torch.tensor([probe], device=model.device)).logits[0].float()
    ways: list[Any] = [lambda: LlamaNet(model, rows, window)] if LlamaNet.fits(model) else []
    ways += [lambda: HFNet(model, rows, window, attention="qalign_rows")]
    ways += [lambda: HFNet(model, rows, window, attention="eager")]
    reasons = []
    for way in ways:
        try:
            net: Net = way()
            error = (net.logits(net.read_in(0, probe, 0)) - expected).abs().max().item()
        except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as reason:
            reasons.append(str(reason).splitlines()[0] if str(reason) else type(reason).__name__)
            continue
        precision = TOLERANCE if net.dtype == torch.float32 else 0.1
        if error <= precision * max(1.0, expected.abs().max().item()):
            net.exact = verify(net, probe)
            return net
        reasons.append(f"logits differ by {error:.2g}")
    raise ValueError("; ".join(dict.fromkeys(reasons)))


def verify(net: Net, tokens: Sequence[int]) -> bool:
    """Whether results are the same bits in any company; if not, hold all shapes constant first."""
    if not _same_in_any_company(net, tokens):
        net.fixed = True
        if not _same_in_any_company(net, tokens):
            return False
    return True


def _same_in_any_company(net: Net, tokens: Sequence[int]) -> bool:
    """Compare a sequence decoded in the last row, in company, with row 0 read in and alone."""
    n, last = len(tokens), net.rows - 1
    first = net.chunk if net.fixed else n // 2
    for start, stop in ((0, min(first, n)), (min(first, n), n)):
        if stop > start:
            read = net.logits(net.read_in(0, tokens[start:stop], start))[-1]
    kept = net.copy_out(0, 0, n).clone()
    alone = []
    for i, token in enumerate(tokens):
        m = net.n_rows(1)
        batch, at = np.zeros(m, np.int64), np.full(m, -1)
        batch[0], at[0] = token, i
        alone.append(net.decode(batch, at)[0].clone())
    same = torch.equal(net.copy_out(0, 0, n), kept) and torch.equal(alone[-1], read)
    for i, token in enumerate(tokens):
        company = (np.arange(net.rows) * 5 + i) % n
        batch = np.array(tokens)[company]
        at = np.where(company % 2, net.window - 1, company)  # some attend to everything
        batch[last], at[last] = token, i
        same = same and torch.equal(net.decode(batch, at)[last], alone[i])
    same = same and torch.equal(net.copy_out(last, 0, n), kept)
    for row in range(net.rows):
        net.clear(row)
    return bool(same)
