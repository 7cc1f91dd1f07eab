"""The numbers of a set are those of its traces, and every curve comes from the numbers."""

import asyncio
import itertools
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from refusals import refuse_command
from toys import ToyLM, ToyRM

from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import sample_iid
from qalign_core.decide.methods import (
    best_of_n,
    chain_states,
    importance_weights,
    majority_vote,
    minimum_bayes_risk,
    weighted_majority_vote,
)
from qalign_core.decide.rouge import rouge1
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_core.types import Response
from qalign_study.commands import main, shared
from qalign_study.measure.curves import curves
from qalign_study.measure.diagnostics import acceptance_of
from qalign_study.measure.record import Record, record_of
from qalign_study.measure.report import Report
from qalign_study.measure.results import Results, load_results, pack
from qalign_study.measure.tuning import against_beta
from qalign_study.sets.folder import run_set
from qalign_study.sets.generated import WritingTask
from qalign_study.sets.problem_sets import Problem

PROBLEMS = [Problem(f"p{k}", f"prompt {k}", "18", "number") for k in range(6)]
WRITING = [
    Problem(f"w{k}", prompt, check=WritingTask(prompt, "cat", "hat", 1))
    for k, prompt in enumerate(f"Use one word, number {k}" for k in range(3))
]
RUN = Run("-", beta=0.8, seed=5, pool=32, steps=1000, matched="chain")
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
        return Response(tuple(tokens), text, tokens[-1] < 8)


class AnswerRM:
    """Likes the right answer, and has favourites among wrong ones."""

    id = "taste"
    n_parameters = 500

    async def score(self, prompt, response):
        reward = 1.5 * ("18" in response.text) + math.sin(sum(response.tokens))
        return float(np.float32(reward))  # as a network's is, and a packed file's


def run(folder, *, lm=None, problems=PROBLEMS, **changes):
    return run_set(lm or AnswerLM(), AnswerRM(), RUN.with_changes(**changes), problems, folder)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    asyncio.run(run(folder))
    return load_results(folder)


async def test_a_record_is_what_the_core_draws_and_decides(results):
    lm, rm = AnswerLM(), AnswerRM()
    for place, (problem, record) in enumerate(zip(PROBLEMS, results.records, strict=True)):
        seed = 5 + place
        pool = [s async for s in sample_iid(lm, rm, problem.prompt, n=32, seed=seed)]
        n = len(record.chain_reward)
        chain = run_chain(lm, rm, problem.prompt, beta=0.8, steps=n - 1, seed=seed)
        steps = [s async for s in chain]
        trace = Trace(TraceHeader(prompt_tokens=8), tuple(steps), tuple(pool))
        same(record_of(trace, problem.extract, problem.is_right, id=problem.id), record)

        def right(decision):
            """The share of the tied answers that are right."""
            tied = [a for a, share in decision.shares if share == decision.shares[0][1]]
            return float("18" in (tied or [decision.answer])) / max(1, len(tied))

        full = {
            p.method: p.value
            for p in curves(Results(results.header, (record,)), ns=[32], budget="flops")
        }
        assert full["bon"] == right(best_of_n(pool, problem.extract))
        assert full["mv"] == right(majority_vote(pool, problem.extract))
        assert full["wmv"] == right(
            weighted_majority_vote(pool, problem.extract, target=Target(0.8))
        )
        assert full["qalign"] == (
            majority_vote(chain_states(steps), problem.extract).answer == "18"
        )


def same(one, other):
    """Two records have the same numbers."""
    for each in fields(Record):
        a, b = getattr(one, each.name), getattr(other, each.name)
        assert np.array_equal(a, b), each.name


def test_at_equal_flops_the_methods_differ_by_less_than_two_percent(results):
    last = {p.method: p for p in curves(results) if p.n == 32}
    assert abs(last["qalign"].spent / last["bon"].spent - 1) < 0.02
    for record in results.records:
        spent = {
            side: sum(2 * (1000 * c[0] + 500 * c[1]) for c in cost.tolist())
            for side, cost in (("chain", record.chain_cost), ("pool", record.pool_cost))
        }
        # one problem: half a step either way
        assert abs(spent["chain"] / spent["pool"] - 1) < 0.04


def test_equal_samples_is_a_choice(results):
    points = {(p.method, p.n): p for p in curves(results, budget="samples")}
    assert points["qalign", 16].used == 16
    assert points["qalign", 16].spent < points["wmv", 16].spent


async def test_without_a_pool_there_are_results_of_the_chain_alone(tmp_path):
    await run(tmp_path, pool=0, steps=7, matched="none")
    results = load_results(tmp_path)
    assert [rule.id for rule in results.rules] == ["qalign"]
    (record, *_) = results.records
    assert (len(record.pool_reward), len(record.chain_reward)) == (0, 8)
    assert {p.method for p in curves(results)} == {"qalign"}


