"""The toy models answer a word problem; every path of the evaluation is walked with them."""

import asyncio
import itertools
import math
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from qalign_core.runs.draft import Draft
from qalign_core.runs.evaluation import evaluate

from qalign_core.analysis.curves import curves
from qalign_core.analysis.diagnostics import acceptance_of
from qalign_core.analysis.other_betas import against_beta
from qalign_core.analysis.record import Record
from qalign_core.chain.chain import run_chain
from qalign_core.chain.sampling import sample_iid
from qalign_core.decide.rules import (
    best_of_n,
    chain_states,
    importance_weights,
    majority_vote,
    minimum_bayes_risk,
    weighted_majority_vote,
)
from qalign_core.decide.utilities import rouge1
from qalign_core.errors import InvalidSetting, InvalidTask, InvalidTrace
from qalign_core.runs import evaluation
from qalign_core.runs.generated import WritingTask
from qalign_core.runs.problem_sets import Problem
from qalign_core.runs.report import summary
from qalign_core.runs.results import SETTINGS, Results, load_results, pack, to_bytes
from qalign_core.types import Response, Work

PROBLEMS = [Problem(f"p{k}", f"prompt {k}", "18", "number") for k in range(6)]
WRITING = [
    Problem(f"w{k}", f"Use one word, number {k}", writing=WritingTask("", "cat", "hat", 1))
    for k in range(3)
]
ANSWERS = ["The answer is 18.", "The answer is 17.", "The answer is 3.", "I give up."]


class AnswerLM:
    """Twenty tokens; a response is 1 to 4 of them and says one of the four answers."""

    id = "answers"
    max_new_tokens = 4
    n_parameters = 1000

    def encode(self, prompt):
        return tuple(range(len(prompt)))

    async def extend(self, prompt_ids, prefix, *, seed):
        rng = np.random.default_rng(seed)
        tokens = list(prefix)
        while len(tokens) < self.max_new_tokens:
            tokens.append(int(rng.integers(20)))
            if tokens[-1] < 8:
                break
        text = ANSWERS[(sum(tokens) * 7 + len(prompt_ids)) % 4]
        new = len(tokens) - len(prefix)
        return Response(tuple(tokens), text, tokens[-1] < 8, work=Work(new, len(prompt_ids)))


class AnswerRM:
    """Likes the right answer, and has favourites among wrong ones."""

    id = "taste"
    n_parameters = 500

    async def score(self, prompt, response):
        return 1.5 * ("18" in response.text) + math.sin(sum(response.tokens))


class Stop(Exception):
    pass


class FailingRM(AnswerRM):
    """Fails after so many scores, as a machine that is switched off."""

    def __init__(self, after):
        self.left = after

    async def score(self, prompt, response):
        self.left -= 1
        if self.left < 0:
            raise Stop
        return await super().score(prompt, response)


