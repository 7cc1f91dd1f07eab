"""Validate values from outside: texts, numbers, JSON, files.

    >>> read_field({"steps": 64}, "steps", int)
    64
    >>> is_whole(True), is_whole(2**53), is_finite(1e301)
    (False, False, False)

Booleans do not count as numbers. A whole number must be exact as a 64-bit float, the only number of
JavaScript; a finite number must leave room for sums.
"""

import asyncio
import errno
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from qalign_core.errors import InvalidSetting, QAlignError

LARGEST = 2**53 - 1
"""The largest absolute value of a whole number."""
HUGE = 1e300
"""The largest absolute value that a number in a setting or a trace may have."""
LARGEST_FILE = 512 * 2**20
"""Largest size in bytes of a file that is read whole."""
MAX_COUNT = 10**9
"""Largest count of samples, problems or tokens."""
MAX_DIGITS = 308
"""Largest number of digits of a whole number in JSON; a float can hold any such number."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_short = reprlib.Repr()  # `repr` may take very long on nested values
_short.maxlevel, _short.maxstring, _short.maxother = 2, 80, 80


OLD_NAMES = {"alpha": "sharpness"}
"""Old names of settings in links, traces, options and keywords, each with its current name.

Elsewhere alpha is the acceptance probability.
"""


def rename_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same settings under their current names."""
    return {OLD_NAMES.get(name, name): value for name, value in settings.items()}


def is_text(value: object) -> bool:
    """True for a text that can be encoded in UTF-8, so without lone surrogates."""
    return isinstance(value, str) and _SURROGATE.search(value) is None


def is_file_name(name: str) -> bool:
    """True if a name refers to a function or class in a Python file, "FILE.py:NAME"."""
    return ".py:" in name


def is_integer(value: object) -> bool:
    """True for a whole number, of NumPy too."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_whole(value: object, low: int = -LARGEST, high: int = LARGEST) -> bool:
    """True for a whole number from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_finite(value: object) -> bool:
    """True for a finite number of at most `HUGE`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= HUGE  # type: ignore[arg-type]


def are_ids(values: object, vocabulary: int = 2**31) -> bool:
    """True for a list of token ids below `vocabulary`."""
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
"""Types of values from outside, by annotation: a description, and a predicate."""


@cache
def _kind_of(annotation: Any) -> tuple[str, Callable[[object], bool], bool]:
    """Return the words and the predicate of an annotation, and True if it allows None."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    words, is_one = KINDS[get_origin(kinds[0]) or kinds[0]]
    return words, is_one, NoneType in kinds


def read_field(values: Mapping[str, Any], name: str, kind: Any) -> Any:
    """Return the value of a field, or None if it is missing and `kind` allows that.

    Raises:
        ValueError: the value does not have the type.
    """
    value = values.get(name)
    words, is_one, is_optional = _kind_of(kind)
    if not is_one(value) and not (value is None and is_optional):
        raise ValueError(f"{name} = {short_repr(value)}; {words} was expected")
    return value


def check_count(name: str, value: int, minimum: int) -> int:
    """Return a whole number of at least `minimum`, or raise `InvalidSetting` naming the setting."""
    if not is_integer(value) or value < minimum:
        raise InvalidSetting(f"{name} must be a whole number >= {minimum}, got {short_repr(value)}")
    if value > MAX_COUNT:
        raise InvalidSetting(f"{name} must be at most {MAX_COUNT:,}, got {short_repr(value)}")
    return value


