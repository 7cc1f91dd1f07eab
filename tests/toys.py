"""A toy language model and reward model: real chains for the app's tests, with nothing to load.

The language model writes a worked solution of one word problem sentence by sentence; in each place
it chooses among a few wordings, some of them wrong. The reward model likes right steps.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence

from qalign_core.rewards.functions import CompositeReward
from qalign_core.rewards.names import reward_named
from qalign_core.types import Response

PROMPT = (
    "Maya has 6 shells. She finds 3 bags with 4 shells in each. "
    "Her brother is 9 years old. How many shells does Maya have now?"
)
ANSWER = "18"

# (weight, reward, text) of the choices in each place; choices of one place differ in their first
# words or later, so that a kept prefix always says which are still possible.
PLACES: tuple[tuple[tuple[float, float, str], ...], ...] = (
    ((3, 0.1, "Maya starts with 6 shells."), (2, 0.0, "At first there are 6 shells."),
     (2, 0.2, "We begin with 6.")),
    ((4, 1.2, " The bags hold 3 x 4 = 12 shells."), (4, -1.1, " The bags add 3 + 4 = 7 shells."),
     (2, 1.0, " 3 bags of 4 make 12.")),
    ((4, 0.4, " Her brother's age does not matter."), (4, -0.9, " Then we add the 9 as well."),
     (1, 0.1, " The 9 is not about shells.")),
    ((2, 0.0, " So she has"), (2, 0.1, " Together that is"), (1, -0.1, " In all we get")),
    ((4, 1.0, " 6 + 12 = 18."), (3, -0.5, " 6 + 7 + 9 = 22."), (2, -0.4, " 6 + 7 = 13."),
     (1, -0.6, " 6 + 12 + 9 = 27.")),
)  # fmt: skip
FINALS = {"18.": "18", "22.": "22", "13.": "13", "27.": "27"}


def _pieces(text: str) -> list[str]:
    return re.findall(r" ?\d|\s?[^\s\d.]+|\.|\s", text)


_PLACES = [[(w, r, _pieces(text)) for w, r, text in place] for place in PLACES]
_ENDS = {a: _pieces(f" The answer is {a}.") for a in FINALS.values()}
_WORDS = {p for place in _PLACES for _, _, ps in place for p in ps}
VOCABULARY = ["<eos>", *sorted(_WORDS.union(*_ENDS.values()))]
_ID = {piece: k for k, piece in enumerate(VOCABULARY)}


class ToyLM:
    """Writes solutions of `PROMPT`, whatever the prompt; `delay` seconds a call."""

    def __init__(self, delay: float = 0.0, max_new_tokens: int = 128) -> None:
        self.id = "toy"
        self.max_new_tokens = max_new_tokens
        self.delay = delay

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(prompt.encode()[:64])

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        if self.delay:
            await asyncio.sleep(self.delay)
        rng = random.Random(seed)
        out = [VOCABULARY[k] for k in prefix]
        at = 0
        for place in _PLACES:
            fits = [(w, ps) for w, _, ps in place if ps[: len(out) - at] == out[at : at + len(ps)]]
            pieces = rng.choices([ps for _, ps in fits], [w for w, _ in fits])[0]
            out[at:] = pieces + out[at + len(pieces) :]
            at += len(pieces)
        end = _ENDS[FINALS["".join(out).rsplit("= ", 1)[1].split(" The")[0]]]
        out[at:] = end
        tokens = (*(_ID[p] for p in out), 0)[: self.max_new_tokens]
        finished = tokens[-1] == 0
        pieces_out = tuple(VOCABULARY[k] for k in tokens)
        text = "".join(p for p in pieces_out if p != "<eos>")
        return Response(tokens, text, finished, pieces_out)


class ToyRM:
    """Adds up the worth of the sentences that a response contains."""

    id = "toy-reward"

    async def score(self, prompt: str, response: Response) -> float:
        rewards = [r for place in PLACES for _, r, text in place if text.strip() in response.text]
        return float(sum(rewards)) + 0.001 * len(response)


def toy_reward(id: str) -> ToyRM | CompositeReward:
    """The toy reward model, or as many of it as a weighted sum names."""
    parts = reward_named(id).parts
    if len(parts) == 1:
        return ToyRM()
    return CompositeReward([(ToyRM(), weight) for weight, _ in parts], id=id)
