"""Moves beyond the suffix: exact by enumeration, wrong rules fail, the engine's chain follows."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shlex
import signal
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from finite import TableReward, correlated_reward, letters
from forks import Program
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal
from scipy.stats import chisquare
from toys import PROMPT, ToyLM

from qalign_core import run_chain
from qalign_core.chain.cost import CostModel
from qalign_core.chain.merging import gather
from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.choices import StepChoices
from qalign_core.chain.moves.entropy import Entropy
from qalign_core.chain.moves.mixture import Mixture, move_of
from qalign_core.chain.moves.move import Proposal
from qalign_core.chain.moves.suffix import Suffix, length_ratio
from qalign_core.chain.randomness import StepAddress
from qalign_core.errors import InvalidSetting, InvalidTrace, ModelContractError
from qalign_core.move_spec import Part, parse_moves
from qalign_core.record.format import parse_trace, trace_lines
from qalign_core.record.runner import make_header, record
from qalign_core.record.store import load_trace, open_trace
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_core.types import Cost, NoProposal, Response, ScoredResponse
from qalign_study.commands import main
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import EXACT, Rule, exact_chain, total_variation
from qalign_study.exact.moves import law_of, outcomes
from qalign_study.measure.results import pack, unpack
from qalign_study.measure.tuning import propose


@cache
def world(seed: int, endless: bool = False, limit: int = 5) -> EnumerableLM:
    """Two letters and EOS; the next token's law is random and reads the whole prefix."""
    rng = np.random.default_rng(seed)
    laws: dict[tuple[int, ...], np.ndarray] = {}

    def next_token(prefix):
        if prefix not in laws:
            p = rng.dirichlet([1.0] * 3)
            if endless:  # most responses are cut at the limit
                p[2] *= 0.1
            laws[prefix] = p / p.sum()
        return laws[prefix]

    return EnumerableLM(next_token, pieces=("a", ":", "<eos>"), max_new_tokens=limit)


def table(reward_seed: int):
    """A reward with no pattern."""
    return lambda y: float(np.random.default_rng([reward_seed, *y.tokens]).normal()) * 1.2


BLOCK, SUFFIX = Block(frozenset({1})), Suffix()
MOVES = {
    "suffix": SUFFIX,
    "entropy": Entropy(),
    "block": BLOCK,
    "block, the end token among its delimiters": Block(frozenset({1, 2})),
    "half suffix, half block": Mixture((SUFFIX, BLOCK), (0.5, 0.5)),
    "three": Mixture((SUFFIX, Entropy(), Block(frozenset({0}))), (0.2, 0.3, 0.5)),
}


def residuals(chain):
    flow = chain.target[:, None] * chain.matrix
    return np.abs(flow - flow.T).max(), np.abs(chain.target @ chain.matrix - chain.target).max()


@pytest.mark.parametrize("endless", [False, True], ids=["", "mostly cut at the limit"])
@pytest.mark.parametrize("sharpness", [1.0, 4.0])
@pytest.mark.parametrize("name", MOVES)
def test_the_whole_matrix_of_every_move_keeps_balance(name, sharpness, endless):
    for seed in range(2):
        lm = world(seed, endless, 4)
        chain = exact_chain(lm, table(seed), Target(0.6, sharpness), Rule(move=MOVES[name]))
        assert np.allclose(chain.matrix.sum(axis=1), 1.0, atol=1e-12)
        assert chain.matrix.min() >= 0
        assert max(residuals(chain)) <= 1e-12
        if not isinstance(MOVES[name], Block):  # block moves alone cannot reach everything
            assert total_variation(chain.limit(), chain.target) < 1e-9


