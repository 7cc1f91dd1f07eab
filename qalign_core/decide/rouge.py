"""ROUGE-1 as the rouge-score package defines it, without stemming; over many texts at once too."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from qalign_core.types import Array


@dataclass(frozen=True, slots=True)
class Rouge1:
    """ROUGE-1 F-measure: `2 overlap / (|y| + |y'|)` with clipped counts of words; symmetric.

    The package's words are runs of Latin letters a-z and digits; all else separates them.
    """

    def __call__(self, y: str, other: str) -> float:
        """Compare two texts, by the package's scorer."""
        return float(_scorer().score(y, other)["rouge1"].fmeasure)

    def matrix(self, texts: Sequence[str]) -> Array:
        """Compare all pairs, shape [n, n]: the scorer's values by one matrix product.

        Warns where most letters of a text are not Latin.
        """
        from scipy.sparse import csr_array  # slow to import

        if said := unread(texts):
            warnings.warn(said, stacklevel=2)
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


def unread(texts: Sequence[str]) -> str:
    """A sentence on texts whose letters are mostly not Latin; "" if there are none."""
    n = sum(map(_is_unread, texts))
    return (
        n
        and (
            f"ROUGE-1 counts words of Latin letters and digits only, and the letters of {n} of "
            f"{len(texts)} texts are mostly others; choose an extractor, or another utility"
        )
    ) or ""


@lru_cache(maxsize=4096)
def _is_unread(text: str) -> bool:
    if text.isascii():
        return False
    letters = [sign for sign in text if sign.isalpha()]
    return 2 * sum(not sign.isascii() for sign in letters) > len(letters)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # seconds: it loads nltk

    return RougeScorer(["rouge1"], use_stemmer=False)


@lru_cache(maxsize=4096)
def _counts(text: str) -> Counter[str]:
    from rouge_score.tokenize import tokenize

    return Counter(tokenize(text, None))
