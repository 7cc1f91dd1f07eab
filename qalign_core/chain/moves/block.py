"""The block move: rewrite one block, keep the rest (docs/method.md, "Moves"; not in the paper)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from qalign_core.chain.moves.move import Choices
from qalign_core.move_spec import move_kind
from qalign_core.types import MoveResult, NoProposal, Proposal, Response


@move_kind(
    lambda lm, text: Block(lm.delimiters(text)),
    takes_text=True,
    reaches_all=False,
    methods=("score_tokens", "delimiters", "response"),
)
@dataclass(frozen=True, slots=True)
class Block:
    """Choose a block that ends with a delimiter, draw it again, and keep the text after it.

    With `y = (prefix, b, tail)` and `b' ~ p(.|prefix)` up to its own delimiter, the correction is
    `log p(tail|prefix,b') - log p(tail|prefix,b)`. Both texts have the same number of blocks, so
    there is no length ratio.

    Attributes:
        delimiters: every token id that ends a block.
    """

    delimiters: frozenset[int]
    name: ClassVar[str] = "block"
    needs_log_probs: ClassVar[bool] = True

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Make a proposal from the state `y`, or return `NoProposal`: the state then repeats."""
        # the token that ends a response is not the end of a block, even if its text is a delimiter
        written = y.tokens[: len(y) - y.finished]
        ends = [at + 1 for at, token in enumerate(written) if token in self.delimiters]
        if not ends:
            return NoProposal("the text has no block")
        if not y.finished:
            return NoProposal("the text was cut at the length limit")
        k = choices.uniform(len(ends))
        start, stop = ends[k - 1] if k else 0, ends[k]
        tail = y.tokens[stop:]
        rewritten = await choices.extend(y, start, until=self.delimiters)
        in_vain = start, rewritten.tokens[start:], rewritten.pieces[start:]
        if rewritten.finished or rewritten.tokens[-1] not in self.delimiters:
            return NoProposal("the new block did not end", *in_vain)
        if len(rewritten) + len(tail) > choices.max_new_tokens:
            return NoProposal("the new text is longer than the length limit", *in_vain)
        log_probs = await choices.log_probs(rewritten.tokens, tail)
        new, old = math.fsum(log_probs), math.fsum(y.log_probs[stop:])
        if new == -math.inf:
            return NoProposal("the rest has probability 0 after the new block", *in_vain)
        response = choices.join(rewritten, tail, log_probs)
        return Proposal(response, start, (new, -old), kept_again=len(tail))
