"""The figure and the notes below the answers: more compute, and the rewards."""

from typing import Any

from components.common.options import heading
from components.compare.figures import compute_curves
from components.compare.view import naming, writing_task
from qalign_core.decide.rules import weighted_vote
from qalign_core.run import Run
from qalign_study.measure.comparisons import Budget, Comparison, ladder
from qalign_study.measure.curves import curves
from qalign_study.measure.record import Measure, draws_of, measure_of
from qalign_study.sheet.words import in_a_sentence

RUNGS = 10
"""Budgets of the curves."""


def curve_figure(comparison: Comparison, budget: Budget) -> Any:
    """Draw the methods against compute."""
    draws = draws_of(comparison)
    points = curves(draws, cuts=ladder(comparison, budget, rungs=RUNGS))
    return compute_curves(comparison, points, draws.measure)


CURVES: dict[Measure, str] = {
    "right": "how often each method would be right with new draws at each budget, with 95% bands. "
    "The marks below show its answer with these draws (a cross marks a wrong answer)",
    "same": "how often each method would return the same answer with new draws as with all of "
    "these, with 95% bands. The marks below show its answer with these draws",
    "reward": "the reward of the text that each method would choose with new draws, with 95% bands",
}


LEARNED = {
    False: "The embedded reward model learned, from problems with known answers, to score right "
    "responses above wrong ones. It never sees the answer to your problem. ",
    True: "The embedded reward model learned to score how many constraints of a writing task are "
    "met, so its rewards for other texts mean little. ",
}
"""The embedded model, by whether the prompt is open-ended."""


def curve_note(comparison: Comparison) -> str:
    """Describe the curves, and the variation that their bands leave out."""
    measure = CURVES[measure_of(comparison)]
    if writing_task(comparison) is not None:
        measure += ". The marks below show how many constraints its text meets with these draws"
    text = f"QAlign’s band resamples {len(comparison.chains)} chains and blocks of their states."
    if len(comparison.chains) == 1:
        text = (
            "QAlign’s band resamples blocks of one chain’s states, so it leaves out the "
            "differences between chains. Run several chains to include them."
        )
    return heading("What would more compute buy?", f"The curves show {measure}. {text}")


def reward_note(comparison: Comparison) -> str:
    """Describe how the rewards are used, and what the embedded model learned to score."""
    vote = in_a_sentence(naming(comparison)[weighted_vote.id].word)
    learned = LEARNED[comparison.extract is None] * (comparison.header.run.rm == Run.rm)
    return heading(
        "Which rewards did the methods see?",
        f"QAlign and {vote} aim at the same [target](target). The chain samples from it; {vote} "
        f"weights samples from the model alone. {learned}Only differences between rewards count.",
    )
