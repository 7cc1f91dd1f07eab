"""`qalign train-rm` from end to end, with TRL: `make test-train`, an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import save

from qalign_core.assets import ASSETS
from qalign_core.registry import load_reward_model, unload
from qalign_core.types import Response
from qalign_study.commands import main
from qalign_study.train.trainer import RECIPES, Recipe, last_checkpoint, train

LM = str(ASSETS / "models" / "lm")
DRAWS = ["--task", "in_distribution", "--problems", "12", "--samples", "8", "--steps", "6"]
COMMAND = [
    "train-rm",
    *DRAWS,
    "--max-new-tokens",
    "96",
    "--batch",
    "4",
    "--learning-rate",
    "1e-3",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("rm")
    command = [*COMMAND, "--suffix-pairs", "--solutions", "--changed-numbers", "--each", "2"]
    assert main([*command, "--out", str(out)]) == 0
    return out


def test_the_folder_is_what_rm_takes(trained, tmp_path, capsys):
    command = ["evaluate", "--task", "in_distribution", "--problems", "2", "--budget", "4"]
    assert main([*command, "--rm", str(trained), "--out", str(tmp_path / "runs")]) == 0
    assert "2 problems, 0 not done yet" in capsys.readouterr().out
    assert json.loads((trained / "config.json").read_text("utf-8"))["architectures"] == [
        "LlamaForSequenceClassification"
    ]


def test_it_reports_pair_accuracy_and_near_misses_of_problems_it_has_not_seen(trained):
    report = json.loads((trained / "report.json").read_text("utf-8"))
    assert report["held_out"] == 1
    assert report["pair"]["pairs"] > 0
    assert 0 <= report["pair"]["low"] <= report["pair"]["value"] <= report["pair"]["high"] <= 1
    assert set(report["near_miss"]) == set(report["pair"])
    assert report["training"]["device"] == "cpu"


def test_the_same_command_again_only_reports(trained, capsys):
    before = (trained / "model.safetensors").stat().st_mtime_ns
    command = [*COMMAND, "--suffix-pairs", "--solutions", "--changed-numbers", "--each", "2"]
    assert main([*command, "--out", str(trained)]) == 0
    assert (trained / "model.safetensors").stat().st_mtime_ns == before
    assert f"--rm {trained}" in capsys.readouterr().out


def test_a_base_without_a_chat_template_is_refused_before_anything_is_drawn(tmp_path, capsys):
    base, out = save(tmp_path / "base", "llama"), tmp_path / "rm"
    (base / "chat_template.jinja").unlink()
    assert main([*COMMAND, "--base", str(base), "--out", str(out)]) == 2
    assert "base has no chat template; choose" in capsys.readouterr().err
    assert not out.exists()


def ids(word: str) -> tuple[int, ...]:
    return tuple(1 + (ord(letter) % 90) for letter in f"conversation {word}")


PAIRS = [(ids(f"{k} good"), ids(f"{k} bad, bad")) for k in range(48)]


@pytest.mark.parametrize("lora", [0, 8])
async def test_it_learns_what_tells_the_better_from_the_worse(tmp_path, lora):
    recipe = Recipe(learning_rate=3e-3, epochs=4, batch=8, lora=lora)
    sentences: list[str] = []
    done = train(LM, PAIRS, recipe, tmp_path, device="cpu", notify=sentences.append)
    assert done.steps == 24
    assert sentences[-1].startswith("step 24 of 24: loss")
    assert "100% of pairs ordered correctly" in sentences[-1]
    changed = {
        name
        for name, weight in load_file(tmp_path / "model.safetensors").items()
        if not torch.equal(weight, load_file(f"{LM}/model.safetensors").get(name, weight + 1))
    }
    assert {"score.weight", "model.layers.0.mlp.down_proj.weight"} <= changed
    assert ("model.norm.weight" in changed) == (lora == 0)
    rm = load_reward_model(str(tmp_path))
    reward = await rm.score("Tom has 3 eggs.", Response((0,), "The answer is 3.", True))
    unload(str(tmp_path))
    assert isinstance(reward, float)


def test_an_interrupted_training_ends_in_the_weights_of_one_that_was_not(tmp_path):
    recipe = Recipe(learning_rate=1e-3, epochs=10, batch=8, lora=4)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(LM, PAIRS, recipe, whole, device="cpu")
    code = (
        "import sys, tests.train.test_training as t; from pathlib import Path\n"
        f"t.train(t.LM, t.PAIRS, t.{recipe!r}, Path(sys.argv[1]), device='cpu', notify=t.say)"
    )
    command = [sys.executable, "-c", code, str(cut)]
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        next(line for line in process.stdout if line.startswith("step 12 of 60"))
        process.kill()
    assert last_checkpoint(cut) is not None
    assert not (cut / "model.safetensors").exists()
    sentences: list[str] = []
    train(LM, PAIRS, recipe, cut, device="cpu", notify=sentences.append)
    assert 0 < len(sentences) < 20
    weights = [load_file(out / "model.safetensors") for out in (whole, cut)]
    for name, weight in weights[0].items():
        assert torch.allclose(weight, weights[1][name], atol=1e-6), name


def say(sentence: str) -> None:
    print(sentence, flush=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), "tests"])}


def test_another_family_than_llama_learns_too(tmp_path):
    base = save(tmp_path / "base", "qwen2")
    done = train(str(base), PAIRS[:8], Recipe(lora=0), tmp_path / "rm", device="cpu")
    assert done.steps == 1


def test_the_papers_recipe_runs_in_bfloat16(tmp_path):
    done = train(LM, PAIRS[:4], RECIPES["paper"], tmp_path, device="cpu")
    assert done.steps == 1
    assert load_file(tmp_path / "model.safetensors")["score.weight"].isfinite().all()
