"""The decode engine, and the language model that draws on it: one batch for all requests.

Continuous batching over a fixed number of rows, one token per row and step. One engine per loaded
model, one thread that owns it. Requests from every chain, every user and the independent samples
wait in one queue that is fair between runs. A request takes a free row, copies what is kept of its
prefix, reads in the rest, and then gets one token a step until it ends; the row is refilled at
once. Cancelling takes effect at the next token.

A trajectory depends on its own seed and tokens only: uniforms are addressed by (seed, position),
and the net gives the same bits in every batch (`net_selection.verify`), so a result does not depend
on who else is using the machine.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qalign_core.errors import EngineError, InvalidPrompt, ModelLoadError
from qalign_core.models.chat import Completion, TemplatedLanguageModel, Text, rounded
from qalign_core.models.loading import CACHE_BYTES, Pretrained, eos_ids
from qalign_core.models.local import net_selection as nets
from qalign_core.models.local.prefix_cache import PrefixCache, n_equal
from qalign_core.models.local.rows import MIN_ROWS, Net
from qalign_core.models.local.worker import Job, Worker, as_engine_error, torch_threads
from qalign_core.protocols import OnToken, TokenScore
from qalign_core.run import Sampling
from qalign_core.validation import short_repr

SPARE_FROM, SPARE_ROWS = 50_000_000, 8
"""From this many parameters on, a step of this many rows takes little longer than one of 1 row."""


def uniforms(seed: int, start: int, stop: int) -> np.ndarray:
    """One number in [0, 1) for each position start..stop-1 of a response, addressed by `seed`.

    Raw Philox words (a stream that numpy promises never to change), 51 bits each: `u * total` is
    then always below `total`, so inverting a distribution function never runs off its end.
    """
    words: np.ndarray = np.random.Philox(key=seed % 2**64).random_raw(stop)[start:]
    return (words >> np.uint64(13)) * 2.0**-51


class _Row:
    """A response to continue: `filled` positions of `tokens` have keys and values."""

    def __init__(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        sampling: Sampling,
        seed: int,
        until: frozenset[int] = frozenset(),
        on_token: OnToken | None = None,
    ) -> None:
        self.job: Job
        self.until, self.on_token = until, on_token
        self.sampling = sampling
        self.tokens = [*prompt, *prefix]
        self.n_start = len(self.tokens)
        self.first = self.n_start - 1  # from here on the network's output is needed
        self.u = uniforms(seed, len(prefix), sampling.max_new_tokens).tolist()
        self.log_probs: list[float] = []
        self.filled = self.reused = 0
        self.started = False

    @property
    def due(self) -> int:
        """Tokens to read in before the row can decode."""
        return max(0, self.n_start - 1 - self.filled)

    def result(self) -> Any:
        """Return what the request receives."""
        return Completion(tuple(self.tokens[self.n_start :]), tuple(self.log_probs))


class _Reading(_Row):
    """A given response: it is read in chunks, and each token is scored."""

    def __init__(
        self, prompt: Sequence[int], response: Sequence[int], sampling: Sampling, top: int
    ) -> None:
        super().__init__(prompt, response, sampling, 0)
        self.first = len(prompt) - 1
        self.top = top
        self.others: list[list[tuple[int, float]]] = []
        self.entropies: list[float] = []

    def add_score(self, logits: Tensor) -> None:
        """Keep ln p of the response's next token, the entropy and the most probable tokens."""
        log_p = log_law(restrict(logits / self.sampling.temperature, self.sampling))
        self.entropies.append(float(torch.special.entr(log_p.exp()).sum()))
        best = log_p.topk(min(self.top, len(log_p)))
        likeliest = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.others.append([(token, value) for token, value in likeliest if value > -math.inf])
        token = self.tokens[self.first + len(self.log_probs) + 1]
        self.log_probs.append(float(log_p[token]))

    def result(self) -> Any:
        return list(zip(self.log_probs, self.others, self.entropies, strict=True))


