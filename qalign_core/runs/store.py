"""Traces on disk that outlive a kill: one file a prompt, appended as the run goes on.

A line is in the file when `write` returns, so a process that is killed loses at most what was being
drawn. A file belongs to the process that has locked it (`flock`); the system gives it back however
that process ends, so any number of processes can share a folder, and none waits for a dead one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import BinaryIO

from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.runs.trace import TraceReader, header_line, trace_lines
from qalign_core.types import Trace, TraceHeader

_MAY_DIFFER = ("created", "notes")
"""What of a header may be otherwise when a run is taken up again."""


class TraceFile:
    """A trace that grows.

    Attributes:
        known: what was there when it was opened.
    """

    def __init__(self, file: BinaryIO, known: Trace) -> None:
        self._file, self.known = file, known

    def write(self, line: str) -> None:
        """Append a line; it is in the file when this returns.

        Raises:
            InvalidSetting: the disk takes no more.
        """
        content = line.encode()
        try:
            while content:  # a disk that is nearly full takes a part
                content = content[self._file.write(content) :]
        except OSError as error:
            raise InvalidSetting(
                f"{self._file.name} cannot be written ({error.strerror}); make room and run the "
                "same again: it goes on where it was"
            ) from error


@contextmanager
def open_trace(path: Path, header: TraceHeader) -> Iterator[TraceFile | None]:
    """Open the trace of a run to go on with it, made if it is not there; None if another has it.

    Raises:
        InvalidSetting: the file cannot be used, is no trace, or that of another run; it is left
            as it is.
    """
    import fcntl  # not on Windows: only what is here is missing there

    try:
        if path.exists() and not path.is_file():  # reading a device may have no end
            raise InvalidSetting(f"{path} is no file; give another path with --out")
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise InvalidSetting(
            f"{path} cannot be written ({error.strerror}); give another path with --out"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        except OSError as error:
            raise InvalidSetting(
                f"{path} cannot be locked ({error.strerror}); give a path on another disk"
            ) from error
        file.seek(0)
        content = file.read()
        end = content.rfind(b"\n") + 1  # a last line that was cut off in writing is no line
        known = _known(path, content[:end], header)
        if known is None and not _begins(content, header):
            raise InvalidSetting(f"{path} is no trace; give another path, or an empty folder")
        file.truncate(end)
        trace_file = TraceFile(file, known or Trace(header))
        if known is None:
            trace_file.write(header_line(header))
        yield trace_file


def read_trace(path: Path) -> Trace | None:
    """The whole lines of a trace that may still grow; None if there is no header yet.

    Raises:
        InvalidTrace: it is no trace; the message names file and line.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidTrace(f"{path} cannot be read ({error.strerror})") from error
    return _read(path, content[: content.rfind(b"\n") + 1])


def save_trace(
    trace: Trace, path: str | Path, *, extract: Callable[[str], str | None] | None = None
) -> None:
    """Write a trace to a file; `extract` fills in the answers.

    Raises:
        InvalidSetting: it cannot be written; a file that was there is left as it was.
    """
    write_whole(Path(path), "".join(trace_lines(trace, extract)).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, even if the machine stops.

    Raises:
        InvalidSetting: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise InvalidSetting(
            f"{path} cannot be written ({error.strerror}); give another path"
        ) from error


def _begins(content: bytes, header: TraceHeader) -> bool:
    """Whether a line that was cut off is the beginning of this run's header."""
    ours = header_line(header).encode().partition(b',"created":')[0]
    return ours.startswith(content) or content.startswith(ours)


def _known(path: Path, content: bytes, wanted: TraceHeader) -> Trace | None:
    try:
        trace = _read(path, content)
    except InvalidTrace as error:
        raise InvalidSetting(f"{error}; give another path, or an empty folder") from error
    if trace is None:
        return None
    for each in fields(TraceHeader):
        old, new = getattr(trace.header, each.name), getattr(wanted, each.name)
        if old != new and each.name not in _MAY_DIFFER:
            raise InvalidSetting(
                f"{path} is of another run ({each.name}: {old!r:.40}, now {new!r:.40}); give "
                "another path, or the same settings to go on"
            )
    return trace


def _read(path: Path, content: bytes) -> Trace | None:
    if not content:
        return None
    reader = TraceReader()
    try:
        for line in content.decode().split("\n")[:-1]:
            reader.feed(line)
    except (InvalidTrace, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{path}: {error}") from error
    return reader.trace()
