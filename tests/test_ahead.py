"""Suffixes of coming steps, drawn early: the same chain in fewer steps of the batch."""

from __future__ import annotations

import asyncio
import random
from contextvars import Context

import pytest
from tiny_models import save
from toys import ToyRM

from qalign_core.chain.ahead import Ahead
from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import run_chains
from qalign_core.chain.moves.suffix import Suffix
from qalign_core.chain.randomness import StepAddress
from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import EngineError
from qalign_core.models.local import engine
from qalign_core.run import Sampling
from qalign_core.types import Response

EOS = 0


class Lockstep:
    """A model whose draws advance together, one token each per step of its batch.

    `ends` is the chance that a token ends the response.
    """

    id, max_new_tokens = "lockstep", 24

    def __init__(self, rows, ends=0.0, allowed=None):
        self.rows, self.ends, self.allowed = rows, ends, allowed
        self.n_steps = self.n_open = self.most = 0
        self.calls, self.waiting, self.contexts, self.complete = [], [], [], []

    @property
    def spare_rows(self):
        return self.rows - self.n_open if self.rows else None

    def encode(self, prompt):
        return (1, 2)

    async def extend(self, prompt_ids, prefix, *, seed, on_token=lambda token: None):
        call = seed, tuple(prefix)
        self.calls.append(call)
        self.contexts.append((RUN.get(), BACKGROUND.get()))
        if self.allowed is not None and call not in self.allowed:
            raise EngineError("a draw that nobody needs failed")
        self.n_open += 1
        self.most = max(self.most, self.n_open)
        try:
            response = await self._draw(seed, list(prefix), on_token)
            self.complete.append(call)
            return response
        finally:
            self.n_open -= 1

    async def _draw(self, seed, tokens, on_token):
        while not tokens or (tokens[-1] != EOS and len(tokens) < self.max_new_tokens):
            await self._step()
            draw = random.Random(f"{seed} {tokens}")
            tokens.append(EOS if draw.random() < self.ends else draw.randrange(1, 9))
            Context().run(on_token, tokens[-1])  # as from the thread of an engine
        text = " ".join(map(str, tokens))
        return Response(tuple(tokens), text, tokens[-1] == EOS)

    async def _step(self):
        loop = asyncio.get_running_loop()
        if not self.waiting:
            loop.call_soon(self._advance, 9)
        self.waiting.append(loop.create_future())
        await self.waiting[-1]

    def _advance(self, hops):
        """Wait until everything else that is due has run."""
        if hops:
            asyncio.get_running_loop().call_soon(self._advance, hops - 1)
            return
        self.n_steps += 1
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Sum:
    id = "sum"

    async def score(self, prompt, response):
        return sum(response.tokens) / 9


async def chain_of(lm, rm=None, steps=60, **options):
    return [s async for s in run_chain(lm, rm or Sum(), "x", beta=1.0, steps=steps, **options)]


@pytest.mark.parametrize("ends", [0.0, 0.02, 0.2])
async def test_a_chain_that_draws_early_is_the_same_chain(ends):
    for seed in range(5):
        alone, early = Lockstep(0, ends), Lockstep(8, ends)
        assert await chain_of(early, seed=seed) == await chain_of(alone, seed=seed)
        assert len(early.calls) > len(alone.calls) == 61


@pytest.mark.parametrize(("ends", "share"), [(0.0, 0.35), (0.02, 0.47), (0.2, 0.65)])
async def test_early_draws_save_steps_of_the_batch(ends, share):
    alone, early = Lockstep(0, ends), Lockstep(8, ends)
    for seed in range(5):
        await chain_of(early, seed=seed)
        await chain_of(alone, seed=seed)
    assert early.n_steps < share * alone.n_steps, (early.n_steps, alone.n_steps)


class First(Sum):
    """The first response has the highest reward by far, so no other is accepted."""

    best = None

    async def score(self, prompt, response):
        self.best = self.best or response.tokens
        return 1e6 * (response.tokens == self.best)


@pytest.mark.parametrize(("ends", "share"), [(0.0, 0.22), (0.1, 0.36)])
async def test_early_draws_save_steps_of_the_batch_where_proposals_are_rejected(ends, share):
    alone, early = Lockstep(0, ends), Lockstep(8, ends)
    for seed in range(5):
        expected = await chain_of(alone, First(), seed=seed)
        assert await chain_of(early, First(), seed=seed) == expected
        assert not any(step.accepted for step in expected[1:] if step.changed)
    assert early.n_steps < share * alone.n_steps, (early.n_steps, alone.n_steps)


