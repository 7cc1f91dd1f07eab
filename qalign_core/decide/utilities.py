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
        from scipy.sparse import csr_array  # slow to import

        # the k-th occurrence of a word counts as a word of its own: clipped counts then are sizes
        # of intersections of sets, and those are one matrix product
        column: dict[tuple[str, int], int] = {}
        words = [
            [column.setdefault((word, k), len(column)) for word, n in c.items() for k in range(n)]
            for c in map(_counts, texts)
        ]
        lengths = np.array([len(each) for each in words], dtype=np.int64)
        member = csr_array(
            (np.ones(lengths.sum()), [w for each in words for w in each], [0, *lengths.cumsum()]),
            shape=(len(texts), max(1, len(column))),
        )
        overlap = (member @ member.T).toarray()
        return np.asarray(2 * overlap / np.maximum(lengths[:, None] + lengths, 1))


rouge1 = Rouge1()
"""The ROUGE-1 F-measure of two texts, in [0, 1]."""


@lru_cache(maxsize=4096)
def _counts(text: str) -> Counter[str]:
    return Counter(re.findall(r"[a-z0-9]+", text.lower()))
