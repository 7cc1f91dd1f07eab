"""Which net runs a model: the fastest that computes what the model does, checked at load."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qalign_core.models.local.int8 import is_rounded, pack
from qalign_core.models.local.llama_net import build_llama
from qalign_core.models.local.rows import KVNet, Net, sliding_window
from qalign_core.models.local.transformers_net import HFNet, PlainNet, last_logits
from qalign_core.validation import first_line

UNFIT = (ValueError, TypeError, RuntimeError, AttributeError, IndexError, ImportError)
"""Errors of a fast way that does not fit a model, or the installed version of transformers."""


def tolerance(model: Any) -> float:
    """The largest difference to transformers' own numbers at load, relative to their size.

    In 8 bits it is larger: a difference in the last bit moves some inputs to the next 14-bit step.
    """
    return 0.02 if is_rounded(model) else 2e-3


def build(model: Any, rows: int, window: int) -> Net:
    """The fastest net that computes what `model` does, checked against its own forward.

    Raises:
        ValueError: none does.
    """
    reach = sliding_window(model.config) or window
    n = min(max(12, reach + 8 if reach < window else 0), window - 1)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    probe = [(7 * i + 1) % vocabulary for i in range(n)]
    ids = torch.tensor([probe], device=model.device)
    try:
        expected = model(ids, **last_logits(model, 12)).logits[0, -12:].float()
    except UNFIT as reason:
        raise ValueError(first_line(reason)) from reason
    attention = attention_of(model)

    def plain() -> Net:
        model.set_attn_implementation(attention)
        return PlainNet(pack(model), rows, window)

    ways: tuple[Callable[[], Net], ...] = (
        lambda: build_llama(model, rows, window),
        lambda: HFNet(pack(model), rows, window, attention="qalign_rows"),
        lambda: HFNet(pack(model), rows, window, attention="eager"),
        plain,
    )
    reasons = []
    for way in ways:
        try:
            net = way()
            error = _error(net, probe, expected)
        except UNFIT as reason:
            reasons.append(first_line(reason))
            continue
        precision = tolerance(model) if net.dtype == torch.float32 else 0.1
        if error <= precision * max(1.0, expected.abs().max().item()):
            if isinstance(net, KVNet):
                net.exact = verify(net, probe[:12])
            return net
        reasons.append(f"logits differ by {error:.2g}")
    raise ValueError("; ".join(dict.fromkeys(reasons)))


def attention_of(model: Any) -> str:
    """The attention that a model was loaded with; transformers 5.23 has no public name for it."""
    return str(getattr(model.config, "_attn_implementation", None) or "eager")


def _error(net: Net, probe: Sequence[int], expected: Tensor) -> float:
    """Largest difference to the last logits expected, read in, decoded alone and in company."""
    n, decoded = len(probe), len(expected) // 2
    for start in range(0, n - decoded, net.chunk):
        read = net.read_in(0, probe[start : min(start + net.chunk, n - decoded)], start)
    logits = [net.logits(read[-1:])[0]]
    kept = isinstance(net, KVNet)
    logits += [_decode(net, probe[i], i, beside=kept and i % 2 == 0) for i in range(n - decoded, n)]
    for row in (0, 1):
        net.clear(row)
    return float((torch.stack(logits) - expected[-len(logits) :]).abs().max())


def _decode(net: Net, token: int, at: int, *, beside: bool = False) -> Tensor:
    """Logits [vocabulary] after one token of row 0, alone or beside a row as long as can be."""
    m = net.n_rows(2 if beside else 1)
    tokens, positions = np.full(m, token), np.full(m, -1)
    positions[0] = at
    if beside:
        positions[1] = net.window - 1
    return net.decode(tokens, positions)[0].clone()


def verify(net: KVNet, tokens: Sequence[int]) -> bool:
    """Whether results are the same bits in any company; if not, hold all shapes constant first."""
    if _same_in_any_company(net, tokens):
        return True
    net.fixed = True
    return _same_in_any_company(net, tokens)


def _same_in_any_company(net: KVNet, tokens: Sequence[int]) -> bool:
    """Compare a sequence decoded in the last row, in company, with row 0 read in and alone."""
    n, last = len(tokens), net.rows - 1
    starts = range(8 if net.chunk >= 8 else 4, n, 4)  # fours: the logits too have no fewer rows
    for start, stop in itertools.pairwise((0, *starts, n)):
        read = net.logits(net.read_in(0, tokens[start:stop], start))[-1]
    kept = net.copy_out(0, 0, n).clone()
    alone = [_decode(net, token, i) for i, token in enumerate(tokens)]
    same = torch.equal(net.copy_out(0, 0, n), kept) and torch.equal(alone[-1], read)
    for i, token in enumerate(tokens):
        company = (np.arange(net.rows) * 5 + i) % n
        batch = np.array(tokens)[company]
        at = np.where(company % 2, net.window - 1, company)  # some attend to everything
        batch[last], at[last] = token, i
        same = same and torch.equal(net.decode(batch, at)[last], alone[i])
    same = same and torch.equal(net.copy_out(last, 0, n), kept)
    for length in random_prefixes(net):
        short, padded = (_decode(net, tokens[0], length, beside=beside) for beside in (False, True))
        same = same and torch.equal(short, padded)
    net.release()
    return bool(same)


def random_prefixes(net: KVNet) -> Iterator[int]:
    """Lengths up to 1,024 or the window's end; row 0 then holds as many random keys and values.

    Long sums may be divided otherwise than short ones, so a check at the first positions says
    nothing about the others.
    """
    window = min(net.window, 1024)  # the rows of a longer one would fill the memory
    for n in range(min(44, window - 2), window - 1, max(64, window // 4)):
        random = torch.Generator().manual_seed(n)
        net.copy_in(0, torch.randn((n, net.width), generator=random).to(net.device, net.dtype))
        yield n
