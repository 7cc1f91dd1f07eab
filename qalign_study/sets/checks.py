"""Checks of open-ended responses: likeness to a reference text, and a judge of the user's own.

>>> check = Likeness("Describe a cat.", ("A cat sat on the mat.",), 0.5)
>>> check.followed("The cat sat on a mat."), check.followed("Dogs bark.")
(True, False)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from qalign_core.decide.answers.extraction import without_thinking
from qalign_core.decide.answers.graders import title_of, user_verdict
from qalign_core.decide.rouge import rouge1
from qalign_core.errors import InvalidTask
from qalign_core.rewards.functions import import_object

JUDGES: dict[str, Callable[[str, str], bool]] = {}
"""Loaded judges from the user's files, by name."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """A text is right if its ROUGE-1 F-measure against one of the references is high enough."""

    prompt: str
    references: tuple[str, ...]
    at_least: float

    @property
    def row_fields(self) -> dict[str, Any]:
        """The field of a problem's line."""
        return {"rouge": {"reference": [*self.references], "at_least": self.at_least}}

    @property
    def right(self) -> str:
        """The rule in words, for reports."""
        return f"a text with ROUGE-1 of at least {self.at_least:g} against the reference"

    def followed(self, text: str) -> bool:
        """True if a text is like one of the references."""
        text = without_thinking(text) or ""
        return any(rouge1(text, each) >= self.at_least for each in self.references)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A text is right if the judge "FILE.py:NAME", a function of prompt and text, says so."""

    prompt: str
    judge: str

    @property
    def row_fields(self) -> dict[str, Any]:
        """The field of a problem's line."""
        return {"judge": self.judge}

    @property
    def right(self) -> str:
        """The rule in words, for reports."""
        return f"a text that {title_of(self.judge)} accepts"

    def followed(self, text: str) -> bool:
        """Return the judge's verdict.

        Raises:
            InvalidTask: its file was not loaded in this process.
        """
        judge = JUDGES.get(self.judge)
        if judge is None:
            raise InvalidTask(
                f"texts are judged by the Python file {self.judge}, which only the command line "
                "runs; use it there, or load_judge in Python"
            )
        text = without_thinking(text) or ""
        return bool(text) and judge(self.prompt, text)


def load_judge(place: str, name: str) -> None:
    """Load a judge from the user's file, "FILE.py:NAME", and register it under a name.

    NAME is a function (prompt, text) -> True or False, or a class without arguments whose objects
    can be called so. Each text is judged once per process. If the judge fails, the text is wrong,
    and the failure is logged once per message.

    Raises:
        ModelLoadError: there is no such file or name, or running the file failed.
        InvalidTask: it cannot be called.
    """
    function = import_object(place)
    if not callable(function):
        raise InvalidTask(f"{place} is no judge; write a function of the prompt and the text")
    judge = user_verdict(function, f"the judge {name}", "such texts are wrong")
    JUDGES[name] = lru_cache(maxsize=65536)(lambda prompt, text: bool(judge(prompt, text)))
