"""What a program can call: /run_chain and /compare, typed, within the same caps as the page."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import gradio as gr

from components.compare.page import Shown, sample_comparison
from components.session.links import Settings
from components.session.runs import Runs, Work
from components.watch.page import sample_run
from qalign_core.analysis.comparisons import full_cut, outcomes
from qalign_core.errors import InvalidSetting


def build_api(runs: Runs) -> None:
    """Register the endpoints in the current context."""

    async def run_chain(
        prompt: str,
        reference: str = "",
        extractor: str = "number",
        lm: str = "embedded",
        rm: str = "embedded",
        beta: float = 1.0,
        steps: int = 64,
        chains: int = 1,
        seed: int = 7,
        temperature: float = 1.0,
        max_new_tokens: int = 192,
    ) -> AsyncIterator[str]:
        """Align the answer to a prompt at test time, by Markov chain Monte Carlo (QAlign).

        Args:
            prompt: the task, in plain words.
            reference: the known answer, if there is one.
            extractor: what is read as the answer; "number", "choice", "boxed" or "text", or "none".
            lm: id of a language model that this server offers.
            rm: id of a reward model, or a weighted sum such as "0.7*embedded + 0.3*embedded-weak".
            beta: temperature of the target in the reward's units; smaller is greedier.
            steps: proposals a chain.
            chains: independent chains.
            seed: the same seed draws the same chains.
            temperature: of the language model's sampling.
            max_new_tokens: length limit of a response.

        Returns:
            The trace, JSON lines: a header, a line for every proposal, and how it ended.
        """
        settings = _settings(locals())
        work = _texts(runs, lambda feed: sample_run(feed, runs, settings))
        async with aclosing(work) as texts:
            async for text in texts:
                yield text

    async def compare(
        prompt: str,
        reference: str = "",
        extractor: str = "number",
        lm: str = "embedded",
        rm: str = "embedded",
        beta: float = 1.0,
        steps: int = 64,
        chains: int = 1,
        seed: int = 7,
        temperature: float = 1.0,
        max_new_tokens: int = 192,
    ) -> AsyncIterator[str]:
        """Answer a prompt by QAlign, best-of-n, majority and weighted vote, at equal compute.

        Args:
            prompt: the task, in plain words.
            reference: the known answer, if there is one.
            extractor: what is read as the answer; "number", "choice", "boxed" or "text", or "none".
            lm: id of a language model that this server offers.
            rm: id of a reward model, or a weighted sum such as "0.7*embedded + 0.3*embedded-weak".
            beta: temperature of the target in the reward's units; smaller is greedier.
            steps: proposals a chain.
            chains: independent chains.
            seed: the same seed draws the same chains and samples.
            temperature: of the language model's sampling.
            max_new_tokens: length limit of a response.

        Returns:
            JSON: each method's answer, whether it is right (null: unknown), its text, its cost.
        """
        settings, shown = _settings(locals()), Shown()
        work = _texts(
            runs, lambda feed: sample_comparison(shown.follow(feed), runs, settings, "flops")
        )
        async with aclosing(work) as texts:
            async for _ in texts:
                yield ""  # only here a call that nobody reads any more can be ended
        comparison = shown.comparison
        assert comparison is not None
        rows = [
            {
                "method": outcome.method,
                "answer": outcome.decision.answer,
                "right": outcome.correct,
                "text": outcome.decision.chosen.response.text if outcome.decision.chosen else "",
                "n": outcome.n,
                "spent": outcome.spent,
                "unit": comparison.meter.unit,
                **asdict(outcome.cost),
            }
            for outcome in outcomes(comparison, full_cut(comparison, "flops"))
        ]
        yield json.dumps(rows, ensure_ascii=False)

    for endpoint in (run_chain, compare):
        gr.api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)


def _settings(given: dict[str, Any]) -> Settings:
    """Settings from the arguments of an endpoint, which are anybody's word: checked before use."""
    try:
        return Settings.read(given)
    except InvalidSetting as error:
        raise gr.Error(str(error), print_exception=False) from error


async def _texts(runs: Runs, work: Work) -> AsyncGenerator[str]:
    """What a run writes, all of it each time; every call is a visitor of its own.

    Closing it ends the run, which Gradio does once the call's stream is left.

    Raises:
        gr.Error: the run failed; one sentence.
    """
    state = ""
    async with aclosing(runs.stream(f"call {uuid.uuid4()}", work)) as updates:
        async for now in updates:
            state = now.status.state
            if state == "failed":
                message = now.status.text.removeprefix("Failed: ")
                raise gr.Error(message, print_exception=False)
            yield now.text
