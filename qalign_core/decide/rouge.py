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
        """Compare two texts, by the package's scorer; warns as `matrix` does."""
        if message := unread((y, other)):
            warnings.warn(message, stacklevel=2)
        return float(_scorer().score(y, other)["rouge1"].fmeasure)

    def matrix(self, texts: Sequence[str]) -> Array:
        """Compare all pairs, shape [n, n]: the scorer's values by one matrix product.

        Warns where the letters of a text are not Latin, or where accents cut many words.
        """
        from scipy.sparse import csr_array  # slow to import

        if message := unread(texts):
            warnings.warn(message, stacklevel=2)
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
    """Return a sentence on texts whose words the package misreads; "" if there are none.

    Letters beside a-z separate words: "größer" counts as "gr" and "er". A text in which at most one
    word in twenty has such a letter passes.
    """
    shares = [_share_unread(text) for text in texts]
    advice = "choose an extractor, or another utility"
    # without their number: of many sets of texts, Python shows each sentence once
    if any(letters > 0.5 for letters, _ in shares):
        return (
            "ROUGE-1 counts words of Latin letters and digits only, and the letters of some texts "
            f"are mostly others; {advice}"
        )
    if any(words > 0.05 for _, words in shares):
        return (
            "ROUGE-1 counts words of the letters a to z only, so that letters with accents cut "
            f"words in some texts; {advice}"
        )
    return ""


@lru_cache(maxsize=4096)
def _share_unread(text: str) -> tuple[float, float]:
    """The shares of a text's letters and words that are not written in the letters a to z."""
    if text.isascii():
        return 0.0, 0.0
    letters = [sign for sign in text if sign.isalpha()]
    words = [word for word in text.split() if any(map(str.isalnum, word))]
    cut = sum(any(sign.isalpha() and not sign.isascii() for sign in word) for word in words)
    foreign = sum(not sign.isascii() for sign in letters)
    return foreign / max(1, len(letters)), cut / max(1, len(words))


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # seconds: it loads nltk

    return RougeScorer(["rouge1"], use_stemmer=False)


@lru_cache(maxsize=4096)
def _counts(text: str) -> Counter[str]:
    from rouge_score.tokenize import tokenize

    return Counter(tokenize(text, None))
