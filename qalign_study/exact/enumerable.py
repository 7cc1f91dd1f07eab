"""A finite language model: every response and its probability can be written down.

It keeps the same contract as a real model, so the whole engine can be checked against exact sums.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from qalign_core.chain.randomness import derive_uniform
from qalign_core.errors import InvalidSetting, ModelContractError
from qalign_core.protocols import TokenScore
from qalign_core.run import Sampling
from qalign_core.types import Array, Response

Tokens = tuple[int, ...]


class EnumerableLM:
    """A language model over a few tokens, with its exact probabilities.

    Args:
        next_token: maps a prefix (ids, no EOS) to the probabilities of the next id, shape
            [len(pieces)]; they must be >= 0 and sum to 1.
        pieces: the text of each id; the last id is the EOS.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
        id: name for traces and errors.

    Attributes:
        eos: id of the end-of-sequence token, `len(pieces) - 1`.
        support: every response of positive probability, in depth-first order.
        probabilities: their probabilities, shape [len(support)]; they sum to 1.

    Raises:
        InvalidSetting: the probabilities of some prefix are not a distribution.
    """

    n_parameters = 0
    revision = ""

    def __init__(
        self,
        next_token: Callable[[Tokens], Sequence[float]],
        *,
        pieces: Sequence[str],
        max_new_tokens: int,
        id: str = "enumerable",
    ) -> None:
        if max_new_tokens < 1 or len(pieces) < 1:
            raise InvalidSetting(
                "an enumerable LM needs at least one token and max_new_tokens >= 1, "
                f"got {len(pieces)} and {max_new_tokens}"
            )
        self.id = id
        self.pieces = tuple(pieces)
        self.eos = len(pieces) - 1
        self.max_new_tokens = max_new_tokens
        self.sampling = Sampling(max_new_tokens=max_new_tokens)
        self._next_token = next_token
        self._tables: dict[Tokens, Array] = {}
        self._entropies: dict[Tokens, float] = {}
        self._responses: dict[Tokens, Response] = {}
        completions = list(self.completions((), max_new_tokens))
        self.support = tuple(self.response(tokens) for tokens, _ in completions)
        self.probabilities = np.array([p for _, p in completions])

    @classmethod
    def markov(
        cls,
        start: Sequence[float],
        transitions: Sequence[Sequence[float]],
        *,
        pieces: Sequence[str],
        max_new_tokens: int,
        id: str = "markov",
    ) -> Self:
        """A first-order model: `start` [V] for the first id, `transitions` [V-1, V] after each."""

        def next_token(prefix: Tokens) -> Sequence[float]:
            return transitions[prefix[-1]] if prefix else start

        return cls(next_token, pieces=pieces, max_new_tokens=max_new_tokens, id=id)

    @classmethod
    def from_responses(
        cls, responses: Mapping[Tokens, float], *, pieces: Sequence[str], id: str = "table"
    ) -> Self:
        """A model with exactly these responses (ids, EOS last), weighted by any positive numbers.

        A response without EOS is one that the limit cut, so it must be as long as the longest.
        """
        total = float(sum(responses.values()))
        mass: dict[Tokens, float] = {}
        for tokens, weight in responses.items():
            for end in range(len(tokens) + 1):
                mass[tokens[:end]] = mass.get(tokens[:end], 0.0) + weight / total

        def next_token(prefix: Tokens) -> Sequence[float]:
            return [mass.get((*prefix, token), 0.0) / mass[prefix] for token in range(len(pieces))]

        longest = max(len(tokens) for tokens in responses)
        return cls(next_token, pieces=pieces, max_new_tokens=longest, id=id)

    def next_token_probabilities(self, prefix: Sequence[int]) -> Array:
        """Probabilities of the next id after `prefix` (ids, no EOS), shape [V].

        Raises:
            InvalidSetting: they are not a distribution.
        """
        key = tuple(prefix)
        table = self._tables.get(key)
        if table is None:
            table = np.asarray(self._next_token(key), dtype=np.float64)
            if (
                table.shape != (len(self.pieces),)
                or np.any(table < 0)
                or not np.isclose(table.sum(), 1.0, atol=1e-9)
            ):
                raise InvalidSetting(
                    f"after {self.text(key)!r} the next-token probabilities are {table.tolist()}; "
                    f"{len(self.pieces)} numbers >= 0 that sum to 1 were expected"
                )
            table = table / table.sum()
            self._tables[key] = table
        return table

    def suffix_probability(self, tokens: Sequence[int], index: int) -> float:
        """p_LM(y_{i:} | x, y_{<i}): the product of the ids' probabilities from `index` on."""
        after = self.next_token_probabilities
        return math.prod(float(after(tokens[:k])[tokens[k]]) for k in range(index, len(tokens)))

    def response(self, tokens: Sequence[int]) -> Response:
        """The response with these ids; it is finished iff the last one is the EOS."""
        tokens = tuple(tokens)
        known = self._responses.get(tokens)
        if known is None:
            known = self._responses[tokens] = Response(
                tokens=tokens,
                text=self.text(tokens),
                finished=bool(tokens) and tokens[-1] == self.eos,
                pieces=tuple(self.pieces[token] for token in tokens),
                log_probs=tuple(self._log_prob(tokens[:k], t) for k, t in enumerate(tokens)),
            )
        return known

    def _log_prob(self, prefix: Tokens, token: int) -> float:
        p = float(self.next_token_probabilities(prefix)[token])
        return math.log(p) if p else -math.inf

    def text(self, tokens: Sequence[int]) -> str:
        """The ids as text, without the EOS."""
        return "".join(self.pieces[token] for token in tokens if token != self.eos)

    def encode(self, prompt: str) -> tuple[int, ...]:
        """No ids: a finite model answers every prompt alike."""
        return ()

    def delimiters(self, text: str) -> frozenset[int]:
        """Every id whose text contains this one.

        Raises:
            InvalidSetting: there is none.
        """
        ids = frozenset(at for at, piece in enumerate(self.pieces[:-1]) if text in piece)
        if not ids:
            raise InvalidSetting(f"no token of {self.id} contains {text!r}; choose a delimiter")
        return ids

    async def score_tokens(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], *, top: int = 0, first: int = 0
    ) -> tuple[TokenScore, ...]:
        """The exact probability of each id from number `first` on, and the entropy in its place."""
        log_probs = self.response(tokens).log_probs
        return tuple(
            TokenScore(log_probs[at], (), self.entropy(tokens[:at]))
            for at in range(first, len(tokens))
        )

    def entropy(self, prefix: Sequence[int]) -> float:
        """Entropy of the next id after `prefix`, in nats."""
        key = tuple(prefix)
        known = self._entropies.get(key)
        if known is None:
            p = self.next_token_probabilities(key)
            known = self._entropies[key] = float(-(p[p > 0] * np.log(p[p > 0])).sum())
        return known

    async def extend(
        self,
        prompt_ids: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        until: frozenset[int] = frozenset(),
    ) -> Response:
        """Draw the rest of a response by inverse CDF, one addressed uniform a position."""
        tokens = tuple(prefix)
        if len(tokens) >= self.max_new_tokens or self.eos in tokens:
            raise ModelContractError(
                f"{self.id} cannot extend a prefix of {len(tokens)} tokens: it must hold no EOS "
                f"and fewer than {self.max_new_tokens} tokens"
            )
        while len(tokens) < self.max_new_tokens:
            cumulative = np.cumsum(self.next_token_probabilities(tokens))
            u = derive_uniform(seed, 0, len(tokens), "token") * cumulative[-1]
            tokens += (int(np.searchsorted(cumulative, u, side="right")),)
            if tokens[-1] == self.eos or tokens[-1] in until:
                break
        return self.response(tokens)

    def completions(
        self, prefix: Tokens, limit: int, p: float = 1.0, until: frozenset[int] = frozenset()
    ) -> Iterator[tuple[Tokens, float]]:
        """Every way to go on from a prefix, and `p` times its p_LM.

        A way ends with an EOS, an id of `until`, or at `limit` ids.
        """
        table = self.next_token_probabilities(prefix)
        for token in np.flatnonzero(table):
            tokens, p_token = (*prefix, int(token)), p * float(table[token])
            if token == self.eos or token in until or len(tokens) == limit:
                yield tokens, p_token
            else:
                yield from self.completions(tokens, limit, p_token, until)
