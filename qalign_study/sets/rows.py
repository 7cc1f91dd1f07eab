"""Rows of the paper's data sets as problems: how each official format is read, and nothing else.

A reader takes a row (its fields by name) and the set's table of `assets/tasks/paper.toml`, and
returns the fields of a problem's line. Whatever a file holds, it is data: nothing of it is run.
"""

import ast
import csv
import hashlib
import io
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from qalign_core.errors import InvalidTask, on_disk
from qalign_core.validation import from_json, read_file, short_repr

Row = Mapping[str, Any]
Table = Mapping[str, Any]

MAX_CHOICES = 10
"""Options that the rule for letters distinguishes: A to J."""
_MAX_LITERAL = 20_000  # characters of a list of options; the longest official one has 2,526
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def rows_of(path: Path, subjects: Sequence[str] = ()) -> tuple[list[Row], str]:
    """The rows of a file, or of a folder with a file a subject, and the hash of what was read.

    Args:
        path: .jsonl, .json (a list) or .csv (with commas or semicolons).
        subjects: of these only, in this order; each row is told its own.

    Raises:
        InvalidTask: a file cannot be read, or one is missing.
    """
    files = [path]
    if os.path.isdir(path):
        by_subject = {each.stem.removeprefix("mmlu_"): each for each in sorted(path.iterdir())}
        if missing := [each for each in subjects if each not in by_subject]:
            raise InvalidTask(
                f"{path} has no file for {', '.join(missing[:3])}; give a folder with a file per "
                f"subject, such as mmlu_{missing[0]}.csv"
            )
        files = [by_subject[each] for each in subjects]
    if subjects != () and files == [path]:
        raise InvalidTask(f"{path} is not a folder; give one with a file per subject")
    if not files:
        raise InvalidTask(f"{path} is a folder; give the file of rows in it")
    digest, rows = hashlib.sha256(), list[Row]()
    for file, subject in zip(files, subjects or [""], strict=True):
        with on_disk(file, "read", "give the official file, or a folder of them", InvalidTask):
            content = read_file(file)
        digest.update(content)
        more = {"subject": subject} if subject else {}
        rows += [{**row, **more} for row in _parsed(file, content)]
    return rows, digest.hexdigest()


