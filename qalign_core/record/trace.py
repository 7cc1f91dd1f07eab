"""One format for a run, JSON lines: file = wire = recorded run = export; and files that grow.

Lines, each a JSON object with a `type`:

- `header`: what was run (`TraceHeader`), always the first line; a later one asks for more of the
  same run;
- `step`: one step, as the difference from the chain's state before it;
- `sample`: one independent sample of the model alone, in order of its number `n`;
- `end`: how the run ended; a run that went on has more lines behind it.

Version 2 called the sharpness `alpha`; it is still read.

A step's proposal is its chain's current ids up to `index`, then `tokens`. `text` is there only
where the pieces (without the EOS's) do not join to it. `null` in `log_alpha` and `log_u` stands
for minus infinity. `<` is written as an escape, so a line can stand inside a page. Where the target
is sharper than the paper's, the header has `sharpness`, and steps and samples have `log_probs`, one
for each of their `tokens`.

Where not all moves are the paper's, the header has `move` and a step has `log_correction`. A step
of a block has `kept_again`: so many of the state's last ids follow the `tokens`, and `log_probs`
are of both. A step whose move refused has `refused`, the reason, and no reward; its `tokens` were
drawn in vain, and there may be none. `cost` has a third count where tokens were read again.

A trace on disk outlives a kill. A line is in the file when `write` returns, so a process that is
killed loses at most what was being drawn. A file belongs to the process that has locked it
(`flock`); the system gives it back however that process ends, so any number of processes can share
a folder, and none waits for a dead one.
"""

import errno
import json
import math
import os
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_type_hints

from qalign_core.decide.answers.graders import title_of
from qalign_core.errors import InvalidSetting, InvalidTrace, QAlignError, on_disk
from qalign_core.protocols import AnswerExtractor
from qalign_core.run import Run
from qalign_core.target import rename_settings
from qalign_core.types import (
    Cost,
    Header,
    NoProposal,
    Response,
    ScoredResponse,
    Step,
    Trace,
    TraceHeader,
)
from qalign_core.validation import COUNT, from_json, is_whole, read_field, read_file, short_repr

VERSION = 3
READABLE = (2, VERSION)
"""The versions that can be read."""
MAX_BYTES = 64 * 2**20
"""Of a trace that is opened by itself; one of a folder may grow larger."""

Line = dict[str, Any]


# `<` could end a script element, the next three end a line for some readers, and a lone surrogate
# has no UTF-8
_ESCAPED = re.compile("[<\x85\u2028\u2029\ud800-\udfff]")


def _dump(line: Line) -> str:
    text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def header_line(header: TraceHeader) -> str:
    """The first line of a trace."""
    line = {"type": "header", "version": VERSION, **to_dict(header)}
    line["beta"] = _finite_or_none(header.beta)
    return _dump(line)


def to_dict(header: Header) -> Line:
    """The fields of a header as they are written; the paper's target and move go without saying."""
    values = asdict(header)
    for name in ("sharpness", "move"):
        if values[name] == getattr(Run, name):
            del values[name]
    return values


def sample_line(
    n: int, sample: ScoredResponse, extract: AnswerExtractor | None, *, log_probs: bool = False
) -> str:
    """Independent sample number `n`, from 0; its answer, and log-probabilities, as for a step."""
    response = sample.response
    line: Line = {
        "type": "sample",
        "n": n,
        "tokens": list(response.tokens),
        "text": response.text,
        "finished": response.finished,
        "reward": sample.reward,
        "answer": extract(response.text) if extract else None,
        "cost": _cost(sample.cost),
    }
    return _dump(line | _log_probs(response, 0, log_probs))


