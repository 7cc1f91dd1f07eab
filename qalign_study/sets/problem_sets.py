"""Problem sets: JSON lines, one problem a line, checked as a whole before anything is run.

    {"id": "p-17", "prompt": "Tom has 3 ...", "answer": "18", "extractor": "number"}

`prompt` is required. `id` is the problem's number, from 0, unless given. `answer` may be absent or
null (an open-ended prompt), or a list of right answers, of which any counts. With an answer,
`extractor` names how the final answer is read from a response (default "number"); it may be a
function or class of a file beside the set, "FILE.py:NAME". An open-ended prompt (extractor
"none") may say what is checked of a response: a word to use, the word to end with, and the number
of sentences.

    {"prompt": "Write ...", "constraints": {"use": "cat", "end": "hat", "sentences": 2}}

or the instructions of IFEval that a response has to follow, "loose" or "strict":

    {"prompt": "...", "instructions": {"ids": ["punctuation:no_comma"], "kwargs": [{}]}}

or a text to be like (or a list of them, of which any counts), or your own judge, a function of
prompt and text in a file beside the set:

    {"prompt": "Summarize ...", "rouge": {"reference": "A dog ...", "at_least": 0.4}}
    {"prompt": "Write politely ...", "judge": "judges.py:is_polite"}

Other fields are kept as they are, in `extra`.

Rows of another form need a file beside them, `mine.toml`, which is given in their place. `rows` and
`template` are required; without `answer` the prompts are open-ended.

    rows = "capitals.csv"                                # or .jsonl, or .json with a list
    template = "What is the capital of <{country}>?"     # <{name}> is a field of the row
    answer = "capital"                                   # the field with the right answer
    # or answer = ["capital", "alias"], of which any is right
    extractor = "text"                                   # how an answer is read and compared
    id = "code"                                          # the field that names a problem

Instead of `answer`, `rouge = {reference = "summary", at_least = 0.4}` names the field with the
reference, and `judge = "judges.py:is_polite"` the judge of all rows.
"""

import json
import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qalign_core.assets import ASSETS
from qalign_core.decide.answers.equality import is_empty
from qalign_core.decide.answers.extraction import EXTRACTORS
from qalign_core.decide.answers.graders import (
    OWN_GRADERS,
    Grader,
    get_grader,
    join_references,
    references,
)
from qalign_core.decide.rouge import unread
from qalign_core.errors import InvalidPrompt, InvalidTask, QAlignError, on_disk
from qalign_core.messages import encode_prompt
from qalign_core.protocols import AnswerExtractor, LanguageModel
from qalign_core.registry import load_grader
from qalign_core.run import NO_EXTRACTOR
from qalign_core.validation import (
    first_line,
    from_json,
    is_file_name,
    read_field,
    read_file,
    short_repr,
)
from qalign_study.sets.checks import JUDGES, Judgement, Likeness, load_judge
from qalign_study.sets.generated import WritingTask
from qalign_study.sets.instructions import RULES, Instructions
from qalign_study.sets.rows import placeholders, problem_of, rows_of
from qalign_study.sets.seeded import generate_rows

logger = logging.getLogger(__name__)

_DESCRIBED = {
    **dict.fromkeys(("rows", "template"), str),
    **dict.fromkeys(("answer", "extractor", "id", "judge"), str | None),
    "rouge": dict | None,
}
"""The keys of a file that describes rows of another form."""