class Engine(Worker):
    """Draws continuations. Memory of rows and cache is bounded and allocated once.

    Args:
        net: the model as steps over rows; one row is one request that runs.
        eos: every id that ends a response.
        cache_bytes: memory for kept keys and values.
        options: of `Worker`.

    Attributes:
        n_steps, n_tokens: decoding steps, and the tokens that they drew.
        n_processed, n_reused: positions run through the network, and those whose keys and values
            were there already: what the machine did, which is not what a run costs.
    """

    def __init__(self, net: Net, eos: frozenset[int], *, cache_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self.net, self.eos = net, eos
        position = net.width * net.dtype.itemsize
        n_slots = max(net.window, cache_bytes // position) if position else 0
        self.cache = PrefixCache(n_slots, net.width, dtype=net.dtype, device=net.device)
        self._rows: dict[int, _Row] = {}  # those that run, oldest first
        self.n_steps = self.n_tokens = self.n_processed = self.n_reused = 0

    async def complete(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
        until: frozenset[int] = frozenset(),
        on_token: OnToken | None = None,
    ) -> Completion:
        """Draw the rest of a response: at most `max_new_tokens - len(prefix)` new ids.

        The first EOS, or id of `until`, is the last. `on_token` is called in the caller's event
        loop with each new id, before the response is complete.
        """
        row = _Row(prompt, prefix, sampling, seed, until, on_token)
        completion: Completion = await self.submit(row)
        return completion

    async def score_tokens(
        self, prompt: Sequence[int], response: Sequence[int], *, sampling: Sampling, top: int
    ) -> list[tuple[float, list[tuple[int, float]], float]]:
        """Return per token of a response ln p as sampled, the `top` most probable, and the entropy.

        The entropy is that of the distribution in the token's place, in nats.
        """
        scores: list[tuple[float, list[tuple[int, float]], float]] = await self.submit(
            _Reading(prompt, response, sampling, top)
        )
        return scores

    def busy(self) -> bool:
        """Whether a row runs."""
        return bool(self._rows)

    def turn(self) -> None:
        """Refill free rows, read in at most one chunk, and decode one token a row."""
        for index, row in list(self._rows.items()):
            if row.job.cancelled:
                del self._rows[index]
        while len(self._rows) < self.net.rows and (job := self.take()) is not None:
            new_row: _Row = job.work
            new_row.job = job
            free = (index for index in range(self.net.rows) if index not in self._rows)
            self._rows[next(free)] = new_row
        self._read_in()
        self._decode()

    def abandon(self, error: BaseException) -> None:
        """Fail every request that runs."""
        for index in list(self._rows):
            self._fail(index, error)

    def _read_in(self) -> None:
        """Advance rows that are not yet read in, by at most one chunk in all."""
        spent = False
        for index, row in list(self._rows.items()):
            if not row.started:
                wanted = row.tokens[: row.first]
                slots = self.cache.match(wanted)
                n_shared, source = self._most_shared(wanted)
                known = max(len(slots), n_shared)
                if spent and known < len(wanted):
                    continue  # looked up again once the row before it is kept
                if n_shared > len(slots):
                    self.net.copy_in(index, self.net.copy_out(source, 0, n_shared))
                elif slots:
                    self.net.copy_in(index, self.cache.read(slots))
                row.filled = row.reused = known
                row.started = True
            if row.due:
                if spent:
                    continue
                spent = True
                stop = min(row.filled + self.net.chunk, row.n_start - 1)
                needed = max(stop - max(row.filled, row.first), 0)
                try:
                    read = row.tokens[row.filled : stop]
                    hidden = self.net.read_in(index, read, row.filled, needed=needed)
                    if not bool(hidden.isfinite().all()):
                        raise EngineError(_NOT_FINITE)
                    if isinstance(row, _Reading) and needed:
                        for logits in self._logits(hidden[-needed:]):
                            row.add_score(logits)
                except BaseException as error:
                    self._fail(index, as_engine_error(error))
                    continue
                row.filled = stop
                if isinstance(row, _Reading) and not row.due:
                    self._complete(index, row)
                elif not row.due:
                    self._keep(index, row)

    def _most_shared(self, tokens: Sequence[int]) -> tuple[int, int]:
        """How many of the first tokens a row that runs has keys and values of, and which row."""
        if not self.net.width:
            return 0, 0
        running = ((index, row) for index, row in self._rows.items() if row.started)
        shared = [(n_equal(row.tokens[: row.filled], tokens), index) for index, row in running]
        return max(shared, default=(0, 0))

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits [n, vocabulary]; few rows are padded, since they would round otherwise."""
        n = len(hidden)
        padding = 0, 0, 0, self.net.n_rows(n) - n
        return self.net.logits(torch.nn.functional.pad(hidden, padding))[:n]

    def _decode(self) -> None:
        rows = sorted(self._rows.items())
        ready = [(index, row) for index, row in rows if row.started and not row.due]
        if not ready:
            return
        try:
            new_tokens = self._draw(ready)
        except BaseException:  # whose request was it? alone, each has the same result
            new_tokens = {}
            for index, row in ready:
                try:
                    new_tokens |= self._draw([(index, row)])
                except BaseException as error:
                    self._fail(index, as_engine_error(error))
        for index, row in ready:
            if index not in new_tokens:
                continue
            token, log_p = new_tokens[index]
            if log_p != log_p:  # NaN
                self._fail(index, EngineError(_NOT_FINITE))
                continue
            row.filled += 1
            row.tokens.append(token)
            row.log_probs.append(log_p)
            if row.on_token is not None:
                self.call_later(row.job, partial(row.on_token, token))
            if token in self.eos or token in row.until or len(row.log_probs) == len(row.u):
                self._complete(index, row)

    def _draw(self, ready: list[tuple[int, _Row]]) -> dict[int, tuple[int, float]]:
        """The next token of each of these rows, and its ln p."""
        m = self.net.n_rows(ready[-1][0] + 1)
        tokens, positions = np.zeros(m, np.int64), np.full(m, -1)
        u, temperature = np.zeros(m), np.ones((m, 1))
        restricted = {}
        for index, row in ready:
            sampling = row.sampling
            tokens[index], positions[index] = row.tokens[-1], row.filled
            u[index] = row.u[len(row.log_probs)]
            temperature[index] = sampling.temperature
            if sampling.top_k or sampling.top_p < 1.0:
                restricted[index] = sampling
        logits = self.net.decode(tokens, positions, self._n_common([row for _, row in ready]))
        divisor, number = torch.from_numpy(temperature).to(logits), torch.from_numpy(u)
        number = number.to(logits.device)
        new: list[tuple[int, float]] = []
        n_at_once = max(1, _CACHED // logits.shape[1]) if logits.is_cpu else m
        for first in range(0, m, n_at_once):
            part = slice(first, first + n_at_once)
            rows = logits[part] / divisor[part]
            for index, sampling in restricted.items():
                if first <= index < first + n_at_once:
                    rows[index - first] = restrict(rows[index - first], sampling)
            token_ids, log_probs = draw(rows, number[part])
            new += zip(token_ids.tolist(), log_probs.tolist(), strict=True)
        self.n_steps += 1
        self.n_tokens += len(ready)
        return {index: new[index] for index, _ in ready}

    def _n_common(self, rows: list[_Row]) -> int:
        """How many tokens with keys and values several rows all begin with, if the net asks."""
        if len(rows) == 1 or not self.net.reads_common:
            return 0
        filled = [row.tokens[: row.filled] for row in rows]
        return n_equal(min(filled), max(filled))  # the others lie between these two in order

    def _complete(self, index: int, row: _Row) -> None:
        self._keep(index, row)
        self.n_processed += row.filled - row.reused
        self.n_reused += row.reused
        self.finish(row.job, row.result())
        del self._rows[index]

    def _keep(self, index: int, row: _Row) -> None:
        """Copy what a row holds, and the cache does not, to the cache."""
        known, slots = self.cache.reserve(row.tokens[: row.filled])
        if len(slots):
            self.cache.write(slots, self.net.copy_out(index, known, row.filled))

    def _fail(self, index: int, error: BaseException) -> None:
        self.finish(self._rows.pop(index).job, error)
        self.net.clear(index)


_CACHED = 2**18
"""Logits from which tokens are drawn at once on a CPU: few enough for its cache."""

_NOT_FINITE = (
    "the model computed numbers that are not finite; load it with a wider dtype such as float32"
)


def restrict(logits: Tensor, sampling: Sampling) -> Tensor:
    """Set to -inf what top-k, then top-p, exclude; logits [vocabulary], temperature applied."""
    if 0 < sampling.top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = logits.sort(descending=True, stable=True)
        p = ordered.softmax(-1, dtype=torch.float64)
        before = p.cumsum(-1) - p  # a token stays if those before it do not reach top_p
        logits = logits.index_fill(0, order[before >= sampling.top_p], -torch.inf)
    return logits


def draw(logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Invert the distribution function at u [m]: tokens [m] and their ln p [m], float64.

    A row whose logits are not finite gets ln p = NaN.
    """
    p = torch.softmax(logits, -1)
    cdf = p.cumsum(-1, dtype=torch.float64)
    total = cdf[:, -1:]
    token = torch.searchsorted(cdf, u[:, None] * total, right=True).clamp_max_(p.shape[-1] - 1)
    return token[:, 0], (p.gather(1, token).double() / total).log_()[:, 0]


def log_law(logits: Tensor) -> Tensor:
    """Natural log of the probability of every token [vocabulary], as `draw` inverts it; float64."""
    p = torch.softmax(logits, -1)
    return (p.double() / p.cumsum(-1, dtype=torch.float64)[-1]).log_()


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
    applies = frozenset({"temperature", "max_new_tokens", "top_p", "top_k"})

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
                "choose another model or dtype"
            ) from error
        self.exact = net.exact
        options = {"name": id, "threads": threads, "max_queue": max_queue}
        self.worker = self.engine = Engine(
            net, frozenset(self.eos), cache_bytes=cache_bytes, **options
        )

    @property
    def spare_rows(self) -> int | None:
        """How many rows may be added at little cost, since few run and the weights are large.

        A negative number says how many are too many; None that it is never worth it.
        """
        if not self.exact or self.n_parameters < SPARE_FROM:
            return None
        return min(SPARE_ROWS, self.engine.net.rows) - self.engine.n_open

    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int], on_token: OnToken | None
    ) -> Completion:
        if not 0 <= min(ids) <= max(ids) < self._n_vocabulary:
            raise InvalidPrompt(
                "the prompt contains ids outside the model's vocabulary; use encode()"
            )
        n_prompt = len(ids) + most - self.max_new_tokens
        return await self.engine.complete(
            ids[:n_prompt],
            ids[n_prompt:],
            sampling=self.sampling,
            seed=seed,
            until=until,
            on_token=on_token,
        )

    async def score_tokens(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], *, top: int = 3, first: int = 0
    ) -> tuple[TokenScore, ...]:
        """Return the score of each token of a response from `first` on, as sampled.

        Raises:
            InvalidPrompt: prompt and response exceed the context, or an id the vocabulary.
            EngineError: the model failed.
        """
        self._check_prompt(prompt_ids)
        self._check_response(tokens)
        if not (tokens and 0 <= min(tokens) <= max(tokens) < self._n_vocabulary):
            raise InvalidPrompt(
                f"a response has ids of the vocabulary, got {short_repr(list(tokens))}"
            )
        before = [*prompt_ids, *tokens[:first]]
        scores = await self.engine.score_tokens(
            before, tokens[first:], sampling=self.sampling, top=top
        )
        return tuple(
            TokenScore(
                rounded(log_p),
                tuple((self._text.piece(tokens[:at], id), p) for id, p in others),
                entropy,
            )
            for at, (log_p, others, entropy) in enumerate(scores, first)
        )