def step_line(
    step: Step,
    extract: AnswerExtractor | None,
    *,
    log_probs: bool = False,
    corrections: bool = False,
) -> str:
    """One step, with the proposal's extracted final answer, for display.

    With `log_probs`, those of its new tokens too, as far as the model has told them; with
    `corrections`, its move's.
    """
    response, index = step.proposal.response, step.index
    line: Line = {"type": "step", "chain": step.chain, "t": step.t, "index": index}
    if step.refused is not None:
        line |= {
            "tokens": list(step.refused.tokens),
            "pieces": list(step.refused.pieces),
            "refused": step.refused.reason,
        }
    else:
        new = slice(index, len(response) - step.kept_again)
        line |= {
            "tokens": list(response.tokens[new]),
            "pieces": list(response.pieces[new]),
            "finished": response.finished,
            "reward": step.proposal.reward,
        }
    line |= {
        "log_alpha": _finite_or_none(step.log_alpha),
        "log_u": _finite_or_none(step.log_u),
        "accepted": step.accepted,
        "answer": extract(response.text) if extract else None,
        "cost": _cost(step.cost),
    }
    if step.kept_again:
        line["kept_again"] = step.kept_again
    if corrections and step.refused is None and step.t:
        line["log_correction"] = step.log_correction
    if step.refused is not None:
        return _dump(line)
    if _joined(response.pieces, response.finished) != response.text:
        line["text"] = response.text
    return _dump(line | _log_probs(response, index, log_probs))


def _cost(cost: Cost) -> list[int]:
    """The counts of a cost; the last is there where it counts."""
    return list(astuple(cost))[: None if cost.read else 2]


def _log_probs(response: Response, index: int, wanted: bool) -> Line:
    """What a line says of the probabilities of a response's tokens from `index` on."""
    known = wanted and len(response.log_probs) == len(response)
    return {"log_probs": list(response.log_probs[index:])} if known else {}


def end_line(reason: str, message: str = "") -> str:
    """How the run ended ("finished", "stopped", "failed"), and in plain words why if it failed."""
    return _dump({"type": "end", "reason": reason, "message": message})


def trace_lines(trace: Trace, extract: AnswerExtractor | None = None) -> Iterator[str]:
    """All lines of a trace, newline included; `extract` fills in the answers."""
    yield header_line(trace.header)
    asked = {"log_probs": trace.header.needs_log_probs}
    corrections = trace.header.move != Run.move
    yield from (step_line(step, extract, **asked, corrections=corrections) for step in trace.steps)
    yield from (sample_line(n, sample, extract, **asked) for n, sample in enumerate(trace.pool))
    yield end_line(*(trace.end or ("finished", "")))


def load_trace(path: str | Path) -> Trace:
    """Read a trace from a file.

    Raises:
        InvalidTrace: it is not a trace of this version; the message names the line.
    """
    return parse_trace(trace_text(Path(path)))


def trace_text(path: Path) -> str:
    """The text of a trace's file.

    Raises:
        InvalidTrace: it cannot be read, or is no text.
    """
    with on_disk(path.name, "read", "give the path of a trace file", InvalidTrace):
        content = read_file(path, MAX_BYTES)
    try:  # a killed writer may leave half a character too
        return getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise InvalidTrace(
            f"{path.name} is not UTF-8 text; a trace file (JSON lines) was expected"
        ) from error


def parse_trace(text: str) -> Trace:
    """Read a trace from its text; a last line that was cut off in writing is left out.

    Raises:
        InvalidTrace: it is not a trace of this version; the message names the line.
    """
    reader = TraceReader()
    for line in whole_lines(text).split("\n"):
        if line.strip():
            reader.feed(line)
        else:
            reader.line_number += 1
    return reader.trace()


def parse_header(line: object) -> TraceHeader:
    """The header that the first line of a trace is.

    Raises:
        InvalidTrace: it is none.
    """
    reader = TraceReader()
    reader.feed(str(line))
    return reader.trace().header


def whole_lines(text: str) -> str:
    """The text of a trace without a last line that was cut off, as a killed writer leaves it."""
    end = text.rfind("\n") + 1
    try:
        from_json(text[end:])
    except ValueError:
        return text[:end]
    return text


