"""Numbers that the browser requests: a chain's diagnostics, and the effect of beta on a problem.

The browser's input is untrusted: sizes and types are checked before anything is done.
"""

import math
from dataclasses import asdict
from statistics import stdev
from typing import Any

import numpy as np

from components.common.convergence import ROUGH, trust
from qalign_core.errors import InvalidSetting
from qalign_study.measure.diagnostics import (
    agreement,
    autocorrelation,
    ess,
    ess_per_thousand_tokens,
    mcse,
    ranks,
)
from qalign_study.measure.mixture import best_of_n_as_alignment, fit_mixture
from qalign_study.sheet.words import describe_mixing, number

MAX_CHAINS = 64
MAX_VALUES = 100_000
RANK_BINS = 12
FEW = "too few steps, or a reward that never changed"
SIZES = tuple(2**k for k in range(3, 21))
"""The n of best-of-n that beta is compared with."""


def _rewards(values: Any, most: int) -> list[float]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"expected a list of at most {most} numbers")
    numbers = [float(value) for value in values]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("expected finite numbers")
    return numbers


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
    chains = [_rewards(chain, MAX_VALUES // len(sent)) for chain in sent]
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
            f"since {generated:,} tokens have been written so far",
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
        "chain of many states is worth fewer independent samples. More steps can lower the "
        "number: a late move to other rewards shows that the earlier steps had covered less than "
        "they seemed to."
    )
    verdict = asdict(trust(chains, whole=data.get("whole", True) is True))
    return {"verdict": verdict, "about": about, "facts": facts, "charts": charts}


def beta_facts(rewards: list[float]) -> dict[str, Any]:
    """Return the spread of base rewards, and the beta that each best-of-n matches.

    Returns:
        {"spread": raw RM units, "matching": [{"n": n, "beta": beta}, ...]}, or a "note" with
        the reason why not.
    """
    numbers = _rewards(rewards, 4096)
    if len(numbers) < 8:
        return {"note": "Too few samples of the model alone to compare with best-of-n."}
    mixture = fit_mixture(numbers)
    matching = []
    for n in SIZES if mixture is not None else ():
        assert mixture is not None
        try:
            matching.append({"n": n, "beta": best_of_n_as_alignment(mixture, n).beta})
        except InvalidSetting:
            continue  # the formula means nothing for so small an n
    return {"spread": stdev(numbers), "matching": matching}
