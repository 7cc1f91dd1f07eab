"""Train the reward model: Bradley-Terry on the language model's own samples.

The paper's recipe (Section 4.1): on-policy responses, one better and one worse of each
prompt, initialised from the language model, one scalar at the last token (the response's EOS).
Beyond it, what a chain's acceptance lives on, near misses: responses to an inventory that share a
prefix, compared by the number of their right decisions. On those two more losses, both thrown away
afterwards, say *where* a response errs: at a middle layer, which decisions are wrong; at the end of
each decision, that the score so far should be `-WORTH` for each of them.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from transformers import LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

from qalign_study.measure.intervals import Measured
from qalign_study.sets.inventory import generate_inventory
from qalign_study.train.preferences import in_order
from tools.embedded.fitting import by_length, fit, pad
from tools.embedded.networks import new_reward_model
from tools.embedded.on_policy import N_THINGS, SCALES, GradedResponses, grade_inventory
from tools.embedded.solutions import draw_mistakes, write_inventory
from tools.embedded.tokenizer import prompt_ids, response_ids

STEPS = 1250
# The weak one reads pairs of a few prompts, a few times.
WEAK_PROMPTS, WEAK_STEPS = 300, 90
# A step: pairs of any prompt, groups of redrawn responses, and pairs written for the purpose.
N_PAIRS, N_REDRAWN, N_WRITTEN = 12, 3, 6
TOKENS_AT_ONCE = 2560  # padding included
WORTH = 3.0  # of a right decision, in units of the reward
FLAG_LAYER = 3


class Critic(nn.Module):
    """A reward model in training, with what is thrown away: a flag for each wrong decision."""

    def __init__(self, language_model: LlamaForCausalLM) -> None:
        super().__init__()
        self.rm = new_reward_model(language_model)
        width = language_model.config.hidden_size
        self.flag = nn.Sequential(nn.RMSNorm(width, eps=1e-5), nn.Linear(width, 1))
        nn.init.zeros_(self.flag[1].weight)
        nn.init.zeros_(self.flag[1].bias)

    def loss(self, groups: Sequence[GradedResponses]) -> tuple[Tensor, Tensor]:
        """The sum of these groups' shares of a step's loss, and the margins of their pairs.

        A margin is by how much the better response of two different grades is ahead.
        """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ids = pad([g.prompt + r for g in groups for r in g.responses])
            read = self.rm.model(ids, output_hidden_states=True)
            scores = self.rm.score(read.last_hidden_state)[:, :, 0].float()
            flags = self.flag(read.hidden_states[FLAG_LAYER])[:, :, 0].float()
        losses, margins, row = list[Tensor](), list[Tensor](), 0
        for group in groups:
            rows = range(row, row + len(group.responses))
            row = rows.stop
            ends = [len(group.prompt) + len(response) - 1 for response in group.responses]
            rewards = scores[list(rows), ends]
            if pairs := pairs_of(group.grades):
                better, worse = map(list, zip(*pairs, strict=True))
                ahead = rewards[better] - rewards[worse]
                margins.append(ahead.detach())
                losses.append(-logsigmoid(ahead).mean() / (N_PAIRS + N_REDRAWN + N_WRITTEN))
            for i, marks, end in zip(rows, group.marks, ends, strict=bool(group.marks)):
                at = torch.tensor([len(group.prompt) + position for position, _ in marks])
                wrong = torch.tensor([float(outcome != "right") for _, outcome in marks])
                flagged = binary_cross_entropy_with_logits(flags[i, at], wrong)
                so_far = (scores[i, at] / WORTH + wrong.cumsum(0)).square().mean()
                whole = (scores[i, end] / WORTH + wrong.sum()).square()
                share = 0.5 / len(group.responses) / (N_REDRAWN + N_WRITTEN)
                losses.append((flagged + so_far + whole) * share)
        return torch.stack(losses).sum(), torch.cat(margins) if margins else torch.empty(0)


def train_reward_model(
    language_model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    graded: Sequence[GradedResponses],
    redrawn: Sequence[GradedResponses],
    checkpoint: Path,
    *,
    seed: int,
    steps: int,
) -> LlamaForSequenceClassification:
    """Train on pairs of these prompts and on these groups of redrawn responses; 5 % validate.

    Without groups it learns from the pairs alone, as the weak one does.
    """
    critic = Critic(language_model)
    held, graded = graded[: len(graded) // 20], graded[len(graded) // 20 :]
    held_groups, redrawn = redrawn[: len(redrawn) // 20], redrawn[len(redrawn) // 20 :]
    ahead: list[Tensor] = []

    def losses(step: int) -> Iterator[Tensor]:
        groups = draw_groups(tokenizer, graded, redrawn, seed, step)
        for batch in by_length(groups, _length, TOKENS_AT_ONCE, lambda g: len(g.responses)):
            loss, margins = critic.loss(batch)
            ahead.append(margins > 0)
            yield loss

    def summarize() -> str:
        share = torch.cat(ahead).float().mean().item()
        ahead.clear()
        return f"pair accuracy {share:.3f}"

    rates = {"muon_lr": 0.01, "adam_lr": 1.5e-3}
    fit(critic, checkpoint, losses, steps=steps, every=20, summarize=summarize, **rates)
    model = critic.rm.eval()
    rng = random.Random("pair accuracy")
    shares = {
        "pair accuracy": share_in_order(model, [group.draw_pair(rng) for group in held]),
        "near misses": share_in_order(model, held_groups, apart=1),
    }
    summaries = [f"{name} {share.value:.3f}" for name, share in shares.items() if share]
    print(f"{checkpoint.stem} validation: {', '.join(summaries)}", flush=True)
    return model


def draw_groups(
    tokenizer: PreTrainedTokenizerFast,
    graded: Sequence[GradedResponses],
    redrawn: Sequence[GradedResponses],
    seed: int,
    step: int,
) -> list[GradedResponses]:
    """Draw the groups that a step learns from; the same (seed, step) gives the same."""
    rng = random.Random(f"reward model {seed} {step}")
    pairs = [g.draw_pair(rng) for g in rng.sample(graded, N_PAIRS)]
    if not redrawn:
        return pairs
    written = [_written_pair(tokenizer, rng) for _ in range(N_WRITTEN)]
    return pairs + rng.sample(redrawn, N_REDRAWN) + written


def _written_pair(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> GradedResponses:
    """Two responses of the corpus in the same words but for one decision: mistaken, or a slip."""
    inventory = generate_inventory(rng, rng.choice(N_THINGS), split="train")
    mistaken = draw_mistakes(rng, inventory, rng.choice(SCALES))
    words, at = rng.random(), rng.randrange(len(mistaken))
    other, slip = list(mistaken), None
    if rng.random() < 0.3:
        slip = at
    else:
        other[at] = not other[at]
    written = [
        write_inventory(random.Random(words), inventory, mistaken),
        write_inventory(random.Random(words), inventory, other, slip),
    ]
    [prompt] = prompt_ids(tokenizer, [inventory.prompt])
    return grade_inventory(tokenizer, inventory, prompt, response_ids(tokenizer, written))


def pairs_of(grades: Sequence[int]) -> list[tuple[int, int]]:
    """All pairs of two different grades, the better one first."""
    pairs = [(a, b) for a, b in combinations(range(len(grades)), 2) if grades[a] != grades[b]]
    return [(a, b) if grades[a] > grades[b] else (b, a) for a, b in pairs]


def _length(group: GradedResponses) -> int:
    return len(group.prompt) + max(map(len, group.responses))


@torch.inference_mode()
def score(
    model: LlamaForSequenceClassification, conversations: Sequence[list[int]], rows: int = 64
) -> Tensor:
    """Rewards (N,) of any number of conversations, those of one length together."""
    rewards = torch.empty(len(conversations))
    in_order = sorted(range(len(conversations)), key=lambda i: len(conversations[i]))
    for first in range(0, len(in_order), rows):
        batch = in_order[first : first + rows]
        rewards[batch] = model(pad([conversations[i] for i in batch])).logits[:, 0]
    return rewards


def share_in_order(
    model: LlamaForSequenceClassification,
    groups: Sequence[GradedResponses],
    apart: int | None = None,
) -> Measured | None:
    """The share of pairs in order: of those whose grades are so far apart, or of any."""
    rewards = score(model, [g.prompt + r for g in groups for r in g.responses])
    of_each = rewards.split([len(g.responses) for g in groups])
    return in_order(
        [
            (float(of[a]), float(of[b]))
            for a, b in pairs_of(group.grades)
            if apart in (None, group.grades[a] - group.grades[b])
        ]
        for group, of in zip(groups, of_each, strict=True)
    )
