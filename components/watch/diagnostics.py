"""A chain's diagnostics, which the browser requests.

The browser's input is untrusted: sizes and types are checked before anything is done.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from components.common.beta import finite_numbers
from qalign_study.measure.diagnostics import (
    agreement,
    autocorrelation,
    ess,
    ess_per_thousand_tokens,
    mcse,
    ranks,
)
from qalign_study.sheet.convergence import ROUGH, trust
from qalign_study.sheet.words import describe_mixing, number

MAX_CHAINS = 64
MAX_VALUES = 100_000
RANK_BINS = 12
FEW = "too few steps, or a reward that never changed"


def rank_histograms(chains: list[list[float]]) -> list[list[float]]:
    """Return, per chain, the share of its states in each bin of the ranks over all chains.

    Chains that sample the same distribution give flat histograms (Vehtari et al., 2021).
    """
    rank = ranks(np.concatenate(chains)) - 1
    bins = (rank * RANK_BINS / len(rank)).astype(int)  # a rank is below their number
    parts = np.split(bins, np.cumsum([len(chain) for chain in chains])[:-1])
    return [(np.bincount(part, minlength=RANK_BINS) / len(part)).tolist() for part in parts]


def diagnose(data: dict[str, Any]) -> dict[str, Any]:
    """Compute diagnostics of the states' rewards, formatted for the page.

    Args:
        data: {"rewards": one list per chain, "chain": the index of the chain on screen,
            "generated": tokens, "whole": whether no later step has been drawn}.

    Raises:
        ValueError: the data have another form.
    """
    sent = data["rewards"]
    if not isinstance(sent, list) or not 0 < len(sent) <= MAX_CHAINS:
        raise ValueError("expected rewards of 1 to 64 chains")
    chains = [finite_numbers(chain, MAX_VALUES // len(sent)) for chain in sent]
    looked_at = chains[max(0, min(int(data["chain"]), len(chains) - 1))]
    generated = max(0, int(data["generated"]))
    effective, error, agree = ess(chains), mcse(chains), agreement(chains)
    per_tokens = ess_per_thousand_tokens(effective, generated)
    states = sum(map(len, chains))

    def fact(name: str, value: float | None, meaning: str) -> dict[str, str]:
        text = FEW if value is None else number(value)
        return {"name": name, "value": text, "meaning": meaning if value is not None else ""}

    rough = effective is not None and effective < ROUGH * len(chains)
    worth = f"independent samples would be as informative as these {states:,} states"
    facts = [
        fact(
            "Effective sample size",
            effective,
            worth + ("; with so few, this is a rough guess" * rough),
        ),
        fact(
            "Effective samples per 1,000 tokens",
            per_tokens,
            f"the chains have written {generated:,} tokens",
        ),
        fact("Error of the mean", error, "standard error of the mean reward"),
        {"name": "Split R-hat", "value": str(agree), "meaning": describe_mixing(agree)},
    ]
    charts = []
    lags = autocorrelation(looked_at)
    if lags is not None:
        axis = f"autocorrelation at 0 to {len(lags) - 1} steps apart"
        charts.append({"title": "How alike are states?", "axis": axis, "values": list(lags)})
    if len(chains) > 1 and effective is not None:
        for k, shares in enumerate(rank_histograms(chains)):
            axis = "rank of its rewards among all"
            charts.append({"title": f"Chain {k + 1}: flat is good", "axis": axis, "values": shares})
    about = (
        "From the rewards of the states so far. Neighboring states resemble each other, so a "
        "chain of many states is worth fewer independent samples. The number can fall as "
        "a run goes on: if the chain moves to other rewards late, its earlier steps covered only "
        "some of them. The limit of R-hat depends on the number of states: with few states, chance "
        "alone makes halves or chains differ more, so the limit is higher."
    )
    verdict = asdict(trust(chains, whole=data.get("whole", True) is True))
    return {"verdict": verdict, "about": about, "facts": facts, "charts": charts}
