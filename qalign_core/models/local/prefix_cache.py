"""Keys and values that are kept: a radix tree over token ids, one slot of a fixed pool per token.

Two responses that share a prefix share its slots, so a prompt is held once for all its chains and
a proposal costs only its new suffix. The pool is allocated once; when it is full the least
recently used tokens go, deepest first.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch


def n_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences both begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


class _Run:
    """Tokens that follow one another in every sequence kept so far, and their slots.

    `after` holds the runs that come next, by their first token.
    """

    __slots__ = ("after", "parent", "slots", "tokens")

    def __init__(self, tokens: tuple[int, ...], slots: list[int], parent: "_Run | None") -> None:
        self.tokens, self.slots, self.parent = tokens, slots, parent
        self.after: dict[int, _Run] = {}


class PrefixCache:
    """Maps sequences of token ids to the keys and values of their positions.

    Args:
        n_slots: tokens that fit.
        width: values per token, all layers together.
    """

    def __init__(self, n_slots: int, width: int, *, dtype: torch.dtype, device: torch.device):
        self.pool = torch.empty(n_slots, width, dtype=dtype, device=device)
        self._free = list(range(n_slots - 1, -1, -1))
        self._root = _Run((), [], None)
        # Least recently used first. A path is always touched from its end to its start, so a
        # parent is younger than its children and the oldest is a leaf.
        self._age: OrderedDict[_Run, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.pool) - len(self._free)

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Slots of the longest prefix of `tokens` that is kept."""
        path, n = self._walk(tuple(tokens))
        self._touch(path)
        return [slot for run in path for slot in run.slots][:n]

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
        tokens = tuple(tokens)
        path, known = self._walk(tokens)
        n_new = len(tokens) - known
        slots: list[int] = []
        if n_new and len(tokens) <= len(self.pool):
            held = sum(len(run.slots) for run in path)
            if held > known:
                path[-1] = self._split(path[-1], len(path[-1].slots) - (held - known))
            self._touch(path)  # or it might be evicted for its own continuation
            slots = self._take(n_new)
            parent = path[-1] if path else self._root
            run = parent.after[tokens[known]] = _Run(tokens[known:], slots, parent)
            self._age[run] = None
            path.append(run)
        self._touch(path)
        return known, torch.tensor(slots, dtype=torch.int64, device=self.pool.device)

    def _walk(self, tokens: tuple[int, ...]) -> tuple[list[_Run], int]:
        """The runs that `tokens` begin with, the last maybe in part, and how many tokens agree."""
        path: list[_Run] = []
        run, at = self._root, 0
        while at < len(tokens) and (follower := run.after.get(tokens[at])) is not None:
            path.append(follower)
            here = tokens[at : at + len(follower.tokens)]
            if here != follower.tokens:
                return path, at + n_equal(here, follower.tokens)
            run, at = follower, at + len(here)
        return path, at

    def _split(self, run: _Run, n: int) -> _Run:
        """Cut a run in two after `n` of its tokens: the first part."""
        assert run.parent is not None
        first = _Run(run.tokens[:n], run.slots[:n], run.parent)
        first.after = {run.tokens[n]: run}
        run.parent.after[run.tokens[0]] = first
        run.tokens, run.slots, run.parent = run.tokens[n:], run.slots[n:], first
        self._age[first] = None
        return first

    def _take(self, n: int) -> list[int]:
        """`n` free slots, after the oldest tokens made room."""
        while (missing := n - len(self._free)) > 0:
            oldest = next(iter(self._age))
            self._free += oldest.slots[-missing:]
            if missing < len(oldest.slots):
                oldest.tokens, oldest.slots = oldest.tokens[:-missing], oldest.slots[:-missing]
            else:
                assert oldest.parent is not None
                del oldest.parent.after[oldest.tokens[0]], self._age[oldest]
        slots = self._free[-n:]
        del self._free[-n:]
        return slots

    def _touch(self, path: list[_Run]) -> None:
        for run in reversed(path):
            self._age.move_to_end(run)
