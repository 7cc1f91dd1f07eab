"""Other models, through transformers' own forward: over our rows, or over caches of their own."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qalign_core.models.local.rows import KVNet, Net, Plan, attend, sliding_window


class HFNet(KVNet):
    """A decoder of transformers that attends to keys and values: its own forward over our rows.

    All positions stay in the rows; layers with a sliding window see the last ones by their mask.
    """

    def __init__(self, model: Any, rows: int, window: int, *, attention: str) -> None:
        from transformers import AttentionInterface
        from transformers.cache_utils import Cache

        super().__init__(rows, window, model.device, model.dtype)
        kinds = set(getattr(model.config, "layer_types", None) or ())
        if other := sorted(kinds - {"full_attention", "sliding_attention"}):
            raise ValueError(f"layers of the kind {other[0]}")
        self._by_kind = "sliding_attention" in kinds
        self._reach = sliding_window(model.config)
        self._narrow = attention == "eager"  # its masks broadcast over all heads
        model.set_attn_implementation("eager")
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
            attention_mask=self._masks(plan),
            past_key_values=self._cache,
            use_cache=True,
        )
        return out.logits[:, 0]

    def _masks(self, plan: Plan) -> Tensor | dict[str, Tensor]:
        """The mask of the layers, by their kind if there are two."""
        m = len(plan.positions)
        shape = m, -1, 1, plan.length
        full = sliding = plan.mask
        if self._reach is not None and self._reach < plan.length:
            sliding = self._mask(plan.positions, plan.length, self._reach)
            sliding = sliding.repeat_interleave(len(full) // m, 0)
        masks = {"full_attention": full.view(shape), "sliding_attention": sliding.view(shape)}
        if self._narrow:
            masks = {kind: mask[:, :1] for kind, mask in masks.items()}
        return masks if self._by_kind else masks["sliding_attention"]


class PlainNet(Net):
    """Any causal model of transformers: row after row, over whatever state the model itself keeps.

    For states that cannot be cut at a position (Mamba), attention that is biased by distance
    (Bloom), layers of different caches. A sequence is read in at once from its start and then goes
    token by token, so its results depend on nothing else; and nothing is kept for the next one.
    A model that returns no state reads everything again for each token.
    """

    exact = True

    def __init__(self, model: Any, rows: int, window: int) -> None:
        super().__init__(rows, window, model.device, model.dtype)
        self._model = model
        self._ids: list[list[int]] = [[] for _ in range(rows)]
        self._states: list[dict[str, Any]] = [{} for _ in range(rows)]
        self._last: list[Tensor | None] = [None] * rows

    def read_in(self, row: int, tokens: Sequence[int], start: int, *, needed: int = 1) -> Tensor:
        """Begin a sequence; the logits after its last tokens [needed, vocabulary]."""
        assert start == 0, "a sequence is read in at once"
        self.clear(row)
        return self._run(row, list(tokens), max(needed, 1))

    def decode(self, tokens: np.ndarray, positions: np.ndarray, common: int = 0) -> Tensor:
        """Logits [m, vocabulary], one row after the other; those of idle rows are zeros."""
        hidden = {
            row: self._step(row, token, at)
            for row, (token, at) in enumerate(zip(tokens.tolist(), positions.tolist(), strict=True))
            if at >= 0
        }
        nothing = torch.zeros_like(next(iter(hidden.values())))
        return self.logits(torch.stack([hidden.get(row, nothing) for row in range(len(tokens))]))

    def _step(self, row: int, token: int, at: int) -> Tensor:
        if at == 0:
            self.clear(row)
        elif at == len(self._ids[row]) - 1 and (last := self._last[row]) is not None:
            return last  # asked again, since another row failed in the same step
        assert at == len(self._ids[row])
        return self._run(row, [token], 1)[0]

    def _run(self, row: int, tokens: list[int], needed: int) -> Tensor:
        """Logits [needed, vocabulary] after the last of the row's ids and `tokens`."""
        state, self._states[row] = self._states[row], {}  # gone if the model fails half-way
        ids = tokens if state else self._ids[row] + tokens
        options = {"use_cache": True, **last_logits(self._model, needed)}
        out = self._model(torch.tensor([ids], device=self.device), **state, **options)
        self._states[row] = {name: out[name] for name in _STATES if out.get(name) is not None}
        self._ids[row] += tokens
        self._last[row] = out.logits[0, -1]
        return out.logits[0, -needed:]

    def clear(self, row: int) -> None:
        """Forget a row."""
        self._ids[row], self._states[row], self._last[row] = [], {}, None


_STATES = ("past_key_values", "cache_params", "state", "mems")
"""What models of transformers call the state that they return and take."""


def last_logits(model: Any, n: int) -> dict[str, int]:
    """The option by which a model computes logits of the last `n` positions only, if it has one."""
    name = "logits_to_keep"
    return {name: n} if name in inspect.signature(model.forward).parameters else {}


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
