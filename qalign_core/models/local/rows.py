"""One decoding step of a transformer over rows of preallocated keys and values.

A *step* runs m tokens through the network. Either token i belongs to row i (decoding), or all of
them are consecutive tokens of one row (reading a prompt). Both are the same matrix products on
the same shapes, so a position's keys and values have the same bits however they came about. This
lets a kept prefix replace a computed one without changing a trajectory.

Measured on AVX-512 with MKL and oneDNN, and checked at load by `net_selection.verify`: a row of a
product does not depend on the other rows, nor on their number if there are at least 4; and
attending to more masked positions (in multiples of 16, with values added up in parts of constant
size) adds exact zeros. So the number of rows and the attended length may follow the load. Where
that does not hold, both are held constant.
"""

import contextlib
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

QUANTUM = 16  # the attended length is a multiple of this
MIN_ROWS = 4  # fewer rows take other kernels (matrix times vector), which round otherwise

# numbers, and positions, of one head's values that are added up in one product; see `_attend`
AT_ONCE, POSITIONS_AT_ONCE = 2**14, 256
HUGE_PAGE = 2**21  # bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the tokens of one step stand: `row` is None if token i belongs to row i."""

    positions: Tensor  # [m]
    mask: Tensor  # [m, 1, length], 0 or -inf; [m * kv_heads, 1, length] if row is None
    length: int
    row: int | None
    common: int  # positions at the start that hold the same tokens in all rows in use
    source: int  # the first row in use
    span: slice  # the slots of `row` that the tokens fill; those behind the last are padding
    keys_at: Tensor  # [m * kv_heads * head_dim], where keys go in one layer; empty if row is given
    values_at: Tensor  # the same for values


class Net(ABC):
    """Rows of sequences and steps over them, as the engine calls them.

    By default a sequence is read in at once, and nothing of it is kept for the next one.

    Attributes:
        rows: sequences that run at once.
        window: positions a sequence may have.
        exact: True if results do not depend on company or history.
        reads_common: True if `decode` is faster when it knows what the rows have in common.
        width: numbers kept for one position, all layers together; 0 if nothing can be kept.
    """

    exact = reads_common = False
    width = 0

    def __init__(self, rows: int, window: int, device: torch.device, dtype: torch.dtype) -> None:
        self.rows, self.window, self.device, self.dtype = rows, window, device, dtype

    @property
    def chunk(self) -> int:
        """The most tokens that one `read_in` takes."""
        return self.window

    def n_rows(self, n: int) -> int:
        """How many tokens a step has that must hold `n`."""
        return n

    @abstractmethod
    def read_in(self, row: int, tokens: Sequence[int], start: int, *, needed: int = 1) -> Tensor:
        """Run consecutive tokens of a row through the network: the last `needed` hidden states.

        There can be more of them; the last token's is the last.
        """

    @abstractmethod
    def decode(self, tokens: np.ndarray, positions: np.ndarray, common: int = 0) -> Tensor:
        """Logits [m, vocabulary] after token i of row i; a position of -1 marks an idle row.

        The first `common` positions hold the same tokens in all other rows.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits in float32: [m, vocabulary]; here they are the hidden states."""
        return hidden.float()

    def copy_out(self, row: int, start: int, stop: int) -> Tensor:
        """Keys and values of positions start to stop of a row: [stop - start, width]."""
        raise NotImplementedError

    def copy_in(self, row: int, kept: Tensor) -> None:
        """Put keys and values at the first positions of a row: the reverse of `copy_out`."""
        raise NotImplementedError

    @abstractmethod
    def clear(self, row: int) -> None:
        """Forget a row that failed."""


