"""The utility `u(y, y')` of minimum Bayes risk (paper, Eq. mbr) over texts: ROUGE-1.

A utility is a plain function of two texts. This one also has `matrix(texts)`, all pairs at once,
which `minimum_bayes_risk` prefers: a text is then read once, not once per pair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Rouge1:
    """ROUGE-1 F-measure, as the rouge-score package computes it without stemming.

    Words are runs of a-z and 0-9 of the lower-cased text; with clipped counts
    `overlap = sum_w min(count_w(y), count_w(y'))`, `F = 2 overlap / (|y| + |y'|)`, 0 if there are
    no words at all. Symmetric.
    """

    def __call__(self, y: str, other: str) -> float:
        """Compare two texts."""
        ours, theirs = _counts(y), _counts(other)
        overlap = (ours & theirs).total()
        return 2 * overlap / (ours.total() + theirs.total()) if overlap else 0.0

    def matrix(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Compare all pairs, shape [n, n]."""
        counts = [_counts(text) for text in texts]
        lengths = np.array([c.total() for c in counts], dtype=np.float64)
        overlap = _overlaps(counts)
        np.fill_diagonal(overlap, lengths)
        return 2 * overlap / np.maximum(lengths[:, None] + lengths, 1)


rouge1 = Rouge1()
"""The ROUGE-1 F-measure of two texts, in [0, 1]."""


@lru_cache(maxsize=4096)
def _counts(text: str) -> Counter[str]:
    return Counter(re.findall(r"[a-z0-9]+", text.lower()))


def _overlaps(counts: Sequence[Counter[str]]) -> npt.NDArray[np.float64]:
    """Clipped overlaps of all pairs of different texts, shape [n, n]; the diagonal is not filled.

    The k-th occurrence of a word counts as a word of its own. Clipped counts then are sizes of
    intersections of sets, and those are one matrix product.
    """
    holders: dict[tuple[str, int], list[int]] = {}
    for row, words in enumerate(counts):
        for word, count in words.items():
            for k in range(count):
                holders.setdefault((word, k), []).append(row)
    shared = [rows for rows in holders.values() if len(rows) > 1]

    overlap = np.zeros((len(counts), len(counts)))
    block = 8192  # columns at a time, so that memory does not grow with the vocabulary
    for start in range(0, len(shared), block):
        columns = shared[start : start + block]
        member = np.zeros((len(counts), len(columns)), dtype=np.float32)
        for column, rows in enumerate(columns):
            member[rows, column] = 1
        overlap += member @ member.T  # exact: whole numbers below 2**24
    return overlap
