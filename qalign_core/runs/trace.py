"""One format for a run, JSON lines: file = wire = recorded run = export.

Lines, each a JSON object with a `type`:

- `header`: what was run (`TraceHeader`), always the first line;
- `base`: rewards of independent base samples; a later line replaces an earlier one;
- `step`: one step, as the difference from the chain's state before it;
- `end`: how the run ended.

A step's proposal is its chain's current ids up to `index`, then `tokens`. `text` is there only
where the pieces (without the EOS's) do not join to it. `null` in `log_alpha` and `log_u` stands
for minus infinity. `<` is written as an escape, so a line can stand inside a page.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from qalign_core.errors import InvalidTrace
from qalign_core.reading import from_json, is_finite, is_whole, shown
from qalign_core.types import (
    Cost,
    Response,
    Sampling,
    ScoredResponse,
    Step,
    Trace,
    TraceHeader,
)

VERSION = 1
MAX_BYTES = 64 * 2**20
MAX_LINE = 2**20

EndReason = Literal["finished", "stopped", "failed"]
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
    line = {"type": "header", "version": VERSION, **asdict(header)}
    line["beta"] = _finite_or_none(header.beta)
    return _dump(line)


def base_line(rewards: Iterable[float]) -> str:
    """The rewards of independent base samples, raw RM units."""
    return _dump({"type": "base", "rewards": [float(reward) for reward in rewards]})


def step_line(step: Step, answer: str | None = None) -> str:
    """One step; `answer` is the proposal's extracted final answer, for display."""
    response, index = step.proposal.response, step.index
    line: Line = {
        "type": "step",
        "chain": step.chain,
        "t": step.t,
        "index": index,
        "tokens": list(response.tokens[index:]),
        "pieces": list(response.pieces[index:]),
        "finished": response.finished,
        "reward": step.proposal.reward,
        "log_alpha": _finite_or_none(step.log_alpha),
        "log_u": _finite_or_none(step.log_u),
        "accepted": step.accepted,
        "answer": answer,
        "cost": list(asdict(step.cost).values()),
    }
    if _joined(response.pieces, response.finished) != response.text:
        line["text"] = response.text
    return _dump(line)


def end_line(reason: EndReason, message: str = "") -> str:
    """The last line: how the run ended, and in plain words why if it failed."""
    return _dump({"type": "end", "reason": reason, "message": message})


def trace_lines(trace: Trace, extract: Callable[[str], str | None] | None = None) -> Iterator[str]:
    """All lines of a trace, newline included; `extract` fills in the steps' answers."""
    yield header_line(trace.header)
    if trace.base_rewards:
        yield base_line(trace.base_rewards)
    for step in trace.steps:
        yield step_line(step, extract(step.proposal.response.text) if extract else None)
    yield end_line("finished")


