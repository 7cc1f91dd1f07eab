"""Any causal language model of transformers as a `LanguageModel`, on its own decode engine."""

from collections.abc import Sequence
from typing import Any

import torch

from qalign_core.errors import InvalidPrompt, ModelLoadError
from qalign_core.models.chat import TemplatedLanguageModel, Text
from qalign_core.models.loading import CACHE_BYTES, Pretrained, eos_ids
from qalign_core.models.local import choice as nets
from qalign_core.models.local.engine import Engine
from qalign_core.models.local.rows import MIN_ROWS
from qalign_core.models.local.worker import torch_threads
from qalign_core.run import Sampling


class HFLanguageModel(TemplatedLanguageModel, Pretrained):
    """A causal LM as sampled. Views made by `with_sampling` share one engine.

    Attributes:
        id: the name that was loaded, for traces.
        sampling: temperature, top-p, top-k and limit; nothing else is ever applied.
        context_length: prompt and response together (tokens).
        exact: whether a trajectory has the same bits in any company on this machine.
        engine: what runs it.
    """

    kind, rows, window = "CausalLM", 16, 1024

    def __init__(
        self,
        model: Any,
        text: Text,
        *,
        id: str,
        sampling: Sampling | None = None,
        rows: int = 16,
        window: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        threads: int = 1,
        max_queue: int = 4096,
    ) -> None:
        wanted = window or type(self).window
        super().__init__(
            text,
            eos_ids(model.generation_config) or eos_ids(model.config),
            id=id,
            context=min(wanted, getattr(model.config, "max_position_embeddings", None) or wanted),
            sampling=sampling,
        )
        self._n_vocabulary = model.get_input_embeddings().weight.shape[0]
        try:
            with torch.inference_mode(), torch_threads(threads):
                net = nets.build(model, max(rows, MIN_ROWS), self.context_length)
        except ValueError as error:
            raise ModelLoadError(
                f"{id} does not give the same logits token by token as at once ({error}); "
                "choose another model"
            ) from error
        self.exact = net.exact
        options = {"name": id, "threads": threads, "max_queue": max_queue}
        self.worker = self.engine = Engine(
            net, frozenset(self.eos), cache_bytes=cache_bytes, **options
        )

    async def _draw(self, ids: list[int], most: int, seed: int) -> tuple[Sequence[int], bool]:
        if not 0 <= min(ids) <= max(ids) < self._n_vocabulary:
            raise InvalidPrompt("the prompt holds ids outside the model's vocabulary; use encode()")
        n_prompt = len(ids) + most - self.max_new_tokens
        done = await self.engine.complete(
            ids[:n_prompt], ids[n_prompt:], sampling=self.sampling, seed=seed
        )
        return done.tokens, done.finished
