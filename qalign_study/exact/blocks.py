"""When do block moves help? One world of fields, from independent ones to exact copies."""

from functools import lru_cache

from qalign_core.chain.moves.block import Block
from qalign_core.target import Target
from qalign_study.exact.bench import fields, prefers_b
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import ExactChain, Rule, exact_chain

TARGET = Target(0.5)


@lru_cache(maxsize=512)
def chain(copies: float, share: float) -> ExactChain:
    """The chain that rewrites a block in a share of its steps, and makes suffix moves otherwise.

    Args:
        copies: how often a field copies the one before it, 0 to 1.
        share: how often a step rewrites a block, 0 to 1.
    """
    lm = _lm(copies)
    rule = Rule(move=Block(lm.delimiters(":")), share=share)
    return exact_chain(lm, prefers_b, TARGET, rule)


@lru_cache(maxsize=128)
def _lm(copies: float) -> EnumerableLM:
    return fields(copies, "fields")
