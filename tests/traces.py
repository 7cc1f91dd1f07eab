"""Traces for the player's tests, written by the core: real chains and hostile texts."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any, TypeVar

from finite import TableReward, letters
from toys import ANSWER, PROMPT, ToyLM, ToyRM

from qalign_core import collect
from qalign_core.record.runner import record
from qalign_core.record.trace import Header
from qalign_core.run import Run
from qalign_study.exact.enumerable import EnumerableLM

H = TypeVar("H", bound=Header)

HOSTILE = (
    "</script><script>window.hit=1</script>",
    "${window.hit=2}",
    "{{7*7}}",
    "<img src=x onerror=window.hit=3>",
    "\u202eright to left\u2066",
    "😀🏳️‍🌈",
    "null\u0000byte",
    "x" * 10_000,
)


def with_run(header: H, **changes: Any) -> H:
    """A header with other settings of its run."""
    return replace(header, run=header.run.with_changes(**changes))


def toy_trace(steps: int = 32, *, seed: int = 7, beta: float = 1.0, chains: int = 1) -> str:
    """A finished run of the toy models."""
    run = Run(PROMPT, ANSWER, beta=beta, steps=steps, seed=seed, chains=chains, pool=32)
    lines = collect(record(ToyLM(), ToyRM(), run))
    return "".join(each.line for each in lines)


def sharper_trace(steps: int = 8) -> str:
    """A finished run whose target is of sharpness 2."""
    run = Run(PROMPT, sharpness=2.0, steps=steps, seed=2)
    return "".join(each.line for each in collect(record(letters(), TableReward(), run)))


def block_trace(steps: int = 24) -> str:
    """A finished run on texts of fields, as in `aab:b:a:`; half of the steps rewrite one field."""

    def next_token(prefix):  # a letter is mostly that before it; an empty field can end the text
        p_a = 0.5 if not prefix else (0.6, 0.5, 0.2)[prefix[-1]]
        colon, end = (0.4, 0.0) if prefix and prefix[-1] != 1 else (0.0, 0.45 * bool(prefix))
        letters = 1 - colon - end
        return [letters * p_a, colon, letters * (1 - p_a), end]

    lm = EnumerableLM(next_token, pieces=("a", ":", "b", "<eos>"), max_new_tokens=9)
    run = Run(PROMPT, beta=2.0, move="suffix+block(:)", extractor="text", steps=steps, seed=4)
    return "".join(each.line for each in collect(record(lm, TableReward(), run)))


def hostile_trace(extra: dict[str, object] | None = None) -> str:
    """Three steps whose prompt, tokens and answers try to break out of the text."""
    n = len(HOSTILE)
    header = {
        "type": "header", "version": 2, "lm": HOSTILE[3], "rm": HOSTILE[2], "prompt": HOSTILE[0],
        "beta": 1.0, "seed": 1, "steps": 2, "chains": 1, "reference": HOSTILE[3],
        "extractor": "text", **(extra or {}),
    }  # fmt: skip
    step = {
        "type": "step", "chain": 0, "index": 0, "tokens": list(range(n)), "pieces": list(HOSTILE),
        "finished": False, "reward": 0.0, "log_alpha": 0.0, "log_u": None, "accepted": True,
        "answer": HOSTILE[3], "cost": [n, n],
    }  # fmt: skip
    again = {"tokens": list(range(n, 2 * n)), "reward": 1.0, "log_u": -0.5}
    end = {"type": "end", "reason": "failed", "message": HOSTILE[3]}
    lines = [header, step | {"t": 0}, step | {"t": 1} | again, step | {"t": 2} | again, end]
    return "".join(json.dumps(line).replace("<", "\\u003c") + "\n" for line in lines)


def long_trace(length: int) -> str:
    """Four steps whose texts have `length` tokens each; the cuts lie in the middle."""
    header = {
        "type": "header", "version": 2, "lm": "lm", "rm": "rm", "prompt": "Tell a long story.",
        "beta": 1.0, "seed": 1, "steps": 3, "chains": 1,
    }  # fmt: skip
    lines: list[dict[str, object]] = [header]
    for t in range(4):
        index = t and length // 2 + 10 * t
        tokens = [100 * t + k for k in range(length - index)]
        lines.append({
            "type": "step", "chain": 0, "t": t, "index": index, "tokens": tokens,
            "pieces": [f" word{k}" for k in tokens], "finished": False, "reward": float(t),
            "log_alpha": 0.0, "log_u": None, "accepted": True,
        })  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def deep_trace(steps: int, length: int, seed: int = 1) -> str:
    """A chain over texts of `length` tokens: cuts anywhere, half of the proposals accepted."""
    rng = random.Random(seed)
    header = {
        "type": "header", "version": 2, "lm": "lm", "rm": "rm", "prompt": "Tell a long story.",
        "beta": 1.0, "seed": seed, "steps": steps, "chains": 1,
    }  # fmt: skip
    lines: list[dict[str, object]] = [header]
    for t in range(steps + 1):
        index = rng.randrange(length) if t else 0
        tokens = [rng.randrange(2000) for _ in range(length - index)]
        accepted = t == 0 or rng.random() < 0.5
        lines.append({
            "type": "step", "chain": 0, "t": t, "index": index, "tokens": tokens,
            "pieces": [f" w{k}" for k in tokens], "finished": False, "reward": float(accepted),
            "log_alpha": -0.5 if t else 0.0, "log_u": (-0.6 if accepted else -0.4) if t else None,
            "accepted": accepted,
        })  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def read_number(text: str) -> float:
    """Parse a number as pages write it: −0.25, 12,345, 2.1 × 10⁻⁵."""
    mantissa, _, power = text.replace("−", "-").replace(",", "").partition(" × 10")
    raised = power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    return float(f"{mantissa}e{raised or 0}")


def numbers(text: str) -> list[float]:
    """The numbers in a text, with a typographic minus."""
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]
