"""Sequence-classification models of transformers as reward models: the raw logit, in float32.

Sequences are scored one at a time and never padded or cut, so neither company nor padding can
change a score. Llama-shaped models keep the keys and values of what they have read: a proposal
costs only its new suffix.
"""

import contextlib
import math
from typing import Any

import torch

from qalign_core.chain.cost import reads_all, reads_on
from qalign_core.models.chat import Text
from qalign_core.models.loading import CACHE_BYTES, Pretrained
from qalign_core.models.local.int8 import pack
from qalign_core.models.local.llama_net import LlamaNet, build_llama
from qalign_core.models.local.net_selection import UNFIT, random_prefixes, tolerance
from qalign_core.models.local.prefix_cache import PrefixCache
from qalign_core.models.local.worker import Worker, torch_threads
from qalign_core.rewards.templated import TemplatedRewardModel


class _Scorer(Worker):
    """Scores one sequence a turn, with the model's own forward."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(**options)
        self._model = model

    def turn(self) -> None:
        if (job := self.take()) is not None:
            self.finish(job, self.compute(job.work))

    def compute(self, tokens: tuple[int, ...]) -> float:
        """The logit of a whole sequence."""
        ids = torch.tensor([tokens], device=self._model.device)
        logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        return float(logits.float().item())


class _PrefixScorer(_Scorer):
    """Scores with `LlamaNet`; what was read before is taken from a cache."""

    def __init__(self, model: Any, *, window: int, cache_bytes: int, **options: Any) -> None:
        super().__init__(None, **options)
        net = self.net = build_llama(model, 1, window)
        self._weight = model.score.weight.detach()[0].float().clone()
        self._pad = model.config.pad_token_id
        n_slots = max(window, cache_bytes // (net.width * 4))
        self.cache = PrefixCache(n_slots, net.width, dtype=net.dtype, device=net.device)
        self.n_processed = self.n_reused = 0  # what the machine did, not what a run costs

    def compute(self, tokens: tuple[int, ...]) -> float:
        # transformers pools the last id that is not padding, wherever it stands
        end = len(tokens)
        while end > 1 and tokens[end - 1] == self._pad:
            end -= 1
        tokens = tokens[:end]
        net, cache = self.net, self.cache
        slots = cache.match(tokens[:-1])
        known = len(slots)
        if slots:
            net.copy_in(0, cache.read(slots))
        for at in range(known, end, net.chunk):
            hidden = net.read_in(0, tokens[at : at + net.chunk], at)
        value = float(hidden[-1].float() @ self._weight)
        if math.isfinite(value):
            kept, new = cache.reserve(tokens[:-1])
            if len(new):
                cache.write(new, net.copy_out(0, kept, end - 1))
        else:
            net.clear(0)
        self.n_processed += end - known
        self.n_reused += known
        return value


class HFRewardModel(TemplatedRewardModel, Pretrained):
    """A sequence-classification model with one output.

    Args:
        score_ids: as in `TemplatedRewardModel`.
    """

    kind, window = "SequenceClassification", 2048

    def __init__(
        self,
        model: Any,
        text: Text,
        *,
        id: str,
        score_ids: bool = False,
        window: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        threads: int = 1,
        max_queue: int = 4096,
    ) -> None:
        context = int(min(_positions(model), window or type(self).window))
        super().__init__(text, id=id, context=context, score_ids=score_ids)
        options: dict[str, Any] = {"name": id, "threads": threads, "max_queue": max_queue}
        self.worker: _Scorer = _Scorer(model, **options)
        probe = tuple(1 + place % 11 for place in range(min(24, context)))
        with contextlib.suppress(*UNFIT), torch.inference_mode(), torch_threads(threads):
            fast = _PrefixScorer(model, window=context, cache_bytes=cache_bytes, **options)
            # with constant shapes the bits are the same, whatever was read before
            fast.net.fixed = not _same_in_any_length(fast.net, probe)
            expected = self.worker.compute(probe)
            if abs(expected - fast.compute(probe)) <= tolerance(model) * max(1.0, abs(expected)):
                self.worker = fast
        if not isinstance(self.worker, _PrefixScorer):
            pack(model)
        self.n_read = reads_on if isinstance(self.worker, _PrefixScorer) else reads_all

    async def _logit(self, ids: tuple[int, ...]) -> float:
        reward: float = await self.worker.submit(ids)
        return reward


def _same_in_any_length(net: LlamaNet, tokens: tuple[int, ...]) -> bool:
    """Whether a token's hidden state has the same bits however many tokens are read with it."""
    whole = net.read_in(0, tokens, 0).clone()
    lengths = range(1, len(tokens))
    same = all(torch.equal(net.read_in(0, tokens[:n], 0), whole[:n]) for n in lengths)
    for start in random_prefixes(net):
        one = net.read_in(0, tokens[:1], start).clone()
        many = net.read_in(0, tokens[: net.window - start], start)
        same = same and torch.equal(one, many[:1])
    net.release()
    return same


def _positions(model: Any) -> float:
    """How many tokens the model has positions for."""
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(module.num_embeddings - padding - 1)  # RoBERTa counts from behind padding
    return getattr(model.config, "max_position_embeddings", None) or math.inf