class TraceReader:
    """Reads a trace line by line and checks it as it goes.

    Attributes:
        header: None until the first line was read.
        steps: the steps so far.
        pool: the independent samples so far.
        end: (reason, message) once the run has ended.
    """

    def __init__(self) -> None:
        self.header: TraceHeader | None = None
        self.steps: list[Step] = []
        self.pool: list[ScoredResponse] = []
        self.end: tuple[str, str] | None = None
        self.line_number = 0
        self._last: dict[int, Step] = {}

    def trace(self) -> Trace:
        """What has been read so far.

        Raises:
            InvalidTrace: there was no header.
        """
        if self.header is None:
            raise InvalidTrace("the trace is empty; its first line should be a header")
        steps, pool = tuple(self.steps), tuple(self.pool)
        return Trace(self.header, steps, pool, self.end)

    def feed(self, text: str) -> None:
        """Read one line.

        Raises:
            InvalidTrace: the line is not what the format says; the message names it.
        """
        self.line_number += 1
        line = self._object(text)
        kind = line.get("type")
        if kind != "header" and self.header is None:
            raise self._bad(f"a {short_repr(kind)} line", "a header, and first")
        if kind == "header":
            header = self._header(line)
            if self.header is not None and (differs := _difference(self.header, header)):
                raise self._bad(f"another header ({differs})", "more of the same run")
            self.header, self.end = header, None
        elif kind == "step":
            step = self._step(line)
            self._last[step.chain] = step
            self.steps.append(step)
            self.end = None
        elif kind == "sample":
            self.pool.append(self._sample(line))
            self.end = None
        elif kind == "end":
            self.end = (str(line.get("reason", "")), str(line.get("message", "")))
        else:
            raise self._bad(f"type {short_repr(kind)}", "header, step, sample or end")

    def _object(self, text: str) -> Line:
        try:
            line = from_json(text)
        except json.JSONDecodeError:
            raise self._bad("something that is not JSON", "a JSON object") from None
        except ValueError as error:
            raise self._bad(f"something that is not JSON ({error})", "a JSON object") from None
        if not isinstance(line, dict):
            raise self._bad(type(line).__name__, "a JSON object")
        return line

    def _header(self, line: Line) -> TraceHeader:
        version = line.get("version")
        if not is_whole(version, *READABLE):
            raise self._bad(f"version {short_repr(version)}", f"version {READABLE[0]} or {VERSION}")
        try:
            return read_header(TraceHeader, line)
        except ValueError as error:
            raise InvalidTrace(f"line {self.line_number} of the trace has {error}") from error

    def _sample(self, line: Line) -> ScoredResponse:
        n = self._get(line, "n", int)
        if n != len(self.pool):
            raise self._bad(f"sample {n}", f"sample {len(self.pool)}")
        tokens = self._each(line, "tokens", COUNT)
        if not tokens:
            raise self._bad("no tokens", "one at least")
        text, finished = self._get(line, "text", str), self._get(line, "finished", bool)
        log_probs = self._log_probs(line, len(tokens))
        return self._scored(line, Response(tokens, text, finished, log_probs=log_probs))

    def _log_probs(self, line: Line, n: int) -> tuple[float, ...]:
        """Those of the line's tokens; none if it has none, as most traces do not."""
        found = self._each({"log_probs": [], **line}, "log_probs", float)
        if found and not (len(found) == n and max(found) <= 0):
            raise self._bad(
                f"log_probs {short_repr(found)} for {n} tokens", "one <= 0 a token, or none"
            )
        return found

    def _scored(self, line: Line, response: Response) -> ScoredResponse:
        costs = self._each(line, "cost", COUNT)
        if len(costs) not in (2, 3):
            raise self._bad(f"{len(costs)} costs", "2 or 3")
        return ScoredResponse(response, float(self._get(line, "reward", float)), Cost(*costs))

    def _step(self, line: Line) -> Step:
        chain, t, index = (self._get(line, name, int) for name in ("chain", "t", "index"))
        last = self._last.get(chain)
        expected_t = 0 if last is None else last.t + 1
        if t != expected_t or chain < 0:
            raise self._bad(f"step t = {t} of chain {chain}", f"t = {expected_t}")
        kept = Response((), "", False) if last is None else last.state.response
        if not 0 <= index <= max(0, len(kept) - 1):
            raise self._bad(f"index {index}", f"0 to {max(0, len(kept) - 1)}")
        new = self._each(line, "tokens", COUNT)
        refused = self._get(line, "refused", str) if "refused" in line and last else None
        again = self._get({"kept_again": 0, **line}, "kept_again", COUNT)
        if again > len(kept) - index:
            raise self._bad(f"kept_again {again}", f"0 to {len(kept) - index}")
        if not (new or refused):
            raise self._bad("no new tokens", "one at least")
        pieces = self._each(line, "pieces", str)
        if pieces and len(pieces) != len(new):
            raise self._bad(f"{len(pieces)} pieces for {len(new)} tokens", "one piece per token")
        if refused:
            assert last is not None, "a refusal has a state"
            cost = Cost(*self._each(line, "cost", COUNT)[:3])
            proposal = ScoredResponse(kept, last.state.reward, cost)
        else:
            finished, tail = self._get(line, "finished", bool), slice(len(kept) - again, None)
            all_pieces = kept.pieces[:index] + pieces + kept.pieces[tail] if pieces else ()
            text = self._get(line, "text", str) if "text" in line else _joined(all_pieces, finished)
            log_probs = (*kept.log_probs[:index], *self._log_probs(line, len(new) + again))
            tokens = kept.tokens[:index] + new + kept.tokens[tail]
            proposal = self._scored(line, Response(tokens, text, finished, all_pieces, log_probs))
        log_alpha, log_u = (
            -math.inf if line.get(name) is None else float(self._get(line, name, float))
            for name in ("log_alpha", "log_u")
        )
        accepted = self._get(line, "accepted", bool)
        if log_alpha > 0 or accepted != (log_u < log_alpha):
            raise self._bad(
                f"accepted = {accepted} with log alpha {log_alpha:.4g} and log u {log_u:.4g}",
                "the verdict of u < alpha",
            )
        current = proposal if last is None else last.state
        correction = -math.inf if refused else None
        if "log_correction" in line:
            correction = float(self._get(line, "log_correction", float))
        in_vain = NoProposal(refused, index, new, pieces) if refused else None
        here = (chain, t, index, current, proposal, log_alpha, log_u, accepted, proposal.cost)
        return Step(*here, again, correction, in_vain)

    def _get(self, line: Line, name: str, kind: Any) -> Any:
        try:
            return read_field(line, name, kind)
        except ValueError as error:
            raise InvalidTrace(f"line {self.line_number} of the trace has {error}") from error

    def _each(self, line: Line, name: str, kind: Any) -> tuple[Any, ...]:
        return tuple(self._get({name: v}, name, kind) for v in self._get(line, name, list))

    def _bad(self, came: str, expected: str) -> InvalidTrace:
        return InvalidTrace(
            f"line {self.line_number} of the trace has {came}; {expected} was expected"
        )