def run(folder, **changes):
    options = {"beta": 0.8, "budget": 32, "seed": 5, "folder": folder} | changes
    lm, rm = options.pop("lm", AnswerLM()), options.pop("rm", AnswerRM())
    problems = options.pop("problems", PROBLEMS)
    return evaluate(lm, rm, problems, **options)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    asyncio.run(run(folder))
    return load_results(folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.npz")}


async def test_a_record_is_what_the_core_draws_and_decides(results):
    lm, rm = AnswerLM(), AnswerRM()
    for place, (problem, record) in enumerate(zip(PROBLEMS, results.records, strict=True)):
        seed = 5 + place
        pool = [s async for s in sample_iid(lm, rm, problem.prompt, n=32, seed=seed)]
        n = len(record.chain_reward)
        chain = run_chain(lm, rm, problem.prompt, beta=0.8, steps=n - 1, seed=seed)
        steps = [s async for s in chain]
        draft = Draft(problem)
        for sample in pool:
            draft.add_sample(sample)
        for step in steps:
            draft.add_step(step)
        assert to_bytes(draft.record()) == to_bytes(record)

        def right(decision):
            return float(decision.answer == "18")

        full = {
            p.method: p.value
            for p in curves(
                Results(results.settings, (record,)).draws, ns=[32], budget="flops", n_bootstrap=2
            )
        }
        assert full["bon"] == right(best_of_n(pool, problem.extract))
        assert full["mv"] == right(majority_vote(pool, problem.extract))
        assert full["wmv"] == right(weighted_majority_vote(pool, problem.extract, beta=0.8))
        assert full["qalign"] == right(majority_vote(chain_states(steps), problem.extract))


def test_at_equal_flops_the_methods_differ_by_less_than_two_percent(results):
    last = {p.method: p for p in curves(results.draws) if p.n == 32}
    assert abs(last["qalign"].spent / last["bon"].spent - 1) < 0.02
    for record in results.records:
        spent = {
            side: sum(2 * (1000 * c[1] + 500 * c[3]) for c in cost.tolist())
            for side, cost in (("chain", record.chain_cost), ("pool", record.pool_cost))
        }
        # one problem: half a step either way
        assert abs(spent["chain"] / spent["pool"] - 1) < 0.04


def test_equal_samples_is_a_choice(results):
    points = {(p.method, p.n): p for p in curves(results.draws, budget="samples")}
    assert points["qalign", 16].used == 16
    assert points["qalign", 16].spent < points["mv", 16].spent


async def test_a_run_stopped_anywhere_goes_on_to_the_same_bytes(tmp_path, results):
    await run(tmp_path / "whole")
    for after in (1, 40, 150, 333):
        folder = tmp_path / f"stopped{after}"
        with pytest.raises(Stop):
            await run(folder, rm=FailingRM(after), concurrency=3)
        assert not list(folder.glob("*.claim"))
        counted = FailingRM(10**9)
        await run(folder, rm=counted)
        assert contents(folder) == contents(tmp_path / "whole")
        assert not list(folder.glob("*.draft"))
        if after == 333:  # what was drawn before was not drawn again
            whole = FailingRM(10**9)
            await run(tmp_path / "count", rm=whole)
            # in flight when it stopped: 16 samples and a step of each of three problems
            assert whole.left + 333 - 3 * 17 <= counted.left


async def test_two_workers_share_a_folder_and_do_no_problem_twice(tmp_path):
    one, two = FailingRM(10**9), FailingRM(10**9)
    await asyncio.gather(
        run(tmp_path / "a", rm=one, concurrency=2), run(tmp_path / "a", rm=two, concurrency=2)
    )
    alone = FailingRM(10**9)
    await run(tmp_path / "b", rm=alone)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert one.left + two.left - 10**9 == alone.left
    assert one.left < 10**9 > two.left


async def test_an_abandoned_claim_is_taken_over_and_a_fresh_one_is_not(tmp_path):
    await run(tmp_path, problems=PROBLEMS[:1])
    (record,) = tmp_path.glob("*.npz")
    claim = record.with_suffix(".claim")
    claim.touch()
    before = record.read_bytes()
    record.unlink()
    assert next(evaluation._to_do([record])) is None
    long_ago = claim.stat().st_mtime - 2 * evaluation.ABANDONED
    os.utime(claim, (long_ago, long_ago))
    await run(tmp_path, problems=PROBLEMS[:1])
    assert record.read_bytes() == before
    assert not claim.exists()


class StuckRM(AnswerRM):
    """Says so after so many scores, and never scores again."""

    def __init__(self, after):
        self.left = after

    async def score(self, prompt, response):
        self.left -= 1
        if self.left < 0:
            print("stuck", flush=True)
            await asyncio.Event().wait()
        return await super().score(prompt, response)


def worker(folder, after):
    """A process of its own that evaluates into `folder`, and tells how many problems are done."""
    code = (
        "import asyncio, test_evaluate as t\n"
        f"tell = lambda done, n: print(done, flush=True)\n"
        f"asyncio.run(t.run({str(folder)!r}, rm=t.StuckRM({after}), concurrency=1, progress=tell))"
    )
    here = Path(__file__).parent
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=here,
        env={**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def read_until(process, line):
    """Wait until the process has said `line`."""
    for said in process.stdout:
        if said.strip() == line:
            return
    pytest.fail(f"the worker ended without saying {line!r}")


async def test_a_killed_process_is_replaced_by_one_that_shares_its_folder(tmp_path):
    await run(tmp_path / "whole")
    folder = tmp_path / "shared"
    first, second = worker(folder, after=40), None
    try:
        read_until(first, "stuck")
        second = worker(folder, after=10**9)
        read_until(second, "5")  # all but the problem that the first one holds
        (claim,) = folder.glob("*.claim")
        first.kill()
        first.wait()
        long_ago = claim.stat().st_mtime - 2 * evaluation.ABANDONED
        os.utime(claim, (long_ago, long_ago))
        read_until(second, "6")
        assert second.wait() == 0
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
    assert contents(folder) == contents(tmp_path / "whole")
    assert not list(folder.glob("*.claim"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"beta": 0.9}, "beta: 0.8, now 0.9"),
        ({"budget": 16}, "budget"),
        ({"seed": 6}, "seed"),
        ({"problems": PROBLEMS[:5]}, "other problems"),
    ],
)
async def test_a_folder_with_other_settings_is_left_alone(tmp_path, change, named):
    await run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InvalidSetting, match=named):
        await run(tmp_path, **change)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"budget": 0}, InvalidSetting, "budget"),
        ({"beta": -1}, InvalidSetting, "beta"),
        ({"methods": ["best"]}, InvalidSetting, "qalign, bon, mv, wmv"),
        ({"methods": []}, InvalidSetting, "methods"),
        ({"problems": []}, InvalidTask, "no problems"),
        ({"problems": [Problem("x", "write")]}, InvalidTask, "'x' has neither an answer"),
        ({"problems": [*PROBLEMS, WRITING[0]]}, InvalidTask, "open-ended and some are not"),
    ],
)
async def test_bad_settings_are_refused_and_nothing_is_drawn(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        await run(tmp_path / "f", **change)
    assert not (tmp_path / "f").exists()


async def test_only_what_the_methods_need_is_drawn(tmp_path):
    await run(tmp_path / "chain", methods=["qalign"], budget=8)
    (record, *_) = load_results(tmp_path / "chain").records
    assert len(record.pool_reward) == 0
    assert len(record.chain_reward) == 8
    assert {p.method for p in curves(load_results(tmp_path / "chain").draws)} == {"qalign"}
    await run(tmp_path / "pool", methods=["bon"], budget=8)
    (record, *_) = load_results(tmp_path / "pool").records
    assert len(record.pool_reward) == 8
    assert len(record.chain_reward) == 0
    assert {p.method for p in curves(load_results(tmp_path / "pool").draws)} == {"bon", "any"}


def test_subsets_are_averaged_exactly_for_best_of_n_and_any(results):
    record = results.records[0]
    small = replace(
        record,
        pool_reward=record.pool_reward[:7],
        pool_answer=record.pool_answer[:7],
        pool_cost=record.pool_cost[:7],
    )
    settings = replace(results.settings, methods=("bon", "mv", "wmv"))
    points = curves(Results(settings, (small,)).draws, n_subsets=4000, ns=[1, 3, 7], n_bootstrap=2)
    found = {(p.method, p.n): p for p in points}
    right = small.is_right(small.pool_answer)
    for n in (1, 3, 7):
        subsets = [list(s) for s in itertools.combinations(range(7), n)]
        best = [max(s, key=lambda i: small.pool_reward[i]) for s in subsets]
        assert found["bon", n].value == pytest.approx(np.mean(right[best]))
        assert found["bon", n].reward == pytest.approx(np.mean(small.pool_reward[best]), rel=1e-6)
        assert found["any", n].value == pytest.approx(np.mean([right[s].any() for s in subsets]))
        # 4000 subsets: four standard errors are 0.032, a false alarm in 16,000 seeds
        vote = [_vote_is_right(small, s, np.ones(n)) for s in subsets]
        assert found["mv", n].value == pytest.approx(np.mean(vote), abs=0.032)
        weights = [np.exp(small.pool_reward[s].astype(float) / 0.8) for s in subsets]
        vote = [_vote_is_right(small, s, w) for s, w in zip(subsets, weights, strict=True)]
        assert found["wmv", n].value == pytest.approx(np.mean(vote), abs=0.032)


def _vote_is_right(record, subset, weights):
    answers = record.pool_answer[subset]
    totals = {}
    for a, w, r in zip(answers, weights, record.pool_reward[subset], strict=True):
        if a >= 0:
            votes, reward = totals.get(a, (0.0, 0.0))
            totals[a] = (votes + w, reward + r)
    return bool(totals) and bool(record.right[max(totals, key=totals.get)])


class WritingLM(AnswerLM):
    """Writes one of four texts, of which the first meets the constraints."""

    texts = ("The cat has a hat.", "The dog has a hat.", "A cat. A hat.", "the cat and the hat")

    async def extend(self, prompt_ids, prefix, *, seed):
        response = await super().extend(prompt_ids, prefix, seed=seed)
        text = self.texts[ANSWERS.index(response.text)]
        return Response(response.tokens, text, response.finished, work=response.work)


async def test_open_ended_problems_are_decided_by_minimum_bayes_risk_and_checked(tmp_path):
    lm, rm = WritingLM(), AnswerRM()
    await run(tmp_path, lm=lm, problems=WRITING)
    results = load_results(pack(load_results(tmp_path), tmp_path / "set.zip"))
    assert results.settings.open_ended
    for place, (problem, record) in enumerate(zip(WRITING, results.records, strict=True)):
        pool = [s async for s in sample_iid(lm, rm, problem.prompt, n=32, seed=5 + place)]
        n = len(record.chain_reward)
        chain = run_chain(lm, rm, problem.prompt, beta=0.8, steps=n - 1, seed=5 + place)
        states = [step.state async for step in chain]
        weights = importance_weights([s.reward for s in pool], 0.8)
        decided = {
            "qalign": minimum_bayes_risk(states, rouge1),
            "bon": best_of_n(pool),
            "mv": minimum_bayes_risk(pool, rouge1),
            "wmv": minimum_bayes_risk(pool, rouge1, weights),
        }
        one = curves(Results(results.settings, (record,)).draws, ns=[32], n_bootstrap=2)
        accuracy = {p.method: p.value for p in one}
        for method, decision in decided.items():
            assert accuracy[method] == (decision.chosen.response.text == lm.texts[0]), method


def test_bands_hold_the_accuracy_and_come_from_the_problems(results):
    for p in curves(results.draws):
        assert 0 <= p.low <= p.value <= p.high <= 1
    assert curves(results.draws) == curves(results.draws)


def test_a_smaller_beta_is_greedier_and_further_from_the_base(results):
    found = against_beta(results.draws, [0.05, 0.8, 50.0])
    for name, falls in (("reward", True), ("kl", True), ("effective", False)):
        values = [getattr(point, name) for point in found]
        assert values == sorted(values, reverse=falls)
    assert 0 <= found[-1].kl < 0.01
    assert found[0].kl <= math.log(32)
    last = {p.method: p for p in curves(results.draws) if p.n == 32}
    assert found[-1].accuracy == last["mv"].value
    assert (found[1].accuracy, found[1].low) == (last["wmv"].value, last["wmv"].low)
    assert found[1].reward == pytest.approx(last["wmv"].reward)


async def test_acceptance_at_another_beta_is_that_of_the_steps_drawn(results):
    """At its own beta: the mean acceptance probability of the changed proposals, step by step."""
    alpha = []
    for place, record in enumerate(results.records):
        n = len(record.chain_reward)
        chain = run_chain(
            AnswerLM(), AnswerRM(), PROBLEMS[place].prompt, beta=0.8, steps=n - 1, seed=5 + place
        )
        alpha += [math.exp(s.log_alpha) async for s in chain if s.t and s.changed]
    near, far = against_beta(results.draws, [0.8, 1e-3])
    assert near.acceptance == pytest.approx(np.mean(alpha), rel=1e-6)
    assert far.acceptance is None


def test_other_betas_need_a_pool(results):
    with pytest.raises(InvalidSetting, match="samples of the pool"):
        against_beta(Results(results.settings, ()).draws, [1.0])


def test_acceptance_leaves_the_initial_draw_out(results):
    acceptance = acceptance_of(results.records)
    assert acceptance.overall.trials == sum(len(r.chain_reward) - 1 for r in results.records)
    assert 0 < acceptance.changed.value < acceptance.overall.value < 1


def test_a_summary_is_plain_json_and_a_packed_file_gives_the_same(tmp_path, results):
    import json

    packed = pack(results, tmp_path / "set.npz")
    assert summary(load_results(packed)) == summary(results)
    json.dumps(summary(results), allow_nan=False)
    for one, other in zip(load_results(packed).records, results.records, strict=True):
        assert one.id == other.id
        for name in ("answers", "chain_length", "pool_reward", "pool_cost", "chain_cost"):
            assert (getattr(one, name) == getattr(other, name)).all()
    assert packed.read_bytes() == pack(results, tmp_path / "again.npz").read_bytes()


def test_a_file_of_the_first_version_still_tells_what_other_betas_do(tmp_path, results):
    """It has log alpha in place of lengths, and counts as they are."""
    settings = results.settings.to_json().replace('"version": 2', '"version": 1')
    arrays = {"settings": np.array(settings), "id": np.array([r.id for r in results.records])}
    for name in [
        f.name for f in fields(Record) if f.name not in ("id", "chain_length", "n_chains")
    ]:
        parts = [getattr(record, name) for record in results.records]
        arrays[f"{name}_n"] = np.array([len(part) for part in parts])
        arrays[name] = np.concatenate(parts).T
    np.savez_compressed(tmp_path / "old.npz", **arrays)
    old = load_results(tmp_path / "old.npz")
    for one, other in zip(old.records, results.records, strict=True):
        assert (one.chain_length == other.chain_length).all()
    assert summary(old) == summary(results)
    assert against_beta(old.draws, [0.8, 1.0]) == against_beta(results.draws, [0.8, 1.0])


def test_what_is_no_result_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match=SETTINGS):
        load_results(tmp_path)
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(InvalidTrace, match="cannot read results"):
        load_results(tmp_path / "x")
    (tmp_path / SETTINGS).write_text('{"version": 99}')
    with pytest.raises(InvalidTrace, match="version 99"):
        load_results(tmp_path)
    (tmp_path / SETTINGS).write_text("[]")
    with pytest.raises(InvalidTrace, match="no readable settings"):
        load_results(tmp_path)
