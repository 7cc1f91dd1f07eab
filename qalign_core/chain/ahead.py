"""Draw the suffixes of coming steps early, in the batch of the present one.

A suffix depends only on its seed, which is known beforehand, and on its prefix. The prefix of a
coming step depends on which of the steps before it will be accepted. So the draws that are most
probably needed begin as soon as the tokens of their prefix are there, even while the response that
these belong to is still being drawn. A wrong guess costs time and never changes a number: a suffix
is used only for the seed and the prefix that it was drawn for.

This pays for a large model, which reads all its weights for each new token of a batch, whether the
batch has 1 row or 8.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from qalign_core.chain.merging import end
from qalign_core.chain.moves.choices import draw_index
from qalign_core.chain.randomness import StepAddress
from qalign_core.context import in_background
from qalign_core.protocols import LanguageModel
from qalign_core.types import Response

MAX_PLANNED, MAX_STATES = 16, 16
"""Steps that are planned, the present one included, and states that each of them may begin with."""

TIMES_AS_PROBABLE = 3
"""A draw that runs makes room only for one that is so many times as probable."""

_due: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Callable[[], None]]] = WeakKeyDictionary()
"""The plans of all chains that wait for their turn."""

Key = tuple[int, tuple[int, ...]]
"""The seed and the prefix of a draw, which decide what is drawn."""


@dataclass
class _Draw:
    """A response while it is drawn: its tokens so far, and its task if it is drawn early."""

    tokens: Sequence[int]
    has_begun: bool = False
    is_complete: bool = False
    task: asyncio.Task[Response] | None = None

    @property
    def has_failed(self) -> bool:
        return bool(self.task and self.task.done() and not self.is_complete)


@dataclass
class _State:
    """A state that a coming step may begin with: its tokens so far, its length, its probability."""

    tokens: Sequence[int]
    length: int
    probability: float = field(default=0.0)


class Ahead:
    """A wrapper of the chain's language model, which may draw suffixes of coming steps early.

    It does so only for a model whose `spare_rows` is a number, in the background and on these rows;
    for any other model it forwards every call unchanged.

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
        self._prompt_ids, self._address = prompt_ids, address
        self._last = 0 if getattr(lm, "spare_rows", None) is None else last
        self._context = in_background()
        self._t, self._is_due = 0, False
        self._state: tuple[int, ...] = ()
        self._draws: dict[Key, _Draw] = {}
        self._choices_of = lru_cache(maxsize=4 * MAX_PLANNED)(self._derive_choices)
        # what is guessed from: one of each kind to begin with
        self._n_steps, self._n_accepted, self._n_responses, self._n_full = 2, 1, 2, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    def begin(self, t: int, state: tuple[int, ...]) -> None:
        """Note the step that begins, and its state; step 0 has none."""
        if t > 1:
            self._n_steps += 1
            self._n_accepted += state != self._state
        self._t, self._state = t, state
        self._plan_soon()

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int, **options: Any
    ) -> Response:
        """Draw the rest of a response, or wait for it if it is drawn already."""
        if not self._last or options:
            response: Response = await self._lm.extend(prompt_ids, prefix, seed=seed, **options)
            return response
        key = seed, tuple(prefix)
        draw = self._draws.get(key)
        if draw is None or draw.has_failed:
            draw = self._draws[key] = _Draw(key[1])
        response = await (draw.task or self._extend(key, draw))
        self._n_responses += 1
        self._n_full += len(response) == self._lm.max_new_tokens
        return response

    async def close(self) -> None:
        """Cancel what is drawn early."""
        self._last = 0
        await end([draw.task for draw in self._draws.values() if draw.task])

    async def _extend(self, key: Key, draw: _Draw) -> Response:
        draw.has_begun, draw.tokens = True, (tokens := [*key[1]])

        def add(token: int) -> None:
            tokens.append(token)
            self._plan_soon()

        response: Response = await self._lm.extend(
            self._prompt_ids, key[1], seed=key[0], on_token=add
        )
        draw.tokens, draw.is_complete = response.tokens, True
        return response

    def _plan_soon(self) -> None:
        """Plan once, after all draws of this turn of the event loop have reached the model."""
        if self._last and not self._is_due:
            self._is_due = True
            _call_in_turn(self._plan)

    def _plan(self) -> None:
        """Start the draws that are most probably needed, and cancel those that nothing needs."""
        self._is_due = False
        if not self._last:
            return
        present = self._key(self._t, self._state, len(self._state))
        running = {key for key, draw in self._draws.items() if draw.task and not draw.task.done()}
        running.discard(present)
        n_rows = self._lm.spare_rows + sum(self._draws[key].has_begun for key in running)
        others = (draw for key, draw in self._draws.items() if key != present)
        has_some = n_rows > 0 or any(draw.is_complete for draw in others)
        probability = self._coming_draws() if has_some else {}
        for key in running & probability.keys():
            probability[key] *= TIMES_AS_PROBABLE
        open_draws = [key for key in probability if key in running or key not in self._draws]
        open_draws.sort(key=probability.__getitem__, reverse=True)
        chosen = open_draws[: max(0, n_rows)]
        kept = {present, *chosen, *(self._draws.keys() & probability.keys() - running)}
        for key in self._draws.keys() - kept:
            if task := self._draws.pop(key).task:
                task.cancel()
        for key in chosen:
            if key not in self._draws:
                self._start(key)

    def _coming_draws(self) -> dict[Key, float]:
        """Draws of the steps after the present one that could begin, and how probable they are."""
        accepted, full = self._n_accepted / self._n_steps, self._n_full / self._n_responses
        limit = int(self._lm.max_new_tokens)
        draws: dict[Key, float] = {}
        states: dict[Key | None, _State] = {None: _State(self._state, len(self._state), 1.0)}
        for t in range(self._t, min(self._t + MAX_PLANNED, self._last + 1)):
            alpha = accepted if t else 1.0  # the first response of a chain is its first state
            by_probability = sorted(states.items(), key=lambda item: -item[1].probability)
            states = {}
            for former, state in by_probability[:MAX_STATES]:
                if alpha < 1.0:
                    again = states.setdefault(former, _State(state.tokens, state.length))
                    again.probability += state.probability * (1 - alpha)
                key = self._key(t, state.tokens, state.length)
                if key is None:
                    continue
                if t > self._t:
                    draws[key] = draws.get(key, 0.0) + state.probability
                draw = self._draws.get(key) or _Draw(key[1])
                # an open end is guessed to be the limit
                n, sure = (len(draw.tokens), 1.0) if draw.is_complete else (limit, full)
                new = states.setdefault(key, _State(draw.tokens, n))
                new.probability += state.probability * alpha * sure
        return draws

    def _key(self, t: int, tokens: Sequence[int], length: int) -> Key | None:
        """The draw of a step that begins with a state; None if its prefix is not there yet."""
        seed, u = self._choices_of(t)
        index = draw_index(length, u) if t else 0
        return None if index > len(tokens) else (seed, tuple(tokens[:index]))

    def _derive_choices(self, t: int) -> tuple[int, float]:
        """The seed of a step's suffix, and the uniform number of its index."""
        address = replace(self._address, t=t)
        return address.derive("suffix"), address.derive_uniform("index")

    def _start(self, key: Key) -> None:
        draw = self._draws[key] = _Draw(key[1])
        call = self._extend(key, draw)
        loop = asyncio.get_running_loop()
        draw.task = loop.create_task(call, context=self._context.copy())
        draw.task.add_done_callback(self._end)

    def _end(self, finished: asyncio.Task[Response]) -> None:
        if not finished.cancelled():
            finished.exception()  # raised again where the suffix is awaited
        self._plan_soon()


def _call_in_turn(plan: Callable[[], None]) -> None:
    """Call a plan soon, after those of other chains, so that it sees what they have changed."""
    loop = asyncio.get_running_loop()
    plans = _due.setdefault(loop, deque())
    plans.append(plan)
    if len(plans) == 1:
        loop.call_soon(_call_first, loop, plans)


def _call_first(loop: asyncio.AbstractEventLoop, plans: deque[Callable[[], None]]) -> None:
    def go_on() -> None:
        plans.popleft()
        if plans:
            _call_first(loop, plans)

    try:
        plans[0]()
    finally:
        # a draw that begins or is cancelled is counted by the model in the next turn but one
        loop.call_soon(loop.call_soon, go_on)
