"""Bradley-Terry by TRL's `RewardTrainer`: from pairs of token ids to a folder with a reward model.

TRL comes with the extra `train` and is imported when a training starts. It gets ids and cuts, drops
or renders nothing itself: what a reward model learns from is what it will be given to score.
"""

import math
import resource
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from qalign_core.errors import EngineError, InvalidSetting, ModelLoadError
from qalign_core.validation import check_count, first_line

IdPair = tuple[Sequence[int], Sequence[int]]
"""A conversation that is better, and one that is worse, both as the reward model reads them."""
Notify = Callable[[str], object]
"""Receives a sentence about the current step."""
CHECKPOINTS = "trainer"
"""The folder, beside the model, of what an interrupted training goes on from."""
_PACKAGES = ("trl", "peft", "accelerate", "datasets")
_LARGE = 10**9  # parameters from which memory matters more than a third of the speed


def _setting(
    default: Any, help: str, min: float = 0, max: float = 1, *, above: bool = False
) -> Any:
    """A setting of a recipe: its help, and its range; `above` leaves out the lower end."""
    metadata = {"help": help, "min": min, "max": max, "above": above}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a reward model is trained; a step adds up as many pairs in memory as it needs."""

    learning_rate: float = _setting(
        1e-4, "highest rate of AdamW, which then falls linearly", above=True
    )
    warmup: float = _setting(0.03, "share of the steps in which the rate rises")
    weight_decay: float = _setting(0.0, "weight decay of AdamW")
    epochs: float = _setting(1.0, "passes over the pairs", max=1000, above=True)
    batch: int = _setting(16, "pairs per step", 1)
    pairs_at_once: int = _setting(4, "pairs in memory at once, at most", 1)
    max_length: int = _setting(2048, "tokens read per conversation", 2)
    lora: int = _setting(16, "rank of LoRA; 0 trains the weights themselves")
    precision: str = _setting("float32", "bfloat16 or float32, for computing; weights are float32")
    validation: float = _setting(0.05, "share of problems held out", max=0.5, above=True)
    seed: int = 7

    @property
    def passes(self) -> tuple[int, int]:
        """The pairs in memory at once, and how often; together exactly the pairs of a step."""
        at_once = max(n for n in range(1, self.pairs_at_once + 1) if self.batch % n == 0)
        return at_once, self.batch // at_once

    def check(self) -> Self:
        """Return this recipe if it can be.

        Raises:
            InvalidSetting: one sentence for the first setting that cannot be.
        """
        if self.precision not in (known := ("float32", "bfloat16")):
            raise InvalidSetting(f"--precision must be {' or '.join(known)}, got {self.precision}")
        for each in fields(self):
            value, name = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if not each.metadata or isinstance(value, str):
                continue
            low, high, above = (each.metadata[key] for key in ("min", "max", "above"))
            if each.type is int:
                check_count(name, value, low)
            elif not (low < value if above else low <= value) or not value <= high:
                ends = f"above {low} and at most" if above else f"between {low} and"
                raise InvalidSetting(f"{name} must be {ends} {high}, got {value}")
        return self


RECIPES: Mapping[str, Recipe] = {
    "small": Recipe(),
    # the appendix: full weights of an 8B model on eight GPUs
    "paper": replace(Recipe(), learning_rate=1e-5, batch=128, lora=0, precision="bfloat16"),
}
"""By name: what two cores can do, and what the paper's table of hyper-parameters says."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The measurements of a training.

    Attributes:
        steps: of the optimizer.
        seconds: of this call; a training that was resumed took more.
        memory: GB, the most that this process held; of the GPU if there was one.
        loss: mean over the last logged steps.
        device: where.
    """

    steps: int
    seconds: float
    memory: float
    loss: float
    device: str


def check_installed() -> None:
    """Make sure, before anything is drawn, that what trains is there.

    Raises:
        ModelLoadError: a package is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelLoadError(
            f"train-rm needs {', '.join(missing)}; pip install 'qalign-explorer[train]'"
        )


