"""Finite models with exact probabilities, on which the laws are checked."""

from __future__ import annotations

import hashlib

from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.target import Target, log_acceptance
from qalign_core.types import Response, ScoredResponse
from qalign_study.exact.enumerable import EnumerableLM


def letters(max_new_tokens: int = 4) -> EnumerableLM:
    """Three letters and EOS; the next letter depends on the last one; EOS may come at once."""
    return EnumerableLM.markov(
        [0.40, 0.25, 0.20, 0.15],
        [[0.10, 0.45, 0.15, 0.30], [0.30, 0.10, 0.35, 0.25], [0.05, 0.25, 0.20, 0.50]],
        pieces=("a", "b", "c", "<eos>"),
        max_new_tokens=max_new_tokens,
    )


def coin(max_new_tokens: int = 4, p_eos: float = 0.25) -> EnumerableLM:
    """One letter and EOS: a response is its length."""
    row = [1 - p_eos, p_eos]
    return EnumerableLM.markov(
        row, [row], pieces=("x", "<eos>"), max_new_tokens=max_new_tokens, id="coin"
    )


def uneven() -> EnumerableLM:
    """A table of responses of lengths 1 to 3, one of them cut by the limit."""
    table = {(2,): 0.1, (0, 2): 0.25, (0, 1, 2): 0.3, (1, 2): 0.05, (1, 1, 1): 0.3}
    return EnumerableLM.from_responses(table, pieces=("a", "b", "<eos>"), id="uneven")


def correlated_reward(response: Response) -> float:
    """A reward correlated with the letters and the length, rough enough to have no symmetry."""
    roughness = hashlib.blake2b(repr(response.tokens).encode(), digest_size=2).digest()
    rough = int.from_bytes(roughness, "big") / 65536
    return 0.8 * response.text.count("a") - 0.5 * response.text.count("c") + 1.5 * rough


def suffix_log_alpha(target: Target, new: ScoredResponse, old: ScoredResponse) -> float:
    """The acceptance of the paper's move, from the kernel."""
    ratio = length_ratio(new=len(new.response), old=len(old.response))
    return float(log_acceptance(target, new=new, old=old, log_correction=ratio))


class TableReward:
    """The reward above behind the RewardModel protocol."""

    id = "table"

    async def score(self, prompt: str, response: Response) -> float:
        return correlated_reward(response)
