"""Trace files: written as a run goes on, read back, and never shared by two processes.

A trace on disk survives a kill: a line is in the file when `write` returns, so a killed process
loses at most the draw in progress. A file belongs to the process that holds its lock (`flock`). The
system releases the lock however that process ends, so processes can share a folder and none waits
for a dead one.
"""

import errno
import hashlib
import os
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from qalign_core.errors import InvalidSetting, InvalidTrace, QAlignError, on_disk
from qalign_core.record.format import header_line, parse_trace, trace_lines
from qalign_core.record.trace import Trace, TraceHeader, check_same_run, grows
from qalign_core.validation import read_file

MAX_BYTES = 64 * 2**20
"""Largest size of a trace file that is loaded by itself; traces in a folder may be larger."""


def load_trace(path: str | Path) -> Trace:
    """Read a trace from a file.

    Raises:
        InvalidTrace: it is not a trace of this version; the message names the file and the line.
    """
    text = trace_text(Path(path))
    with naming(Path(path)):
        return parse_trace(text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what is wrong with its trace."""
    try:
        yield
    except InvalidTrace as error:
        raise InvalidTrace(f"{path.name}: {error}") from error


def trace_text(path: Path) -> str:
    """Return the text of a trace file.

    Raises:
        InvalidTrace: it cannot be read, or is not text.
    """
    with on_disk(path.name, "read", "give the path of a trace file", InvalidTrace):
        content = read_file(path, MAX_BYTES)
    try:  # a killed writer may leave half a character
        return getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise InvalidTrace(
            f"{path.name} is not UTF-8 text; a trace file (JSON lines) was expected"
        ) from error


class TraceFile:
    """A trace file open for appending.

    Attributes:
        known: the trace in the file when it was opened.
    """

    def __init__(self, path: Path, file: BinaryIO, known: Trace) -> None:
        self._path, self._file, self.known = path, file, known

    def write(self, line: str) -> None:
        """Append a line; it is in the file when this returns.

        Raises:
            InvalidSetting: the disk is full or fails.
        """
        content = line.encode()
        advice = "free some space and run the same command again: it continues where it stopped"
        with on_disk(self._path, "written", advice, InvalidSetting):
            while content:  # a nearly full disk may accept only a part
                content = content[self._file.write(content) :]


@contextmanager
def open_trace(path: Path, header: TraceHeader) -> Iterator[TraceFile | None]:
    """Open or create the trace file of a run to extend it; yield None if another process has it.

    Raises:
        InvalidSetting: the file cannot be used, is not a trace, or belongs to another run; it is
            left unchanged.
    """
    import fcntl  # missing on Windows, where only this function fails

    with on_disk(path, "written", "give another path with --out", InvalidSetting):
        if os.path.exists(path) and not os.path.isfile(path):  # reading a device may have no end
            raise InvalidSetting(f"{path} is not a file; give another path with --out")
        file = path.open("ab+", buffering=0)
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
        end = content.rfind(b"\n") + 1  # an incomplete last line does not count
        try:
            known = _read(path, content[:end])
        except InvalidTrace as error:
            raise InvalidSetting(f"{error}; give another path, or an empty folder") from error
        if known is not None:
            check_same_run(path, known.header, header)
        elif not _begins(content, header):
            raise InvalidSetting(f"{path} is not a trace; give another path, or an empty folder")
        file.truncate(end)
        trace_file = TraceFile(path, file, known or Trace(header))
        if known is None or grows(known.header, header):
            trace_file.known = replace(trace_file.known, header=header, end=None)
            trace_file.write(header_line(header))
        yield trace_file


def content_of(path: Path, kind: type[QAlignError]) -> bytes | None:
    """Return the content of a file, or None if there is none; raise `kind` if it cannot be read."""
    with on_disk(path, "read", "use another folder", kind), suppress(FileNotFoundError):
        return read_file(path)
    return None


def read_trace(path: Path) -> Trace | None:
    """Read the complete lines of a trace that may still grow; None if there is no header yet.

    Raises:
        InvalidTrace: it is not a trace; the message names file and line.
    """
    content = content_of(path, InvalidTrace) or b""
    return _read(path, content[: content.rfind(b"\n") + 1])


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to a file, with the answers that its grader reads.

    Raises:
        InvalidSetting: it cannot be written; an existing file is left unchanged.
        InvalidTrace: it is no trace.
    """
    text = "".join(trace_lines(trace))
    write_whole(Path(path), text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: whole or not at all, even if the machine stops.

    A device or a pipe, such as /dev/stdout, is written to directly, since it must not be replaced.
    The temporary file beside it has a short name: that of `path` may be as long as names can be.

    Raises:
        InvalidSetting: it cannot be written; an existing file is left unchanged.
    """
    place = Path(os.path.realpath(path))
    digest = hashlib.sha256(os.fsencode(place.name)).hexdigest()
    temporary = place.parent / f"qalign-{digest[:12]}.{os.getpid()}.tmp"
    try:
        with on_disk(path, "written", "give another path", InvalidSetting):
            if os.path.islink(place):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
                path.write_bytes(content)
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(place)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _begins(content: bytes, header: TraceHeader) -> bool:
    """True if an incomplete line is the beginning of this run's header."""
    start = header_line(header).encode().partition(b',"created":')[0]
    return start.startswith(content) or content.startswith(start)


def _read(path: Path, content: bytes) -> Trace | None:
    """Parse complete lines; None if there are none. An error names the file."""
    try:
        return parse_trace(content.decode()) if content else None
    except (InvalidTrace, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{path}: {error}") from error
