"""How well a reward ranks the texts that a chain compares, measured on the chain's own pairs."""

from collections.abc import Iterable

import numpy as np

from qalign_study.measure.diagnostics import Rate
from qalign_study.measure.record import Record, generated


def near_misses(records: Iterable[Record]) -> Rate:
    """How often the reward prefers the right one of a state and a proposal.

    The two share a beginning, since the proposal keeps the state up to an index above 0, and
    exactly one of them is right. Each pair counts as often as the chain met it.
    """
    preferred = met = 0
    for record in records:
        first = record.n_chains  # the first steps are the initial draws, which have no state before
        proposed = np.arange(len(record.chain_reward))[first:]
        state = record.state_of[:-first] if first else proposed
        right = record.is_right(record.chain_answer)
        kept = record.chain_length - generated(record.chain_cost)
        pair = (right[proposed] != right[state]) & (kept[proposed] > 0)
        rises = record.chain_reward[proposed] > record.chain_reward[state]
        preferred += int((pair & (rises == right[proposed])).sum())
        met += int(pair.sum())
    return Rate(preferred, met)