@given(
    seed=st.integers(0, 10**6),
    beta=st.floats(0.1, 20.0),
    sharpness=st.floats(1.0, 8.0),
    share=st.floats(0.05, 0.95),
)
@settings(max_examples=25, deadline=None)
def test_balance_holds_for_any_world_target_and_share(seed, beta, sharpness, share):
    lm = world.__wrapped__(seed, seed % 3 == 0, 4)
    mixed = Mixture((SUFFIX, BLOCK), (1 - share, share))
    chain = exact_chain(lm, table(seed), Target(beta, sharpness), Rule(move=mixed))
    assert max(residuals(chain)) <= 1e-12


def test_the_worlds_have_several_lengths_a_forced_end_and_every_kind_of_refusal():
    seen = set()
    for lm in (world(0), world(1, True)):
        assert {len(y) for y in lm.support} == {1, 2, 3, 4, 5}
        cut = sum(p for y, p in zip(lm.support, lm.probabilities, strict=True) if not y.finished)
        assert 0.01 < cut < 0.99
        for y in lm.support:
            seen |= {
                refusal.reason
                for _, refusal in outcomes(lm, BLOCK, y)
                if isinstance(refusal, NoProposal)
            }
    gap = EnumerableLM(  # behind "a:" nothing but the end can come
        lambda prefix: [0.5, 0.4, 0.1] if prefix[-2:] != (0, 1) else [0, 0, 1],
        pieces=("a", ":", "<eos>"),
        max_new_tokens=5,
    )
    for y in gap.support:
        seen |= {
            refusal.reason
            for _, refusal in outcomes(gap, BLOCK, y)
            if isinstance(refusal, NoProposal)
        }
    assert seen == {
        "the text has no block",
        "the text was cut at the length limit",
        "the new block did not end",
        "the new text is longer than the length limit",
        "the rest has probability 0 after the new block",
    }
    for sharpness in (1.0, 2.5):
        chain = exact_chain(gap, table(1), Target(0.6, sharpness), Rule(move=MOVES["three"]))
        assert max(residuals(chain)) <= 1e-12


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_the_suffix_move_replayed_is_the_papers_chain_written_out(sharpness):
    target = Target(0.7, sharpness)
    paper, replayed = (
        exact_chain(letters(), correlated_reward, target, rule)
        for rule in (EXACT, Rule(move=SUFFIX))
    )
    assert replayed.matrix == pytest.approx(paper.matrix, abs=1e-14)
    assert replayed.acceptance == pytest.approx(paper.acceptance)
    assert replayed.unchanged == pytest.approx(paper.unchanged)


# wrong rules


@dataclass(frozen=True)
class WithoutTheTail:
    """A block whose tail's probability is forgotten."""

    async def propose(self, choices, y):
        proposal = await BLOCK.propose(choices, y)
        return (
            proposal if isinstance(proposal, NoProposal) else replace(proposal, log_correction=())
        )


@dataclass(frozen=True)
class SuffixWhereRefused:
    """A block move that becomes a suffix move where it is refused."""

    async def propose(self, choices, y):
        proposal = await BLOCK.propose(choices, y)
        if not isinstance(proposal, NoProposal):
            return proposal
        kept = choices.uniform(len(y), "again")
        new = await choices.extend(y, kept, role="again suffix")
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))


@dataclass(frozen=True)
class LengthsForWeights:
    """Cuts by weight that keep the paper's ratio of lengths."""

    async def propose(self, choices, y):
        proposal = await Entropy().propose(choices, y)
        return replace(
            proposal, log_correction=length_ratio(new=len(proposal.response), old=len(y))
        )


@dataclass(frozen=True)
class FirstHalf:
    """A suffix move that always cuts in the first half of the state."""

    async def propose(self, choices, y):
        kept = choices.uniform(max(1, (len(y) + 1) // 2))
        new = await choices.extend(y, kept)
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))


WRONG = {
    "no tail factor": (WithoutTheTail(), 1e-4),
    "a refused block becomes a suffix": (SuffixWhereRefused(), 1e-4),
    "lengths in place of weights": (LengthsForWeights(), 1e-4),
    "always the first half": (FirstHalf(), 1e-3),
}


