"""The comparison that a visitor looks at, and the run that draws it."""

from typing import Any

import gradio as gr

from components.compare.figures import reward_histograms
from components.session.runs import Feed
from qalign_core.run import Run
from qalign_study.measure.comparisons import Budget, Comparison, Cut, full_cut


class Selection:
    """The comparison on a visitor's screen, recorded or from a feed; each session has its own.

    It is no dataclass: Gradio would copy the whole comparison whenever it describes the page.

    Attributes:
        recorded: the comparison shown until a run begins.
        budget: the budget that is equal for all methods.
        cut: the selected size of the budget; None for the largest.
        feed: the feed of the run that began here, if any.
    """

    def __init__(self, recorded: Comparison | None = None, budget: Budget = "flops") -> None:
        self.recorded, self.budget = recorded, budget
        self.cut: Cut | None = None
        self.feed: Feed | None = None

    @property
    def comparison(self) -> Comparison | None:
        """The comparison on screen; a run's comparison grows with every step and sample."""
        if self.feed is None:
            return self.recorded
        trace = self.feed.trace
        return None if trace is None else Comparison(trace)

    def follow(self, feed: Feed) -> Feed:
        """Show this feed's run from now on."""
        self.feed = feed
        return feed

    def __deepcopy__(self, memo: dict[int, object]) -> "Selection":
        return Selection(self.comparison, self.budget)  # the comparison itself never changes

    def histograms(self, mixture: bool) -> Any:
        """Draw the histograms of the selected budget; skip the update if nothing has been drawn."""
        if self.comparison is None or not self.comparison.ready:
            return gr.skip()
        cut = self.cut or full_cut(self.comparison, self.budget)
        return reward_histograms(self.comparison, cut, mixture=mixture)


def parse_budget(value: object) -> Budget:
    """Return an untrusted value as a budget: equal samples if it names them, else equal compute."""
    return "samples" if value == "samples" else "flops"


def link_of(run: Run, budget: Budget) -> str:
    """Return the query that draws this comparison again."""
    query = run.query()
    return query if budget == "flops" else f"{query}&budget={budget}".lstrip("&")
