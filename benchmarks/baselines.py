"""The baselines of the engine, and the models that all are measured on.

Nothing here imports this project: the published chain runs the same code in its own environment.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

ASSETS = Path(__file__).resolve().parent.parent / "assets" / "models"
PROMPT = (  # 64 tokens
    "Anna owns 14 cookies. Grandma leaves 12 cookies on the table for her. 6 jars arrive, and "
    "every one holds 3 cookies. Over 3 days the pile grows by 6 cookies daily. She shares the "
    "cookies evenly with Tom and keeps one half. How many cookies does Anna have in the end?"
)
SIZES: dict[str, dict[str, int]] = {  # beside the embedded one
    "20M": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 11,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "vocab_size": 8192,
    },
    "135M": {  # the shape of SmolLM2-135M
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
}
LIMIT = 128  # new tokens of a response
ENDS = 100  # random weights end a response at every ENDS-th id, so after ENDS tokens on average


def pair_folders(size: str, folder: Path) -> tuple[Path, Path]:
    """Folders of a language model and a reward model; random weights are made on first use."""
    if size == "embedded":
        return ASSETS / "lm", ASSETS / "rm"
    paths = folder / f"{size}-lm", folder / f"{size}-rm"
    for path, kind in zip(paths, ("CausalLM", "SequenceClassification"), strict=True):
        if (path / "tokenizer.json").is_file():
            continue
        torch.manual_seed(0)
        shape = {**SIZES[size], "max_position_embeddings": 1024, "tie_word_embeddings": True}
        config = transformers.LlamaConfig(**shape, num_labels=1, pad_token_id=0, eos_token_id=2)
        model = getattr(transformers, f"AutoModelFor{kind}").from_config(config)
        model.save_pretrained(path)
        ends = list(range(2, SIZES[size]["vocab_size"], ENDS))
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        for name in ("tokenizer_config.json", "tokenizer.json"):
            shutil.copy(ASSETS / "lm" / name, path)  # last: its presence says that all is there
    return paths


def seconds(device: str) -> float:
    """CPU time of this process; where another device computes, the clock when it is done."""
    if device == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


class Pair:
    """A language model and a reward model of transformers, used as most code uses them."""

    def __init__(self, size: str, folder: Path, device: str = "cpu") -> None:
        self.device = device
        paths = pair_folders(size, folder)
        auto = transformers.AutoModelForCausalLM, transformers.AutoModelForSequenceClassification
        self.lm, self.rm = (
            kind.from_pretrained(path, dtype=torch.float32).to(device).eval()
            for kind, path in zip(auto, paths, strict=True)
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(paths[0])
        chat = [{"role": "user", "content": PROMPT}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        self.prompt: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        eos = self.lm.generation_config.eos_token_id
        self.eos = [eos] if isinstance(eos, int) else list(eos)

    @torch.inference_mode()
    def extend(self, prefixes: Sequence[list[int]], limits: Sequence[int]) -> list[list[int]]:
        """New ids after prompt and prefix, at most `limits` of them: one left-padded batch."""
        rows = [self.prompt + prefix for prefix in prefixes]
        width = max(map(len, rows))
        ids = self._tensor([[0] * (width - len(row)) + row for row in rows])
        mask = self._tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        most = self._tensor(limits)

        def at_its_limit(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return ids.shape[1] - width >= most

        out = self.lm.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max(limits),
            eos_token_id=self.eos,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([at_its_limit]),
        )
        return [self._cut(row, n) for row, n in zip(out[:, width:].tolist(), limits, strict=True)]

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, device=self.device)

    def _cut(self, new: list[int], limit: int) -> list[int]:
        end = next((k + 1 for k, token in enumerate(new) if token in self.eos), limit)
        return new[: min(end, limit)]

    @torch.inference_mode()
    def score(self, responses: Sequence[list[int]]) -> list[float]:
        """Rewards of whole conversations: one right-padded batch, nothing reused."""
        rows = [self.prompt + response for response in responses]
        width = max(map(len, rows))
        ids = self._tensor([row + [0] * (width - len(row)) for row in rows])
        mask = self._tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        logits = self.rm(input_ids=ids, attention_mask=mask).logits
        return logits[:, 0].tolist()  # type: ignore[no-any-return]

    @torch.inference_mode()
    def limit_s(self, repeats: int = 5) -> float:
        """Seconds of the bare chain of all linear layers for one token (GEMV), the median."""
        layers = [m for m in self.lm.modules() if isinstance(m, torch.nn.Linear)]
        inputs = [torch.randn(1, layer.in_features, device=self.device) for layer in layers]
        times = []
        for _ in range(repeats):
            start = seconds(self.device)
            for layer, x in zip(layers, inputs, strict=True):
                layer(x)
            times.append(seconds(self.device) - start)
        return statistics.median(times)


def lockstep(pair: Pair, n_chains: int, seed: int) -> Iterator[int]:
    """Chains in lockstep by `generate()` on whole sequences; yields the new tokens of each step.

    With one chain this is design A: everything is computed from scratch in every step.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    states = pair.extend([[]] * n_chains, [LIMIT] * n_chains)
    rewards = pair.score(states)
    yield sum(map(len, states))
    while True:
        prefixes = [state[: rng.integers(len(state))] for state in states]
        new = pair.extend(prefixes, [LIMIT - len(prefix) for prefix in prefixes])
        proposals = [prefix + suffix for prefix, suffix in zip(prefixes, new, strict=True)]
        for k, (proposal, reward) in enumerate(zip(proposals, pair.score(proposals), strict=True)):
            log_alpha = reward - rewards[k] + np.log(len(states[k]) / len(proposal))
            if np.log(rng.random()) < log_alpha:
                states[k], rewards[k] = proposal, reward
        yield sum(map(len, new))
