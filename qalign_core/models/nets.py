"""Which net runs a model: the fastest that computes what the model does, checked at load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qalign_core.models.net import Net
from qalign_core.models.net_llama import LlamaNet
from qalign_core.models.net_transformers import HFNet

TOLERANCE = 2e-3  # largest difference to transformers' own logits at load, relative to their size


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