def test_subsets_are_averaged_exactly_for_best_of_n_and_any(results):
    record = results.records[0]
    small = replace(
        record,
        pool_reward=record.pool_reward[:7],
        pool_answer=record.pool_answer[:7],
        pool_cost=record.pool_cost[:7],
    )
    draws = Results(results.header, (small,))
    points = curves(draws, budget="samples", ns=[1, 3, 7])
    values = {(p.method, p.n): p for p in points}
    right = small.is_right(small.pool_answer)
    for n in (1, 3, 7):
        subsets = [list(s) for s in itertools.combinations(range(7), n)]
        best = [max(s, key=lambda i: small.pool_reward[i]) for s in subsets]
        assert values["bon", n].value == pytest.approx(np.mean(right[best]))
        assert values["bon", n].reward == pytest.approx(np.mean(small.pool_reward[best]), rel=1e-6)
        assert values["any", n].value == pytest.approx(np.mean([right[s].any() for s in subsets]))
        vote = [_vote_is_right(small, s, np.ones(n)) for s in subsets]
        assert values["mv", n].value == pytest.approx(np.mean(vote))
        weights = [np.exp(small.pool_reward[s].astype(float) / 0.8) for s in subsets]
        vote = [_vote_is_right(small, s, w) for s, w in zip(subsets, weights, strict=True)]
        assert values["wmv", n].value == pytest.approx(np.mean(vote))


def _vote_is_right(record, subset, weights):
    """The share of the tied answers that are right."""
    totals = {}
    for a, w in zip(record.pool_answer[subset], weights, strict=True):
        if a >= 0:
            totals[a] = totals.get(a, 0.0) + w
    tied = [a for a, votes in totals.items() if votes == pytest.approx(max(totals.values()))]
    return np.mean([record.right[a] for a in tied]) if tied else 0.0


class WritingLM(AnswerLM):
    """Writes one of four texts, of which the first meets the constraints."""

    texts = ("The cat has a hat.", "The dog has a hat.", "A cat. A hat.", "the cat and the hat")

    async def extend(self, prompt_ids, prefix, *, seed):
        response = await super().extend(prompt_ids, prefix, seed=seed)
        text = self.texts[ANSWERS.index(response.text)]
        return Response(response.tokens, text, response.finished)


async def test_open_ended_problems_are_decided_by_minimum_bayes_risk_and_checked(tmp_path):
    lm, rm = WritingLM(), AnswerRM()
    await run(tmp_path, lm=lm, problems=WRITING)
    results = load_results(pack(load_results(tmp_path), tmp_path / "set.zip"))
    assert results.header.run.open_ended
    for place, (problem, record) in enumerate(zip(WRITING, results.records, strict=True)):
        pool = [s async for s in sample_iid(lm, rm, problem.prompt, n=32, seed=5 + place)]
        n = len(record.chain_reward)
        chain = run_chain(lm, rm, problem.prompt, beta=0.8, steps=n - 1, seed=5 + place)
        states = [step.state async for step in chain]
        weights = importance_weights([s.reward for s in pool], Target(0.8))
        decided = {
            "qalign": minimum_bayes_risk(states, rouge1),
            "bon": best_of_n(pool),
            "mv": minimum_bayes_risk(pool, rouge1),
            "wmv": minimum_bayes_risk(pool, rouge1, weights),
        }
        one = curves(Results(results.header, (record,)), ns=[32])
        accuracy = {p.method: p.value for p in one}
        for method, decision in decided.items():
            assert accuracy[method] == (decision.chosen.response.text == lm.texts[0]), method


def test_bands_hold_the_accuracy_and_come_from_the_problems(results):
    for p in curves(results):
        assert 0 <= p.low <= p.value <= p.high <= 1
    assert curves(results) == curves(results)


def test_a_smaller_beta_is_greedier_and_further_from_the_base(results):
    rows = against_beta(results, [0.05, 0.8, 50.0])
    for name, falls in (("reward", True), ("kl", True), ("effective", False)):
        values = [getattr(point, name) for point in rows]
        assert values == sorted(values, reverse=falls)
    assert 0 <= rows[-1].kl < 0.01
    assert rows[0].kl <= math.log(32)
    last = {p.method: p for p in curves(results) if p.n == 32}
    # with a large beta only a tie of votes is decided by the reward
    tied = [value not in (0, 1) for value in last["mv"].each]
    assert any(tied)
    assert abs(rows[-1].accuracy - last["mv"].value) <= np.mean(tied) / 2
    assert (rows[1].accuracy, rows[1].low) == (last["wmv"].value, last["wmv"].low)
    assert rows[1].reward == pytest.approx(last["wmv"].reward)