class KVNet(Net):
    """Rows of keys and values of one shape; subclasses implement `hidden` and `logits`.

    Keys lie side by side for one number of all positions ([head_dim, slots]), values the other way
    round: so both products of attention read memory in order. On cold memory at 16 rows of the
    embedded model, keys by position take 139 µs a layer instead of 83, and 35 in huge pages.

    Attributes:
        keys: [layers, rows, kv_heads, head_dim, slots]; rows are a multiple of `MIN_ROWS`.
        values: [layers, rows, kv_heads, slots, head_dim].
    """

    keys: Tensor
    values: Tensor

    def __init__(self, rows: int, window: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(rows, window, device, dtype)
        self.fixed = False  # True: the number of rows and the attended length never change
        self.alone = False  # True: a step may have any number of rows, as whole numbers have
        self.slots = (window // QUANTUM + 1) * QUANTUM  # the last one takes what nobody reads
        self._every = torch.arange(self.slots, device=device)
        self._seen, self._hidden = torch.tensor([0.0, -torch.inf], dtype=dtype, device=device)

    def _allocate(self, layers: int, kv_heads: int, head_dim: int) -> None:
        rows = -(-self.rows // MIN_ROWS) * MIN_ROWS  # the most that a step with all rows takes
        shape = (layers, rows, kv_heads, head_dim, self.slots)
        self.width = 2 * layers * kv_heads * head_dim
        self.keys = _zeros(shape, self.dtype, self.device)
        self.values = _zeros((*shape[:3], self.slots, head_dim), self.dtype, self.device)
        self._flat_keys = self.keys.view(layers, -1)
        self._flat_values = self.values.view(layers, -1)
        # where slot 0 of (row, head, number) stands in a layer
        at = torch.arange(rows * kv_heads * head_dim, device=self.device)
        self._key_base = (at * self.slots).view(rows, kv_heads, head_dim)
        heads = torch.arange(rows * kv_heads, device=self.device) * self.slots * head_dim
        number = torch.arange(head_dim, device=self.device)
        self._value_base = heads.view(rows, kv_heads, 1) + number

    def decode(self, tokens: np.ndarray, positions: np.ndarray, common: int = 0) -> Tensor:
        """Logits [m, vocabulary] after token i of row i; a position of -1 marks an idle row."""
        return self.logits(self.hidden(*self._plan(tokens, positions, None, common)))

    def read_in(self, row: int, tokens: Sequence[int], start: int, *, needed: int = 1) -> Tensor:
        """Run consecutive tokens of one row through the network: hidden states [n, width]."""
        n = len(tokens)
        m = self.n_rows(n)
        padded, positions = np.zeros(m, np.int64), np.full(m, -1)
        padded[:n] = tokens
        positions[:n] = range(start, start + n)
        return self.hidden(*self._plan(padded, positions, row))[:n]

    def n_rows(self, n: int) -> int:
        """How many tokens a step has that must hold `n`."""
        if self.fixed:
            return self.rows
        return n if self.alone else -(-n // MIN_ROWS) * MIN_ROWS

    @property
    def chunk(self) -> int:
        """The most tokens that one `read_in` takes."""
        return self.rows if self.fixed else 64

    def _plan(
        self, tokens: np.ndarray, positions: np.ndarray, row: int | None, common: int = 0
    ) -> tuple[Tensor, Plan]:
        longest = self.slots if self.fixed else int(positions.max()) + 1
        length = -(-longest // QUANTUM) * QUANTUM
        idle = positions < 0
        at = torch.from_numpy(np.where(idle, 0, positions)).to(self.device)
        mask = self._mask(at, length)
        keys_at = values_at = at[:0]
        if row is None:
            slot = torch.from_numpy(np.where(idle, self.slots - 1, positions)).to(self.device)
            slot = slot[:, None, None]
            keys_at = (self._key_base[: len(slot)] + slot).view(-1)
            values_at = (self._value_base[: len(slot)] + slot * self.values.shape[-1]).view(-1)
            mask = mask.repeat_interleave(self.keys.shape[2], 0)
        span = slice(int(positions[0]), int(positions.max()) + 1)
        common = common // QUANTUM * QUANTUM
        source = int(np.argmin(idle))
        plan = Plan(at, mask, length, row, common, source, span, keys_at, values_at)
        return torch.from_numpy(tokens).to(self.device), plan

    def _mask(self, positions: Tensor, length: int, reach: int | None = None) -> Tensor:
        """[m, 1, length], 0 or -inf: hidden are later positions, and those `reach` or more ago."""
        at, every = positions[:, None], self._every[:length]
        hidden = every > at if reach is None else (every > at) | (every <= at - reach)
        return torch.where(hidden, self._hidden, self._seen)[:, None]

    @abstractmethod
    def hidden(self, tokens: Tensor, plan: Plan) -> Tensor:
        """Final hidden states [m, hidden size]; writes the tokens' keys and values."""

    def copy_out(self, row: int, start: int, stop: int) -> Tensor:
        """Keys and values of positions start to stop of a row: [stop - start, width]."""
        keys = self.keys[:, row, :, :, start:stop].permute(3, 0, 1, 2)
        values = self.values[:, row, :, start:stop].permute(2, 0, 1, 3)
        return torch.stack([keys, values], 1).view(stop - start, -1)

    def copy_in(self, row: int, kept: Tensor) -> None:
        """Put keys and values at the first positions of a row: the reverse of `copy_out`."""
        layers, _, kv_heads, head_dim, _ = self.keys.shape
        keys, values = kept.view(-1, 2, layers, kv_heads, head_dim).unbind(1)
        self.keys[:, row, :, :, : len(kept)] = keys.permute(1, 2, 3, 0)
        self.values[:, row, :, : len(kept)] = values.permute(1, 2, 0, 3)

    def clear(self, row: int) -> None:
        """Forget a row that is not finite: not a number times a masked zero is not a number."""
        self.keys[:, row].zero_()
        self.values[:, row].zero_()

    def release(self) -> None:
        """Forget all rows, and give their memory back until they are used."""
        layers, _, kv_heads, head_dim, _ = self.keys.shape
        self._allocate(layers, kv_heads, head_dim)

    def _write(self, layer: int, plan: Plan, keys: Tensor, values: Tensor) -> None:
        """Store what a layer made of the step's tokens: [m, kv_heads, head_dim] each."""
        if plan.row is None:
            self._flat_keys[layer].put_(plan.keys_at, keys)
            self._flat_values[layer].put_(plan.values_at, values)
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


def sliding_window(config: Any) -> int | None:
    """The reach of layers that see only the last positions; None if all layers see everything."""
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    used = "sliding_attention" in kinds and getattr(config, "use_sliding_window", True)
    return (getattr(config, "sliding_window", None) or None) if used else None


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
    # One product over all positions may divide its sum at a place that depends on the length: with
    # 256 numbers a position, position 168 had other bits at length 192 than at 240 on an AMD EPYC,
    # and with 32 numbers, position 300 at length 304 than at 528 on an Intel Xeon with AMX.
    part = min(POSITIONS_AT_ONCE, max(1, AT_ONCE // (v.shape[-1] * QUANTUM)) * QUANTUM)
    p = torch.softmax(torch.baddbmm(mask, q, k, alpha=scale), -1)
    mixed = torch.bmm(p[..., :part], v[:, :part])
    for start in range(part, v.shape[1], part):
        mixed.baddbmm_(p[..., start : start + part], v[:, start : start + part])
    return mixed