def _parsed(file: Path, content: bytes) -> Iterator[Row]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidTask(
            f"{file} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    try:
        if file.suffix == ".csv":
            head = text.partition("\n")[0]
            # nine of MMLU-Redux's files have semicolons
            rows: Any = list(_csv_rows(text, max(",;", key=head.count)))
        elif file.suffix == ".json":
            rows = from_json(text)
        else:
            rows = [from_json(line) for line in text.split("\n") if line.strip()]
    except (ValueError, csv.Error) as error:
        raise InvalidTask(
            f"{file} cannot be read ({error}); give .jsonl, .json or .csv with one row per problem"
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidTask(f"{file} is not a list of rows; give the official file")
    return iter(rows)


def _csv_rows(text: str, delimiter: str) -> Iterator[Row]:
    """The rows of a table, each with one field a column: a comma without quotes shifts columns."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    head = next(reader, [])
    if twice := [name for k, name in enumerate(head) if name and name in head[:k]]:
        raise ValueError(f"two columns are called {twice[0]!r}")
    for number, fields in enumerate(filter(None, reader)):
        if len(fields) != len(head):
            raise ValueError(
                f"row {number} has {len(fields)} fields, and the first line {len(head)} columns; "
                f"put a text with {delimiter!r} in quotes"
            )
        yield dict(zip(head, fields, strict=True))


def problem_of(row: Row, number: int, table: Table, *, seed: int, place: str) -> dict[str, Any]:
    """The fields of a problem's line (`problem_sets`) from a row; a row that is left out has none.

    Args:
        row: as the official format has it.
        number: its place in the set, from 0.
        table: the set's.
        seed: of the order of options, where they are shuffled.
        place: for errors.

    Raises:
        InvalidTask: the row is not of the set's format.
    """
    try:
        return READERS[table["rows"]](row, number, table, seed)
    except KeyError as error:
        raise InvalidTask(
            f"{place} has no {error}; it has {', '.join(map(str, row)) or 'nothing'}, which is not "
            f"the format of {table['title']}"
        ) from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise InvalidTask(f"{place}: {error}") from error


def _gsm(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    solution_parts = _text(row, "answer").rpartition("####")
    if not solution_parts[1]:
        raise ValueError('"answer" has no "####" before the number')
    prompt = fill_template(table["template"], {"question": _text(row, "question")})
    answer = solution_parts[2].strip().replace(",", "")
    # the calculator's notes, <<48/2=24>>, are not for readers
    solution = f"{_CALCULATED.sub('', solution_parts[0]).strip()}\nThe answer is {answer}."
    return {"id": f"{number}", "prompt": prompt, "answer": answer, "solution": solution}


def _math(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    question = _text(row, "problem" if "problem" in row else "prompt")
    id = row.get("unique_id") or row.get("id") or f"{number}"
    prompt = fill_template(table["template"], {"question": question})
    more = {"solution": row["solution"]} if "solution" in row else {}
    return {"id": id, "prompt": prompt, "answer": _text(row, "answer"), **more}


def _redux(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    choices = options_of(row["choices"])
    right: int | None = int(row["answer"])
    if table["labels"] == "corrected":
        fault = re.sub(r"\s+", "_", str(row["error_type"]).strip().lower())
        corrected = _corrected_choice(row.get("correct_answer"), choices)
        right = {"ok": right, "wrong_groundtruth": corrected}.get(fault)
        if right is None:
            return {}
    if right is None or not 0 <= right < len(choices):
        raise ValueError(f'"answer" is {short_repr(row["answer"])}; a number below {len(choices)}')
    subject = _text(row, "subject")
    return {
        **_with_options(row, choices, right, table, "question", subject.replace("_", " ")),
        "id": f"{subject}-{number}",
        "subject": subject,
    }


def _corrected_choice(correction: object, choices: Sequence[str]) -> int | None:
    """The right option as annotators wrote it: a letter, a number from 0, or its text."""
    text = str(correction or "").strip()
    if text in choices:
        return choices.index(text)
    places = [str(k) for k in range(len(choices))], list(_LETTERS[: len(choices)])
    return next((names.index(text) for names in places if text in names), None)


def _truthful(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    if "mc1_targets" in row:  # the hub
        name, target = "question", row["mc1_targets"]
        order = sorted(range(len(target["labels"])), key=lambda k: -target["labels"][k])
        choices = [target["choices"][k] for k in order]
    else:  # the official CSV
        name, wrong = "Question", _text(row, "Incorrect Answers").split(";")
        choices = [_text(row, "Best Answer"), *(each.strip() for each in wrong if each.strip())]
    right = 0
    if table["shuffled"]:
        choices = choices[:MAX_CHOICES]
        best = choices[0]
        random.Random(f"{seed}/{number}").shuffle(choices)
        right = choices.index(best)
    subject = row.get("category") or row.get("Category") or ""
    if "<{subject}>" in table["template"] and not subject:
        raise KeyError("category")
    return {**_with_options(row, choices, right, table, name, subject), "id": f"{number}"}


def _ifeval(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    ids, kwargs = row["instruction_id_list"], row["kwargs"]
    if len(ids) != len(kwargs):
        raise ValueError(f"{len(ids)} instructions with {len(kwargs)} sets of arguments")
    # the hub fills up every row with the arguments of all others, as None
    kept = [{k: v for k, v in each.items() if v is not None} for each in kwargs]
    prompt = fill_template(table["template"], {"question": _text(row, "prompt")})
    instructions = {"ids": list(ids), "kwargs": kept, "rule": table["rule"]}
    return {"id": str(row["key"]), "prompt": prompt, "instructions": instructions}


def _own(row: Row, number: int, table: Table, seed: int) -> dict[str, Any]:
    fields = {name: row[name] for name in ("constraints", "instructions") if name in row}
    for name in _BARE_FIELD.findall(table["template"]):
        if name in row:  # \boxed{answer} is LaTeX, {answer} a field that was not filled
            raise ValueError(f"the template has {{{name}}} without angles; write <{{{name}}}>")
    fields["prompt"] = fill_template(
        table["template"], {name: str(value) for name, value in row.items()}
    )
    if "id" in table:
        fields["id"] = row[table["id"]]
    if isinstance(table.get("answer"), list):  # columns of right answers, of which some are empty
        right = [row[name] for name in table["answer"]]
        fields["answer"] = [each for each in right if each not in (None, "")] or right[0]
    elif "answer" in table:
        fields["answer"] = row[table["answer"]]
    if "rouge" in table:
        fields["rouge"] = {**table["rouge"], "reference": row[table["rouge"]["reference"]]}
    return fields


READERS: Mapping[str, Callable[[Row, int, Table, int], dict[str, Any]]] = {
    "gsm": _gsm,
    "math": _math,
    "redux": _redux,
    "truthful": _truthful,
    "ifeval": _ifeval,
    "own": _own,
}
"""How a set's rows are read, by the name that its table has for it."""


def options_of(options_text: object) -> list[str]:
    """A list of options: as it is, or as Python writes it, which is read and never run.

    Raises:
        ValueError: it is no list of two texts or more.
    """
    options = options_text
    if isinstance(options_text, str) and len(options_text) <= _MAX_LITERAL:
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            options = ast.literal_eval(options_text)
    texts = isinstance(options, list) and all(isinstance(each, str) for each in options)
    if not texts or not 2 <= len(options) <= len(_LETTERS):  # type: ignore[arg-type]
        raise ValueError(f'"choices" is {short_repr(options_text)}; a list of texts is needed')
    return options  # type: ignore[return-value]


def _with_options(
    row: Row, choices: Sequence[str], right: int, table: Table, name: str, subject: str
) -> dict[str, Any]:
    lines = "\n".join(f"{_LETTERS[k]}). {choice}" for k, choice in enumerate(choices))
    fields = {"question": _text(row, name), "subject": subject, "choices": lines}
    template = _CHOICES.sub("<{choices}>", table["template"])
    return {"prompt": fill_template(template, fields), "answer": _LETTERS[right]}


_CALCULATED = re.compile(r"<<[^>]*>>")
_CHOICES = re.compile(r"(?:[A-C]\)\. <\{choice_[A-C]\}>\n){3}D\)\. <\{choice_D\}>")
_FIELD = re.compile(r"<\{\s*([^{}<>]*[^{}<>\s])\s*\}>")

_BARE_FIELD = re.compile(r"(?<![\w<\\])\{\s*([^{}<>]*[^{}<>\s])\s*\}")


def placeholders(template: str) -> list[str]:
    """The names of a template's fields."""
    return _FIELD.findall(template)


def fill_template(template: str, fields: Mapping[str, str]) -> str:
    """A template with its placeholders, <{name}>, filled in once: what a text holds stays."""
    return _FIELD.sub(lambda match: fields[match[1]], template)


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f'"{name}" is {short_repr(value)}; a text is needed')
    return value
