"""The chain as it stands, against the exact target, and its promises about randomness."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import signal
import threading
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from finite import TableReward, correlated_reward, letters, suffix_log_alpha
from refusals import refusal
from scipy.stats import chisquare

from qalign_core import (
    Response,
    Step,
    collect,
    iterate,
    log_acceptance,
    run_chain,
    run_chains,
    sample_iid,
)
from qalign_core.chain.moves.choices import draw_index
from qalign_core.chain.moves.move import Proposal
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.errors import InvalidPrompt, InvalidReward, InvalidSetting, ModelContractError
from qalign_core.target import Scores, Target, accepts
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import exact_chain, total_variation

LM, RM = letters(), TableReward()


async def steps_of(chain) -> list[Step]:
    return [step async for step in chain]


def chi_square_p(states, chain, expected) -> float:
    """P-value of the visits of `states` under the probabilities `expected`; rare ones pooled."""
    visits = Counter(state.response.tokens for state in states)
    n = len(states)
    common = expected * n >= 5
    observed = np.array([visits[y.tokens] for y in chain.states], dtype=float)
    pooled_observed = np.append(observed[common], observed[~common].sum())
    pooled_expected = np.append(expected[common], expected[~common].sum()) * n
    return float(chisquare(pooled_observed, pooled_expected).pvalue)


async def test_the_whole_chain_samples_the_exact_target() -> None:
    """1,000 independent chains of 48 steps; false-alarm rate 1e-4 for each of two laws.

    After 3 steps the states follow d_0 T^3, after 48 the target, from which the law then differs
    by less than 2e-4 in total variation, a hundredth of what 1,000 states can show; the controls
    (the base LM, the law after 3 steps) fail.
    """
    chain = exact_chain(LM, correlated_reward, Target(1.0))
    assert total_variation(chain.after(48), chain.target) < 2e-4
    runs = [
        await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=48, seed=11, chain=k))
        for k in range(1000)
    ]
    early, late = ([steps[t].state for steps in runs] for t in (3, 48))
    assert chi_square_p(early, chain, chain.after(3)) > 1e-4
    assert chi_square_p(late, chain, chain.target) > 1e-4
    assert chi_square_p(late, chain, chain.base) < 1e-12
    assert chi_square_p(late, chain, chain.after(3)) < 1e-12


async def test_the_first_state_and_independent_samples_are_the_base_lm() -> None:
    """3,000 draws each; false-alarm rate 1e-4 each."""
    chain = exact_chain(LM, correlated_reward, Target(1.0))
    first = [
        (await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=0, seed=5, chain=k)))[0].state
        for k in range(3000)
    ]
    pool = [scored async for scored in sample_iid(LM, RM, "x", n=3000, seed=5)]
    for states in (first, pool):
        assert chi_square_p(states, chain, chain.base) > 1e-4
        assert chi_square_p(states, chain, chain.target) < 1e-12


async def test_every_step_follows_the_rule_and_the_states_repeat_on_rejection() -> None:
    steps = await steps_of(run_chain(LM, RM, "x", beta=0.5, steps=300, seed=3))
    assert [step.t for step in steps] == list(range(301))
    first = steps[0]
    assert (first.index, first.accepted, first.log_alpha) == (0, True, 0.0)
    assert first.current == first.proposal == first.state
    for before, step in itertools.pairwise(steps):
        assert step.current == before.state
        kept = step.current.response.tokens[: step.index]
        assert step.proposal.response.tokens[: step.index] == kept
        assert 0 <= step.index < len(step.current.response)
        assert step.log_alpha == suffix_log_alpha(Target(0.5), step.proposal, step.current)
        assert step.accepted == (step.log_u < step.log_alpha)
        assert step.state == (step.proposal if step.accepted else step.current)
        assert step.cost.generated == len(step.proposal.response) - step.index
    assert 0 < sum(not step.accepted for step in steps) < 300


async def test_a_chain_does_not_depend_on_how_many_run_beside_it() -> None:
    alone = await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=30, seed=9, chain=2))
    for n_chains in (3, 8):
        together = run_chains(LM, RM, "x", n_chains=n_chains, beta=1.0, steps=30, seed=9)
        assert [step for step in await steps_of(together) if step.chain == 2] == alone
    other = await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=30, seed=10, chain=2))
    assert other != alone


async def test_a_chain_replays_from_any_of_its_steps() -> None:
    whole = await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=25, seed=4))
    for t in (0, 7, 24, 25):
        rest = run_chain(LM, RM, "x", beta=1.0, steps=25, seed=4, start=whole[t])
        assert await steps_of(rest) == whole[t + 1 :]


async def test_a_longer_pool_begins_with_the_shorter_one() -> None:
    short = [s async for s in sample_iid(LM, RM, "x", n=10, seed=1, concurrency=1)]
    long = [s async for s in sample_iid(LM, RM, "x", n=40, seed=1, concurrency=16)]
    assert long[:10] == short


def test_the_index_stays_below_the_length_and_alpha_below_one() -> None:
    largest = 1.0 - 2.0**-53
    assert all(draw_index(n, largest) == n - 1 for n in range(1, 3000))
    assert draw_index(5, 0.0) == 0
    near = {"log_correction": length_ratio(new=3, old=4)}
    better, worse = Scores(1.0), Scores(0.0)
    assert log_acceptance(Target(1.0), new=better, old=worse, **near) == 0.0
    log_alpha = log_acceptance(Target(1.0), new=worse, old=better, **near)
    assert log_alpha == pytest.approx(-1.0 + math.log(4 / 3))
    far = log_acceptance(Target(1e-305), new=Scores(-1e4), old=Scores(1e4), log_correction=())
    assert far == -math.inf
    assert accepts(0.0, math.log(largest))
    assert not accepts(-math.inf, -math.inf)


def test_the_acceptance_of_many_proposals_is_that_of_each() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 300)) * 5
    len_old, len_new = rng.integers(1, 200, size=(2, 300))
    ratio = length_ratio(new=len_new, old=len_old)
    log_alphas = log_acceptance(Target(0.7), new=Scores(new), old=Scores(old), log_correction=ratio)
    pairs = zip(new, old, len_new, len_old, strict=True)
    assert log_alphas.tolist() == [
        min(0.0, (r_new - r_old) / 0.7 + math.log(n_old) - math.log(n_new))
        for r_new, r_old, n_new, n_old in pairs
    ]
    with pytest.raises(InvalidSetting, match="rewards must be finite"):
        Target(1).log_ratio(Scores([1.0, math.nan]), Scores(0.0))
    with pytest.raises(InvalidSetting, match="at least 1 token"):
        length_ratio(new=[1, 0], old=1)


@pytest.mark.parametrize("beta", [0, -0.5, math.nan, math.inf, "1", None, True])
async def test_a_beta_that_is_not_a_positive_number_is_refused(beta) -> None:
    with pytest.raises(InvalidSetting, match=r"beta must be .*'tune' finds one"):
        await steps_of(run_chain(LM, RM, "x", beta=beta, steps=1, seed=0))


class ReturnsNothing:
    async def propose(self, choices, y):
        await choices.extend(y, 0)


class Plain:
    def propose(self, choices, y): ...


@pytest.mark.parametrize(
    ("move", "sentence"),
    [
        (ReturnsNothing, "the move is the class ReturnsNothing; make one"),
        (ReturnsNothing(), "the move returned NoneType; return a Proposal or a NoProposal"),
        (Plain(), "has no `async def propose(self, choices, y)`"),
        (3, "the move 3 has no `async def propose(self, choices, y)`"),
        (None, "the move None has no `async def propose(self, choices, y)`"),
    ],
    ids=["a class", "no result", "a plain function", "a number", "nothing"],
)
async def test_what_is_no_move_gets_one_sentence(move, sentence) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(sentence)):
        await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=0, move=move))


async def test_bad_settings_and_prompts_get_one_sentence() -> None:
    with pytest.raises(InvalidSetting, match="steps must be a whole number >= 0, got -1"):
        await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=-1, seed=0))
    with pytest.raises(InvalidSetting, match="n_chains must be a whole number >= 1, got 0"):
        await steps_of(run_chains(LM, RM, "x", n_chains=0, beta=1.0, steps=1, seed=0))
    for prompt in ("", "  \n"):
        with pytest.raises(InvalidPrompt, match="the prompt is empty"):
            await steps_of(run_chain(LM, RM, prompt, beta=1.0, steps=1, seed=0))
    for prompt in (None, "\ud800", [{"role": "user", "content": "Hi"}]):
        with pytest.raises(InvalidPrompt, match=r"the prompt must be a text .*; format_prompt"):
            await steps_of(run_chain(LM, RM, prompt, beta=1.0, steps=1, seed=0))
    for seed in (None, 1.0, "1", True):
        with pytest.raises(InvalidSetting, match="seed must be a whole number, got"):
            await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=seed))
        with pytest.raises(InvalidSetting, match="seed must be a whole number, got"):
            await steps_of(sample_iid(LM, RM, "x", n=1, seed=seed))
    for other in ({"chain": -1}, {"chain": 1.5}, {"start": LM}, {"start": []}):
        with pytest.raises(InvalidSetting, match=r"chain must be a whole|give the last step of"):
            await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=0, **other))
    with pytest.raises(InvalidSetting, match=r"target = 1.0; give Target\(beta\)"):
        await steps_of(run_chain(LM, RM, "x", target=1.0, steps=1, seed=0))
    with pytest.raises(
        TypeError, match=r"run_chain\(\) got an unexpected keyword .* 'temperature'"
    ):
        await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=0, temperature=0.5))
    with pytest.raises(InvalidSetting, match="give either a target or its beta and sharpness"):
        await steps_of(run_chain(LM, RM, "x", target=Target(1.0), beta=3.0, steps=1, seed=0))
    with warnings.catch_warnings(action="error"):  # numpy's numbers are numbers
        one = await steps_of(
            run_chain(LM, RM, "x", beta=np.float32(1), steps=np.int64(1), seed=np.int64(0))
        )
    assert one == await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=0))
    named = EnumerableLM(lambda prefix: [0.9, 0.1], pieces=("x", "<eos>"), max_new_tokens=6, id=5)
    with pytest.raises(ModelContractError, match=r"id of the language model .* is 5; a text"):
        await steps_of(run_chain(named, RM, "x", beta=1.0, steps=1, seed=0))


class Planned:
    """A move that does what it is given."""

    def __init__(self, propose):
        self.make = propose

    async def propose(self, choices, y):
        return self.make(choices, y)


@pytest.mark.parametrize(
    ("propose", "sentence"),
    [
        (lambda choices, y: Proposal(y, 0, (math.nan,)), r"log_correction is \(nan,\)"),
        (lambda choices, y: Proposal(y, 0, (math.inf,)), r"log_correction is \(inf,\)"),
        (lambda choices, y: Proposal(y, 0, ("a",)), "could not convert string to float: 'a'"),
        (lambda choices, y: Proposal(y, 0, 0.5), "'float' object is not iterable"),
        (lambda choices, y: Proposal("abc", 0, ()), "response is 'abc'"),
        (lambda choices, y: Proposal(y, -1, ()), "the first -1 and the last 0 ids are not kept"),
        (lambda choices, y: Proposal(y, 9, ()), "the first 9 and the last 0 ids are not kept"),
        (lambda choices, y: Proposal(y, len(y), (), 1), "and the last 1 ids are not kept"),
        (lambda choices, y: Proposal(y, 0.0, ()), "'float' object cannot be interpreted as an int"),
        (lambda choices, y: choices.uniform(0), "n of choices.uniform must be a whole number >= 1"),
        (lambda choices, y: choices.uniform(2.5), "must be a whole number >= 1, got 2.5"),
        (lambda choices, y: choices.weighted(()), r"choices.weighted got \(\); give weights >= 0"),
        (lambda choices, y: choices.weighted((0, 0)), "one at least > 0"),
        (lambda choices, y: choices.weighted((-1, 2)), "one at least > 0"),
        (lambda choices, y: choices.weighted((math.nan, 1)), "one at least > 0"),
    ],
)
async def test_what_a_move_cannot_propose_or_draw_is_refused_at_its_step(propose, sentence) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=1, seed=0, move=Planned(propose)))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, None, "high", 1e305, 10**400])
async def test_a_reward_that_is_no_finite_number_names_the_response(reward) -> None:
    class BadReward:
        id = "bad-rm"

        async def score(self, prompt: str, response: Response) -> float:
            return reward

    with pytest.raises(InvalidReward, match=r"bad-rm gave .* for the response '[abc]*'; one"):
        await steps_of(run_chain(LM, BadReward(), "x", beta=1.0, steps=1, seed=0))


class BrokenLM(EnumerableLM):
    """Breaks one clause of the contract on every call that keeps something."""

    def __init__(self, fault: str) -> None:
        super().__init__(
            lambda prefix: [0.9, 0.1], pieces=("x", "<eos>"), max_new_tokens=6, id="broken"
        )
        self.fault = fault

    async def extend(self, prompt_ids, prefix, *, seed) -> Response:
        right = await super().extend(prompt_ids, prefix, seed=seed)
        if self.fault in ("pieces", "log_probs"):
            values = getattr(right, self.fault)
            return replace(right, **{self.fault: values[:-1] or values * 2})
        if self.fault == "new alone":  # which is allowed
            return replace(right, log_probs=right.log_probs[len(prefix) :], pieces=())
        if self.fault == "probabilities":
            return replace(right, log_probs=tuple(map(math.exp, right.log_probs)))
        if self.fault == "half a character":
            return replace(right, text="\ud800")
        wrong = {
            "prefix": (7, *right.tokens[1:]),
            "long": (*right.tokens[:-1], 0, 0, 0, 0, 0, 0, 0),
            "nothing": tuple(prefix),
            "cut": right.tokens[: len(prefix) + 1],
        }[self.fault]
        finished = self.fault != "cut" and right.finished
        return Response(wrong, "", finished) if prefix else right


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("prefix", "changed the kept prefix"),
        ("long", "more than its limit of 6"),
        ("nothing", "at least one new token"),
        ("cut", "without an EOS and below its limit"),
        ("probabilities", "returned [0-9.]+ among log_probs; natural logs"),
        ("half a character", "as text and .*; a text that UTF-8 can encode"),
        ("pieces", "returned [0-9]+ pieces for [0-9]+ tokens; return one per token, or none"),
        ("log_probs", "returned [0-9]+ log_probs for [0-9]+ tokens; return one per token, or none"),
    ],
)
async def test_a_model_that_breaks_the_contract_is_stopped(fault: str, sentence: str) -> None:
    assert await steps_of(run_chain(BrokenLM("new alone"), RM, "x", beta=1.0, steps=40, seed=0))
    with pytest.raises(ModelContractError, match=f"^broken .*{sentence}"):
        await steps_of(run_chain(BrokenLM(fault), RM, "x", beta=1.0, steps=40, seed=0))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("tokens", [1, 2], r"returned \[1, 2\] as tokens; a tuple was expected"),
        ("tokens", (1.0, 2), "returned 1.0 among tokens; whole numbers were expected"),
        ("tokens", (True,), "returned True among tokens"),
        ("tokens", np.arange(2), "as tokens; a tuple was expected"),
        ("pieces", None, "returned None as pieces; a tuple was expected"),
        ("pieces", (1,), "returned 1 among pieces; texts"),
        ("log_probs", None, "returned None as log_probs"),
        ("log_probs", ("a",), "returned 'a' among log_probs; natural logs"),
        ("log_probs", (math.nan,), "returned nan among log_probs"),
        ("log_probs", (-math.inf,), "returned -inf among log_probs"),
        ("finished", None, "returned '.*' as text and None as finished"),
    ],
)
def test_a_response_whose_fields_have_other_types_is_refused_with_the_value(
    field: str, value: Any, sentence: str
) -> None:
    class Mistyped(BrokenLM):
        async def extend(self, prompt_ids, prefix, *, seed) -> Response:
            right = await EnumerableLM.extend(self, prompt_ids, prefix, seed=seed)
            return replace(right, **{field: value})

    for sharpness in (1.0, 2.0):
        with refusal(ModelContractError, match=sentence):
            collect(
                run_chain(Mistyped(""), RM, "x", beta=1.0, sharpness=sharpness, steps=2, seed=0)
            )


@pytest.mark.parametrize("ids", [None, "text", (1.5,), 7])
def test_a_prompt_is_encoded_as_token_ids(ids: Any) -> None:
    class Encoder(BrokenLM):
        def encode(self, prompt: str) -> Any:
            return ids

    with refusal(ModelContractError, match="from encode; a tuple of token ids was expected"):
        collect(run_chain(Encoder(""), RM, "x", beta=1.0, steps=2, seed=0))


async def test_an_error_in_one_chain_ends_the_others_and_closing_ends_all() -> None:
    class SlowReward(TableReward):
        running = 0

        async def score(self, prompt: str, response: Response) -> float:
            SlowReward.running += 1
            try:
                await asyncio.Event().wait()
                raise AssertionError("never set")
            finally:
                SlowReward.running -= 1

    class FailsOnce(SlowReward):
        async def score(self, prompt: str, response: Response) -> float:
            if SlowReward.running == 3:
                raise InvalidReward("the fourth one fails")
            return await super().score(prompt, response)

    run = run_chains(LM, FailsOnce(), "x", n_chains=4, beta=1.0, steps=3, seed=0)
    with pytest.raises(InvalidReward, match="fourth"):
        await anext(run)
    assert SlowReward.running == 0

    waiting = run_chains(LM, SlowReward(), "x", n_chains=4, beta=1.0, steps=3, seed=0)
    first = asyncio.ensure_future(anext(waiting))
    while SlowReward.running < 4:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert SlowReward.running == 0


async def test_the_synchronous_forms_work_inside_a_running_loop() -> None:
    expected = await steps_of(run_chain(LM, RM, "x", beta=1.0, steps=5, seed=2))
    assert collect(run_chain(LM, RM, "x", beta=1.0, steps=5, seed=2)) == expected
    for step in iterate(run_chain(LM, RM, "x", beta=1.0, steps=5, seed=2)):
        if step.t == 3:
            break
    assert step == expected[3]
    with pytest.raises(InvalidSetting):
        collect(run_chain(LM, RM, "x", beta=0, steps=5, seed=2))


@pytest.fixture
def interruptible():
    """Ctrl-C is an interrupt; a process that tests run in may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptedReward(TableReward):
    """Presses Ctrl-C at its fortieth text, and takes its time to end."""

    n = 0

    async def score(self, prompt, response):
        self.n += 1
        if self.n == 40:
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(9):
                    await asyncio.sleep(0)
        return await super().score(prompt, response)