@pytest.mark.parametrize("sharpness", [1.0, 2.5])
@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_rule_breaks_balance_by_more_than_its_margin(name, sharpness):
    move, margin = WRONG[name]
    misses = []
    for seed in range(2):
        lm = world(seed, limit=4)
        chain = exact_chain(lm, table(seed), Target(0.6, sharpness), Rule(move=move))
        misses.append(residuals(chain)[0])
    print(
        f"{name}, sharpness {sharpness:g}: balance fails by {min(misses):.0e} to {max(misses):.0e}"
    )
    assert max(misses) > margin
    assert min(misses) > 1e-9


def test_cutting_in_the_first_half_is_right_where_all_lengths_are_one():
    fixed = EnumerableLM(
        lambda prefix: [0.7, 0.3, 0.0] if len(prefix) < 3 else [0.2, 0.8, 0.0],
        pieces=("a", ":", "<eos>"),
        max_new_tokens=4,
    )
    chain = exact_chain(fixed, table(3), Target(0.6), Rule(move=FirstHalf()))
    assert max(residuals(chain)) <= 1e-12


def test_a_move_that_draws_by_itself_or_proposes_what_cannot_be_is_caught():
    @dataclass(frozen=True)
    class Impossible:
        async def propose(self, choices, y):
            tokens = (2, 2)
            return Proposal(world(0).response(tokens), 0, ())

    with pytest.raises(InvalidSetting, match="which the model cannot emit; refuse it"):
        law_of(world(0), Impossible())

    @dataclass(frozen=True)
    class Elsewhere:
        async def propose(self, choices, y):
            await asyncio.sleep(0)

    with pytest.raises(InvalidSetting, match="waits for something other than its choices"):
        law_of(world(0), Elsewhere())

    @dataclass(frozen=True)
    class Twice:
        async def propose(self, choices, y):
            return choices.uniform(3), choices.uniform(3)

    @dataclass(frozen=True)
    class Undeclared:
        async def propose(self, choices, y):
            return choices.join(y, (1,), (0.0,))

    bare = Response((0, 2), "a", True)  # of a model that returns no log-probabilities
    choices = StepChoices(world(0), (), StepAddress(0, 0, 1))
    with pytest.raises(ModelContractError, match="which this move needs"):
        asyncio.run(Undeclared().propose(choices, bare))

    with pytest.raises(InvalidSetting, match="twice in the role 'index'"):
        asyncio.run(Twice().propose(choices, world(0).support[0]))


# the engine's own chain

LM, RM = world(7, limit=6), TableReward()
MIX = "0.4*suffix+0.6*block(:)"


async def last_states(n, lm=LM, steps=30, **how):
    async def one(k):
        chain = run_chain(lm, RM, "x", beta=1.0, steps=steps, seed=11, chain=k, **how)
        return [step async for step in chain][-1].state

    return await gather(*map(one, range(n)))


def chi_square_p(states, expected, lm=LM):
    number = {y.tokens: k for k, y in enumerate(lm.support)}
    visits = np.bincount([number[s.response.tokens] for s in states], minlength=len(expected))
    common = expected * len(states) >= 5
    seen = [*visits[common], visits[~common].sum()]
    wanted = np.array([*expected[common], expected[~common].sum()]) * len(states)
    return float(chisquare(seen, wanted).pvalue)


ENGINES_CHAINS = [(MIX, 1.0), ("entropy", 2.0)]  # each move and each sharpness
ENGINES_CHAINS += [
    pytest.param(*case, marks=pytest.mark.more) for case in ((MIX, 2.0), ("entropy", 1.0))
]