def check_real(name: str, value: Any, low: int, *, above: bool = False, advice: str = "") -> float:
    """Return a finite number of at least `low`, or with `above` larger than `low`, as a float.

    Raises:
        InvalidSetting: it is not one; the message names the setting and ends with the advice.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and not isinstance(value, int):
        value = float(value)  # numpy's float32 cannot be compared with `HUGE`
    if not (is_number and low <= value <= HUGE) or (above and value == low):
        rule = f"a finite number {'>' if above else '>='} {low}"
        rest = f"; {advice}" if advice else ""
        raise InvalidSetting(f"{name} must be {rule}, got {short_repr(value)}{rest}")
    return float(value)


def from_json(text: str | bytes) -> Any:
    """Parse untrusted JSON: every number fits a float, and every text has UTF-8.

    Raises:
        ValueError: `text` is not JSON or nested too deeply, or it holds NaN, an infinity, a number
            too large for a float, or half of a surrogate pair; the message names its key.
    """
    unusable: list[_Unusable] = []

    def refuse(number: str, reason: str = "is too large a number") -> _Unusable:
        unusable.append(_Unusable(f"{_bare(number, 40)} {reason}"))
        return unusable[-1]

    def parse_float(digits: str) -> float | _Unusable:
        number = float(digits)
        return refuse(digits) if math.isinf(number) else number

    decoder = json.JSONDecoder(
        parse_float=parse_float,
        parse_int=lambda n: refuse(n) if len(n.lstrip("-")) > MAX_DIGITS else int(n),
        parse_constant=lambda name: refuse(name, "is not a JSON number"),
    )
    try:
        if not isinstance(text, str):
            text = text.decode(json.detect_encoding(text))
        value = decoder.decode(text)
        is_suspect = unusable or "\\ud" in text or "\\uD" in text or not is_text(text)
        if is_suspect and (fault := _fault(value) or next(iter(unusable), "")):
            raise ValueError(fault)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1:,} is not UTF-8") from error
    return value


def read_file(path: str | Path, most: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file; a device may have no end, and a pipe no writer.

    Raises:
        OSError: it is not a regular file, it has more than `most` bytes, or it cannot be read.
    """

    def without_waiting(name: str, flags: int) -> int:
        # otherwise, opening a pipe waits for a writer
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    parts, size = [], 0
    with open(path, "rb", opener=without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        # its size is checked first, and again as it is read: it may grow meanwhile
        while max(size, status.st_size) <= most and (part := file.read(2**20)):
            size += len(part)
            parts.append(part)
        if max(size, status.st_size) > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return b"".join(parts)


def short_repr(value: object, most: int = 40) -> str:
    """Format a value for an error message: one line of at most `most` characters."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a whole number beyond 2^53"
    text = _short.repr(value).replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextmanager
def user_code(
    kind: type[QAlignError], before: str, after: str, *, let: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turn whatever a user's own code raises, even `sys.exit()`, into one error.

    Args:
        kind: the class of that error.
        before, after: its message, without the reason between them ("KeyError: 'a'").
        let: errors that pass unchanged, as Ctrl-C and the end of the task do. Errors of settings
            and prompts must not: servers show them to visitors as the visitors' own words.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, *let)) or _is_end_of_task(error):
            raise
        raise kind(f"{before}{type(error).__name__}: {first_line(error)}{after}") from error


def _is_end_of_task(error: BaseException) -> bool:
    """True if the running task is cancelled; a user's code may raise the same error by itself."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    with suppress(RuntimeError):  # nothing runs in this thread
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return False


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without its number; its type if it is empty."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", str(error).strip())
    return (text.splitlines() or [type(error).__name__])[0][:300]


class _Unusable(str):
    """A sentence about a number in JSON that no float holds, in the number's place."""


def _fault(value: object, key: str = "") -> str:
    """Describe the first number or text in a parsed value that cannot be used; empty if none."""
    if isinstance(value, _Unusable):
        return f"{_bare(key, 30)} = {value}" if key else str(value)
    if isinstance(value, str) and not is_text(value):
        what = _bare(key, 30) if key else "a text"
        return f"{what} contains half a character (a lone surrogate)"
    parts: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        parts = chain(zip(repeat(""), value, strict=False), value.items())
    elif isinstance(value, list):
        # a body may have a million numbers, and a key be as long
        texts = ((k, each) for k, each in enumerate(value) if isinstance(each, str | list | dict))
        parts = ((f"{key[:30]}[{k}]", each) for k, each in texts)
    return next(filter(None, (_fault(part, name) for name, part in parts)), "")


def _bare(text: str, most: int) -> str:
    """A text for a sentence, without quotation marks."""
    return short_repr(text, most).strip("'\"")
