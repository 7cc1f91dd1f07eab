"""Keys and values that are kept: a trie over token ids, one slot of a fixed pool per token.

Two responses that share a prefix share its slots, so a prompt is held once for all its chains and
a proposal costs only its new suffix. The pool is allocated once; when it is full the least
recently used tokens go, deepest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

_ROOT = -1


class PrefixCache:
    """Maps sequences of token ids to the keys and values of their positions.

    Args:
        n_slots: tokens that fit.
        width: values per token, all layers together.
    """

    def __init__(self, n_slots: int, width: int, *, dtype: torch.dtype, device: torch.device):
        self.pool = torch.empty(n_slots, width, dtype=dtype, device=device)
        self._free = list(range(n_slots - 1, -1, -1))
        self._child: dict[tuple[int, int], int] = {}  # (parent's slot, token) -> slot
        # slot -> its key in _child, least recently used first. A path is always touched from its
        # end to its start, so a parent is younger than its children and the oldest is a leaf.
        self._age: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._age)

    @property
    def n_bytes(self) -> int:
        """Memory of the pool (bytes)."""
        return self.pool.numel() * self.pool.element_size()

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Slots of the longest prefix of `tokens` that is kept."""
        slots: list[int] = []
        parent, child = _ROOT, self._child
        for token in tokens:
            slot = child.get((parent, token))
            if slot is None:
                break
            slots.append(slot)
            parent = slot
        self._touch(slots)
        return slots

    def read(self, slots: list[int]) -> torch.Tensor:
        """Keys and values at `slots`: [n, width]."""
        at = torch.tensor(slots, dtype=torch.int64, device=self.pool.device)
        return self.pool.index_select(0, at)

    def write(self, slots: torch.Tensor, values: torch.Tensor) -> None:
        """Fill `slots` [n] with keys and values [n, width]."""
        self.pool.index_copy_(0, slots, values)

    def reserve(self, tokens: Sequence[int]) -> tuple[int, torch.Tensor]:
        """Make room for `tokens`: how many are kept already, and the slots to fill for the rest.

        The caller must `write` to the slots before it calls anything else.
        """
        slots = self.match(tokens)
        known = len(slots)
        if len(tokens) > self.pool.shape[0]:
            return known, torch.empty(0, dtype=torch.int64)
        while len(self._free) < len(tokens) - known:
            oldest, key = self._age.popitem(last=False)
            del self._child[key]
            self._free.append(oldest)
        parent = slots[-1] if slots else _ROOT
        for token in tokens[known:]:
            slot = self._free.pop()
            self._child[parent, token] = slot
            self._age[slot] = (parent, token)
            slots.append(slot)
            parent = slot
        self._touch(slots)
        return known, torch.tensor(slots[known:], dtype=torch.int64, device=self.pool.device)

    def _touch(self, slots: list[int]) -> None:
        move = self._age.move_to_end
        for slot in reversed(slots):
            move(slot)