@pytest.mark.parametrize(
    "draws",
    [
        lambda rm: run_chain(LM, rm, "x", beta=1.0, steps=99, seed=2),
        lambda rm: run_chains(LM, rm, "x", n_chains=3, beta=1.0, steps=99, seed=2),
        lambda rm: sample_iid(LM, rm, "x", n=99, seed=2),
    ],
)
def test_an_interrupt_ends_a_run_as_an_interrupt(draws, interruptible) -> None:
    items = iterate(draws(InterruptedReward()))
    assert next(items) is not None
    with pytest.raises(KeyboardInterrupt):
        list(items)
    assert "qalign-iterate" not in [thread.name for thread in threading.enumerate()]


def test_a_yielded_step_never_changes() -> None:
    step = collect(run_chain(LM, RM, "x", beta=1.0, steps=0, seed=2))[0]
    with pytest.raises(AttributeError):
        step.accepted = False  # type: ignore[misc]


class Plain:
    """A model of somebody's, as it is often written at first."""

    id, max_new_tokens = "plain", 3

    def encode(self, prompt):
        return (1,)

    def extend(self, prompt_ids, prefix, *, seed):
        return Response((0,), "", True)

    def score(self, prompt, response):
        return 0.0


class Awaited(Plain):
    async def extend(self, prompt_ids, prefix, *, seed):
        return Response((0,), "", True)

    async def score(self, prompt, response):
        return 0.0