@pytest.mark.parametrize(("move", "sharpness"), ENGINES_CHAINS)
async def test_the_engines_chain_samples_the_target(move, sharpness):
    """150 chains of 30 steps; false-alarm rate 1e-4; another target fails."""
    parts = move_of(parse_moves(move), LM)
    target = Target(1.0, sharpness)
    chain = exact_chain(LM, correlated_reward, target, Rule(move=parts))
    after = chain.after(30)
    assert total_variation(after, chain.target) < 0.05
    states = await last_states(150, move=move, sharpness=sharpness)
    assert chi_square_p(states, after) > 1e-4
    assert chi_square_p(states, exact_chain(LM, correlated_reward, Target(0.3)).target) < 1e-12


class Waiting(EnumerableLM):
    """Lets other chains go on while it draws, as a real model does."""

    async def extend(self, *args, **how):
        await asyncio.sleep(0)
        return await super().extend(*args, **how)


def two_fields() -> EnumerableLM:
    """`a:` or `b:`, mostly a second field that copies the first: the tail depends on the block."""

    def next_token(prefix):
        if len(prefix) % 2:
            return [0.0, 1.0, 0.0, 0.0]
        if len(prefix) == 4:
            return [0.0, 0.0, 0.0, 1.0]
        a = {(): 0.6, (0, 1): 0.95, (2, 1): 0.05}[prefix]
        go_on = 0.8 if prefix else 1.0
        return [go_on * a, 0.0, go_on * (1 - a), 1 - go_on]

    return Waiting(next_token, pieces=("a", ":", "b", "<eos>"), max_new_tokens=5)


TWO = two_fields()
MANY = Run("x", extractor="text", lm="two", rm="table", move=MIX, steps=25, chains=120, pool=0,
           seed=9, beta=1.0)  # fmt: skip


async def draw_into(path, after_a_line=lambda: None):
    """Go on with the trace of `MANY`."""
    with open_trace(path, make_header(TWO, RM, MANY)) as file:
        async for item in record(TWO, RM, MANY, known=file.known):
            file.write(item.line)
            after_a_line()


CLIENT = """
import asyncio, itertools, sys
from pathlib import Path
from test_moves import draw_into
lines = itertools.count(1)
def wait():
    if next(lines) == 1500:
        print("there", flush=True)
        sys.stdin.read()
asyncio.run(draw_into(Path(sys.argv[1]), wait))
"""


async def test_the_chain_of_blocks_follows_the_target_alone_in_company_and_after_a_kill(tmp_path):
    """120 chains of 25 steps, killed after 1,500 lines; the seed is fixed."""
    path = tmp_path / "run.jsonl"
    with Program(str(path), code=CLIENT) as killed:
        assert killed.stdout.readline() == "there\n"
    assert killed.returncode == -signal.SIGKILL
    begun = load_trace(path)
    assert {len(chain) for chain in begun.chains.values()} <= {*range(1, MANY.steps)}
    assert len(begun.chains) == MANY.chains
    await draw_into(path)
    resumed = load_trace(path).chains
    company = parse_trace("".join([i.line async for i in record(TWO, RM, MANY)])).chains
    assert resumed == company
    for k in (0, 77):
        alone = run_chain(TWO, RM, "x", target=MANY.target, move=MIX, steps=25, seed=9, chain=k)
        assert [s.state.response.tokens async for s in alone] == [
            s.state.response.tokens for s in company[k]
        ]
    moves = move_of(parse_moves(MIX), TWO)
    target = exact_chain(TWO, correlated_reward, MANY.target, Rule(move=moves)).target
    assert chi_square_p([chain[-1].state for chain in resumed.values()], target, TWO) > 1e-4

    # without the tail's factor the same test fails
    wrong = Mixture((SUFFIX, WithoutTheTail()), (0.4, 0.6))
    missed = await last_states(120, TWO, steps=25, move=wrong)
    assert chi_square_p(missed, target, TWO) < 1e-12


