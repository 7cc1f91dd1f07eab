"""Other decoders, through transformers' own forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qalign_core.models.net import Net, Plan, attend


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
