"""Measure the embedded models on held-out inventories.

The command is `python -m tools.embedded.inventories`.

Writes `assets/models/inventories.json` and the card's table of it. Pairs of
responses, as the chain compares them, are reported per kind of mistake: they share a prefix, the
language model itself drew the suffix from a uniform index, and they differ in one decision.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import torch
from transformers import AutoTokenizer

from qalign_core.assets import ASSETS
from qalign_study.sets.inventory import Inventory
from qalign_study.sets.seeded import held_out
from tools.embedded.decisions import read_decisions
from tools.embedded.networks import load_language_model, load_reward_model
from tools.embedded.on_policy import draw, redraw_suffixes
from tools.embedded.quality import replace_between
from tools.embedded.reward_model import score

SAMPLES = 16  # of each inventory
SUBSET = 6  # inventories; small enough for a test to measure again
CARD = ("<!-- inventories -->\n", "<!-- /inventories -->")


def measure(models: Path, inventories: Sequence[Inventory], samples: int, seed: int) -> dict:
    """All figures; the same seed gives the same ones on one machine."""
    model = load_language_model(models / "lm")
    tokenizer = AutoTokenizer.from_pretrained(models / "lm")
    generator = torch.Generator().manual_seed(seed)
    prompts = [inventory.prompt for inventory in inventories]
    _, responses, texts = draw(model, tokenizer, prompts, samples, generator)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    right = 0
    for n, text in enumerate(texts):
        inventory = inventories[n // samples]
        decided = [decision.outcome for decision in read_decisions(inventory, text)]
        right += decided.count("right") == len(decided)
        for event, outcome in zip(inventory.events, decided, strict=True):
            outcomes[event.kind][outcome] += 1
    return {
        "inventories": len(inventories),
        "samples": len(texts),
        "right": right,
        "tokens": sum(map(len, responses)) / len(responses),
        "cut_off": sum(ids[-1] != tokenizer.eos_token_id for ids in responses) / len(responses),
        "outcomes": {kind: dict(counts) for kind, counts in sorted(outcomes.items())},
        "near_misses": near_misses(models, inventories, seed),
    }


def near_misses(models: Path, inventories: Sequence[Inventory], seed: int) -> dict[str, list[int]]:
    """By kind of mistake: pairs that the reward orders rightly, and all pairs.

    A pair's responses differ in exactly one decision, which one of them has right; a mistake is
    named after its event, and anything else that goes wrong is a "slip".
    """
    model = load_language_model(models / "lm")
    tokenizer = AutoTokenizer.from_pretrained(models / "lm")
    reward_model = load_reward_model(models / "rm")
    groups = redraw_suffixes(model, tokenizer, inventories, random.Random(f"near misses {seed}"))
    rewards = score(reward_model, [group.prompt + r for group in groups for r in group.responses])
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    of_groups = rewards.split([len(group.responses) for group in groups])
    for inventory, group, of_group in zip(inventories, groups, of_groups, strict=True):
        marks = [[outcome for _, outcome in marked] for marked in group.marks]
        for a, b in combinations(range(len(marks)), 2):
            differ = [i for i, (x, y) in enumerate(zip(marks[a], marks[b], strict=True)) if x != y]
            if len(differ) != 1:
                continue
            both = {marks[a][differ[0]], marks[b][differ[0]]}
            if "right" not in both:
                continue
            kind = "slip" if "slip" in both else inventory.events[differ[0]].kind
            better, worse = (a, b) if marks[a][differ[0]] == "right" else (b, a)
            counts[kind][0] += bool(of_group[better] > of_group[worse])
            counts[kind][1] += 1
    return dict(sorted(counts.items()))


def table(quality: dict) -> str:
    """The figures as the card shows them."""
    lines = ["| | right, % | mistaken, % | slip, % | near misses in the right order, % |"]
    lines.append("|---|---|---|---|---|")
    ordered = quality["near_misses"]
    for kind, counts in quality["outcomes"].items():
        n = sum(counts.values())
        shares = (f"{100 * counts.get(o, 0) / n:.1f}" for o in ("right", "mistaken", "slip"))
        lines.append(f"| {kind} | {' | '.join(shares)} | {_share(ordered.get(kind))} |")
    lines.append(f"| slips | | | | {_share(ordered.get('slip'))} |")
    whole = [sum(column) for column in zip(*ordered.values(), strict=True)]
    lines.append(f"| **all** | | | | **{_share(whole)}** |")
    return "\n".join(lines) + "\n"


def _share(counted: Sequence[int] | None) -> str:
    return f"{100 * counted[0] / counted[1]:.1f} of {counted[1]:,}" if counted else ""


def main() -> None:
    """Measure all inventories and the subset; write the file and the card's table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    models = ASSETS / "models"
    inventories = held_out("inventory", seed=0)
    quality = measure(models, inventories, SAMPLES, seed=0)
    quality["subset"] = measure(models, inventories[:SUBSET], SAMPLES, seed=1)
    path = models / "inventories.json"
    path.write_text(json.dumps(quality, indent=1) + "\n", encoding="utf-8")
    print(table(quality))
    replace_between(models / "README.md", *CARD, table(quality))


if __name__ == "__main__":
    main()