H = TypeVar("H", bound=Header)


def read_header(cls: type[H], line: Line) -> H:
    """A header from its JSON; what is not there has its default.

    Raises:
        ValueError: a field is not what it should be.
    """
    values: dict[str, Any] = {"extractor": None}  # an open-ended prompt has none
    line = rename_settings(line)
    for name, kind in _kinds(cls).items():  # type: ignore[arg-type]
        if name == "beta" and line.get(name, 0) is None:  # unknown: the trace was put together
            values[name] = math.nan
        elif name in line:
            value = read_field(line, name, kind)
            values[name] = tuple(value) if isinstance(value, list) else value
    return cls(**values)


_kinds = cache(get_type_hints)


def _joined(pieces: tuple[str, ...], finished: bool) -> str:
    return "".join(pieces[:-1] if finished else pieces)


_MAY_GROW = ("steps", "chains", "pool")
"""Entries of a header that may grow when a run is resumed: earlier draws stay the same."""
_MAY_DIFFER = ("created", "notes", "task", "command", "source")
"""Entries of a header that may differ when a run is resumed."""


class TraceFile:
    """A trace that grows.

    Attributes:
        known: what was there when it was opened.
    """

    def __init__(self, path: Path, file: BinaryIO, known: Trace) -> None:
        self._path, self._file, self.known = path, file, known

    def write(self, line: str) -> None:
        """Append a line; it is in the file when this returns.

        Raises:
            InvalidSetting: the disk takes no more.
        """
        content = line.encode()
        advice = "free some space and run the same command again: it continues where it stopped"
        with on_disk(self._path, "written", advice, InvalidSetting):
            while content:  # a disk that is nearly full takes a part
                content = content[self._file.write(content) :]


