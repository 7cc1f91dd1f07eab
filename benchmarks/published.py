"""The published chain (quest-decoding 1.0.16) on a pair of models, in an environment of its own.

Started by `benchmarks.chains`, not by hand: for each line "chains seconds seed" on its standard
input it runs so many chains so long and answers with a line of JSON. The package needs stand-ins to
be imported without a GPU (see `_import`); the chain itself is as published.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.baselines import LIMIT, Pair


def _import() -> tuple[Any, Any, Any]:
    """Import the chain's classes past what they ask for and do not need."""
    spec = importlib.util.find_spec("quest")
    assert spec is not None
    package = types.ModuleType("quest")  # its own __init__ imports trl and vLLM
    package.__path__ = list(spec.submodule_search_locations or [])
    prompts: Any = types.ModuleType("langchain.prompts")
    prompts.PromptTemplate = mock.MagicMock()
    sys.modules |= {"quest": package, "langchain": mock.MagicMock(), "langchain.prompts": prompts}
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: 0
    from quest.model.base import LanguageModel
    from quest.qalign import QAlign
    from quest.reward.base import Reward

    return QAlign, LanguageModel, Reward


class _TimeOver(Exception):  # the chain has no other way to end between two steps
    pass


def make(pair: Pair) -> Callable[[int, float], list[int]]:
    """The published chain around `pair`: runs until a CPU time, the new tokens of every step."""
    qalign, language_model, reward = _import()
    until = 0.0
    new_tokens: list[int] = []

    class Model(language_model):  # type: ignore[misc, valid-type]
        def encode(self, prompts: Any) -> Any:
            return [pair.prompt] * len(prompts)

        def decode_tokenize(self, rows: Any) -> Any:
            return [json.dumps(row) for row in rows]  # ids stand for text

        def continuation(self, prompt: Any, prefix: Any = None) -> Any:
            if time.process_time() > until:
                raise _TimeOver
            # every suffix may have the whole limit, as published
            new = pair.extend(prefix or [[]] * len(prompt), [LIMIT] * len(prompt))
            new_tokens.append(sum(map(len, new)))
            return new, [[0.0] * len(row) for row in new]

    class Score(reward):  # type: ignore[misc, valid-type]
        def evaluate(self, texts: Any, **_: Any) -> Any:
            return pair.score([json.loads(text) for text in texts])

    def run(n_chains: int, end: float) -> list[int]:
        nonlocal until, new_tokens
        until, new_tokens = end, []
        sampler = qalign([{}] * n_chains, Model(None), Score("rm"), beta=1.0)
        with contextlib.suppress(_TimeOver):
            sampler.run(steps=10**6)
        return new_tokens

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = make(Pair(options.size, options.folder))
    for line in sys.stdin:
        n_chains, seconds, seed = line.split()
        torch.manual_seed(int(seed))
        np.random.seed(int(seed))  # where it draws indices and verdicts
        start = time.process_time()
        new_tokens = run(int(n_chains), start + float(seconds))
        spent, steps = time.process_time() - start, len(new_tokens) * int(n_chains)
        answer = {"steps": steps, "tokens": sum(new_tokens), "seconds": spent}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
