"""What a program can call: /run_chain and /compare, typed, within the same caps as the page."""

import asyncio
import inspect
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import gradio as gr

from components.compare.selection import Selection
from components.session.drawing import draw_run
from components.session.runs import Runs, Work
from qalign_core.errors import QAlignError
from qalign_core.run import Limits, Run
from qalign_study.measure.comparisons import full_cut, matched_run, outcomes

ENDPOINTS = ("run_chain", "compare")
MOST_SENT = 100_000
"""Characters of texts per second that a call sends."""


def settings(limits: Limits) -> list[inspect.Parameter]:
    """The parameters of the endpoints, in order, as `Run` has them; a missing text is empty."""
    usual = Run().within(limits)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default="" if (default := getattr(usual, each.name)) is None else default,
            annotation=Run.kinds()[each.name],
        )
        for each in Run.settings().values()
        if each.metadata["page"]
    ]


def build_api(runs: Runs) -> None:
    """Register the endpoints in the current context."""

    async def run_chain(run: Run) -> AsyncIterator[str]:
        """Align the answer to a prompt at test time, by Markov chain Monte Carlo (QAlign).

        Returns:
            The trace, JSON lines: a header, a line for every proposal and sample, and how it ended.
        """
        async with aclosing(_texts(runs, lambda feed: draw_run(feed, runs, run))) as texts:
            async for text in texts:
                yield text

    async def compare(run: Run) -> AsyncIterator[str]:
        """Answer a prompt by QAlign, best-of-n, majority and weighted vote, at equal compute.

        Returns:
            JSON: each method's answer, whether it is right (null: unknown), its text, its cost.
        """
        selection = Selection()
        planned = matched_run(run, "flops", runs.limits.samples)
        work = _texts(runs, lambda feed: draw_run(selection.follow(feed), runs, planned))
        async with aclosing(work) as texts:
            async for _ in texts:
                yield ""  # only here a call that nobody reads any more can be ended
        comparison = selection.comparison
        assert comparison is not None, "a run that did not fail has a header"
        rows = [
            {
                "method": outcome.method,
                "answer": outcome.decision.answer,
                "right": outcome.correct,
                "text": outcome.decision.text or "",
                "n": outcome.n,
                "spent": outcome.spent,
                "unit": comparison.header.meter.unit,
                **asdict(outcome.cost),
            }
            for outcome in outcomes(comparison, full_cut(comparison, "flops"))
        ]
        yield json.dumps(rows, ensure_ascii=False)

    for name, endpoint in zip(ENDPOINTS, (run_chain, compare), strict=True):
        gr.api(of_run(endpoint, runs.limits), api_name=name, concurrency_limit=None)


def of_run(
    endpoint: Callable[[Run], AsyncIterator[str]], limits: Limits
) -> Callable[..., AsyncIterator[str]]:
    """An endpoint whose parameters are the settings of a run, with their help.

    The arguments are untrusted: they are read and checked before anything is done. `null` is
    the default.
    """
    parameters = settings(limits)

    async def call(*values: Any) -> AsyncIterator[str]:
        try:
            pairs = zip(parameters, values, strict=True)
            run = Run.read({e.name: e.default if v is None else v for e, v in pairs})
        except QAlignError as error:
            raise gr.Error(str(error), print_exception=False) from error
        async with aclosing(endpoint(run)) as texts:  # type: ignore[type-var]
            async for text in texts:
                yield text

    helps = {name: each.metadata["help"] for name, each in Run.settings().items()}
    arguments = "\n".join(f"    {each.name}: {helps[each.name]}." for each in parameters)
    summary, _, returns = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
    call.__name__ = call.__qualname__ = endpoint.__name__
    call.__doc__ = f"{summary}\n\nArgs:\n{arguments}\n\n{returns}"
    call.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": str}
    prompt, *rest = parameters
    required = prompt.replace(default=inspect.Parameter.empty)
    signature = inspect.Signature(
        [required, *rest], return_annotation=str
    )  # else it returns nothing
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


async def _texts(runs: Runs, work: Work) -> AsyncGenerator[str]:
    """The whole output of a run so far, several times; every call is a separate visitor.

    Gradio keeps each text until it is read, so that a longer one comes less often. Closing it ends
    the run, which Gradio does once the call's stream is left.

    Raises:
        gr.Error: the run failed; one sentence.
    """
    clock, due, text = asyncio.get_running_loop().time, 0.0, ""
    async with aclosing(runs.stream(f"call {uuid.uuid4()}", work, patient=False)) as stream:
        async for now in stream:
            if now.error is not None:
                raise gr.Error(str(now.error), print_exception=False)
            text = now.text
            if clock() >= due:
                yield text  # empty ones too: a call can be ended only where it yields
                due = clock() + len(text) / MOST_SENT
    yield text
