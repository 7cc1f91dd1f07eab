"""What was drawn as other libraries read it: a pandas DataFrame, a DataTree of ArviZ."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from qalign_core.errors import InvalidSetting
from qalign_core.types import Array, ScoredResponse, Step, Trace

if TYPE_CHECKING:
    import pandas as pd


def to_frame(draws: Trace | Iterable[Step | ScoredResponse]) -> "pd.DataFrame":
    """One row per draw: steps of a chain, independent samples, or all of a trace.

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
            place = {"source": "chain", "chain": draw.chain, "t": draw.t, "index": draw.index}
            place |= {"log_alpha": draw.log_alpha, "log_u": draw.log_u, "accepted": draw.accepted}
            proposal = draw.proposal
            place |= {"proposed_reward": proposal.reward, "proposed": proposal.response.text}
            rows.append(place | _told(draw.state) | _cost(draw))
        else:
            rows.append({"source": "pool", "t": n} | _told(draw) | _cost(draw))
            n += 1
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys([*_COLUMNS, *_TEXTS])))
    return frame.astype({"chain": "Int64", "index": "Int64", "accepted": "boolean"})


_COLUMNS = (
    *("source", "chain", "t", "index", "log_alpha", "log_u", "accepted", "reward", "log_prob"),
    *("tokens", "finished", "generated", "scored", "proposed_reward"),
)
_TEXTS = ("text", "proposed")


def _told(draw: ScoredResponse) -> dict[str, Any]:
    response = draw.response
    told = {"reward": draw.reward, "log_prob": response.log_prob, "tokens": len(response)}
    return told | {"finished": response.finished, "text": response.text}


def _cost(draw: Step | ScoredResponse) -> dict[str, int]:
    return {"generated": draw.cost.generated, "scored": draw.cost.scored}


def to_datatree(draws: Trace | Iterable[Step]) -> Any:
    """Chains as ArviZ reads them: the reward and length of the states, by chain.

    Their log-probabilities too, where each is known. Longer chains are cut at the end of the
    shortest. `sample_stats` has each step's acceptance probability (nan for the first draft, which
    no coin decides), whether it was accepted (the first draft is), and its index.

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

    def each(of: Callable[[Step], Any]) -> Array:
        return np.array([[of(step) for step in chain] for chain in chains])

    posterior = {
        "reward": each(lambda step: step.state.reward),
        "length": each(lambda step: len(step.state.response)),
        "log_prob": each(lambda step: step.state.response.log_prob),
    }
    known = {name: of for name, of in posterior.items() if of.dtype != object}  # None is none
    stats = {
        "acceptance_rate": each(lambda step: math.exp(step.log_alpha) if step.t else math.nan),
        "accepted": each(lambda step: step.accepted),
        "index": each(lambda step: step.index),
    }
    return from_dict({"posterior": known, "sample_stats": stats})