async def test_early_draws_take_spare_rows_only():
    lm = Lockstep(3)
    await chain_of(lm, seed=1)
    assert lm.most <= 3 + 1  # the present suffix may begin before wrong ones have ended


async def test_early_draws_make_room_for_other_requests():
    lm, open_at_most = Lockstep(8), []

    async def other():
        for seed in range(20):
            await lm.extend((1, 2), (), seed=seed)
            open_at_most.append(lm.n_open)

    await asyncio.gather(chain_of(lm, seed=1), *(other() for _ in range(6)))
    assert max(open_at_most) <= 8 + 1
    assert lm.most <= 8 + 6


async def test_chains_side_by_side_share_the_spare_rows():
    lm = Lockstep(8, 0.02)
    chains = run_chains(lm, Sum(), "x", n_chains=4, beta=1.0, steps=60, seed=1)
    assert len([step async for step in chains]) == 4 * 61
    assert lm.most <= 8 + 4
    assert len(lm.calls) < 3 * 4 * 61, "draws are begun and given up by turns"


async def test_early_draws_belong_to_the_run_of_their_chain_and_come_second():
    lm = Lockstep(8)
    token = RUN.set("somebody")
    await chain_of(lm, seed=1)
    RUN.reset(token)
    assert {*lm.contexts} == {("somebody", False), ("somebody", True)}


async def test_early_draws_that_are_complete_outlast_a_time_without_spare_rows():
    lm = Lockstep(8)
    chain = run_chain(lm, First(), "x", beta=1.0, steps=60, seed=1)
    async for step in chain:
        if step.t % 10 == 5:  # others come and go
            await asyncio.gather(*(lm.extend((1, 2), (step.t,), seed=seed) for seed in range(8)))
    assert len(lm.complete) == len({*lm.complete}), "a draw that was complete was drawn again"


async def test_a_draw_with_an_end_of_its_own_is_forwarded():
    class Until(Lockstep):
        async def extend(self, prompt_ids, prefix, *, until=frozenset(), **options):
            self.until = until
            return await super().extend(prompt_ids, prefix, **options)

    lm = Until(8)
    ahead = Ahead(lm, (1, 2), StepAddress(1, 0, 0), 60)
    await ahead.extend((1, 2), (), seed=1, until=frozenset({3}))
    assert lm.until == {3}


async def test_an_early_draw_that_fails_matters_only_if_its_step_needs_it():
    alone = Lockstep(0, 0.02)
    expected = await chain_of(alone, seed=3)
    lm = Lockstep(8, 0.02, allowed={*alone.calls})
    assert await chain_of(lm, seed=3) == expected
    assert {*lm.calls} > {*alone.calls}
    lm = Lockstep(8, 0.02, allowed={*alone.calls[:40]})
    steps = []
    with pytest.raises(EngineError, match="nobody needs"):
        async for step in run_chain(lm, Sum(), "x", beta=1.0, steps=60, seed=3):
            steps.append(step)
    assert steps == expected[:40]


async def test_a_chain_that_is_closed_leaves_no_draw_behind():
    lm = Lockstep(8)
    chain = run_chain(lm, Sum(), "x", beta=1.0, steps=60, seed=3)
    async for step in chain:
        if step.t == 5:
            break
    assert len(asyncio.all_tasks()) > 1
    await chain.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Own:
    name, propose = "own", Suffix().propose


async def test_chains_of_other_moves_draw_nothing_early():
    lm = Lockstep(8)
    await chain_of(lm, seed=1, move=Own())
    assert len(lm.calls) == 61


async def test_a_local_model_draws_early_if_its_weights_are_large(tmp_path, monkeypatch):
    options = {"device": "cpu", "rows": 8, "window": 64, "cache_bytes": 2**20}
    folder, sampling = save(tmp_path, "llama"), Sampling(max_new_tokens=16)
    lm = engine.HFLanguageModel.from_pretrained(folder, sampling=sampling, **options)
    assert (lm.exact, lm.spare_rows) == (True, None)
    expected = await chain_of(lm, ToyRM(), steps=20, seed=2)
    started, start = [], Ahead._start
    monkeypatch.setattr(Ahead, "_start", lambda *a: started.append(a) or start(*a))
    monkeypatch.setattr(engine, "SPARE_FROM", 0)
    assert lm.spare_rows == 8
    assert await chain_of(lm, ToyRM(), steps=20, seed=2) == expected
    assert started
    lm.close()