async def test_acceptance_at_another_beta_is_that_of_the_steps_drawn(results):
    """At its own beta: the mean acceptance probability of the changed proposals, step by step."""
    alpha = []
    for place, record in enumerate(results.records):
        n = len(record.chain_reward)
        chain = run_chain(
            AnswerLM(), AnswerRM(), PROBLEMS[place].prompt, beta=0.8, steps=n - 1, seed=5 + place
        )
        alpha += [math.exp(s.log_alpha) async for s in chain if s.t and s.changed]
    near, far = against_beta(results, [0.8, 1e-3])
    assert near.acceptance == pytest.approx(np.mean(alpha), rel=1e-6)
    assert far.acceptance is None


def test_other_betas_need_a_pool(results):
    with pytest.raises(InvalidSetting, match="samples of the pool"):
        against_beta(Results(results.header, ()), [1.0])


def test_acceptance_leaves_the_initial_draw_out(results):
    acceptance = acceptance_of(results.records)
    assert acceptance.overall.trials == sum(len(r.chain_reward) - 1 for r in results.records)
    assert 0 < acceptance.changed.value < acceptance.overall.value < 1


def test_a_report_is_plain_json_and_a_packed_file_gives_the_same(tmp_path, results):
    packed = pack(results, tmp_path / "set.npz")
    report = Report({"set": results}).json()
    assert Report({"set": load_results(packed)}).json() == report
    json.dumps(report, allow_nan=False)
    assert load_results(packed).header == results.header
    for one, other in zip(load_results(packed).records, results.records, strict=True):
        assert one.id == other.id
        for name in ("answers", "chain_length", "pool_reward", "pool_cost", "chain_cost"):
            assert (getattr(one, name) == getattr(other, name)).all()
    assert packed.read_bytes() == pack(results, tmp_path / "again.npz").read_bytes()


@pytest.mark.parametrize("content", [b"nothing", b"", b"PK\x03\x04", None])
def test_what_is_no_result_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(InvalidTrace, match="cannot read results"):
        load_results(tmp_path / "x")


def test_results_of_another_version_are_named_as_such(tmp_path):
    np.savez(tmp_path / "old.npz", settings=np.array('{"version": 2}'))
    with pytest.raises(InvalidTrace, match=r"has no 'header', as results .*; evaluate again$"):
        load_results(tmp_path / "old.npz")


def test_a_model_of_long_responses_is_evaluated_too(tmp_path, monkeypatch, capsys):
    """The chain may have as many steps as the pool has tokens, but no more than a run can."""
    monkeypatch.setattr(shared, "load_language_model", lambda *_, **__: ToyLM(max_new_tokens=10**6))
    monkeypatch.setattr(shared, "load_reward_model", lambda *_, **__: ToyRM())
    command = ["evaluate", "--problems", "1", "--budget", "16", "--out", str(tmp_path / "f")]
    assert main(command) == 0
    assert "1 problems, 0 not done yet" in capsys.readouterr().out


async def test_what_is_packed_where_nothing_can_be_written_is_said_in_one_sentence(tmp_path):
    await run(tmp_path, problems=PROBLEMS[:1], pool=2)
    (tmp_path / "set.zip").mkdir()
    for place in (tmp_path / "set.zip", "/proc/x/set.zip"):
        with pytest.raises(
            InvalidSetting, match=r"^\S+ cannot be written \(.+\); give another path$"
        ):
            pack(load_results(tmp_path), place)


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        ([{"prompt": "write"}], "", "'0' has neither an answer to compare with nor one of"),
        (
            [
                {"prompt": "How many?", "answer": 1},
                {"prompt": "w", "constraints": {"use": "a", "end": "b", "sentences": 1}},
            ],
            "",
            "some problems are open-ended and some are not",
        ),
        ([{"prompt": "How many?", "answer": 1}], "--budget 0", "--budget must be"),
        ([{"prompt": "How many?", "answer": 1}], "--states -1", "--states must be"),
        ([{"prompt": "How many?", "answer": 1}], "--problems 0", "--problems must be"),
        ([], "", "has no problems"),
    ],
)
def test_a_set_that_cannot_be_graded_is_refused_and_nothing_is_drawn(
    tmp_path, capsys, lines, options, sentence
):
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    command = ["evaluate", "--task", str(tmp_path / "set.jsonl"), "--out", str(out)]
    refuse_command(capsys, [*command, *options.split()], sentence)
    assert not out.exists()
