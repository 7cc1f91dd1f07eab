"""Measure the shipped models on the problem sets: `python -m tools.embedded.quality`.

Writes `assets/models/quality.json` and the table of the card, which is made of it. Intervals
are 95 %, over problems (the problem is the unit: samples of one problem are not independent).
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

from qalign_core.assets import ASSETS
from qalign_core.decide.answers.extraction import extract_number
from qalign_core.types import Array
from qalign_study.measure.intervals import Measured, share_of
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.train.preferences import in_order
from tools.embedded.networks import load_language_model, load_reward_model
from tools.embedded.on_policy import draw, grade
from tools.embedded.reward_model import pairs_of, score

SETS = ("in_distribution", "shifted", "long", "writing")
SAMPLES = {"in_distribution": 64, "shifted": 16, "long": 16, "writing": 16}  # a problem
SCORED = 16  # of the samples of a problem, those that the reward models rank
MOVED = 4  # of the samples of a problem, those from which the chain's proposals are judged
# Small enough for a test to measure again.
SUBSET, SUBSET_SAMPLES = 12, 8
SUBSETS = ("in_distribution", "shifted", "writing")
CARD = ("<!-- quality -->\n", "<!-- /quality -->")


def measure(models: Path, tasks: Sequence[Problem], *, samples: int, seed: int) -> dict:
    """All figures of one problem set; the same seed gives the same ones on one machine."""
    model = load_language_model(models / "lm")
    tokenizer = AutoTokenizer.from_pretrained(models / "lm")
    generator = torch.Generator().manual_seed(seed)
    texts = [task.prompt for task in tasks]
    prompts, responses, texts = draw(model, tokenizer, texts, samples, generator)
    of_problem = np.arange(len(texts)).reshape(len(tasks), samples)
    graded = [
        grade(tasks[k // samples].check or tasks[k // samples], text)
        for k, text in enumerate(texts)
    ]
    grades = np.array(graded).reshape(of_problem.shape)

    best = 1 if tasks[0].check is None else 3
    figures: dict = {
        "problems": len(tasks),
        "samples": samples,
        "single_sample": _figure(share_of((grades == best).mean(axis=1))),
        "any_right": float((grades == best).any(axis=1).mean()),
        "tokens": statistics.mean(map(len, responses)),
        "cut_off": statistics.mean(ids[-1] != tokenizer.eos_token_id for ids in responses),
        "distinct": statistics.mean(len({texts[k] for k in row}) / samples for row in of_problem),
    }
    if best == 1:
        answers = [extract_number(text) for text in texts]
        votes = [Counter(answers[k] for k in row if answers[k]) for row in of_problem]
        common = [vote.most_common(1)[0][0] if vote else None for vote in votes]
        wrong = [float(a != task.answer) for a, task in zip(common, tasks, strict=True)]
        figures["no_answer"] = statistics.mean(answer is None for answer in answers)
        figures["most_common_wrong"] = _figure(share_of(wrong))

    same = [_same_proposal(model, prompts[k], responses[k]) for k in of_problem[:, :MOVED].flat]
    figures["same_proposal"] = statistics.mean(same)

    whole = [prompts[k] + responses[k] for k in of_problem[:, :SCORED].flat]
    for name in ("rm", "rm-weak"):
        rewards = score(load_reward_model(models / name), whole).view(len(tasks), -1)
        figures[name] = _pair_accuracy(rewards, grades[:, :SCORED])
    return figures


@torch.inference_mode()
def _same_proposal(model: LlamaForCausalLM, prompt: list[int], response: list[int]) -> float:
    """The exact probability that the chain proposes the very response that it is at.

    The index is uniform, and the suffix comes back with the probability that the LM gives it.
    """
    ids = torch.tensor([prompt + response])
    log_probs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    of_token = log_probs.gather(1, ids[0, len(prompt) :, None])[:, 0]
    return of_token.flip(0).cumsum(0).exp().mean().item()


def _pair_accuracy(rewards: Tensor, grades: Array) -> dict:
    """Return the share of each problem's pairs in order, from shape [problems, samples]."""
    rows = zip(rewards.tolist(), grades.tolist(), strict=True)
    share = in_order([(of[a], of[b]) for a, b in pairs_of(row)] for of, row in rows)
    assert share is not None
    spread = statistics.mean(rewards.std(dim=1).tolist())
    return _figure(share) | {"problems": share.n, "spread": spread}


def _figure(share: Measured) -> dict:
    return {"mean": share.value, "low": share.low, "high": share.high}


def replace_between(card: Path, begin: str, end: str, table: str) -> None:
    """Put a table between two markers of the card."""
    text = card.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    card.write_text(before + begin + table + end + after, encoding="utf-8")


def table(quality: dict) -> str:
    """The figures as the card shows them."""

    def percent(share: float) -> str:
        return f"{100 * share:.1f}"

    def interval(figure: dict | None) -> str:
        if figure is None:
            return ""
        return f"{percent(figure['mean'])} ({percent(figure['low'])}-{percent(figure['high'])})"

    sets = quality["sets"]
    rows: list[tuple[str, Callable[[dict], str]]] = [
        ("problems x samples", lambda f: f"{f['problems']} x {f['samples']}"),
        ("**one sample right**, %", lambda f: interval(f["single_sample"])),
        ("any sample right, %", lambda f: percent(f["any_right"])),
        (
            "most common answer of the samples wrong, % of problems",
            lambda f: interval(f.get("most_common_wrong")),
        ),
        ("**RM pair accuracy**, %", lambda f: interval(f.get("rm"))),
        ("weak RM pair accuracy, %", lambda f: interval(f["rm-weak"])),
        ("problems with a pair", lambda f: str(f.get("rm", {}).get("problems", ""))),
        ("RM's standard deviation within a problem", lambda f: f"{f['rm']['spread']:.2f}"),
        ("tokens per response", lambda f: f"{f['tokens']:.1f}"),
        ("cut off at the limit, %", lambda f: f"{100 * f['cut_off']:.2f}"),
        ("no answer, %", lambda f: f"{100 * f['no_answer']:.2f}" if "no_answer" in f else ""),
        ("distinct among the samples, %", lambda f: percent(f["distinct"])),
        ("proposals equal to the state, %", lambda f: percent(f["same_proposal"])),
    ]
    lines = ["| | " + " | ".join(name.replace("_", " ") for name in sets) + " |"]
    lines.append("|---" * (len(sets) + 1) + "|")
    for label, cell in rows:
        lines.append(f"| {label} | " + " | ".join(cell(f) for f in sets.values()) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every set, write quality.json and the card's table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ASSETS / "models")
    parser.add_argument("--samples", type=int, help=f"a problem (default {SAMPLES})")
    parser.add_argument("--problems", type=int, help="the first so many of each set (default all)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = options.models / "quality.json"
    quality: dict = {"seed": options.seed, "sets": {}, "subset": {}}
    for name in SETS:
        print(name)
        tasks = load_problems(name)[: options.problems]
        samples, seed = options.samples or SAMPLES[name], options.seed
        quality["sets"][name] = measure(options.models, tasks, samples=samples, seed=seed)
        if name in SUBSETS:
            few = tasks[:SUBSET]
            quality["subset"][name] = measure(
                options.models, few, samples=SUBSET_SAMPLES, seed=seed
            )
        # after each set: an interrupted run is not lost
        path.write_text(json.dumps(quality, indent=1) + "\n", encoding="utf-8")
    print(table(quality))
    if (card := options.models / "README.md").exists():
        replace_between(card, *CARD, table(quality))


if __name__ == "__main__":
    main()
