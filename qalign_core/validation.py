"""What came from outside, read as what it should be: a text, a number, a JSON value, nothing else.

Booleans are no numbers, and numbers are small enough for every later step: a whole number is exact
as a 64-bit float too (the page's player reads nothing else), a finite one has room to be added up.
"""

import errno
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

LARGEST = 2**53 - 1
"""The largest whole number, either side of 0."""
HUGE = 1e300
"""The largest finite number, either side of 0."""
LARGEST_FILE = 512 * 2**20
"""Bytes of a file that is read as a whole."""
MAX_DIGITS = 308
"""Digits of a whole number in JSON: a float holds every number of so many."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_short = reprlib.Repr()  # `repr` itself has no end in what is nested
_short.maxlevel, _short.maxstring, _short.maxother = 2, 80, 80


def is_text(value: object) -> bool:
    """Whether it is a text that has UTF-8: a lone surrogate has none."""
    return isinstance(value, str) and _SURROGATE.search(value) is None


def is_whole(value: object, least: int = -LARGEST, most: int = LARGEST) -> bool:
    """Whether it is a whole number from `least` to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_finite(value: object) -> bool:
    """Whether it is a number that a float holds with room to spare."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= HUGE  # type: ignore[arg-type]


def are_ids(values: object, vocabulary: int = 2**31) -> bool:
    """Whether it is a list of token ids below `vocabulary`."""
    return isinstance(values, list) and all(is_whole(v, 0, vocabulary - 1) for v in values)


COUNT = "count"
KINDS: dict[Any, tuple[str, Callable[[object], bool]]] = {
    COUNT: ("a whole number >= 0", lambda value: is_whole(value, 0)),
    int: ("a whole number", is_whole),
    float: ("a finite number", is_finite),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    list: ("a list", lambda value: isinstance(value, list)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    tuple: (
        "a list of texts",
        lambda values: isinstance(values, list) and all(isinstance(v, str) for v in values),
    ),
}
"""What a value from outside can be, by its annotation: in words, and whether one is that."""


def read_field(values: Mapping[str, Any], name: str, kind: Any) -> Any:
    """The value of that name, None if it is not there.

    Raises:
        ValueError: it is not of the kind, nor None where the kind allows it.
    """
    value, kinds = values.get(name), get_args(kind) if isinstance(kind, UnionType) else (kind,)
    words, is_one = KINDS[get_origin(kinds[0]) or kinds[0]]
    if not is_one(value) and not (value is None and NoneType in kinds):
        raise ValueError(f"{name} = {short_repr(value)}; {words} was expected")
    return value


def from_json(text: str | bytes) -> Any:
    """Parse JSON from outside: every number in it is one that a float holds, every text has UTF-8.

    Raises:
        ValueError: `text` is not JSON or nested too deeply, or it holds NaN, an infinity, a number
            too large for a float, or half of a surrogate pair; the message names its key.
    """
    try:
        if not isinstance(text, str):
            text = text.decode(json.detect_encoding(text))
        try:
            value = _DECODER.decode(text)
        except _Unusable as error:
            raise ValueError(_fault(_MARKING_DECODER.decode(text)) or str(error)) from error
        is_suspect = "\\ud" in text or "\\uD" in text or not is_text(text)
        if is_suspect and (fault := _fault(value)):
            raise ValueError(fault)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1:,} is not UTF-8") from error
    return value


def read_file(path: str | Path, most: int = LARGEST_FILE) -> bytes:
    """The content of a regular file. A device may have no end, and a pipe no writer.

    Raises:
        OSError: it is not a regular file, it has more than `most` bytes, or it cannot be read.
    """

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # else a pipe waits for a writer

    parts, size = [], 0
    with open(path, "rb", opener=without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        while part := file.read(2**20):
            size += len(part)
            if size > most:
                raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
            parts.append(part)
    return b"".join(parts)


def short_repr(value: object, most: int = 40) -> str:
    """A value for a sentence: one line of at most `most` characters."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a whole number beyond 2^53"
    text = _short.repr(value).replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: BaseException) -> str:
    """The first line of what an error of somebody else's says; its kind if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


class _Unusable(ValueError):
    """A number in JSON that no float holds; its message is a sentence."""


def _refuse(name: str) -> float:
    raise _Unusable(f"{name} is not a JSON number")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Unusable(f"{_bare(digits, 40)} is too large a number")
    return number


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _Unusable(f"{_bare(digits, 40)} is too large a number")
    return int(digits)


def _mark(parse: Callable[[str], float]) -> Callable[[str], float | _Unusable]:
    """Return the error of a number in the number's place, so that its key can be found."""

    def parse_or_mark(digits: str) -> float | _Unusable:
        try:
            return parse(digits)
        except _Unusable as error:
            return error

    return parse_or_mark


_PARSE: dict[str, Any] = {"parse_constant": _refuse, "parse_float": _float, "parse_int": _int}
_DECODER = json.JSONDecoder(**_PARSE)
_MARK: dict[str, Any] = {name: _mark(parse) for name, parse in _PARSE.items()}
_MARKING_DECODER = json.JSONDecoder(**_MARK)


def _fault(value: object, key: str = "") -> str:
    """Describe the first number or text in a parsed value that cannot be used; empty if none."""
    if isinstance(value, _Unusable):
        return f"{_bare(key, 30)} = {value}" if key else str(value)
    if isinstance(value, str) and not is_text(value):
        what = _bare(key, 30) if key else "a text"
        return f"{what} contains half a character (a lone surrogate)"
    parts: list[tuple[str, object]] = []
    if isinstance(value, dict):
        parts = [("", name) for name in value] + list(value.items())
    elif isinstance(value, list):
        parts = [(f"{key}[{k}]", each) for k, each in enumerate(value)]
    return next(filter(None, (_fault(part, name) for name, part in parts)), "")


def _bare(text: str, most: int) -> str:
    """A text for a sentence, without quotation marks."""
    return short_repr(text, most).strip("'\"")
