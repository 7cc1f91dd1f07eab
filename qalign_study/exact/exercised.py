"""Which parts of a function ran: branches that no test met are named by their lines.

watch = Exercised([move.propose])
with watch:
asyncio.run(move.propose(choices, y))
watch.missing()  # ["line 12: choices.uniform(4)"]
"""

import dis
import inspect
import linecache
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

Span = tuple[str, int, int, int, int]
"""File, first line and column, and last line and column of an expression; lines from 1."""


class Exercised:
    """Watches the files of functions, and keeps the expressions that did not run.

    Only functions that were called, and those defined inside them, count: another function of
    the file may have no part in these. Code that only raises proposes nothing, and is left out.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._unseen: dict[CodeType, dict[int, Span]] = {}
        for function in functions:
            self._add(inspect.unwrap(function).__code__)
        self._files = {code.co_filename for code in self._unseen}

    def __enter__(self) -> "Exercised":
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _add(self, code: CodeType) -> None:
        self._unseen[code] = _spans(code)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._add(inner)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        if code not in self._unseen:
            self._add(code)
        if not self._unseen[code]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, arg: object) -> Any:
        unseen = self._unseen[frame.f_code]
        if event == "opcode" and (span := unseen.get(frame.f_lasti)):
            for offset in [offset for offset, other in unseen.items() if other == span]:
                del unseen[offset]
            if not any(self._unseen.values()):  # tracing slows every call down
                sys.settrace(self._before)
        return self._on_opcode

    def missing(self) -> list[str]:
        """Return the parts that never ran, the longest expression of each line."""
        spans = {span for unseen in self._unseen.values() for span in unseen.values()}
        inside = {span for span in spans for other in spans if span != other and _in(span, other)}
        lines = dict[tuple[str, int], str]()
        for span in spans - inside:
            lines[span[:2]] = max(lines.get(span[:2], ""), _text(span), key=len)
        return [f"line {line} of {file}: {text}" for (file, line), text in sorted(lines.items())]


def _text(span: Span) -> str:
    file, line, start, last, end = span
    text = linecache.getline(file, line).encode()
    return text[start : end if last == line else None].decode(errors="replace").strip()


def _in(span: Span, outer: Span) -> bool:
    return span[0] == outer[0] and outer[1:3] <= span[1:3] and span[3:] <= outer[3:]


def _spans(code: CodeType) -> dict[int, Span]:
    """The expression of each instruction, by its offset; without those that only raise."""
    spans, raised, asserts = dict[int, Span](), list[Span](), False
    for instruction in dis.get_instructions(code):
        at, name = instruction.positions, instruction.opname
        asserts = name == "LOAD_ASSERTION_ERROR" or (asserts and name != "RAISE_VARARGS")
        if at is None or at.lineno is None or at.end_lineno is None or asserts:
            continue
        first, last = (at.lineno, at.col_offset or 0), (at.end_lineno, at.end_col_offset or 0)
        span: Span = (code.co_filename, *first, *last)
        if name == "RAISE_VARARGS":
            raised.append(span)
        if last[1]:  # an entry of a function has no expression
            spans[instruction.offset] = span
    return {k: span for k, span in spans.items() if not any(_in(span, r) for r in raised)}