class Encodes(Awaited):
    async def encode(self, prompt):
        return (1,)


class Counts(Awaited):
    max_new_tokens = "3"


class Returns(Awaited):
    async def extend(self, prompt_ids, prefix, *, seed):
        return "yes"


@pytest.mark.parametrize(
    ("lm", "rm", "sentence"),
    [
        (Plain(), RM, "extend of the language model Plain is a plain function, a coroutine was"),
        (LM, Plain(), "score of the reward model Plain is a plain function, a coroutine was"),
        (Awaited, RM, "the language model is the class Awaited; make one"),
        (object(), RM, "the language model object has no id; it needs id, max_new_tokens, encode"),
        (LM, LM, "the reward model EnumerableLM has no score; it needs id, score"),
        ("embedded", RM, "the language model is the text 'embedded'; load_language_model loads"),
        (LM, "embedded", "the reward model is the text 'embedded'; load_reward_model loads one"),
        (LM, lambda prompt, text: 0.0, "the reward model is a function; wrap it in FunctionReward"),
        (Encodes(), RM, "encode of plain is a coroutine; write `def encode`"),
        (Counts(), RM, "max_new_tokens of plain is '3'; a whole number >= 1 was expected"),
        (Returns(), RM, "plain returned 'yes' from extend; a Response was expected"),
    ],
)
def test_a_class_that_is_no_model_is_refused_in_one_sentence_before_a_draw(lm, rm, sentence):
    for make_draws in (
        run_chain(lm, rm, "x", beta=1.0, steps=1, seed=0),
        run_chains(lm, rm, "x", beta=1.0, steps=1, seed=0, n_chains=2),
        sample_iid(lm, rm, "x", n=1, seed=0),
    ):
        with refusal(ModelContractError, match=sentence):
            collect(make_draws)


def test_the_same_class_with_coroutines_runs():
    assert len(collect(run_chain(Awaited(), Awaited(), "x", beta=1.0, steps=2, seed=0))) == 3
