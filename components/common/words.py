"""What the methods are called, and how numbers are written, on every page."""

from __future__ import annotations

from dataclasses import dataclass

from qalign_core.analysis.comparisons import Method
from qalign_core.analysis.diagnostics import Agreement

COUNTED = (
    "What is counted as compute: each model reads the prompt once a run; a sample costs its "
    "tokens; a proposal costs the tokens behind its cut, since the chain holds the rest; the "
    "reward model reads the same tokens, or all of them if it cannot read on. FLOPs are 2 × "
    "parameters × tokens of both models. It depends on the run alone, not on caches or on who else "
    "is here."
)
"""What `chain.cost` counts, for people."""


@dataclass(frozen=True, slots=True)
class Naming:
    """What a method is called on the page, and what it does in a few words."""

    name: str
    says: str


NAMES: dict[Method, Naming] = {
    "qalign": Naming("QAlign", "Follow a chain of rewrites, then vote over its states"),
    "bon": Naming("Best-of-n", "Take the sample with the highest reward"),
    "mv": Naming("Majority vote", "Take the most frequent answer; no reward"),
    "wmv": Naming("Weighted vote", "Vote with weights that the reward gives"),
}
OPEN_NAMES: dict[Method, Naming] = {
    "qalign": Naming("QAlign", "Follow a chain of rewrites, then take its most typical state"),
    "bon": NAMES["bon"],
    "mv": Naming("MBR", "Take the most typical sample (minimum Bayes risk); no reward"),
    "wmv": Naming("Weighted MBR", "Take the most typical sample, weighted by the reward"),
}


def names_of(open_ended: bool) -> dict[Method, Naming]:
    """The methods' names for open-ended prompts, or for those with an answer."""
    return OPEN_NAMES if open_ended else NAMES


def si(value: float, unit: str) -> str:
    """A large count with its prefix: 11.9 GFLOPs; tokens in full."""
    if unit != "FLOPs":
        return f"{value:,.0f} {unit}"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}FLOPs"
    return f"{value:.0f} FLOPs"


def percent(share: float) -> str:
    """A share as a percentage, with a decimal only where it is small."""
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def signed(value: float) -> str:
    """A difference in points: one decimal, a true minus sign."""
    return f"{value:+.1f}".replace("-", "−")


def number(value: float) -> str:
    """A reward or a beta: three significant digits, or all before the point; a true minus sign."""
    return (f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}").replace("-", "−")


def mixed(found: Agreement) -> str:
    """What follows from the split R-hat of chains."""
    one = found.n_chains == 1
    who = "halves" if one else "chains"
    if not found.is_mixed:
        return f"not yet: the {who} disagree; run longer{', or several chains' if one else ''}"
    chance = "" if found.limit <= 1.01 else ", which so few independent states exceed 1 time in 20"
    unseen = "; only several chains can show a place that one never found" if one else ""
    return f"the {who} agree: no more than {found.limit:.3f}{chance}{unseen}"
