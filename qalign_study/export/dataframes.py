"""Export draws to other libraries: a pandas DataFrame, an ArviZ DataTree.

trace = load_trace("run.jsonl")
to_frame(trace).groupby("chain")["reward"].mean()
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from qalign_core.errors import InvalidSetting
from qalign_core.record.trace import Trace
from qalign_core.types import Array, ScoredResponse, Step

if TYPE_CHECKING:
    import pandas as pd


def to_frame(draws: Trace | Iterable[Step | ScoredResponse]) -> "pd.DataFrame":
    """Return one row per draw: steps of a chain, independent samples, or a whole trace.

    A step's row holds the state after it, and the proposal's reward and text; `t` numbers the
    steps of a chain, or the samples. Rewards are in raw RM units, log-probabilities natural logs.
    """
    import pandas as pd

    if isinstance(draws, Trace):
        steps = [step for chain in draws.chains.values() for step in chain]
        return to_frame([*steps, *draws.pool])
    rows: list[dict[str, Any]] = []
    n = 0
    for draw in draws:
        if isinstance(draw, Step):
            row = dict[str, Any](source="chain", chain=draw.chain, t=draw.t, index=draw.index)
            row |= {"log_alpha": draw.log_alpha, "log_u": draw.log_u, "accepted": draw.accepted}
            state, proposal = draw.state, draw.proposal
            row |= {"proposed_reward": proposal.reward, "proposed": proposal.response.text}
        else:
            row, state, n = dict[str, Any](source="pool", t=n), draw, n + 1
        response = state.response
        row |= {"reward": state.reward, "log_prob": response.log_prob, "tokens": len(response)}
        row |= {"finished": response.finished, "text": response.text}
        rows.append(row | {"generated": draw.cost.generated, "scored": draw.cost.scored})
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.astype({"chain": "Int64", "index": "Int64", "accepted": "boolean"})


_COLUMNS = (
    *("source", "chain", "t", "index", "log_alpha", "log_u", "accepted", "reward", "log_prob"),
    *("tokens", "finished", "generated", "scored", "proposed_reward", "text", "proposed"),
)


def to_datatree(draws: Trace | Iterable[Step]) -> Any:
    """Return chains as an ArviZ DataTree: reward and length of the states, by chain.

    It has their log-probabilities too if all are known. Longer chains are cut to the length of the
    shortest. `sample_stats` has each step's acceptance probability (nan for the initial draw, which
    is always accepted), whether it was accepted, and its index.

    Raises:
        InvalidSetting: arviz-base is not installed, or there is no step.
    """
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise InvalidSetting(
            "a DataTree needs arviz-base; pip install 'qalign-explorer[arviz]'"
        ) from error
    trace = draws if isinstance(draws, Trace) else Trace.collect(draws)
    if not trace.steps:
        raise InvalidSetting("a DataTree needs the steps of a chain, and there are none; draw one")
    length = min(map(len, trace.chains.values()))
    chains = [steps[:length] for steps in trace.chains.values()]

    def values(of: Callable[[Step], Any]) -> Array:
        return np.array([[of(step) for step in chain] for chain in chains])

    posterior = {
        "reward": values(lambda step: step.state.reward),
        "length": values(lambda step: len(step.state.response)),
        "log_prob": values(lambda step: step.state.response.log_prob),
    }
    # an unknown log-probability is None, which makes the array one of objects
    known = {name: array for name, array in posterior.items() if array.dtype != object}
    stats = {
        "acceptance_rate": values(lambda step: math.exp(step.log_alpha) if step.t else math.nan),
        "accepted": values(lambda step: step.accepted),
        "index": values(lambda step: step.index),
    }
    return from_dict({"posterior": known, "sample_stats": stats})
