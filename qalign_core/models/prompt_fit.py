"""Whether a text is of the kind that a small language model was made for."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@cache
def _tokenizer(folder: str) -> "Tokenizer":
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def tokens_per_character(folder: str, text: str) -> float:
    """How finely a model's tokenizer cuts a text; runs of white space count as one character.

    Words that its training text had are one token or two; others fall into letters and bytes.
    """
    plain = " ".join(text.split())
    n = len(_tokenizer(folder).encode(plain, add_special_tokens=False).ids)
    return n / max(1, len(plain))
