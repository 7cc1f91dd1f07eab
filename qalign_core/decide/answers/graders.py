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
from qalign_core.run import is_file_name
from qalign_core.validation import first_line, from_json, short_repr

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

    @property
    def title(self) -> str:
        """The name for display: for a file, without its folder."""
        return title_of(self.name)

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
LOADED: dict[str, Grader] = {}
"""Loaded graders from the user's files, by name."""


def get_grader(name: str) -> Grader:
    """Look up a grader by name.

    Raises:
        InvalidSetting: there is no such grader, or its file was not loaded in this process.
    """
    grader = BUILT_IN.get(name) or LOADED.get(name)
    if grader is not None:
        return grader
    known = ", ".join(BUILT_IN)
    if is_file_name(name):
        raise InvalidSetting(
            f"answers are read by the Python file {name}, which pages, links and requests do not "
            f"run; use the command line, load_grader in Python, or one of {known}"
        )
    raise InvalidSetting(f"no answer extractor is called {name!r}; use one of {known}")


def get_extractor(name: str) -> AnswerExtractor:
    """Look up the extractor of a grader.

    Raises:
        InvalidSetting: as `get_grader`.
    """
    return get_grader(name).extract


def grader_of_trace(name: str | None) -> Grader | None:
    """Return the grader of a trace; None if it has none, or its file was not loaded."""
    return None if name is None else BUILT_IN.get(name) or LOADED.get(name)


def extractor_of_trace(name: str | None) -> AnswerExtractor | None:
    """Return the extractor of a trace; None as for `grader_of_trace`."""
    grader = grader_of_trace(name)
    return None if grader is None else grader.extract


def own_grader(name: str, extract: Any, same: Any = None) -> Grader:
    """Make a grader of a user's functions, which never raises; it reads no text between think tags.

    Each failure is logged once per message; the text then has no answer, or the two answers are
    different.
    """
    logged: set[str] = set()

    def log_once(message: str, outcome: str) -> None:
        if message not in logged:
            logged.add(message)
            logger.warning("the grader %s %s; %s", name, message, outcome)

    def read(text: str) -> str | None:
        outcome = "such a text has no answer"
        answered = without_thinking(text)
        if answered is None:
            return None
        try:
            answer = extract(answered)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a function may call `sys.exit()`
            log_once(f"failed with {type(error).__name__}: {first_line(error)}", outcome)
            return None
        if answer is None or isinstance(answer, str):
            return answer or None
        log_once(f"returned {short_repr(answer)}, where a text or None was expected", outcome)
        return None

    def compare(answer: str, reference: str) -> bool:
        outcome = "such answers are graded as different"
        try:
            verdict = same(answer, reference)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a function may call `sys.exit()`
            log_once(f"failed with {type(error).__name__}: {first_line(error)}", outcome)
            return False
        if verdict in (True, False):  # of numpy too
            return bool(verdict)
        log_once(f"returned {short_repr(verdict)}, where True or False was expected", outcome)
        return False

    return Grader(name, read, same_answer if same is None else compare)