async def test_a_chain_is_the_same_alone_in_company_and_taken_up_again():
    how = {"beta": 0.7, "sharpness": 2.0, "seed": 3, "move": MIX}

    async def steps_of(k, steps=40, start=None):
        chain = run_chain(LM, RM, "x", steps=steps, chain=k, start=start, **how)
        return [step async for step in chain]

    alone = await steps_of(2)
    company = await gather(*map(steps_of, range(5)))
    assert company[2] == alone
    begun = await steps_of(2, 17)
    assert begun + await steps_of(2, start=begun[-1]) == alone
    kinds = {(bool(s.refused), bool(s.kept_again), s.accepted) for s in alone}
    assert {(True, False, False), (False, True, True), (False, False, True)} <= kinds


async def test_every_step_has_its_moves_correction_and_its_cost():
    chain = run_chain(LM, RM, "x", beta=0.7, sharpness=2.0, seed=5, steps=120, move=MIX)
    steps = [step async for step in chain]
    blocks = [s for s in steps if s.kept_again]
    assert len(blocks) > 15
    for s in blocks:
        old, new, n = s.current.response, s.proposal.response, s.kept_again
        assert new.tokens[-n:] == old.tokens[-n:]
        assert new.tokens[: s.index] == old.tokens[: s.index]
        tails = [LM.suffix_probability(y.tokens, len(y) - n) for y in (new, old)]
        assert s.log_correction == pytest.approx(math.log(tails[0] / tails[1]))
        lead = (s.proposal.reward - s.current.reward) / 0.7 + s.log_correction
        p_new, p_old = (LM.suffix_probability(y.tokens, 0) for y in (new, old))
        lead += math.log(p_new / p_old)
        assert s.log_alpha == pytest.approx(min(0.0, lead), abs=1e-9)
        assert s.cost == Cost(len(new) - s.index - n, len(new) - s.index, n)
    for s in steps:
        if s.refused:
            assert (s.state, s.log_alpha, s.accepted) == (s.current, -math.inf, False)
            assert s.cost == Cost(len(s.refused.tokens))
    assert any(s.refused and s.refused.tokens for s in steps)
    assert CostModel().price(Cost(3, 9, 4)) == 7, "what is read again is not free"
    assert CostModel(10, 1).price(Cost(3, 9, 4)) == 2 * (10 * 7 + 9)


# the setting, traces, and models that cannot


def test_a_mix_is_read_once_into_a_value():
    assert parse_moves("suffix") == (Part(1.0, "suffix"),)
    assert parse_moves("suffix+block(:)") == (Part(0.5, "suffix"), Part(0.5, "block", ":"))
    assert parse_moves(r"0.2*suffix+0.8*block(\n)")[1] == Part(0.8, "block", "\n")
    assert parse_moves(r"suffix 3*block(a\)+b)")[1] == Part(0.75, "block", "a)+b")
    assert parse_moves("entropy+suffix+suffix")[2].weight == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "text", ["", "suffix+", "+suffix", "block(:)", "block(:)+block(;)", "0*suffix", "suffix*2",
             "block()+suffix", "suffix+block(:", "sufix", "suffixentropy", "-1*suffix+entropy"],
)  # fmt: skip
def test_what_is_no_mix_is_refused_in_one_sentence(text):
    with refusal(InvalidSetting, match=r"move must be|block moves alone"):
        parse_moves(text)
    with pytest.raises(InvalidSetting, match=r"move must be|block moves alone"):
        Run("x", move=text).check()


async def test_a_model_that_cannot_make_a_move_says_so():
    class Plain:
        """A model with nothing but what the paper's move needs."""

        id, max_new_tokens = "plain", 8
        encode, extend = (lambda self, prompt: (1,)), ToyLM().extend

    for move in (MIX, "entropy"):
        with pytest.raises(
            ModelContractError, match="plain returns no probabilities of given"
        ) as raised:
            [s async for s in run_chain(Plain(), RM, "x", beta=1.0, steps=1, seed=1, move=move)]
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidSetting, match="no token of"):
        [s async for s in run_chain(LM, RM, "x", beta=1, steps=1, seed=1, move="suffix+block(@)")]


RUN = Run(PROMPT, extractor="text", lm="w", rm="table", move=MIX, steps=60, pool=4, seed=6)