def train(
    base: str,
    pairs: Sequence[IdPair],
    recipe: Recipe,
    out: Path,
    *,
    device: str | None = None,
    notify: Notify = lambda sentence: None,
) -> Trained:
    """Train a reward model on pairs, or go on where an interrupted training was; write it to `out`.

    Args:
        base: the folder or hub id of the model that it starts from, whose tokenizer made the ids.
        pairs: better first.
        recipe: how.
        out: becomes a folder in transformers' format; checkpoints are kept in it meanwhile.
        device: as torch names it; by default a GPU if there is one.
        notify: hears now and then how far it is.

    Raises:
        ModelLoadError: the extra is not installed, or the model cannot be loaded.
        InvalidSetting: several GPUs are visible.
        EngineError: the training failed (memory).
    """
    check_installed()
    import datasets
    import torch
    import transformers
    from transformers.trainer_callback import PrinterCallback
    from trl import RewardTrainer

    from qalign_core.models.local.worker import as_engine_error

    if torch.cuda.device_count() > 1:  # TRL refuses, in its own words
        raise InvalidSetting(
            f"{torch.cuda.device_count()} GPUs are visible, but training uses one; set "
            "CUDA_VISIBLE_DEVICES to its number"
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    transformers.logging.set_verbosity_error()  # it warns that the new head is new
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)  # TRL's own
    model, tokenizer = _load_base(base, recipe.seed)
    stored = getattr(model.config, "dtype", None) or torch.float32
    trainer = RewardTrainer(
        model=model,
        args=_trl_config(recipe, out, device, len(pairs), is_large=model.num_parameters() > _LARGE),
        train_dataset=datasets.Dataset.from_list(
            [{"chosen_ids": [*better], "rejected_ids": [*worse]} for better, worse in pairs]
        ),
        processing_class=tokenizer,
        peft_config=_low_rank(recipe.lora) if recipe.lora else None,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_progress_callback(notify))
    try:
        done = trainer.train(resume_from_checkpoint=last_checkpoint(out))
    except (RuntimeError, MemoryError) as error:
        raise as_engine_error(error) from error
    trained = trainer.model.merge_and_unload() if recipe.lora else trainer.model
    if not all(torch.isfinite(p).all() for p in trained.parameters()):
        raise EngineError("training ended with non-finite weights; lower --learning-rate")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device != "cpu":
        memory = torch.cuda.max_memory_allocated()
    trained.to(stored).save_pretrained(out)
    tokenizer.save_pretrained(out)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return Trained(
        steps=trainer.state.global_step,
        seconds=round(done.metrics["train_runtime"], 1),
        memory=round(memory / 1e9, 2),
        loss=float(losses[-1] if losses else done.training_loss),
        device=device,
    )


def _load_base(base: str, seed: int) -> tuple[Any, Any]:
    """Return the model that training starts from, with a new head, and its tokenizer."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from qalign_core.models.loading import model_folder

    folder = model_folder(base)
    torch.manual_seed(seed)  # the head's first weights
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
        return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"no reward model can be made from {base} ({first_line(error)}); choose another --base"
        ) from error


def _trl_config(recipe: Recipe, out: Path, device: str, n_pairs: int, *, is_large: bool) -> Any:
    """Return the recipe in TRL's words."""
    from trl import RewardConfig

    n_steps = math.ceil(math.ceil(n_pairs / recipe.batch) * recipe.epochs)
    at_once, passes = recipe.passes
    return RewardConfig(
        output_dir=str(out / CHECKPOINTS),
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=recipe.warmup,  # below 1, a share
        weight_decay=recipe.weight_decay,
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=passes,
        bf16=recipe.precision == "bfloat16",
        max_length=None,  # TRL would drop what is longer; all is cut or refused before
        gradient_checkpointing=is_large,
        use_cpu=device == "cpu",
        dataloader_pin_memory=device != "cpu",
        seed=recipe.seed,
        save_steps=max(1, n_steps // 10),
        save_total_limit=1,
        logging_steps=max(1, n_steps // 20),
        report_to="none",
        disable_tqdm=True,
    )


def _low_rank(rank: int) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        modules_to_save=["score"],  # the head is new, and trained itself
    )


def _progress_callback(notify: Notify) -> Any:
    """A callback that tells how far a training is, where the trainer would print its logs."""
    from transformers import TrainerCallback

    class ProgressCallback(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in (logs or {}):
                notify(
                    f"step {state.global_step} of {state.max_steps}: loss {float(logs['loss']):.3f}"
                    f", {float(logs['accuracy']):.0%} of pairs ordered correctly"
                )

    return ProgressCallback()


def last_checkpoint(out: Path) -> str | None:
    """The folder that an interrupted training goes on from: the newest that is whole."""
    whole = [path.parent for path in (out / CHECKPOINTS).glob("checkpoint-*/trainer_state.json")]
    newest = max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)
    return None if newest is None else str(newest)
