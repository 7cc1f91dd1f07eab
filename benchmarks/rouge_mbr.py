"""Minimum Bayes risk with ROUGE-1: time, and the difference from rouge-score's values.

    python -m benchmarks.rouge_mbr [--responses 512] [--words 100]

Wanted: 2 s or less for 512 responses of 100 words, and the same values to 1e-12.
Last result, on a busy machine of two cores: 1.8 s; rouge-score on all pairs would take about 900 s;
largest difference 6e-17.
"""

from __future__ import annotations

import argparse
import random
import time

from rouge_score import rouge_scorer

from qalign_core.decide.methods import minimum_bayes_risk
from qalign_core.decide.rouge import rouge1
from qalign_core.types import Response, ScoredResponse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--responses", type=int, default=512)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=2000, help="pairs scored by rouge-score")
    options = parser.parse_args()

    rng = random.Random(0)
    vocabulary = [f"word{k}" for k in range(2000)]
    popularity = [1 / (k + 1) for k in range(2000)]  # as words are: a few often, most seldom
    texts = [
        " ".join(rng.choices(vocabulary, popularity, k=options.words))
        for _ in range(options.responses)
    ]
    samples = [
        ScoredResponse(Response((k,), text, True), rng.gauss(0, 1)) for k, text in enumerate(texts)
    ]

    start = time.perf_counter()
    minimum_bayes_risk(samples, rouge1)
    product = time.perf_counter() - start

    scorer = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False)
    pairs = [rng.choices(texts, k=2) for _ in range(options.pairs)]
    start = time.perf_counter()
    theirs = [scorer.score(other, y)["rouge1"].fmeasure for y, other in pairs]
    a_pair = (time.perf_counter() - start) / options.pairs
    matrix = rouge1.matrix(texts)
    place = {text: k for k, text in enumerate(texts)}
    worst = max(
        max(abs(rouge1(y, other) - value), abs(matrix[place[y], place[other]] - value))
        for (y, other), value in zip(pairs, theirs, strict=True)
    )
    print(f"{options.responses} responses of {options.words} words: {product:.2f} s")
    print(f"rouge-score, all pairs: {a_pair * options.responses**2:.0f} s (estimated)")
    print(f"largest difference in {options.pairs} pairs: {worst:.1e}")


if __name__ == "__main__":
    main()
