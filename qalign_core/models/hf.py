"""Any causal language model of transformers as a `LanguageModel`, on its own decode engine."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

from qalign_core.errors import InvalidPrompt, InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models import nets
from qalign_core.models.engine import Engine
from qalign_core.models.loading import Loaded, Pretrained
from qalign_core.models.text import Text
from qalign_core.models.worker import torch_threads
from qalign_core.types import Response, Sampling


class HFLanguageModel(Pretrained):
    """A causal LM as sampled. Views made by `with_sampling` share one engine.

    Attributes:
        id: the name that was loaded, for traces.
        revision: commit of the hub repository, or a hash of a folder's weights and tokenizer.
        sampling: temperature, top-p, top-k and limit; nothing else is ever applied.
        n_parameters: of the model, for FLOPs.
        context_length: prompt and response together (tokens).
        exact: whether a trajectory has the same bits in any company on this machine.
        engine: what runs it.
    """

    kind = "CausalLM"

    def __init__(
        self,
        loaded: Loaded,
        *,
        id: str,
        sampling: Sampling | None = None,
        rows: int = 16,
        window: int | None = None,
        cache_bytes: int = 256 * 2**20,
        threads: int = 1,
        max_queue: int = 4096,
    ) -> None:
        import torch

        config = loaded.model.config
        self.id = id
        self.revision = loaded.revision
        self.n_parameters = loaded.n_parameters
        self.context_length = _context(config, window or 1024)
        self._text: Text = loaded.text
        self._n_vocabulary = loaded.model.get_input_embeddings().weight.shape[0]
        eos = _eos_ids(loaded.model)
        if not eos:
            raise ModelLoadError(f"{id} names no end-of-sequence token, so responses would not end")
        try:
            with torch.inference_mode(), torch_threads(threads):
                net = nets.build(loaded.model, max(rows, nets.MIN_ROWS), self.context_length)
        except ValueError as error:
            raise ModelLoadError(
                f"{id} is not a decoder with full attention over a plain cache ({error}); "
                "choose another model"
            ) from error
        self.exact = net.exact
        self.engine = Engine(
            net,
            eos,
            name=id,
            cache_bytes=cache_bytes,
            threads=threads,
            max_queue=max_queue,
        )
        self.sampling = _checked(sampling or Sampling())

    @property
    def max_new_tokens(self) -> int:
        """The limit `L` on the length of a response, EOS included."""
        return self.sampling.max_new_tokens

    def with_sampling(self, sampling: Sampling) -> Self:
        """The same engine under other settings: another base distribution."""
        view = copy.copy(self)
        view.sampling = _checked(sampling)
        return view

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt `x`: chat template applied once, ending where the response begins.

        Raises:
            InvalidPrompt: empty, or prompt and response together exceed the context.
        """
        ids = self._text.prompt(prompt)
        self._check_length(len(ids))
        return ids

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Draw `y_{i:} ~ p_LM(. | x, y_{<i})` and return all of `y` (§MCMC for Text Generation).

        Raises:
            InvalidPrompt: prompt and response together exceed the context.
            ModelContractError: the prefix is as long as a response may be, or has ended.
            EngineError: the model failed; other requests go on.
        """
        self._check_length(len(prompt_ids))
        if len(prefix) >= self.max_new_tokens or not self.engine.eos.isdisjoint(prefix):
            raise ModelContractError(
                f"a prefix of {len(prefix)} ids cannot be continued: it must be shorter than "
                f"max_new_tokens = {self.max_new_tokens} and hold no end-of-sequence id"
            )
        if prompt_ids and not 0 <= min(prompt_ids) <= max(prompt_ids) < self._n_vocabulary:
            raise InvalidPrompt("the prompt holds ids outside the model's vocabulary; use encode()")
        done = await self.engine.complete(prompt_ids, prefix, sampling=self.sampling, seed=seed)
        tokens = (*prefix, *done.tokens)
        text, pieces = self._text.pieces(tokens)
        return Response(tokens, text, done.finished, pieces, done.work)

    def close(self) -> None:
        """Stop the engine and free its memory; requests that run or wait fail."""
        self.engine.close()

    def _check_length(self, n_prompt: int) -> None:
        if n_prompt == 0:
            raise InvalidPrompt("the prompt has no tokens; type a question or a task")
        if n_prompt + self.max_new_tokens > self.context_length:
            raise InvalidPrompt(
                f"the prompt has {n_prompt} tokens and the response may have "
                f"{self.max_new_tokens}, together more than the context of "
                f"{self.context_length}; shorten the prompt or lower max_new_tokens"
            )


def _context(config: Any, wanted: int) -> int:
    """Positions that the model can attend to in full, at most `wanted`."""
    limits = [wanted, getattr(config, "max_position_embeddings", None) or wanted]
    types = getattr(config, "layer_types", None) or ["sliding_attention"]
    window = getattr(config, "sliding_window", None)
    if window and "sliding_attention" in types and getattr(config, "use_sliding_window", True):
        limits.append(window)
    return min(limits)


def _eos_ids(model: Any) -> frozenset[int]:
    """Every id that ends a response: the generation config's, else the model config's."""
    for config in (model.generation_config, model.config):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()


def _checked(sampling: Sampling) -> Sampling:
    if not (sampling.temperature > 0 and math.isfinite(sampling.temperature)):
        raise InvalidSetting(f"temperature must be > 0, got {sampling.temperature}")
    if not 0 < sampling.top_p <= 1:
        raise InvalidSetting(f"top_p must be in (0, 1], 1 is off; got {sampling.top_p}")
    if sampling.top_k < 0:
        raise InvalidSetting(f"top_k must be >= 0, 0 is off; got {sampling.top_k}")
    if sampling.max_new_tokens < 1:
        raise InvalidSetting(f"max_new_tokens must be >= 1, got {sampling.max_new_tokens}")
    return sampling
