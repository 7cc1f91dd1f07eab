r"""Find the final answer in the text of a model.

`EXTRACTORS` maps a problem set's `extractor` to a function text -> canonical answer or None:

    number   "The answer is $18.00." -> 18;  "#### -1,000" -> -1000;  "\boxed{\frac{2}{3}}" -> 2/3
    choice   "The answer is (B). I hope" -> B;  "**C**" -> C;  "D) Paris" -> D   (letters A to J)
    option   the last letter A to J that stands alone, whatever is said of it: the paper's rule
    boxed    the last \boxed{}: a number if it is one, else mathematics, else words
    text     the whole text, for short free answers
    amounts  "The nuts: So 6 + 3 = 9. The eggs: ..." -> 5 eggs, 9 nuts   (the last a heading)

The last place that announces an answer decides ("The answer is", "Answer:", "####", "\boxed{").
Only a text that announces none falls back on its last number or letter.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from qalign_core.decide.answers.equality import LONE_LETTER, canonical, words
from qalign_core.decide.answers.formulas import formula
from qalign_core.decide.answers.numerals import last_number, stated_number, tidy
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import AnswerExtractor


def get_extractor(name: str) -> AnswerExtractor:
    """Look up an extractor by name.

    Raises:
        InvalidSetting: there is no such extractor.
    """
    if name not in EXTRACTORS:
        known = ", ".join(EXTRACTORS)
        raise InvalidSetting(f"no answer extractor is called {name!r}; use one of {known}")
    return EXTRACTORS[name]


def extract_number(text: str) -> str | None:
    """Extract the final number of a solution, in canonical form; None if it states none."""
    plain = _PLAIN.search(text)  # the common case, for a small part of the time
    if plain:
        return plain[1].lstrip("0") or "0"
    text = tidy(text)
    announced = False
    for boxed, said in _announced(text):
        announced = True
        if boxed:
            answer = formula(said) if _SYMBOLIC.search(said) else stated_number(said)
        else:
            clause = _first_clause(said)
            answer = stated_number(clause) or last_number(said[len(clause) :])
        if answer is not None:
            return answer
    return None if announced else last_number(text)


def extract_choice(text: str) -> str | None:
    """Extract the letter (A to J) of a multiple-choice answer; None if there is none."""
    text = text.replace("**", "")
    announced = False
    for _, said in _announced(text):
        announced = True
        letter = _chosen_letter(said)
        if letter is not None:
            return letter
    lines = [line for line in text.splitlines() if line.strip()]
    if announced or not lines:
        return None
    if lone := LONE_LETTER.fullmatch(lines[-1]):
        return lone[1].upper()
    if named := _NAMED_OPTION.findall(text):
        return str(named[-1])
    listed = {m[1] for line in lines if (m := _LISTED_OPTION.match(line))}
    if listed:
        return listed.pop() if len(listed) == 1 else None  # several: the options, repeated
    letters = ["".join(groups) for groups in _LETTER_IN_LINE.findall(lines[-1])]
    return letters[-1] if letters else None


def extract_option(text: str) -> str | None:
    """Extract the last letter A to J that is a word; None if there is none.

    The rule of the paper's published code, for its numbers: "I" and "A" count as letters.
    """
    letters = _OPTION.findall(text)
    return letters[-1] if letters else None


def extract_boxed(text: str) -> str | None:
    r"""Extract the last `\boxed{}`, else what the last "the answer is" says, else a number."""
    announced = list(_announced(text))
    boxes = [said for boxed, said in announced if boxed]
    for content in boxes or [_first_clause(said) for _, said in announced]:
        if answer := canonical(content):
            return answer
    return None if announced else last_number(tidy(text))


def extract_amounts(text: str) -> str | None:
    """Extract the amount of each of several things, by name; None if nothing has a heading.

    A heading is a word with a colon. Below it the last result ("= 9") is the amount, else the last
    number; a heading without any is "?".
    """
    pieces = _HEADING.split(tidy(text))
    amounts = {}
    for things, said in zip(pieces[1::2], pieces[2::2], strict=True):
        results = _RESULT.findall(said) or re.findall(r"\d+", said) or ["?"]
        amounts[things.lower()] = results[-1].lstrip("0") or "0"
    return ", ".join(f"{amounts[things]} {things}" for things in sorted(amounts)) or None


def extract_text(text: str) -> str | None:
    """Bring a short free answer to one form, without case and outer punctuation."""
    return words(text) or None


EXTRACTORS: Mapping[str, AnswerExtractor] = MappingProxyType(
    {
        "number": extract_number,
        "choice": extract_choice,
        "option": extract_option,
        "boxed": extract_boxed,
        "text": extract_text,
        "amounts": extract_amounts,
    }
)
"""Extractors by the name that problem sets and trace headers use."""


_PLAIN = re.compile(r"[Tt]he (?:final )?answer is \$?([0-9]{1,15})(?:\.00?)?\.?\s*\Z")
_MARKER = re.compile(
    r"(?P<boxed>\\(?:boxed|fbox)\s*\{)|####"
    r"|\banswer\b(?:[^.\n:=]|\.(?=\d)){0,80}?(?:\bis\b|\bwould be\b|\bequals\b|[:=])[\s*:]*",
    re.IGNORECASE,
)
# "To find the answer: first ..." announces work, not an answer.
_SEEKING = re.compile(
    r"\b(?:find|get|calculate|determine|compute|obtain|reach)\w*\s+(?:(?:the|an?|our|your)\s+)?"
    r"(?:final\s+|correct\s+)?$",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"\n|[.;!](?:\s|$)|,\s+(?:because|since|as|so)\b", re.IGNORECASE)
_SYMBOLIC = re.compile(r"\\(?:sqrt|pi|log|ln|sin|cos|tan|infty)\b")
_MAX_ANNOUNCED = 20  # the last ones; a text of nothing else is noise, and reading it would be slow
_HEADING = re.compile(r"\b([^\W\d_]+):(?=\s)")
_RESULT = re.compile(r"= ?(\d+)")


def _announced(text: str) -> Iterator[tuple[bool, str]]:
    """Find what follows each announcement of an answer, the last first, and if it is in a box."""
    for marker in reversed(list(_MARKER.finditer(text))[-_MAX_ANNOUNCED:]):
        if marker["boxed"]:
            yield True, _in_braces(text, marker.end())
        elif not _SEEKING.search(text[max(0, marker.start() - 40) : marker.start()]):
            yield False, text[marker.end() :]


def _in_braces(text: str, start: int) -> str:
    depth = 1
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return text[start:]  # the length limit cut the box


def _first_clause(said: str) -> str:
    said = said.lstrip()
    end = _CLAUSE_END.search(said)
    return said[: end.start()] if end else said


_LISTED_OPTION = re.compile(r"[\s*(\[-]*([A-J])[.):]")
_NAMED_OPTION = re.compile(r"(?i:\b(?:option|choice|choose|pick|select)\s+)[(\[]*([A-J])\b")
_LETTER_IN_LINE = re.compile(r"\(([A-J])\)|\b([B-HJ])\b|\b([AI])(?=[.:)*]|\s*$)")
_OPTION = re.compile(r"\b[A-J]\b")
_LETTER = re.compile(r"(?<![A-Za-z0-9'’\\])([A-Ja-j])(?![A-Za-z0-9'’])")
_ENDS = re.compile(
    r"\s*$|\s*[.,:;)\]}*$\"!—-]|\s+(?:because|since|as|which|with|for|based|given|due|so|but|is|and"
    r"|or)\b"
)
_NOT = re.compile(r"\b(?:not|isn't|neither|nor)\s+(?:option\s+|choice\s+)?[(\[]?$", re.IGNORECASE)
_OR = re.compile(r"[)\]]?\s*(?:,\s*)?(?:or|and)\s+(?:option\s+)?[(\[]?[A-J]\b")


def _chosen_letter(said: str) -> str | None:
    line = said.strip().split("\n", 1)[0]
    for m in _LETTER.finditer(line):
        letter = m[1]
        if _NOT.search(line[: m.start()]):
            continue
        # In "a dog" and "I think" the letter is a word.
        if (letter.islower() or letter in "AI") and not _ENDS.match(line, m.end()):
            continue
        return None if _OR.match(line, m.end()) else letter.upper()
    return None
