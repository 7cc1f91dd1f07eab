"""A plan's figures are those of a count by hand, and of what was really drawn."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from refusals import refuse_command

from qalign_core.assets import ASSETS
from qalign_core.chain.cost import CostModel
from qalign_core.errors import InvalidSetting
from qalign_core.record.store import load_trace
from qalign_study.commands import main, shared
from qalign_study.commands.plan import Plan, TrainingPlan, facts_of, parameters_in
from qalign_study.measure.results import unpack
from qalign_study.sets.tasks import hardware, task_of
from qalign_study.train.trainer import Recipe


def tulu_on_math500(**changes):
    lm = parameters_in(facts_of("lm", "tulu-3-8b-sft"))
    rm = parameters_in(facts_of("rm", "tulu-3-8b-rm"))
    settings = {"samples": 1024, "states": 1024, "response": 400, "prompt": 69, **changes}
    return Plan(500, meter=CostModel(lm, rm), at_once=128, **settings)


def test_tulu_3_8b_on_math500_at_1024_steps_costs_what_a_hand_counts():
    plan = tulu_on_math500()
    # a chain of T steps generates (T + 1) N / 2 tokens: N for the first response, then half of one
    #   (1,024 + 1) * 400 / 2 = 205,000 a problem, * 500 problems        = 102,500,000
    assert plan.chain.generated == pytest.approx(102.5e6, rel=0.03)
    # 1,024 samples of 400 tokens, * 500 problems                        = 204,800,000
    assert plan.pool.generated == pytest.approx(204.8e6, rel=0.03)
    # 2 FLOPs * (8,030.3 + 7,504.9) million parameters                   = 31.07e9 a token
    #   * 102.5e6 = 3.185e18 for the chains; * 204.8e6 = 6.363e18 for the samples
    assert plan.flops["chains"] == pytest.approx(3.185e18, rel=0.03)
    assert plan.flops["samples"] == pytest.approx(6.363e18, rel=0.03)
    # 500 prompts of 69 tokens, read once by both models: 34,500 * 31.07e9 = 1.07e15
    assert plan.flops["prompts"] == pytest.approx(1.07e15, rel=0.03)
    # 9.55e18 / (989e12 * 0.3) = 32,190 s on one H100; both models in bf16 are 2 * 15.5 GB
    h100 = hardware()["H100 SXM"]
    assert plan.hours(h100) == pytest.approx(32_190 / 3600, rel=0.03)
    assert plan.hours(h100, 8) == pytest.approx(32_190 / 3600 / 8, rel=0.03)
    assert plan.weights == pytest.approx(31.07, rel=0.03)


def test_few_problems_wait_for_the_weights_and_not_for_the_computing():
    # one chain: 205,000 tokens in a row, each after 16.06 GB at 60 % of 3,350 GB/s = 7.99 ms
    plan, h100 = tulu_on_math500(), hardware()["H100 SXM"]
    one = Plan(**{name: getattr(plan, name) for name in plan.__slots__} | {"problems": 1})
    assert one.hours(h100) == pytest.approx(205_000 * 7.99e-3 / 3600, rel=0.03)
    assert one.hours(h100, 8) == one.hours(h100)


def test_a_reward_model_that_reads_all_anew_reads_each_proposal_whole():
    anew = replace(tulu_on_math500(), reads_on=False)
    assert anew.chain.scored == 500 * 1024 * (400 + 69)
    assert anew.chain.generated == tulu_on_math500().chain.generated


def test_without_a_limit_of_states_the_chain_costs_what_the_samples_do():
    plan = tulu_on_math500(states=0)
    assert plan.flops["chains"] == plan.flops["samples"]


@pytest.mark.recorded
def test_what_was_really_drawn_is_what_a_plan_of_its_mean_length_says():
    results = unpack(ASSETS / "results" / "in_distribution.zip")
    for record in results.records[:40]:
        n, states = len(record.pool_cost), len(record.chain_cost)
        lengths = np.concatenate([record.pool_cost[:, 0], record.chain_length])
        plan = Plan(1, n, states, float(lengths.mean()), 0, CostModel(), 128)
        n_tokens = int(record.chain_cost[:, 0].sum())
        assert plan.chain.generated == pytest.approx(n_tokens, rel=0.15), record.id


def test_a_model_of_unknown_size_is_said_and_a_reward_of_the_text_has_none():
    unknown = "size of my/model is unknown until it is loaded; give it .* with --parameters"
    with pytest.raises(InvalidSetting, match=unknown):
        facts_of("lm", "my/model")
    assert parameters_in(facts_of("lm", "my/model", 700)) == 700_000_000
    assert parameters_in(facts_of("lm", "embedded", 700)) == 860_000  # the registry has its size
    (folder,) = facts_of("lm", str(ASSETS / "models" / "lm"), 700)  # and a folder has its own
    assert parameters_in((folder,)) == load_trace(ASSETS / "runs/watch.jsonl").header.lm_parameters
    assert parameters_in(facts_of("rm", "plain")) == 0
    assert parameters_in(facts_of("rm", "0.5*embedded + 0.5*mood")) == 860_000
    assert parameters_in(facts_of("rm", "embedded + mine.py:sums")) == 860_000
    (tulu,) = facts_of("lm", "allenai/Llama-3.1-Tulu-3-8B-SFT")
    assert tulu.id == "tulu-3-8b-sft"


def test_the_command_line_plans_and_loads_nothing(monkeypatch, capsys, tmp_path):
    def load(*_, **__):
        pytest.fail("a plan loaded a model")

    monkeypatch.setattr(shared, "load_language_model", load)
    monkeypatch.setattr(shared, "load_reward_model", load)
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "--task", "math500", "--preset", "paper", "--plan"]) == 0
    output = capsys.readouterr().out
    for text in (
        "500 problems", "license MIT", "8,030.3 million parameters", "license llama3.1",
        "1,024 samples", "1,024 states", "400 tokens per response", "3.18e+18", "6.36e+18",
        "H100 SXM", "8.9", "31.1 GB",
    ):  # fmt: skip
        assert text in output, text
    assert list(tmp_path.iterdir()) == []
    long = ["--plan", "--response-tokens", "801"]
    assert main(["evaluate", "--task", "math500", "--preset", "paper", *long]) == 2
    assert "a response has at most 800 tokens" in capsys.readouterr().err
    refuse_command(capsys, ["evaluate", "--task", "math500", "--preset", "paper"], "--out FOLDER")


def test_a_plan_of_a_large_model_asks_for_its_reward_model_and_a_small_plan_has_no_zeros(capsys):
    command = ["evaluate", "--plan", "--problems", "4", "--budget", "8"]
    assert main([*command, "--lm", "tulu-3-8b-sft"]) == 2
    assert "the plan for tulu-3-8b-sft needs its reward model; give --rm" in capsys.readouterr().err
    assert main([*command, "--lm", "tulu-3-8b-sft", "--rm", "embedded"]) == 0
    assert "models/rm: 0.9 million parameters" in capsys.readouterr().out
    assert main([*command, "--lm", "my/model", "--rm", "my/rm", "--parameters", "1500"]) == 0
    assert capsys.readouterr().out.count("1,500.0 million parameters") == 2
    refuse_command(capsys, [*command, "--parameters", "0"], "--parameters")
    assert main(command) == 0
    output = capsys.readouterr().out
    assert "1 min on one" in output
    assert " 0.0 " not in output


def test_a_plan_counts_the_rows_of_a_file_and_takes_the_options(capsys, tmp_path):
    row = {"question": "How many?", "answer": "#### 4"}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 7)
    command = ["evaluate", "--task", "gsm8k", "--data", str(tmp_path / "rows.jsonl"), "--plan"]
    command += ["--lm", "smollm2-135m", "--rm", "plain", "--budget", "8", "--problems", "5"]
    assert main([*command, "--response-tokens", "50"]) == 0
    output = capsys.readouterr().out
    assert "5 problems" in output
    assert "50 tokens per response (--response-tokens)" in output
    # 5 problems * 8 samples * 50 tokens * 2 * 134.5 million parameters
    assert "5.38e+11" in output


def test_a_training_costs_what_a_hand_counts():
    # the paper's: 7,473 prompts of 75 tokens, a pair each, an epoch, responses of 200 tokens
    parameters = parameters_in(facts_of("lm", "tulu-3-8b-sft"))
    draws = Plan(7473, 64, 1, 200, 75, CostModel(parameters), 128)
    full, lora = (TrainingPlan(draws, 7473, Recipe(epochs=1.0, lora=rank)) for rank in (0, 16))
    # 7,473 * 2 * 275 = 4,110,150 tokens; * 6 * 8.0303e9 = 1.980e17; / (989e12 * 0.3) = 667 s
    assert full.tokens == 4_110_150
    assert full.flops == pytest.approx(1.980e17, rel=0.01)
    assert full.hours(hardware()["H100 SXM"]) == pytest.approx(667 / 3600, rel=0.01)
    assert full.memory == pytest.approx(128.5, rel=0.01)
    assert lora.flops == pytest.approx(1.320e17, rel=0.01)
    assert lora.memory == pytest.approx(32.1, rel=0.01)


def test_the_plan_of_a_training_loads_and_draws_nothing(capsys, monkeypatch):
    monkeypatch.setattr(shared, "models_of", None)
    command = ["train-rm", "--plan", "--task", "gsm8k:task", "--lm", "tulu-3-8b-sft"]
    assert main([*command, "--preset", "paper", "--max-new-tokens", "400"]) == 0
    output = capsys.readouterr().out
    assert "7,473 problems, each 64 samples and a chain of 17 states" in output
    assert "training  at most 7,473 pairs, 4,110,150 tokens, 1.98e+17 FLOPs, 128.5 GB" in output
    assert "H100 SXM   too small: 128.5 GB do not fit 80 GB" in output
    assert " on one" not in output  # no hours for a GPU that cannot hold it
    assert main(["train-rm", "--plan", "--task", "gsm8k:task", "--recipe", "paper"]) == 0
    output = capsys.readouterr().out  # drawn as the paper's evaluations are
    assert "meta-llama/Llama-3.1-8B-Instruct" in output
    assert "400 tokens per response (assumed: half of the limit)" in output


def test_a_training_never_learns_from_the_rows_that_are_evaluated(capsys):
    assert task_of("gsm8k:task").to_learn_from().table["hub"]["split"] == "train"
    refuse_command(capsys, ["train-rm", "--plan", "--task", "math500"], "math500 has only the rows")