@contextmanager
def open_trace(path: Path, header: TraceHeader) -> Iterator[TraceFile | None]:
    """Open the trace of a run to go on with it, made if it is not there; None if another has it.

    Raises:
        InvalidSetting: the file cannot be used, is no trace, or that of another run; it is left
            as it is.
    """
    import fcntl  # not on Windows: only what is here is missing there

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
        end = content.rfind(b"\n") + 1  # a last line that was cut off in writing is no line
        try:
            known = _read(path, content[:end])
        except InvalidTrace as error:
            raise InvalidSetting(f"{error}; give another path, or an empty folder") from error
        if known is not None:
            check_same_run(path, known.header, header)
        elif not _begins(content, header):
            raise InvalidSetting(f"{path} is not a trace; give another path, or an empty folder")
        file.truncate(end)
        longer = known is not None and grows(known.header, header)
        if known is not None and longer:
            known = replace(known, header=header, end=None)
        trace_file = TraceFile(path, file, known or Trace(header))
        if known is None or longer:
            trace_file.write(header_line(header))
        yield trace_file


def content_of(path: Path, kind: type[QAlignError]) -> bytes | None:
    """The content of a file, None without one; an error of type `kind` if it cannot be read."""
    with on_disk(path, "read", "use another folder", kind), suppress(FileNotFoundError):
        return read_file(path)
    return None


def read_trace(path: Path) -> Trace | None:
    """The whole lines of a trace that may still grow; None if there is no header yet.

    Raises:
        InvalidTrace: it is no trace; the message names file and line.
    """
    content = content_of(path, InvalidTrace) or b""
    return _read(path, content[: content.rfind(b"\n") + 1])


def save_trace(trace: Trace, path: str | Path, *, extract: AnswerExtractor | None = None) -> None:
    """Write a trace to a file; `extract` fills in the answers.

    Raises:
        InvalidSetting: it cannot be written; a file that was there is left as it was.
    """
    write_whole(Path(path), "".join(trace_lines(trace, extract)).encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, even if the machine stops.

    A device or a pipe, such as /dev/stdout, is written to, since nothing may take its place.

    Raises:
        InvalidSetting: it cannot be written; a file that was there is left as it was.
    """
    place = Path(os.path.realpath(path))
    temporary = place.parent / f"{place.name}.{os.getpid()}.tmp"
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
    """Whether a line that was cut off is the beginning of this run's header."""
    ours = header_line(header).encode().partition(b',"created":')[0]
    return ours.startswith(content) or content.startswith(ours)


def check_same_run(place: Path, there: Header, wanted: Header) -> None:
    """Refuse to go on in a file or folder that holds another run.

    Raises:
        InvalidSetting: with the first setting that differs.
    """
    if differs := _difference(there, wanted):
        raise InvalidSetting(
            f"{place} contains a different run ({differs}); give another path, or the same "
            "settings to continue it (steps, chains, samples and problems may be more)"
        )


def grows(there: Header, wanted: Header) -> bool:
    """Whether more is wanted of the same run."""
    return any(getattr(there, name) < getattr(wanted, name) for name in _MAY_GROW)


def _difference(there: Header, wanted: Header) -> str:
    """The first setting in which a run is not the one there, or more of it; else empty."""
    # last what may follow from another setting: how long the chains of a set may become
    for name in sorted((each.name for each in fields(wanted)), key=lambda name: name == "steps"):
        old, new = (_as_compared(header, name) for header in (there, wanted))
        may = name in _MAY_DIFFER or (name in _MAY_GROW and old < new)
        if old != new and not may:
            if name in ("problems", "digest"):
                return "other problems"
            return f"{'samples' if name == 'pool' else name}: {old!r:.60}, now {new!r:.60}"
    return ""


def _as_compared(header: Header, name: str) -> Any:
    """A setting as two runs are compared: a file by its name, a model by its hash if it has one.

    The same model, or the same grader, may have another path on another machine.
    """
    value = getattr(header, name)
    if name == "extractor":
        return value and title_of(value)
    revision = getattr(header, f"{name}_revision", "")
    return revision if _HASH.fullmatch(revision) else value


_HASH = re.compile(r"[0-9a-f]{12,}")


def _read(path: Path, content: bytes) -> Trace | None:
    """The trace of whole lines, None if there are none; an error names the file."""
    try:
        return parse_trace(content.decode()) if content else None
    except (InvalidTrace, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{path}: {error}") from error
