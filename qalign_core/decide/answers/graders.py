"""A grader extracts the final answer of a text and compares it with the right one.

    >>> get_grader("number").extract("The answer is $18.00.")
    '18'
    >>> get_grader("number").is_right("18", "18.0")
    True
    >>> get_grader("text").is_right("nyc", '["New York", "NYC"]')
    True

The built-in graders are the extractors with `same_answer`. A grader from the user's file is called
"FILE.py:NAME" and is available in this process after `registry.load_grader` has run the file; no
link, request or trace can run one.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qalign_core.decide.answers.equality import canonical, same_answer
from qalign_core.decide.answers.extraction import EXTRACTORS, is_readable, without_thinking
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import AnswerExtractor
from qalign_core.validation import from_json, is_file_name, is_text, short_repr, user_code

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grader:
    """How answers are read and compared.

    Attributes:
        name: its name in problem sets, options and trace headers.
        extract: text -> the final answer in canonical form, or None; equal answers are one vote.
        same: (answer, right answer) -> True if they are equal.
    """

    name: str
    extract: AnswerExtractor
    same: Callable[[str, str], bool] = same_answer

    def is_right(self, answer: str | None, reference: str) -> bool:
        """True if an answer equals one of the right ones; None, no answer, never does."""
        return answer is not None and any(self.same(answer, each) for each in references(reference))

    def reads(self, answer: str) -> bool:
        """True if a right answer would be graded as right; unknown, so True, for a user's file."""
        return self.name not in EXTRACTORS or is_readable(answer, self.name)


def title_of(name: str) -> str:
    """Return the name of a grader for display and to compare runs: a file without its folder."""
    return Path(name).name if is_file_name(name) else name


def references(reference: str) -> tuple[str, ...]:
    """Return the right answers: a JSON list of texts has several, any other text is one."""
    if reference.startswith('["'):
        try:
            answers = from_json(reference)
        except ValueError:
            return (reference,)
        if all(isinstance(each, str) for each in answers):
            return tuple(answers)
    return (reference,)


def join_references(answers: list[str]) -> str:
    """Format right answers as one reference, which `references` parses."""
    return answers[0] if len(answers) == 1 else json.dumps(answers, ensure_ascii=False)


def canonical_references(reference: str) -> str:
    """Bring right answers to the form in which extractors return answers: "1,000" to "1000"."""
    forms = (canonical(each) or each for each in references(reference))
    return join_references([*dict.fromkeys(forms)])


def format_references(reference: str) -> str:
    """Format the right answers for display: "Paris or City of Light"."""
    return " or ".join(references(reference))


BUILT_IN = {name: Grader(name, extract) for name, extract in EXTRACTORS.items()}
"""The built-in graders by name."""
OWN_GRADERS: dict[str, Grader] = {}
"""Loaded graders from the user's files, by name."""


def get_grader(name: str) -> Grader:
    """Look up a grader by name.

    Raises:
        InvalidSetting: there is no such grader, or its file was not loaded in this process.
    """
    grader = grader_of_trace(name)
    if grader is not None:
        return grader
    known = ", ".join(BUILT_IN)
    if is_file_name(name):
        raise InvalidSetting(
            f"answers are read by the Python file {name}, which pages, links and requests do not "
            f"run; use the command line, load_grader in Python, or one of {known}"
        )
    raise InvalidSetting(f"no answer extractor is called {name!r}; use one of {known}")


def grader_of_trace(name: str | None) -> Grader | None:
    """Return the grader of a trace; None if it has none, or its file was not loaded."""
    return None if name is None else BUILT_IN.get(name) or OWN_GRADERS.get(name)


class UserFunction:
    """A grader's or judge's function from a user's file; it never raises.

    A failure is logged once per message, and the call then returns None.

    Args:
        function: of the user.
        what: the grader or judge, as the subject of a sentence.
        expected: a description of the values that `fits` accepts.
        outcome: what a failure means.
        fits: True for a value that the function may return.
    """

    def __init__(
        self, function: Any, what: str, expected: str, outcome: str, fits: Callable[[Any], bool]
    ) -> None:
        self._function, self._fits, self._logged = function, fits, set[str]()
        self._what, self._expected, self._outcome = what, expected, outcome

    def __call__(self, *arguments: str) -> Any:
        """Return what the function returns for these texts; None if it fails."""
        try:
            with user_code(InvalidSetting, "failed with ", ""):
                value = self._function(*arguments)
                if self._fits(value):
                    return value
            message = f"returned {short_repr(value)}, where {self._expected} was expected"
        except InvalidSetting as error:
            message = str(error)
        if message not in self._logged:
            self._logged.add(message)
            logger.warning("%s %s; %s", self._what, message, self._outcome)
        return None


def user_verdict(function: Any, what: str, outcome: str) -> UserFunction:
    """Return a user's function whose value is True or False, those of numpy included."""
    return UserFunction(function, what, "True or False", outcome, lambda v: v in (True, False))


def own_grader(name: str, extract: Any, same: Any = None) -> Grader:
    """Make a grader of a user's functions (`UserFunction`); it reads no text between think tags."""
    what, is_answer = f"the grader {name}", lambda value: value is None or is_text(value)
    find_answer = UserFunction(
        extract, what, "a text or None", "such a text has no answer", is_answer
    )
    agree = user_verdict(same, what, "such answers are graded as different")

    def read(text: str) -> str | None:
        answered = without_thinking(text)
        return None if answered is None else find_answer(answered) or None

    def compare(answer: str, reference: str) -> bool:
        return bool(agree(answer, reference))

    return Grader(name, read, same_answer if same is None else compare)