Check = WritingTask | Instructions | Likeness | Judgement


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a set.

    Attributes:
        id: unique within the set.
        prompt: the user's text.
        answer: the right answer as the file has it, several as `references` reads them, or None
            if there is none to compare with.
        extractor: name of the answer extractor, or None for an open-ended prompt.
        check: what a response to an open-ended prompt has to follow, or None.
        extra: the line's other fields.
    """

    id: str
    prompt: str
    answer: str | None = None
    extractor: str | None = None
    check: Check | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def extract(self) -> AnswerExtractor | None:
        """The function behind `extractor`."""
        return None if self.grader is None else self.grader.extract

    @property
    def grader(self) -> Grader | None:
        """The grader behind `extractor`."""
        return None if self.extractor is None else get_grader(self.extractor)

    @property
    def is_graded(self) -> bool:
        """True if the problem states what is right."""
        return self.check is not None or not (self.answer is None or self.extractor is None)

    def is_right(self, answer: str | None) -> bool | None:
        """Return whether an answer, or an open-ended response's text, is right; None if unknown.

        No answer is wrong. A response that breaks its check is wrong, and the log names the
        problem.
        """
        if self.check is not None:
            try:
                return answer is not None and self.check.followed(answer)
            except QAlignError:  # nothing can be checked, whatever the response
                raise
            except Exception as error:
                logger.warning("problem %s: graded as wrong, since %r", self.id, error)
                return False
        if self.answer is None or self.grader is None:
            return None
        return self.grader.is_right(answer, self.answer)

    def solved_by(self, text: str) -> bool:
        """True if a response is right; one without an answer is not."""
        return bool(self.is_right(self.extract(text) if self.extract else text))


def load_problems(task: str | Path, *, code: bool = False) -> list[Problem]:
    """Read a problem set.

    Args:
        task: name of an embedded set; `NAME@SEED`, that set as another seed draws it; or a file.
        code: graders and judges that are Python files, FILE.py:NAME, are allowed and run.

    Raises:
        InvalidTask: the file cannot be read, or a line cannot; the message names the line.
    """
    if (rows := generate_rows(str(task))) is not None:
        return parse_problems(map(json.dumps, rows), str(task))
    embedded = ASSETS / "tasks" / f"{task}.jsonl"
    path = embedded if "/" not in str(task) and os.path.isfile(embedded) else Path(task)
    advice = "give the name of a set or the path of a file of JSON lines"
    try:
        with on_disk(f"the problem set {path}", "read", advice, InvalidTask):
            text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidTask(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8 JSON lines"
        ) from error
    lines = _described(path, text) if path.suffix == ".toml" else text.split("\n")
    return parse_problems(lines, str(path), code=path.parent if code else None)


def _described(path: Path, text: str) -> list[str]:
    """The lines of rows of another form, as their file says how each is read."""
    try:
        table = tomllib.loads(text)
        if unknown := [name for name in table if name not in _DESCRIBED]:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(_DESCRIBED)}")
        for name, kind in _DESCRIBED.items():
            several = name == "answer" and isinstance(table.get(name), list)
            read_field(table, name, tuple if several else kind)
        if table.get("rouge", {"reference": "", "at_least": 1}).keys() != {"reference", "at_least"}:
            raise ValueError('rouge needs "reference", a field of the row, and "at_least"')
        if not placeholders(table["template"]):
            raise ValueError("its template has no field; write one as <{name}>, angles and all")
    except ValueError as error:
        raise InvalidTask(f"{path} does not describe a problem set: {first_line(error)}") from error
    rows, _ = rows_of(path.parent / table["rows"])
    own = {**table, "rows": "own", "title": path.name}
    shared = {name: table[name] for name in ("extractor", "judge") if name in table}
    return [
        json.dumps(shared | problem_of(row, k, own, seed=0, place=f"{table['rows']}, row {k}"))
        for k, row in enumerate(rows)
    ]


def parse_problems(
    lines: Iterable[str], name: str = "the problem set", *, code: Path | None = None
) -> list[Problem]:
    """Read a problem set from its lines; empty lines are skipped.

    Args:
        lines: one problem each.
        name: of the set, for errors.
        code: the folder of the Python files that rows may name; None if none may be run.

    Raises:
        InvalidTask: there is no problem, or a line is bad; the message names `name` and the line.
    """
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        problem = _parse(line, len(problems), place, code)
        if problem.id in seen:
            raise InvalidTask(
                f"{place}: the id {short_repr(problem.id)} is that of line {seen[problem.id]}; "
                "give every problem its own id, or none"
            )
        seen[problem.id] = number
        problems.append(problem)
    if not problems:
        raise InvalidTask(f"{name} has no problems; write one JSON object per line")
    return problems


def check_readable(what: str, answer: object, extractor: str) -> None:
    """Refuse a right answer that its extractor does not read: no response could be right."""
    if not get_grader(extractor).reads(str(answer)):
        raise InvalidTask(
            f'{what} is {_short_json(answer)}, which the extractor "{extractor}" does not '
            f"read; give {_READABLE[extractor]}, or name another extractor"
        )


def check_gradable(problems: Sequence[Problem]) -> None:
    """Refuse a set of which nothing, or not the same thing, says what is right."""
    for problem in problems:
        if problem.check is not None:  # what cannot be checked is said before the first draw
            problem.check.followed("")
        elif not problem.is_graded:
            raise InvalidTask(
                f"problem {problem.id!r} has neither an answer to compare with nor one of "
                f"{', '.join(CHECKS)} to check; one of them is needed"
            )
    if len({problem.extractor is None for problem in problems}) > 1:
        raise InvalidTask(
            "some problems are open-ended and some are not; put them in two files and evaluate each"
        )


def check_prompts(lm: LanguageModel, problems: Sequence[Problem]) -> None:
    """Refuse, by its name, the first problem whose prompt the model cannot take.

    Raises:
        InvalidPrompt: a prompt is empty, or longer than the model's context.
    """
    for problem in problems:
        try:
            encode_prompt(lm, problem.prompt)
        except InvalidPrompt as error:
            raise InvalidPrompt(f"problem {problem.id!r}: {error}") from error


def problem_line(problem: Problem) -> str:
    """A problem as the line that reads back as it."""
    values: dict[str, Any] = {"id": problem.id, "prompt": problem.prompt}
    values |= {"answer": problem.answer, "extractor": problem.extractor, **problem.extra}
    if problem.check is not None:
        values |= problem.check.row_fields
    return json.dumps(values, ensure_ascii=False) + "\n"


def _loaded(extractor: str, code: Path | None, place: str) -> str:
    """The name of the grader in a Python file, once it is loaded."""
    if extractor in OWN_GRADERS:
        return extractor
    if code is None:
        raise InvalidTask(
            f'{place}: "extractor" is the Python file {_short_json(extractor)}, which only the '
            "command line runs; load it there, or with load_grader in Python"
        )
    here = _beside(code, extractor)
    return here if here in OWN_GRADERS else load_grader(here).name


def _beside(folder: Path, place: str) -> str:
    """The Python file of a set and its function: in the set's folder, or else as it is named."""
    path = folder / place.rpartition(":")[0]
    return str(folder / place) if path.is_file() else place