@pytest.fixture(scope="module")
def lines():
    return draw_steps(RUN)


def draw_steps(run, known=None):
    async def all_of():
        return [item.line async for item in record(LM, RM, run, known=known)]

    return asyncio.run(all_of())


def test_a_trace_of_blocks_comes_back_and_goes_on_bit_for_bit(lines):
    trace = parse_trace("".join(lines))
    assert trace.header.run.move == MIX
    assert any(s.refused for s in trace.steps)
    assert any(s.kept_again and s.accepted for s in trace.steps)
    again = parse_trace("".join(trace_lines(trace)))
    assert again.steps == trace.steps
    assert [s.log_correction for s in again.steps] == [s.log_correction for s in trace.steps]
    half = [line for line in lines[:41] if '"type":"end"' not in line]
    rest = draw_steps(RUN, parse_trace("".join(half)))
    assert sorted(half + rest) == sorted(lines)


def test_a_trace_of_the_papers_move_has_nothing_of_other_moves():
    text = "".join(draw_steps(RUN.with_changes(move="suffix")))
    for word in ("move", "kept_again", "log_correction", "refused", "log_probs"):
        assert f'"{word}"' not in text


@pytest.mark.parametrize("wrong", [{"kept_again": 99}, {"kept_again": -1}, {"log_correction": "x"}])
def test_a_hostile_step_of_a_block_is_refused(lines, wrong):
    place = next(k for k, line in enumerate(lines) if '"kept_again"' in line)
    bad = {**json.loads(lines[place]), **wrong}
    with pytest.raises(InvalidTrace, match=next(iter(wrong))):
        parse_trace("".join([*lines[:place], json.dumps(bad)]) + "\n")


def test_a_state_repeats_where_its_move_was_refused(lines):
    steps = parse_trace("".join(lines)).steps
    for before, step in itertools.pairwise(steps):
        if step.refused:
            assert step.state == before.state
            assert isinstance(step.proposal, ScoredResponse)
            assert not step.changed


# tuning and results


@pytest.mark.parametrize("move", [MIX, "entropy"])
@pytest.mark.parametrize("sharpness", [1.0, 2.0])
async def test_tuning_knows_the_moves_corrections(move, sharpness):
    run = Run(sharpness=sharpness, steps=200, seed=1, move=move)
    proposals, _ = await propose(LM, RM, ["x"], run)
    chain = run_chain(LM, RM, "x", target=run.target, steps=200, seed=1, move=move)
    kept = [step async for step in chain if step.t > 50]
    for changed_only, counted in ((False, kept), (True, [s for s in kept if s.changed])):
        exact = np.mean([math.exp(s.log_alpha) for s in counted])
        assert proposals.acceptance(1.0, changed_only=changed_only) == pytest.approx(exact)


def test_packed_results_keep_corrections_and_what_was_read_again(tmp_path, capsys):
    command = ["evaluate", "--task", "shifted", "--problems", "2", "--budget", "4", "--rm", "none"]
    for move in ("suffix", "suffix+block(.)"):
        packed, out = tmp_path / "packed.zip", tmp_path / f"{len(move)}"
        more = ["--move", move, "--states", "12", "--out", str(out), "--pack", str(packed)]
        assert main([*command, *more]) == 0
        results = unpack(packed)
        assert results.header.run.move == move
        assert move in shlex.split(results.header.command)
        for kept in results.records:
            n = len(kept.chain_reward)
            assert kept.chain_cost.shape == (n, 3)
            assert len(kept.chain_correction) == (n if move != "suffix" else 0)
            assert np.isfinite(kept.chain_correction).all()
        read_again = sum(int(kept.chain_cost[:, 2].sum()) for kept in results.records)
        assert (read_again > 0) == (move != "suffix")
        assert pack(results, tmp_path / "again.zip").read_bytes() == packed.read_bytes()
    capsys.readouterr()
