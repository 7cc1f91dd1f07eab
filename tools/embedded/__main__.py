"""Train the embedded models from nothing: `python -m tools.embedded` (`make models`).

Interrupted, it resumes when it is called again; without its checkpoints it begins again.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from qalign_core.assets import ASSETS
from tools.embedded.corpus import write_tasks
from tools.embedded.language_model import train_language_model
from tools.embedded.networks import export, load_language_model
from tools.embedded.on_policy import grade_samples, near_misses
from tools.embedded.reward_model import (
    STEPS,
    WEAK_PROMPTS,
    WEAK_STEPS,
    train_reward_model,
)
from tools.embedded.tokenizer import train_tokenizer


def main() -> None:
    """Tokenizer, language model, samples of it, two reward models, problem sets."""
    parser = argparse.ArgumentParser(prog="python -m tools.embedded", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ASSETS, help="holds models/ and tasks/")
    parser.add_argument("--build", type=Path, default=Path("build/training"), help="checkpoints")
    options = parser.parse_args()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    logging.disable_progress_bar()
    started = time.monotonic()
    train(options.build, options.out, options.seed)
    minutes = (time.monotonic() - started) / 60
    print(
        f"done in {minutes:.0f} minutes; measure with -m {__package__}.quality and "
        f"-m {__package__}.inventories"
    )


def train(build: Path, out: Path, seed: int) -> None:
    """All stages in order; each finds its own checkpoint in `build`."""
    models = out / "models"
    write_tasks(out / "tasks", seed)
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(seed)
    trained = train_language_model(tokenizer, build, seed=seed)
    export(trained, tokenizer, models / "lm")

    # From here on the language model is the shipped one, with its rounded weights.
    model = load_language_model(models / "lm")
    graded = grade_samples(model, tokenizer, build, seed=seed)
    redrawn = near_misses(model, tokenizer, build, seed=seed)
    for name, learnt, steps in (
        ("rm", (graded, redrawn), STEPS),
        ("rm-weak", (graded[:WEAK_PROMPTS], []), WEAK_STEPS),
    ):
        reward_model = train_reward_model(
            model, tokenizer, *learnt, build / f"{name}.pt", seed=seed, steps=steps
        )
        export(reward_model, tokenizer, models / name)


if __name__ == "__main__":
    main()
