"""How everything that is refused is refused: in one short sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from qalign_study.commands import main


def check_sentence(text: str, *words: str, most: int = 400) -> None:
    """Fail unless a text is one short sentence with these words in it."""
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < most
    for each in words:
        assert each in text


@contextmanager
def refusal(
    kind: type[Exception] | tuple[type[Exception], ...],
    *words: str,
    match: str | None = None,
    status: int | None = None,
    most: int = 400,
) -> Iterator[Any]:
    """Expect an error of one sentence with these words, and with this status if it has one."""
    with pytest.raises(kind, match=match) as raised:
        yield raised
    check_sentence(str(raised.value), *words, most=most)
    assert status in (None, getattr(raised.value, "status", None))


def refuse_command(capsys: pytest.CaptureFixture[str], command: list[str], *words: str) -> str:
    """Run a command that ends with status 2 and one sentence, which is returned.

    Before the sentence comes at most the usage of its options, or the line that says what it does.
    """
    assert main(command) == 2
    before, prefix, sentence = capsys.readouterr().err.removesuffix("\n").rpartition("qalign: ")
    assert prefix
    assert before.startswith("usage: ") or before.count("\n") == before.startswith("tuning on ")
    check_sentence(sentence, *words, most=1000)
    return prefix + sentence
