"""When do block moves help? One world of fields, from independent ones to exact copies."""

from dataclasses import replace
from functools import lru_cache

from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.suffix import Suffix
from qalign_core.target import Target
from qalign_study.exact.bench import fields, prefers_b
from qalign_study.exact.law import ExactChain, Rule, exact_chain

TARGET = Target(0.5)


def chains(copies: float, share: float) -> tuple[ExactChain, ExactChain]:
    """The chain of suffix moves alone, and the one that rewrites a block in a share of its steps.

    Args:
        copies: how often a field copies the one before it, 0 to 1.
        share: how often a step rewrites a block, 0 to 1.
    """
    suffix, block = _pure(copies)
    # each step draws its move, so the matrices mix as the moves do
    matrix = (1 - share) * suffix.matrix + share * block.matrix
    return suffix, replace(suffix, matrix=matrix)


@lru_cache(maxsize=128)
def _pure(copies: float) -> tuple[ExactChain, ExactChain]:
    lm = fields(copies, "fields")
    moves = Suffix(), Block(lm.delimiters(":"))
    suffix, block = (exact_chain(lm, prefers_b, TARGET, Rule(move=move)) for move in moves)
    return suffix, block
