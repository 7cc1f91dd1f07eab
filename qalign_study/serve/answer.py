"""One choice of a chat completion: it is drawn line by line, reports progress, and decides."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Self

from qalign_core.context import RUN
from qalign_core.decide import methods
from qalign_core.decide.answers.graders import get_grader
from qalign_core.record.format import TraceReader, end_line
from qalign_core.record.trace import TraceHeader
from qalign_core.run import Run
from qalign_core.types import Cost, ScoredResponse
from qalign_study.measure.diagnostics import agreement, ess
from qalign_study.serve.request_schema import ChatRequest
from qalign_study.sheet.words import describe_mixing

Draw = Callable[[Run], AsyncIterator[str]]
"""Draws a run and yields lines of its trace as they come, or "" for nothing new."""
MAX_PROGRESS_LINES = 64
"""Lines of progress in an answer, at most."""


class Choice:
    """A choice while it is drawn.

    Attributes:
        number: among the choices of the answer.
        name: of its trace.
    """

    def __init__(self, request: ChatRequest, number: int, id: str) -> None:
        self.number, self.name = number, f"{id}-{number}" if number else id
        self._lines: list[str] = []
        self._request, self._of_pool = request, request.rule.draws == "pool"
        self._run = request.run.with_changes(seed=request.run.seed + number)
        self._reader = TraceReader()
        self._extract = get_grader(self._run.extractor).extract if self._run.extractor else None

    async def follow(self, draw: Draw) -> AsyncIterator[tuple[Self, str]]:
        """Draw the run, and yield this choice with a line of progress, or "" when it has begun.

        Raises:
            QAlignError: it cannot be drawn, or drawing failed.
        """
        RUN.set(self.name)
        n_lines = 0
        async with aclosing(draw(self._run)) as lines:  # type: ignore[type-var]
            async for text in lines:
                begun = not self._lines and text
                for line in text.splitlines(keepends=True):
                    self._lines.append(line)
                    self._reader.feed(line)
                if begun:
                    yield self, ""
                if (now := self.done * MAX_PROGRESS_LINES // self.total) > n_lines:
                    n_lines = now
                    yield self, self._progress()

    @property
    def text(self) -> str:
        """The trace so far; one that broke off ends as stopped."""
        broke_off = bool(self._lines) and self._reader.end is None
        return "".join([*self._lines, *([end_line("stopped")] * broke_off)])

    @property
    def draws(self) -> list[ScoredResponse]:
        """The draws that the rule decides from, so far."""
        if self._of_pool:
            return self._reader.pool
        steps = sorted(self._reader.steps, key=lambda step: (step.chain, step.t))
        latest = max((step.t for step in steps), default=0)
        return methods.chain_states(steps, min(self._run.burn_in, latest)) if steps else []

    @property
    def done(self) -> int:
        """Proposals, or samples, so far."""
        if self._of_pool:
            return len(self._reader.pool)
        return sum(step.t > 0 for step in self._reader.steps)

    @property
    def total(self) -> int:
        """Proposals, or samples, in the end; at least 1."""
        return max(1, self._run.pool if self._of_pool else self._run.steps * self._run.chains)

    def _progress(self) -> str:
        place = f"{'sample' if self._of_pool else 'step'} {self.done} of {self.total}"
        if self._extract is not None and self._request.rule.picks == "vote":
            shares = self._request.rule.decide(self.draws, self._extract, self._run.target).shares
            if shares:
                return f"{place}, {shares[0][1]:.0%} of votes for {shares[0][0]}"
        return f"{place}, highest reward {max(draw.reward for draw in self.draws):.3g}"

    async def decide(self) -> dict[str, Any]:
        """Return the finished choice: its text, its finish reason, and the facts behind it.

        The most typical text is chosen if no draw has an answer.

        Raises:
            QAlignError: a reward is not finite.
        """
        rule, target, draws = self._request.rule, self._run.target, self.draws
        decision = await asyncio.to_thread(rule.decide, draws, self._extract, target)
        chosen = decision.chosen
        if chosen is None:
            chosen = (await asyncio.to_thread(rule.decide, draws, None, target)).chosen
        assert chosen is not None, "a text is chosen from at least one"
        text = chosen.response.text
        left_out = (
            f"{self._run.lm} reads the last message only; "
            f"earlier messages left out: {self._request.unread}"
        )
        cut = min([text.find(stop) for stop in self._request.stop if stop in text], default=None)
        ended = cut is not None or chosen.response.finished
        return {
            "content": text[:cut],
            "finish_reason": "stop" if ended else "length",
            "length": len(chosen.response),
            "qalign": {
                "answer": decision.answer,
                "votes": dict(decision.shares),
                "draws": len(draws),
                **self._trust(decision.weights),
                "seed": self._run.seed,
                "trace": f"/v1/traces/{self.name}",
                **({"left_out": left_out} if self._request.unread else {}),
            },
        }

    def _trust(self, weights: tuple[float, ...]) -> dict[str, float | str | None]:
        """R-hat of the rewards, in words too, and effective samples; None where undefined."""
        if self._of_pool:
            weighted = self._request.rule.is_weighted
            n = methods.effective_sample_size(weights) if weighted else float(len(weights))
            return {"rhat": None, "effective_samples": n}
        chains = self._reader.trace().chains.values()
        rewards = [[s.state.reward for s in steps[self._run.burn_in :]] for steps in chains]
        mixing = agreement(rewards)
        return {
            "rhat": mixing.finite,
            "mixing": describe_mixing(mixing),
            "effective_samples": ess(rewards),
        }

    @property
    def cost(self) -> Cost:
        """Tokens of everything that was drawn."""
        steps = sum((step.cost for step in self._reader.steps), Cost())
        return sum((sample.cost for sample in self._reader.pool), steps)

    @property
    def header(self) -> TraceHeader | None:
        """The header of the trace, once the run has begun."""
        return self._reader.header
