"""Sharper targets, p^κ exp(r/β): by enumeration, by chi-square, in traces and in weights."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from finite import TableReward, coin, correlated_reward, letters, uneven
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal
from scipy.stats import chisquare
from toys import PROMPT, ToyLM

from components.session.links import linked
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core import majority_vote, run_chain, weighted_majority_vote
from qalign_core.chain.concurrent import sample_iid
from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.mixture import Mixture
from qalign_core.chain.moves.suffix import Suffix, length_ratio
from qalign_core.decide.arrays import softmax
from qalign_core.decide.methods import effective_sample_size, importance_weights
from qalign_core.errors import InvalidSetting, InvalidTrace, ModelContractError
from qalign_core.record.format import LineWriter, parse_trace, trace_lines
from qalign_core.record.runner import record
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run
from qalign_core.target import Scores, Target, log_acceptance
from qalign_core.types import Response, ScoredResponse
from qalign_study.commands import main
from qalign_study.exact.convergence import second_eigenvalue, steps_within
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import EXACT, exact_chain, target_distribution, total_variation
from qalign_study.exact.mistakes import SHARP_MISTAKES
from qalign_study.exact.world import RewardSpec, make_world, preset
from qalign_study.measure.comparisons import Comparison, full_cut, outcomes
from qalign_study.measure.curves import curves
from qalign_study.measure.record import draws_of
from qalign_study.measure.results import pack, unpack
from qalign_study.measure.tuning import kl_from_base, propose, tune_beta, tune_sharpness

SHARPNESSES = (1.0, 2.0, 4.0)
MODELS = {"letters": letters(), "coin": coin(), "uneven": uneven(), "one token": coin(1)}
REWARDS = {"with a reward": correlated_reward, "without": lambda response: 0.0}
LM, RM, NOTHING = letters(), TableReward(), load_reward_model("none")


def residuals(chain):
    flow = chain.target[:, None] * chain.matrix
    return np.abs(flow - flow.T).max(), np.abs(chain.target @ chain.matrix - chain.target).max()


# laws


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("sharpness", SHARPNESSES)
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_matrix_keeps_balance(name, sharpness, reward):
    lm = MODELS[name]
    chain = exact_chain(lm, REWARDS[reward], Target(0.7, sharpness))
    assert np.allclose(chain.matrix.sum(axis=1), 1.0, atol=1e-12)
    assert max(residuals(chain)) <= 1e-12
    # the target itself, from its formula and nothing else
    rewards = np.array([REWARDS[reward](y) for y in lm.support])
    weights = lm.probabilities**sharpness * np.exp(rewards / 0.7)
    assert chain.target == pytest.approx(weights / weights.sum(), abs=1e-14)


@given(
    weights=st.lists(
        st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3), min_size=3, max_size=3
    ),
    sharpness=st.floats(1.0, 12.0),
    beta=st.floats(0.05, 50.0),
)
@settings(max_examples=40)
def test_balance_holds_for_any_model_and_sharpness(weights, sharpness, beta):
    rows = [[w / sum(row) for w in row] for row in weights]
    lm = EnumerableLM.markov(rows[0], rows[1:], pieces=("a", "b", "."), max_new_tokens=3)
    assert max(residuals(exact_chain(lm, correlated_reward, Target(beta, sharpness)))) <= 1e-12


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("rule", SHARP_MISTAKES.values(), ids=lambda rule: rule.name)
def test_log_probabilities_of_another_distribution_miss_the_target(rule, reward):
    wrong = exact_chain(LM, REWARDS[reward], Target(1.0, 4.0), rule)
    assert min(residuals(wrong)) > 1e-3
    assert total_variation(wrong.limit(), wrong.target) > 1e-2
    # at sharpness 1 no log-probability is read
    same = [exact_chain(LM, REWARDS[reward], Target(1.0), each).matrix for each in (rule, EXACT)]
    assert np.array_equal(*same)


def test_a_sharper_target_is_reached_and_is_sharper():
    chains = [exact_chain(LM, lambda y: 0.0, Target(1.0, sharpness)) for sharpness in SHARPNESSES]
    for chain in chains:
        assert total_variation(chain.limit(), chain.target) < 1e-12
    assert chains[0].target == pytest.approx(chains[0].base)
    likeliest = chains[0].base.argmax()
    assert [c.target.argmax() for c in chains] == [likeliest] * 3
    modes = [chain.target[likeliest] for chain in chains]
    assert modes[0] < modes[1] < modes[2]


def test_the_flows_of_a_pair_balance_index_by_index():
    chain = exact_chain(LM, correlated_reward, Target(1.0, 4.0))
    for old, new in itertools.combinations(range(0, len(chain.states), 17), 2):
        forth, back = chain.flow(old, new), chain.flow(new, old)
        for index in range(4):
            assert forth.through(index) == pytest.approx(back.through(index), rel=1e-9, abs=1e-300)


def test_the_labs_world_takes_a_sharpness_and_then_no_reward_too():
    world = replace(preset(), sharpness=4.0)
    assert world.chain(1.0).balance_residual() < 1e-12
    assert 0 < second_eigenvalue(world.chain(1.0)) < 1
    nothing = RewardSpec((0.0, 0.0, 0.0), 0.0, 0.0)
    flat = make_world(world.table, nothing, 4.0)
    base = flat.lm().probabilities
    assert flat.chain(1.0).target == pytest.approx(base**4 / (base**4).sum())
    assert steps_within(flat.chain(1.0)) > 1
    with pytest.raises(InvalidSetting, match="make the target sharper"):
        make_world(world.table, nothing)
    with pytest.raises(InvalidSetting, match="sharpness must be"):
        make_world(world.table, nothing, 0.5)


# the kernel and the chain


def test_sharpness_one_reads_no_log_probability_and_changes_no_bit():
    def log_alpha(target, log_prob_new, log_prob_old):
        new, old = Scores(0.3, log_prob_new), Scores(1.1, log_prob_old)
        ratio = length_ratio(new=3, old=7)
        return log_acceptance(target, new=new, old=old, log_correction=ratio)

    plain = log_alpha(Target(0.4), None, None)
    assert plain == min(0.0, (0.3 - 1.1) / 0.4 + math.log(7) - math.log(3))
    assert log_alpha(Target(0.4), -5.0, -9.0) == plain
    assert log_alpha(Target(0.4, 1.0), None, math.nan) == plain
    sharper = log_alpha(Target(0.4, 3.0), -5.0, -4.5)
    assert sharper == pytest.approx(plain + 2 * (-5.0 + 4.5))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ((0.99,), "sharpness must be a finite number >= 1"),
        ((math.nan,), "sharpness must be"),
        ((True,), "sharpness must be"),
        ((2.0,), "needs the log-probability"),
        ((2.0, -1.0, -math.inf), "needs the log-prob"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(changes, sentence):
    sharpness, new, old = (*changes, None, None)[:3]
    with pytest.raises(InvalidSetting, match=sentence):
        Target(1.0, sharpness).log_ratio(Scores(0.0, new), Scores(0.0, old))


async def test_the_former_name_of_the_sharpness_keeps_working_everywhere():
    assert Target(1.0, 4.0) == Run(sharpness=4.0).target
    named = [await steps_of(sharpness=2.0), await steps_of(target=Target(1.0, 2.0))]
    assert named == [await steps_of(alpha=2.0)] * 2
    assert named[0] != await steps_of()
    run, _ = linked("watch", {"alpha": "4"}, Runs(offer=Offer(names=())), Run(PROMPT))
    assert (run.sharpness, run.query().split("&")[-1]) == (4.0, "sharpness=4")


async def steps_of(lm=LM, rm=RM, n=30, **options):
    target = {} if "target" in options else {"beta": 1.0}
    chain = run_chain(lm, rm, "x", **target, **{"seed": 3, "steps": n, **options})
    return [s async for s in chain]


def chi_square_p(states, chain, expected):
    """P-value of visits under the probabilities; states that expect fewer than 5 are one."""
    number = {y.tokens: k for k, y in enumerate(chain.states)}
    visits = np.bincount([number[s.response.tokens] for s in states], minlength=len(chain.states))
    common = expected * len(states) >= 5
    seen = [*visits[common], visits[~common].sum()]
    wanted = np.array([*expected[common], expected[~common].sum()]) * len(states)
    return float(chisquare(seen, wanted).pvalue)


async def test_the_chain_samples_the_sharper_target():
    """800 chains of 40 steps at κ = 2; false-alarm rate 1e-4; the target of κ = 1 fails."""
    chain = exact_chain(LM, correlated_reward, Target(1.0, 2.0))
    after = chain.after(40)
    assert total_variation(after, chain.target) < 2e-3
    last = [(await steps_of(n=40, sharpness=2.0, chain=k))[-1].state for k in range(800)]
    assert chi_square_p(last, chain, after) > 1e-4
    assert chi_square_p(last, chain, exact_chain(LM, correlated_reward, Target(1.0)).target) < 1e-12


async def test_every_step_has_the_factor_of_its_log_probabilities():
    for step in (await steps_of(n=60, sharpness=2.5))[1:]:
        old, new = step.current, step.proposal
        log_p = [math.log(LM.suffix_probability(each.response.tokens, 0)) for each in (old, new)]
        assert [old.response.log_prob, new.response.log_prob] == pytest.approx(log_p)
        lead = new.reward - old.reward + 1.5 * (log_p[1] - log_p[0])
        lead += math.log(len(old.response) / len(new.response))
        assert step.log_alpha == pytest.approx(min(0.0, lead), abs=1e-12)


async def test_a_chain_of_sharpness_one_is_the_chain_without_sharpness():
    plain, one = await steps_of(), await steps_of(sharpness=1.0)
    assert plain == one
    lines = LineWriter(Run(PROMPT))
    assert [*map(lines.step, plain)] == [*map(lines.step, one)]
    assert "log_probs" not in "".join(map(lines.step, one))
    assert plain != await steps_of(sharpness=2.0)


class Silent(ToyLM):
    """A model that tells no log-probabilities."""

    async def extend(self, prompt_ids, prefix, *, seed):
        response = await super().extend(prompt_ids, prefix, seed=seed)
        return replace(response, log_probs=())


async def test_a_model_that_tells_no_log_probabilities_says_so_where_the_sharpness_asks():
    assert len(await steps_of(Silent(), NOTHING)) == 31
    with refusal(ModelContractError, match="returns no log-probabilities"):
        await steps_of(Silent(), NOTHING, sharpness=2.0)
    blocks = Mixture((Suffix(), Block(frozenset({0}))), (0.5, 0.5))
    for move in (blocks, blocks.moves[1]):  # an object needs them as much as its name does
        with pytest.raises(ModelContractError, match="which this move needs"):
            await steps_of(Silent(), NOTHING, move=move)
    assert len(await steps_of(Silent(), NOTHING, move=blocks.moves[0])) == 31
    samples = [s async for s in sample_iid(Silent(), NOTHING, "x", n=3, seed=1)]
    with pytest.raises(InvalidSetting, match="3 of 3 have none"):
        weighted_majority_vote(samples, str, target=Target(1.0, 2.0))


# real models


async def test_the_embedded_model_tells_the_whole_response_with_its_kept_prefix():
    lm = load_language_model("embedded", temperature=0.7, top_k=9, max_new_tokens=40)
    rm, prompt = load_reward_model("none"), "Mia has 12 books. She buys 5 more. How many?"
    chain = run_chain(lm, rm, prompt, beta=1.0, sharpness=4.0, steps=12, seed=3)
    ids = lm.encode(prompt)
    for step in [step async for step in chain][1:]:
        old, new, index = step.current.response, step.proposal.response, step.index
        assert len(new.log_probs) == len(new)
        assert new.log_probs[:index] == old.log_probs[:index]
        again = await lm.extend(ids, new.tokens[: index // 2], seed=5)
        assert len(again.log_probs) == len(again) - index // 2
        lead = 3 * (new.log_prob - old.log_prob) + math.log(len(old) / len(new))
        assert step.log_alpha == pytest.approx(min(0.0, lead))


# weights and rules


def sample(answer, reward, log_prob):
    return ScoredResponse(Response((1, 2), answer, True, (), (log_prob, 0.0)), reward)


def test_weights_are_those_of_the_target_and_best_of_n_has_none():
    samples = [sample("a", 1.0, -1.0), sample("b", 0.0, -0.2), sample("a", 1.0, -3.0)]
    rewards = [s.reward for s in samples]
    exact = np.exp(np.array(rewards) / 0.5 + 2 * np.array([-1.0, -0.2, -3.0]))
    weights = importance_weights(rewards, Target(0.5, 3.0), samples)
    assert weights == pytest.approx(exact / exact.sum())
    assert importance_weights(rewards, Target(0.5, 1.0), samples) == importance_weights(
        rewards, Target(0.5)
    )
    assert effective_sample_size(weights) < effective_sample_size(
        importance_weights(rewards, Target(0.5))
    )
    assert weighted_majority_vote(samples, str, target=Target(0.5)).answer == "a"
    assert weighted_majority_vote(samples, str, target=Target(0.5, 8.0)).answer == "b"


def test_the_weights_of_all_responses_are_the_target():
    """Every response once, weighted by its own probability: no sampling is left in it."""
    samples = [ScoredResponse(y, correlated_reward(y)) for y in LM.support]
    weights = importance_weights([s.reward for s in samples], Target(0.7, 4.0), samples)
    tilted = LM.probabilities * np.array(weights)
    rewards = np.array([s.reward for s in samples])
    target = target_distribution(LM.probabilities, rewards, Target(0.7, 4.0))
    assert tilted / tilted.sum() == pytest.approx(target)


# traces, results, tuning


def draw_trace(run, lm, rm, known=None):
    async def lines():
        return [item.line async for item in record(lm, rm, run, known=known)]

    return asyncio.run(lines())


RUN = Run(
    PROMPT, extractor="text", lm="letters", rm="none", sharpness=4.0, steps=24, pool=12, seed=5
)


@pytest.fixture(scope="module")
def lines():
    return draw_trace(RUN, LM, NOTHING)


def test_a_trace_has_the_sharpness_and_every_log_probability_and_comes_back(lines):
    trace = parse_trace("".join(lines))
    assert trace.header.run.sharpness == 4.0
    assert "".join(trace_lines(trace)).splitlines() == sorted_as(lines)
    for each in (*(step.proposal for step in trace.steps), *trace.pool):
        assert each.response.log_prob is not None
        assert each.response.log_prob < 0


def sorted_as(lines):
    """Header, steps, samples, end: the order in which a whole trace is written."""
    order = {"header": 0, "step": 1, "sample": 2, "end": 3}
    return sorted((line.rstrip("\n") for line in lines), key=lambda x: order[json.loads(x)["type"]])


def test_an_interrupted_run_goes_on_bit_for_bit(lines):
    half = [line for line in lines[:20] if '"type":"end"' not in line]
    rest = draw_trace(RUN, LM, NOTHING, parse_trace("".join(half)))
    assert sorted(half + rest) == sorted(lines)


def test_a_trace_of_sharpness_one_is_written_as_before_and_an_old_one_opens():
    run = RUN.with_changes(sharpness=1.0)
    text = "".join(draw_trace(run, LM, NOTHING))
    assert "sharpness" not in text
    assert "log_probs" not in text
    assert parse_trace(text).header.run.sharpness == 1.0
    assert "sharpness" not in run.query()
    assert Run.read({"prompt": PROMPT, "alpha": "4"}).query().endswith("&sharpness=4")


@pytest.mark.parametrize("wrong", [[0.1], [-0.5] * 99, ["x"], "no list", [None], [-1e999]])
def test_a_hostile_trace_with_other_log_probabilities_is_refused(lines, wrong):
    place = next(k for k, line in enumerate(lines) if '"log_probs"' in line)
    bad = {**json.loads(lines[place]), "log_probs": wrong}
    with pytest.raises(InvalidTrace, match=r"log_probs|not JSON"):
        parse_trace("".join([*lines[:place], json.dumps(bad)]) + "\n")


def test_a_comparison_and_its_curves_weigh_by_the_same_target(lines):
    comparison = Comparison(parse_trace("".join(lines)))
    by_method = {o.method: o for o in outcomes(comparison, full_cut(comparison, "samples"))}
    pool = comparison.pool
    expected = importance_weights([0.0] * len(pool), Target(1.0, 4.0), pool)
    n = by_method["wmv"].n
    assert by_method["wmv"].decision.weights == pytest.approx(
        importance_weights([0.0] * n, Target(1.0, 4.0), pool[:n])
    )
    assert len(set(expected)) > 1
    draws = draws_of(comparison)
    assert draws.records[0].pool_tilt(4.0) == pytest.approx([3 * s.response.log_prob for s in pool])
    measured = {p.method for p in curves(draws)}
    assert measured >= {"qalign", "mv", "wmv"}
    assert "bon" not in measured  # without a reward there is no best


def test_packed_results_keep_the_log_probabilities_only_where_they_count(tmp_path, capsys):
    command = ["evaluate", "--task", "shifted", "--problems", "2", "--budget", "4", "--quiet"]
    command = [word for word in command if word != "--quiet"]
    for option, value in (("--sharpness", "1"), ("--sharpness", "4"), ("--alpha", "4")):
        packed = tmp_path / f"{option}{value}.zip"
        out = ["--out", str(tmp_path / f"{option}{value}"), "--pack", str(packed)]
        assert main([*command, "--rm", "none", option, value, *out]) == 0
        results = unpack(packed)
        assert results.header.run.sharpness == float(value)
        assert ("--sharpness 4" in results.header.command) == (value == "4")
        for kept in results.records:
            assert len(kept.pool_log_prob) == (4 if value == "4" else 0)
            assert len(kept.chain_log_prob) == (len(kept.chain_reward) if value == "4" else 0)
        again = pack(results, tmp_path / "again.zip").read_bytes()
        assert again == packed.read_bytes()
    capsys.readouterr()


async def test_tuning_knows_the_factor_and_says_where_beta_decides_nothing():
    proposals, _ = await propose(LM, RM, ["x"], Run(sharpness=3.0, steps=400, seed=1))
    steps = await steps_of(n=400, sharpness=3.0, seed=1)
    kept = [s for s in steps if s.t > 100 and s.changed]
    exact = np.mean([math.exp(s.log_alpha) for s in kept])
    assert proposals.acceptance(1.0) == pytest.approx(exact, abs=1e-12)
    tuned = await tune_beta(
        LM, RM, ["x", "y"], Run(sharpness=1.2, steps=64, seed=0), acceptance=0.4
    )
    assert tuned.acceptance == pytest.approx(0.4, abs=0.02)
    with pytest.raises(InvalidSetting, match="beta decides nothing"):
        await tune_beta(LM, NOTHING, ["x"], Run(sharpness=2.0, steps=16))


@dataclass(frozen=True)
class Known:
    """A problem whose right answer is a whole text."""

    prompt: str
    right: str | None
    extractor = "text"
    extract = staticmethod(str)

    def is_right(self, answer):
        return None if self.right is None else answer == self.right


LIKELIEST = LM.support[int(np.argmax(LM.probabilities))].text
KNOWN = [Known("x", LIKELIEST), Known("y", "no such text")]


@pytest.mark.parametrize("rm", [RM, NOTHING], ids=REWARDS)
async def test_each_sharpness_is_tried_at_its_own_beta_by_the_vote_of_further_chains(rm):
    run = Run(steps=48, seed=3)
    tried = await tune_sharpness(LM, rm, KNOWN, [1.5, 1, 1.5], run, acceptance=0.4)
    assert [each.sharpness for each in tried] == [1.0, 1.5]
    for each in tried:
        beta = 1.0
        if rm is RM:
            at_sharpness = run.with_changes(sharpness=each.sharpness)
            assert each.tuned == await tune_beta(LM, RM, ["x", "y"], at_sharpness, acceptance=0.4)
            beta = each.tuned.beta
        else:
            assert each.tuned is None
        for place, problem in enumerate(KNOWN):
            chain = run_chain(LM, rm, problem.prompt, beta=beta, sharpness=each.sharpness, steps=48,
                              seed=9, chain=place)  # fmt: skip
            states = [step.state async for step in chain][12:]
            won = majority_vote(states, str).answer
            assert each.right.each[place] == (won == problem.right)


async def test_a_sharpness_at_which_no_beta_accepts_enough_is_told_and_the_others_are_tried():
    with pytest.raises(InvalidSetting, match=r"no beta accepts 0.5 of .* at sharpness 12"):
        await tune_beta(LM, RM, ["x", "y"], Run(sharpness=12.0, steps=48, seed=0))
    plain, sharp = await tune_sharpness(LM, RM, KNOWN, [1, 12], Run(steps=48, seed=0))
    assert plain.tuned is not None
    assert plain.right is not None
    assert sharp.right is None
    assert sharp.cost.generated > 0, "what was spent on finding out"


async def test_a_sharpness_is_not_tried_without_right_answers_or_below_one():
    with pytest.raises(InvalidSetting, match="needs problems with right answers"):
        await tune_sharpness(LM, RM, [Known("x", None)], [1, 2], Run())
    with pytest.raises(InvalidSetting, match="sharpness must be"):
        await tune_sharpness(LM, RM, KNOWN, [0.5], Run())


def test_the_command_tells_of_each_sharpness_and_which_is_best(capsys):
    command = "tune --task shifted --rm none --prompts 2 --steps 8 --max-new-tokens 12 --alpha 4 1"
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["sharpness 1", "sharpness 4"]
    assert " points, paired: " in lines[2]
    assert "too few problems for a verdict" in lines[2]
    assert lines[2].split(" - ")[0] == lines[3].removeprefix("best: ")
    assert lines[4].startswith("cost ")


def test_the_distance_from_the_base_counts_the_sharpness():
    log_p = np.log(np.array([0.5, 0.3, 0.2]))
    assert kl_from_base(softmax(np.zeros(3))) == 0.0
    assert kl_from_base(softmax(np.zeros(3), 1.0, 3 * log_p)) > 0.1