def save_trace(
    trace: Trace, path: str | Path, *, extract: Callable[[str], str | None] | None = None
) -> None:
    """Write a trace to a file; a crash in between leaves the old file as it was."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(trace_lines(trace, extract)), encoding="utf-8")
    os.replace(partial, path)


def load_trace(path: str | Path) -> Trace:
    """Read a trace from a file.

    Raises:
        InvalidTrace: it is not a trace of this version; the message names the line.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InvalidTrace(
                f"{path.name} has {size:,} bytes; a trace of at most {MAX_BYTES:,} was expected"
            )
        return parse_trace(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidTrace(
            f"{path.name} cannot be read ({error.strerror}); give the path of a trace file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidTrace(
            f"{path.name} is not UTF-8 text; a trace file (JSON lines) was expected"
        ) from error


def parse_trace(text: str) -> Trace:
    """Read a trace from its text; a last line that was cut off in writing is left out.

    Raises:
        InvalidTrace: it is not a trace of this version; the message names the line.
    """
    if len(text) > MAX_BYTES:
        raise InvalidTrace(
            f"the trace has {len(text):,} characters; at most {MAX_BYTES:,} were expected"
        )
    lines = text.split("\n")
    if lines[-1] and not _is_json(lines[-1]):  # a killed writer leaves half a line
        lines.pop()
    reader = TraceReader()
    for line in lines:
        if line.strip():
            reader.feed(line)
        else:
            reader.line_number += 1
    return reader.trace()


class TraceReader:
    """Reads a trace line by line and checks it as it goes.

    Attributes:
        header: None until the first line was read.
        steps: the steps so far.
        base_rewards: rewards of the base samples so far.
        end: (reason, message) once the run has ended.
    """

    def __init__(self) -> None:
        self.header: TraceHeader | None = None
        self.steps: list[Step] = []
        self.base_rewards: tuple[float, ...] = ()
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
        return Trace(self.header, tuple(self.steps), self.base_rewards)

    def feed(self, text: str) -> None:
        """Read one line.

        Raises:
            InvalidTrace: the line is not what the format says; the message names it.
        """
        self.line_number += 1
        line = self._object(text)
        kind = line.get("type")
        if (kind == "header") != (self.header is None):
            raise self._bad(f"a {shown(kind)} line", "one header, and first")
        if kind == "header":
            self.header = self._header(line)
        elif kind == "base":
            rewards = self._list(line, "rewards")
            self.base_rewards = tuple(self._finite(value, "rewards") for value in rewards)
        elif kind == "step":
            step = self._step(line)
            self._last[step.chain] = step
            self.steps.append(step)
        elif kind == "end":
            self.end = (str(line.get("reason", "")), str(line.get("message", "")))
        else:
            raise self._bad(f"type {shown(kind)}", "header, base, step or end")

    def _object(self, text: str) -> Line:
        if len(text) > MAX_LINE:
            raise self._bad(f"{len(text):,} characters", f"at most {MAX_LINE:,}")
        try:
            line = from_json(text)
        except ValueError:
            raise self._bad("something that is not JSON", "a JSON object") from None
        if not isinstance(line, dict):
            raise self._bad(type(line).__name__, "a JSON object")
        return line

    def _header(self, line: Line) -> TraceHeader:
        version = line.get("version")
        if not is_whole(version, VERSION, VERSION):
            raise self._bad(f"version {shown(version)}", f"version {VERSION}")
        values: dict[str, Any] = {}
        for name, kind in _HEADER_TYPES.items():
            if name in line:
                values[name] = self._typed(line, name, kind)
        for name in ("reference", "extractor"):
            if line.get(name) is not None:
                values[name] = self._typed(line, name, str)
        if line.get("beta") is not None:
            values["beta"] = self._finite(line["beta"], "beta")
        sampling = self._typed(line, "sampling", dict) if "sampling" in line else {}
        settings = {
            name: self._finite(sampling[name], name)
            for name in ("temperature", "top_p")
            if name in sampling
        } | {
            name: self._typed(sampling, name, int)
            for name in ("top_k", "max_new_tokens")
            if name in sampling
        }
        notes = tuple(str(note) for note in self._list(line, "notes")) if "notes" in line else ()
        return TraceHeader(**values, sampling=Sampling(**settings), notes=notes)

    def _step(self, line: Line) -> Step:
        chain, t = self._typed(line, "chain", int), self._typed(line, "t", int)
        index = self._typed(line, "index", int)
        last = self._last.get(chain)
        expected_t = 0 if last is None else last.t + 1
        if t != expected_t or chain < 0:
            raise self._bad(f"step t = {t} of chain {chain}", f"t = {expected_t}")
        kept = Response((), "", False) if last is None else last.state.response
        if not 0 <= index <= max(0, len(kept) - 1):
            raise self._bad(f"index {index}", f"0 to {max(0, len(kept) - 1)}")
        new = tuple(self._integer(value, "tokens") for value in self._list(line, "tokens"))
        if not new:
            raise self._bad("no new tokens", "one at least")
        pieces = tuple(self._string(value, "pieces") for value in self._list(line, "pieces"))
        if pieces and len(pieces) != len(new):
            raise self._bad(f"{len(pieces)} pieces for {len(new)} tokens", "a piece a token")
        finished = self._typed(line, "finished", bool)
        all_pieces = kept.pieces[:index] + pieces if pieces else ()
        text = self._typed(line, "text", str) if "text" in line else _joined(all_pieces, finished)
        response = Response(kept.tokens[:index] + new, text, finished, all_pieces)
        costs = [self._integer(value, "cost") for value in self._list(line, "cost")]
        if len(costs) != len(fields(Cost)):
            raise self._bad(f"{len(costs)} costs", f"{len(fields(Cost))}")
        cost = Cost(*costs)
        proposal = ScoredResponse(response, self._finite(line.get("reward"), "reward"), cost)
        log_alpha, log_u = (
            -math.inf if line.get(name) is None else self._finite(line[name], name)
            for name in ("log_alpha", "log_u")
        )
        accepted = self._typed(line, "accepted", bool)
        if log_alpha > 0 or accepted != (log_u < log_alpha):
            raise self._bad(
                f"accepted = {accepted} with log alpha {log_alpha:.4g} and log u {log_u:.4g}",
                "the verdict of u < alpha",
            )
        current = proposal if last is None else last.state
        return Step(chain, t, index, current, proposal, log_alpha, log_u, accepted, cost)

    def _typed(self, line: Line, name: str, kind: type) -> Any:
        value = line.get(name)
        if not (is_whole(value) if kind is int else isinstance(value, kind)):
            raise self._bad(f"{name} = {shown(value)}", f"{_KINDS[kind]}")
        return value

    def _list(self, line: Line, name: str) -> list[Any]:
        return self._typed(line, name, list)  # type: ignore[no-any-return]

    def _integer(self, value: Any, name: str) -> int:
        if not is_whole(value, 0):
            raise self._bad(f"{name} = {shown(value)}", "a whole number >= 0")
        return int(value)

    def _string(self, value: Any, name: str) -> str:
        return self._typed({name: value}, name, str)  # type: ignore[no-any-return]

    def _finite(self, value: Any, name: str) -> float:
        if not is_finite(value):
            raise self._bad(f"{name} = {shown(value)}", "a finite number")
        return float(value)

    def _bad(self, came: str, expected: str) -> InvalidTrace:
        return InvalidTrace(
            f"line {self.line_number} of the trace has {came}; {expected} was expected"
        )


_HEADER_TYPES: dict[str, type] = {
    "lm": str,
    "rm": str,
    "prompt": str,
    "seed": int,
    "steps": int,
    "chains": int,
    "prompt_tokens": int,
    "created": str,
    "origin": str,
    "lm_revision": str,
    "rm_revision": str,
}
_KINDS = {
    int: "a whole number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _joined(pieces: tuple[str, ...], finished: bool) -> str:
    return "".join(pieces[:-1] if finished else pieces)


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True
