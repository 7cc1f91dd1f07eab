"""Draw the suffixes of coming steps early, in the batch of the present one.

A suffix depends only on its seed, which is known beforehand, and on its prefix. The prefix of a
coming step is known if it is no longer than that of any step which is still undecided. Otherwise it
is guessed: for the next two steps, that the steps before them will be rejected; for later ones,
that suffixes which are drawn already will be accepted. A wrong guess costs time and never changes a
number: a suffix is used only for the seed and the prefix that it was drawn for.

This pays for a large model, which reads all its weights for each new token of a batch, whether the
batch has 1 row or 8.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qalign_core.chain.merging import end
from qalign_core.chain.moves.choices import draw_index
from qalign_core.chain.randomness import StepAddress
from qalign_core.context import in_background
from qalign_core.protocols import LanguageModel
from qalign_core.types import Response

STEPS = 8
"""Steps that are planned, the present one included."""

MAX_REJECTED = 2
"""Coming steps whose suffix is drawn on the guess that all steps before them are rejected."""


class Ahead:
    """A wrapper of the chain's language model, which may draw suffixes of coming steps early.

    It does so only for a model with `spare_rows`, in the background and on these rows; for any
    other model it forwards every call unchanged.

    Args:
        lm: draws the suffixes; its other attributes are those of this object too.
        prompt_ids: the chain's prompt.
        address: of any step of the chain.
        last: the number of the last step; 0 if the chain has other moves.
    """

    def __init__(
        self, lm: LanguageModel, prompt_ids: Sequence[int], address: StepAddress, last: int
    ) -> None:
        self._lm: Any = lm
        self._prompt_ids, self._address, self._last = prompt_ids, address, last
        self._t, self._is_due = 0, False
        self._state: tuple[int, ...] = ()
        self._early: dict[tuple[int, tuple[int, ...]], asyncio.Task[Response]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    def begin(self, t: int, state: tuple[int, ...]) -> None:
        """Note the step that begins and its state; plan after the step has asked for its suffix."""
        self._t, self._state = t, state
        self._plan_soon()

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int, **options: Any
    ) -> Response:
        """Draw the rest of a response, or wait for it if it is drawn already."""
        early = self._early.pop((seed, tuple(prefix)), None)
        response: Response = await (
            early or self._lm.extend(prompt_ids, prefix, seed=seed, **options)
        )
        return response

    async def close(self) -> None:
        """Cancel what is drawn early."""
        self._last = 0
        await end(self._early.values())

    def _plan_soon(self, finished: asyncio.Task[Response] | None = None) -> None:
        """Plan once in this turn of the event loop, after all draws have reached the model."""
        if finished is not None and not finished.cancelled():
            finished.exception()  # raised again where the suffix is awaited
        if self._last and not self._is_due and hasattr(self._lm, "spare_rows"):
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._plan)

    def _plan(self) -> None:
        """Start what is expected to be needed, and cancel the rest."""
        self._is_due = False
        n_rows = self._lm.spare_rows
        if not (n_rows or self._early):
            return
        tokens, known = self._state, len(self._state)
        expected: dict[tuple[int, tuple[int, ...]], asyncio.Task[Response]] = {}
        for t in range(self._t, min(self._t + STEPS, self._last + 1)):
            address = replace(self._address, t=t)
            index = draw_index(len(tokens), address.derive_uniform("index"))
            if index > known and t > self._t + MAX_REJECTED:
                continue
            known = min(known, index)
            if t == self._t:
                continue
            key = address.derive("suffix"), tokens[:index]
            task = self._early.get(key)
            if task is None and n_rows:
                n_rows -= 1
                task = self._start(*key)
            if task is None:
                continue
            expected[key] = task
            if task.done() and not task.cancelled() and task.exception() is None:
                tokens = task.result().tokens
                known = len(tokens)
        for key in self._early.keys() - expected:
            self._early[key].cancel()
        self._early = expected

    def _start(self, seed: int, prefix: tuple[int, ...]) -> asyncio.Task[Response]:
        call = self._lm.extend(self._prompt_ids, prefix, seed=seed)
        task = asyncio.get_running_loop().create_task(call, context=in_background())
        task.add_done_callback(self._plan_soon)
        return task
