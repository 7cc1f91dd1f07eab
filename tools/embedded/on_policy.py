"""Samples of the language model itself, and the preference pairs that are made of them."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedTokenizerFast

from qalign_core.decide.answers.extraction import extract_number
from qalign_study.sets.generated import Problem, WritingTask, met_constraints
from qalign_study.sets.inventory import Inventory, generate_inventory
from qalign_study.sets.seeded import generate
from tools.embedded.decisions import Outcome, read_decisions
from tools.embedded.fitting import save
from tools.embedded.networks import MAX_NEW_TOKENS
from tools.embedded.solutions import draw_mistakes, write_inventory
from tools.embedded.tokenizer import prompt_ids, response_ids

ROWS = 64  # drawn at once; their caches still fit the processor's (256 take twice as long)

# kind of prompt -> (number of prompts, samples of each); long ones are rarely right
PROMPTS = {"in_distribution": (2400, 6), "long": (1200, 8), "writing": (600, 6)}
INVENTORIES = 2560
N_THINGS = (4, 5, 6)
# How often the response that is redrawn errs, as a share of the usual: a chain's states are better
# than its first draw, and what is compared there is what its reward model has to tell apart.
SCALES = (1.0, 0.6, 0.3, 0.15)


@dataclass(frozen=True)
class GradedResponses:
    """One prompt, its sampled responses (EOS included) and their grades: higher is better.

    `marks` has, for each response to an inventory, (the id that ends it, what became of it) of each
    decision; other responses have none.
    """

    prompt: list[int]
    responses: list[list[int]]
    grades: list[int]
    marks: list[list[tuple[int, Outcome]]]

    def draw_pair(self, rng: random.Random) -> "GradedResponses":
        """A random (better, worse) pair of responses, of two different grades."""
        while True:
            a, b = rng.sample(range(len(self.grades)), 2)
            if self.grades[a] > self.grades[b]:
                pair = (a, b)
                return GradedResponses(
                    self.prompt,
                    [self.responses[i] for i in pair],
                    [self.grades[i] for i in pair],
                    [self.marks[i] for i in pair if self.marks],
                )


@torch.inference_mode()
def sample(
    model: LlamaForCausalLM,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    generator: torch.Generator,
) -> list[list[int]]:
    """Draw one continuation of each prompt at temperature 1, EOS included, `limits[i]` ids at most.

    A prompt may hold the first ids of a response already; drawing several responses to a prompt
    means listing it several times.
    """
    responses: list[list[int]] = [[] for _ in prompts]
    in_order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for first in tqdm(range(0, len(prompts), ROWS), "sampling", disable=None):
        _draw_batch(model, prompts, limits, in_order[first : first + ROWS], responses, generator)
    return responses


def draw(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    texts: list[str],
    n: int,
    generator: torch.Generator,
) -> tuple[list[list[int]], list[list[int]], list[str]]:
    """`n` responses to each of some prompts: the ids of the prompts, of the responses, the texts.

    All have an item a response, those to one prompt together.
    """
    prompts = [ids for ids in prompt_ids(tokenizer, texts) for _ in range(n)]
    responses = sample(model, prompts, [MAX_NEW_TOKENS] * len(prompts), generator)
    return prompts, responses, tokenizer.batch_decode(responses, skip_special_tokens=True)


def _draw_batch(
    model: LlamaForCausalLM,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    rows: list[int],
    responses: list[list[int]],
    generator: torch.Generator,
) -> None:
    eos, lengths = model.config.eos_token_id, torch.tensor([len(prompts[i]) for i in rows])
    ids = torch.full((len(rows), int(lengths.max())), eos)
    for row, i in enumerate(rows):
        ids[row, : lengths[row]] = torch.tensor(prompts[i])
    mask, cache = torch.arange(ids.shape[1]) < lengths[:, None], DynamicCache()
    hidden = model.model(ids, attention_mask=mask, past_key_values=cache).last_hidden_state
    last = hidden[torch.arange(len(rows)), lengths - 1]
    positions = lengths
    going = [True] * len(rows)
    while True:
        new = _draw_ids(model.lm_head(last), generator)
        for row, token in enumerate(new.tolist()):
            if going[row]:
                i = rows[row]
                responses[i].append(token)
                going[row] = token != eos and len(responses[i]) < limits[i]
        if not any(going):
            return
        # Copying the caches at every end of a row would cost more than the few idle rows do.
        if sum(going) < 0.8 * len(going):
            kept = torch.tensor(going).nonzero()[:, 0]
            new, positions, rows = new[kept], positions[kept], [rows[row] for row in kept.tolist()]
            mask = mask[kept]
            cache.batch_select_indices(kept)
            going = [True] * len(rows)
        mask = torch.cat([mask, torch.ones(len(new), 1, dtype=torch.bool)], dim=1)
        at = {"attention_mask": mask, "position_ids": positions[:, None]}
        last = model.model(new[:, None], **at, past_key_values=cache).last_hidden_state[:, 0]
        positions = positions + 1


def _draw_ids(logits: Tensor, generator: torch.Generator) -> Tensor:
    """(B, vocabulary) -> (B,) ids: the largest of probability / exponential noise."""
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits.softmax(-1) / noise).argmax(-1)


def grade_samples(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, cache: Path, *, seed: int
) -> list[GradedResponses]:
    """Prompts of the training split with samples of two different grades at least.

    A word problem's response is graded 1 if its answer is right, else 0; a writing task's by the
    number of constraints that it meets. Kept in `cache`, one file a kind.
    """
    graded = []
    for kind, (n_prompts, n_samples) in PROMPTS.items():
        path = cache / f"samples-{kind}.pt"
        if not path.exists():
            samples = _grade_all(model, tokenizer, kind, n_prompts, n_samples, seed)
            _save(samples, path)
        samples = _load(path)
        mixed = [g for g in samples if len(set(g.grades)) > 1]
        print(f"{kind}: {len(mixed)} of {len(samples)} prompts give a pair", flush=True)
        graded += mixed
    random.Random(f"pairs {seed}").shuffle(graded)
    return graded


def near_misses(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, cache: Path, *, seed: int
) -> list[GradedResponses]:
    """Inventories of the training split with responses as a chain compares them.

    Kept in `cache` as they come.
    """
    path = cache / "near-misses.pt"
    groups = _load(path) if path.exists() else []
    while len(groups) < INVENTORIES:
        rng = random.Random(f"near misses {seed} {len(groups)}")
        inventories = [
            generate_inventory(rng, rng.choice(N_THINGS), split="train") for _ in range(ROWS)
        ]
        groups += redraw_suffixes(model, tokenizer, inventories, rng)
        _save(groups, path)
        print(f"near misses: {len(groups)}/{INVENTORIES}", flush=True)
    return [group for group in groups if len(set(group.grades)) > 1]


def redraw_suffixes(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    inventories: Sequence[Inventory],
    rng: random.Random,
) -> list[GradedResponses]:
    """Four responses to each inventory: one of the corpus's, and its suffix redrawn three times.

    Twice from one uniform index on and once from another, as a chain proposes; the grade is the
    number of right decisions.
    """
    prompts = prompt_ids(tokenizer, [inventory.prompt for inventory in inventories])
    written = [
        write_inventory(rng, inventory, draw_mistakes(rng, inventory, rng.choice(SCALES)))
        for inventory in inventories
    ]
    bases = response_ids(tokenizer, written)
    cuts = [2 * [rng.randrange(len(base))] + [rng.randrange(len(base))] for base in bases]
    kept = [base[:cut] for base, of_base in zip(bases, cuts, strict=True) for cut in of_base]
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    suffixes = sample(
        model,
        [prompts[n // 3] + prefix for n, prefix in enumerate(kept)],
        [MAX_NEW_TOKENS - len(prefix) for prefix in kept],
        generator,
    )
    whole = [prefix + suffix for prefix, suffix in zip(kept, suffixes, strict=True)]
    return [
        grade_inventory(tokenizer, inventory, prompt, [base, *whole[3 * n : 3 * n + 3]])
        for n, (inventory, prompt, base) in enumerate(zip(inventories, prompts, bases, strict=True))
    ]


def grade_inventory(
    tokenizer: PreTrainedTokenizerFast,
    inventory: Inventory,
    prompt: list[int],
    responses: list[list[int]],
) -> "GradedResponses":
    """Responses to an inventory, graded by the number of their right decisions, and marked."""
    marks = list[list[tuple[int, Outcome]]]()
    for response in responses:
        # byte-level: an id's text is as long as its name, and EOS is no text
        ends = list(accumulate(len(t) for t in tokenizer.convert_ids_to_tokens(response[:-1])))
        decisions = read_decisions(inventory, tokenizer.decode(response, skip_special_tokens=True))
        last = max(len(ends) - 1, 0)
        marks.append([(min(bisect_left(ends, d.end), last), d.outcome) for d in decisions])
    grades = [sum(outcome == "right" for _, outcome in marked) for marked in marks]
    return GradedResponses(prompt, responses, grades, marks)


def _save(samples: list[GradedResponses], path: Path) -> None:
    save([(g.prompt, g.responses, g.grades, g.marks) for g in samples], path)


def _load(path: Path) -> list[GradedResponses]:
    return [GradedResponses(*fields) for fields in torch.load(path, weights_only=True)]


def _grade_all(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    kind: str,
    n_prompts: int,
    n_samples: int,
    seed: int,
) -> list[GradedResponses]:
    rng = random.Random(f"on-policy {seed} {kind}")
    tasks = [generate(rng, kind, split="train") for _ in range(n_prompts)]
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    texts = [task.prompt for task in tasks]
    prompts, responses, decoded = draw(model, tokenizer, texts, n_samples, generator)
    groups = [slice(i * n_samples, (i + 1) * n_samples) for i in range(n_prompts)]
    return [
        GradedResponses(
            prompts[of.start], responses[of], [grade(task, text) for text in decoded[of]], []
        )
        for task, of in zip(tasks, groups, strict=True)
    ]


def grade(task: Problem | WritingTask, text: str) -> int:
    """1 if the answer is right, else 0; or the number of constraints met."""
    if isinstance(task, WritingTask):
        return met_constraints(task, text)
    return int(extract_number(text) == task.answer)