def _parse(line: str, number: int, place: str, code: Path | None) -> Problem:
    fields = _object(line, place)
    values = {name: fields.pop(name, None) for name in ("id", "prompt", "answer", "extractor")}
    id_, prompt, answer, extractor = values.values()
    right = answer if isinstance(answer, list) else [answer]
    if isinstance(answer, str):  # the line of a run's folder has several answers as one text
        right = [*references(answer)]
    _check_values(values, right, place)
    if extractor is None and answer is not None:
        extractor = "number"
    if isinstance(extractor, str) and is_file_name(extractor):
        extractor = _loaded(extractor, code, place)
    if extractor == NO_EXTRACTOR:
        if answer is not None:
            raise InvalidTask(
                f'{place} has the extractor "{NO_EXTRACTOR}" and an "answer"; leave one of them out'
            )
        extractor = None
    for each in right if answer is not None and extractor else ():
        check_readable(f'{place}: "answer"', each, extractor)
    return Problem(
        id=str(number if id_ is None else id_),
        prompt=prompt,
        answer=None if answer is None else join_references([*dict.fromkeys(map(str, right))]),
        extractor=extractor,
        check=_pop_check(fields, prompt, extractor, place, code),
        extra=fields,
    )


def _object(line: str, place: str) -> dict[str, Any]:
    """Parse the JSON object of a line."""
    try:
        fields = from_json(line)
        json.dumps(fields, ensure_ascii=False).encode()  # half a character has no UTF-8
    except (ValueError, RecursionError) as error:
        raise InvalidTask(
            f"{place} is not JSON: {error}; write one JSON object per line"
        ) from error
    if not isinstance(fields, dict):
        raise InvalidTask(
            f'{place} is a JSON {type(fields).__name__}; an object like {{"prompt": ...}} is needed'
        )
    return fields


def _check_values(values: dict[str, Any], right: list[Any], place: str) -> None:
    """Check the types of a problem's values; `right` holds its right answers."""
    id_, prompt, _, extractor = values.values()
    known = f"{', '.join(EXTRACTORS)}, FILE.py:NAME or none"
    own = isinstance(extractor, str) and is_file_name(extractor)
    for name, is_good, advice in (
        ("prompt", isinstance(prompt, str) and prompt.strip(), "a text is needed"),
        ("id", _is_a(id_, (str, int)) and id_ != "", "a text or a whole number is needed"),
        (
            "answer",
            right and all(_is_a(each, (str, int, float)) for each in right),
            "a text or a number is needed, or a list of right ones",
        ),
        ("answer", not any(is_empty(str(each)) for each in right), "leave it out if there is none"),
        ("extractor", own or extractor in [None, NO_EXTRACTOR, *EXTRACTORS], f"use one of {known}"),
    ):
        if not is_good:
            raise InvalidTask(f'{place}: "{name}" is {_short_json(values[name])}; {advice}')


