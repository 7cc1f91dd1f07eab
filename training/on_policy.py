"""Samples of the language model itself, and the preference pairs that are made of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from qalign_core.decide.answers.extraction import extract_number
from qalign_core.runs.generated import constraints_met, generate_problem, generate_writing_task
from training.llama import Llama
from training.tokenizer import prompt_ids

MAX_NEW_TOKENS = 192
ROWS = 64  # drawn at once; their caches still fit the processor's (256 take twice as long)

# kind of prompt -> (number of prompts, samples of each); long ones are rarely right
PROMPTS = {"in_distribution": (3000, 8), "long": (1500, 12), "writing": (400, 6)}


@dataclass(frozen=True)
class Graded:
    """One prompt, its sampled responses (EOS included) and their grades: higher is better."""

    prompt: list[int]
    responses: list[list[int]]
    grades: list[int]

    def draw_pair(self, rng: random.Random) -> tuple[list[int], list[int]]:
        """A random (better, worse) pair of responses, of two different grades."""
        while True:
            a, b = rng.sample(range(len(self.grades)), 2)
            if self.grades[a] != self.grades[b]:
                better, worse = (a, b) if self.grades[a] > self.grades[b] else (b, a)
                return self.responses[better], self.responses[worse]


@torch.inference_mode()
def sample(
    model: Llama,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    *,
    eos: int,
    generator: torch.Generator,
    progress: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Draw one continuation of each prompt at temperature 1, EOS included, `limits[i]` ids at most.

    A prompt may hold the first ids of a response already; drawing several responses to a prompt
    means listing it several times.
    """
    drawn: list[list[int]] = [[] for _ in prompts]
    in_order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for first in range(0, len(prompts), ROWS):
        _draw_batch(model, prompts, limits, in_order[first : first + ROWS], drawn, eos, generator)
        progress(min(first + ROWS, len(prompts)))
    return drawn


def _draw_batch(
    model: Llama,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    rows: list[int],
    drawn: list[list[int]],
    eos: int,
    generator: torch.Generator,
) -> None:
    lengths = torch.tensor([len(prompts[i]) for i in rows])
    ids = torch.full((len(rows), int(lengths.max())), eos)
    for row, i in enumerate(rows):
        ids[row, : lengths[row]] = torch.tensor(prompts[i])
    size = max(len(prompts[i]) + limits[i] for i in rows)
    hidden, caches = model.prefill(ids, size)
    last = hidden[torch.arange(len(rows)), lengths - 1]
    positions = lengths
    going = [True] * len(rows)
    while True:
        new = _draw_ids(model.logits(last), generator)
        for row, token in enumerate(new.tolist()):
            if going[row]:
                i = rows[row]
                drawn[i].append(token)
                going[row] = token != eos and len(drawn[i]) < limits[i]
        if not any(going):
            return
        # Copying the caches at every end of a row would cost more than the few idle rows do.
        if sum(going) < 0.8 * len(going):
            kept = torch.tensor(going).nonzero()[:, 0]
            new, positions, rows = new[kept], positions[kept], [rows[row] for row in kept.tolist()]
            caches = [(keys[kept], values[kept]) for keys, values in caches]
            going = [True] * len(rows)
        last = model.decode(new, positions, caches)
        positions = (positions + 1).clamp(max=size - 1)


def _draw_ids(logits: Tensor, generator: torch.Generator) -> Tensor:
    """(B, vocabulary) -> (B,) ids: the largest of probability / exponential noise."""
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits.softmax(-1) / noise).argmax(-1)


def graded_samples(
    model: Llama, tokenizer: PreTrainedTokenizerFast, cache: Path, *, seed: int
) -> list[Graded]:
    """Prompts of the training split with samples of two different grades at least.

    A word problem's response is graded 1 if its answer is right, else 0; a writing task's by the
    number of constraints that it meets. Kept in `cache`, one file a kind.
    """
    graded = []
    for kind, (n_prompts, n_samples) in PROMPTS.items():
        path = cache / f"samples-{kind}.pt"
        if not path.exists():
            samples = _graded(model, tokenizer, kind, n_prompts, n_samples, seed)
            torch.save([(g.prompt, g.responses, g.grades) for g in samples], path)
        samples = [Graded(*fields) for fields in torch.load(path, weights_only=True)]
        mixed = [g for g in samples if len(set(g.grades)) > 1]
        print(f"{kind}: {len(mixed)} of {len(samples)} prompts give a pair", flush=True)
        graded += mixed
    random.Random(f"pairs {seed}").shuffle(graded)
    return graded


def _graded(
    model: Llama,
    tokenizer: PreTrainedTokenizerFast,
    kind: str,
    n_prompts: int,
    n_samples: int,
    seed: int,
) -> list[Graded]:
    rng = random.Random(f"on-policy {seed} {kind}")
    grades: list[Callable[[str], int]] = []
    texts: list[str] = []
    for _ in range(n_prompts):
        if kind == "writing":
            task = generate_writing_task(rng, split="train")
            grades.append(lambda text, task=task: constraints_met(task, text))
            texts.append(task.prompt)
        else:
            problem = generate_problem(rng, kind, split="train")  # type: ignore[arg-type]
            grades.append(lambda text, answer=problem.answer: int(extract_number(text) == answer))
            texts.append(problem.prompt)
    prompts = prompt_ids(tokenizer, texts)
    repeated = [prompt for prompt in prompts for _ in range(n_samples)]
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    responses = sample(
        model,
        repeated,
        [MAX_NEW_TOKENS] * len(repeated),
        eos=tokenizer.eos_token_id,
        generator=generator,
        progress=lambda done: (
            print(f"sampling {kind}: {done}/{len(repeated)}", flush=True)
            if done // ROWS % 40 == 0
            else None
        ),
    )
    decoded = tokenizer.batch_decode(responses, skip_special_tokens=True)
    groups = [slice(i * n_samples, (i + 1) * n_samples) for i in range(n_prompts)]
    return [
        Graded(prompt, responses[group], [grade(text) for text in decoded[group]])
        for prompt, grade, group in zip(prompts, grades, groups, strict=True)
    ]