def _pop_check(
    fields: dict[str, Any], prompt: str, extractor: str | None, place: str, code: Path | None
) -> Check | None:
    """Remove a problem's check from its fields and return it; None if there is none."""
    checks = {name: content for name in CHECKS if (content := fields.pop(name, None)) is not None}
    both = [*map('"{}"'.format, checks), *["an answer or extractor"] * (extractor is not None)]
    if checks and len(both) > 1:
        raise InvalidTask(f"{place} has {both[0]} and {both[1]}; leave one of them out")
    return next((CHECKS[name](prompt, each, place, code) for name, each in checks.items()), None)


def _writing(prompt: str, constraints: object, place: str, code: Path | None) -> WritingTask:
    match constraints:
        case {"use": str(use), "end": str(end), "sentences": int(sentences), **rest} if not rest:
            return WritingTask(prompt, use.lower(), end.lower(), sentences)
    raise InvalidTask(
        f'{place}: "constraints" is {_short_json(constraints)}; give "use" and "end" (a word each) '
        'and "sentences" (a whole number)'
    )


def _read_instructions(
    prompt: str, instructions: object, place: str, code: Path | None
) -> Instructions:
    match instructions:
        case {"ids": [*ids], "kwargs": [*kwargs], **rest} if (
            ids
            and len(ids) == len(kwargs)
            and all(isinstance(id, str) for id in ids)
            and all(isinstance(each, dict) for each in kwargs)
            and rest.keys() <= {"rule"}
            and rest.get("rule", RULES[0]) in RULES
        ):
            rule = str(rest.get("rule", RULES[0]))
            return Instructions(prompt, tuple(ids), tuple(kwargs), rule)
    raise InvalidTask(
        f'{place}: "instructions" is {_short_json(instructions)}; give "ids" and "kwargs" (a list '
        'each, as long as the other), and perhaps "rule" ("loose" or "strict")'
    )


def _read_likeness(prompt: str, rouge: object, place: str, code: Path | None) -> Likeness:
    match rouge:
        case {"reference": str() | [*_] as reference, "at_least": int() | float() as least, **rest}:
            texts = [reference] if isinstance(reference, str) else reference
            is_whole = not rest and texts and all(isinstance(text, str) for text in texts)
            if is_whole and not isinstance(least, bool) and 0 < least <= 1:
                check = Likeness(prompt, tuple(texts), float(least))
                if unread(texts) or not all(map(check.followed, texts)):
                    raise InvalidTask(
                        f'{place}: the reference of "rouge" is {_short_json(reference)}, whose '
                        "words ROUGE-1 cannot read, since it knows a to z and digits; use a judge"
                    )
                return check
    raise InvalidTask(
        f'{place}: "rouge" is {_short_json(rouge)}; give "reference" (a text, or a list of texts) '
        'and "at_least" (the lowest ROUGE-1 of a right text, above 0 and at most 1)'
    )


def _read_judge(prompt: str, judge: object, place: str, code: Path | None) -> Judgement:
    if not (isinstance(judge, str) and is_file_name(judge)):
        raise InvalidTask(f'{place}: "judge" is {_short_json(judge)}; give FILE.py:NAME')
    if judge in JUDGES:
        return Judgement(prompt, judge)
    if code is None:
        raise InvalidTask(
            f'{place}: "judge" is the Python file {_short_json(judge)}, which only the command '
            "line runs"
        )
    here = _beside(code, judge)
    path, _, function = here.rpartition(":")
    name = f"{os.path.abspath(path)}:{function}"
    if name not in JUDGES:
        load_judge(here, name)
    return Judgement(prompt, name)


CHECKS: Mapping[str, Callable[[str, object, str, Path | None], Check]] = {
    "constraints": _writing,
    "instructions": _read_instructions,
    "rouge": _read_likeness,
    "judge": _read_judge,
}
"""The fields of a row whose checks decide whether an open-ended response is right."""


_READABLE = {
    "number": 'a number such as "1250.5"',
    "choice": "a letter from A to J",
    "option": "a letter from A to J",
    "text": "a short text",
    "amounts": 'amounts such as "5 eggs, 9 nuts"',
}
"""The right answers that an extractor reads."""


def _is_a(value: object, kinds: tuple[type, ...]) -> bool:
    """True if a value is absent, or of one of the kinds."""
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool))


def _short_json(value: object) -> str:
    if value is None:
        return "missing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
