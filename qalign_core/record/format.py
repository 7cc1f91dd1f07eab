"""The trace format (JSON lines) for files, streams and exports.

    >>> reader = TraceReader()
    >>> reader.feed(header_line(TraceHeader(Run(prompt="What is 2 + 2?", steps=8))))
    >>> reader.feed(end_line("stopped"))
    >>> reader.trace().header.run.steps, reader.trace().end
    (8, ('stopped', ''))

Each line is a JSON object with a `type`:

- `header`: the settings of the run (`TraceHeader`), always the first line; a later header extends
  the same run;
- `step`: one step, as the difference from the chain's state before it;
- `sample`: one independent sample of the model alone, in order of its number `n`;
- `end`: how the run ended; more lines follow if the run was continued.

Version 2, which called the sharpness `alpha`, can still be read.

A step's proposal is its chain's current ids up to `index`, then `tokens`. `text` is present only if
it differs from the joined pieces (without the EOS). `null` in `log_alpha` and `log_u` is minus
infinity. `<` is escaped, so that a line can be embedded in a page. With a target sharper than the
paper's, the header has `sharpness`, and steps and samples have `log_probs`, one per token in
`tokens`.

With moves other than the paper's, the header has `move`, and a step has `log_correction` and, in
newer traces, `move`, the name of its move. A step of a block has `kept_again`: that many of the
state's last ids follow the `tokens`, and `log_probs` covers both. A step without a proposal has
`refused`, the reason, and no reward; its `tokens` (maybe none) were drawn and discarded. `cost` has
a third count if tokens were read again.

With a right answer in the header, an `answer` is right if it is the same text. If the run's grader
decides otherwise, the line has `right`, its verdict.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import cache
from itertools import filterfalse
from typing import Any, TypeVar, get_type_hints

from qalign_core.decide.answers.graders import grader_of_trace, references
from qalign_core.errors import InvalidTrace
from qalign_core.record.trace import Header, Trace, TraceHeader, difference
from qalign_core.run import Run
from qalign_core.types import Cost, NoProposal, Response, ScoredResponse, Step
from qalign_core.validation import (
    COUNT,
    KINDS,
    from_json,
    is_whole,
    read_field,
    rename_settings,
    short_repr,
)

VERSION = 3
READABLE = (2, VERSION)
"""The versions of the format that can be read."""
Line = dict[str, Any]
AnswerReader = Callable[[str], Line]


# `<` could end a script element, the next three end a line for some readers, and a lone surrogate
# has no UTF-8
_ESCAPED = re.compile("[<\x85\u2028\u2029\ud800-\udfff]")


def _dump(line: Line) -> str:
    text = json.dumps(
        line, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _plain(value: Any) -> Any:
    """Return a number of numpy or torch as Python's own: a user's model may return such."""
    return value.item()


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def header_line(header: TraceHeader) -> str:
    """Return the first line of a trace."""
    line = {"type": "header", "version": VERSION, **to_dict(header)}
    line["beta"] = _finite_or_none(header.run.beta)
    return _dump(line)


def to_dict(header: Header) -> Line:
    """Return the fields of a header to be written; the paper's target and move are omitted."""
    values = header.values()
    for name in ("sharpness", "move"):
        if values[name] == getattr(Run, name):
            del values[name]
    return values


class LineWriter:
    """Writes the draws of a run as lines, with the answers that its grader reads.

    A line has log-probabilities if the run needs them and the model returned them. The line of a
    step has the name and the correction of its move if the run's move is not the paper's.
    """

    def __init__(self, run: Run) -> None:
        self._read = answer_reader(run)
        self._keeps_log_probs = run.needs_log_probs
        self._names_moves = run.move != Run.move

    def sample(self, n: int, sample: ScoredResponse) -> str:
        """Return the line of independent sample number `n`, from 0."""
        response = sample.response
        line: Line = {
            "type": "sample",
            "n": n,
            "tokens": list(response.tokens),
            "text": response.text,
            "finished": response.finished,
            "reward": sample.reward,
            **self._read(response.text),
            "cost": _cost(sample.cost),
        }
        return _dump(line | self._log_probs(response, 0))

    def step(self, step: Step) -> str:
        """Return the line of one step; its answer is the proposal's, for display."""
        response, index, refused = step.proposal.response, step.index, step.refused
        line: Line = {"type": "step", "chain": step.chain, "t": step.t, "index": index}
        if refused is not None:
            line |= {
                "tokens": list(refused.tokens),
                "pieces": list(refused.pieces),
                "refused": refused.reason,
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
            **self._read(response.text),
            "cost": _cost(step.cost),
        }
        if step.kept_again:
            line["kept_again"] = step.kept_again
        if self._names_moves and step.move:
            line["move"] = step.move
        if refused is None:
            if self._names_moves and step.t:
                line["log_correction"] = step.log_correction
            if _join(response.pieces, response.finished) != response.text:
                line["text"] = response.text
            line |= self._log_probs(response, index)
        return _dump(line)

    def _log_probs(self, response: Response, index: int) -> Line:
        """Return the `log_probs` entry of a line: those of the tokens from `index` on."""
        known = self._keeps_log_probs and len(response.log_probs) == len(response)
        return {"log_probs": list(response.log_probs[index:])} if known else {}


def answer_reader(run: Run) -> AnswerReader:
    """Return the function from a text to the entries `answer` and `right` of its line.

    The run's grader reads and compares; without one, or if its file was not loaded, `answer` is
    None.
    """
    grader, reference = grader_of_trace(run.extractor), run.reference

    def read(text: str) -> Line:
        answer = grader.extract(text) if grader else None
        if answer is None or grader is None or reference is None:
            return {"answer": answer}
        right = grader.is_right(answer, reference)
        is_same = answer in references(reference)
        return {"answer": answer} if right == is_same else {"answer": answer, "right": right}

    return read


def _cost(cost: Cost) -> list[int]:
    """Return the counts of a cost; the last one only if it is not 0."""
    return list(astuple(cost))[: None if cost.read else 2]


def end_line(reason: str, message: str = "") -> str:
    """Return the last line: "finished", "stopped" or "failed", and the reason of a failure."""
    return _dump({"type": "end", "reason": reason, "message": message})


def trace_lines(trace: Trace) -> Iterator[str]:
    """Yield all lines of a trace, newline included, with the answers that its grader reads."""
    if not isinstance(trace, Trace):
        raise InvalidTrace(
            f"expected a trace, got {type(trace).__name__}; Trace.collect(steps) makes one of steps"
        )
    yield header_line(trace.header)
    lines = LineWriter(trace.header.run)
    yield from map(lines.step, trace.steps)
    for n, sample in enumerate(trace.pool):
        yield lines.sample(n, sample)
    yield end_line(*(trace.end or ("finished", "")))


def parse_trace(text: str) -> Trace:
    """Parse the text of a trace; an incomplete last line is ignored.

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
    """Parse the first line of a trace.

    Raises:
        InvalidTrace: it is not a header.
    """
    reader = TraceReader()
    reader.feed(str(line))
    return reader.trace().header


def whole_lines(text: str) -> str:
    """Return the text of a trace without an incomplete last line, as a killed writer leaves it."""
    end = text.rfind("\n") + 1
    try:
        from_json(text[end:])
    except ValueError:
        return text[:end]
    return text


class TraceReader:
    """Reads and checks a trace line by line.

    Attributes:
        header: None until the first line is read.
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
        """Return the trace read so far.

        Raises:
            InvalidTrace: there is no header yet.
        """
        if self.header is None:
            raise InvalidTrace("the trace is empty; its first line should be a header")
        steps, pool = tuple(self.steps), tuple(self.pool)
        return Trace(self.header, steps, pool, self.end)

    def feed(self, text: str) -> None:
        """Read one line.

        Raises:
            InvalidTrace: the line violates the format; the message has its number.
        """
        self.line_number += 1
        try:
            self._add(_parse_object(text))
        except ValueError as error:
            raise InvalidTrace(f"line {self.line_number} of the trace has {error}") from error

    def _add(self, line: Line) -> None:
        """Add the content of a line; here and below, an error begins with what the line has."""
        kind = line.get("type")
        if kind != "header" and self.header is None:
            name = "a line without a type" if kind is None else f"a {short_repr(kind)} line"
            raise _unexpected(name, "a header, and first")
        if kind == "header":
            header = _parse_header(line)
            if self.header is not None and (differs := difference(self.header, header)):
                raise _unexpected(f"another header ({differs})", "more of the same run")
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
            raise _unexpected(f"type {short_repr(kind)}", "header, step, sample or end")

    def _sample(self, line: Line) -> ScoredResponse:
        n = read_field(line, "n", int)
        if n != len(self.pool):
            raise _unexpected(f"sample {n}", f"sample {len(self.pool)}")
        tokens = _read_list(line, "tokens", COUNT)
        if not tokens:
            raise _unexpected("no tokens", "one at least")
        text, finished = read_field(line, "text", str), read_field(line, "finished", bool)
        log_probs = _read_log_probs(line, len(tokens))
        return _read_score(line, Response(tokens, text, finished, log_probs=log_probs))

    def _step(self, line: Line) -> Step:
        chain, t, index = (read_field(line, name, int) for name in ("chain", "t", "index"))
        last = self._last.get(chain)
        expected_t = 0 if last is None else last.t + 1
        if t != expected_t or chain < 0:
            raise _unexpected(f"step t = {t} of chain {chain}", f"t = {expected_t}")
        kept = Response((), "", False) if last is None else last.state.response
        if not 0 <= index <= max(0, len(kept) - 1):
            raise _unexpected(f"index {index}", f"0 to {max(0, len(kept) - 1)}")
        refused = _read_optional(line, "refused", str, "") if last else ""
        new, pieces, again = _read_rewrite(line, len(kept) - index, may_be_empty=bool(refused))
        if last and refused:
            proposal = ScoredResponse(kept, last.state.reward, _read_cost(line))
        else:
            proposal = _read_proposal(line, kept, index, new, pieces, again)
        log_alpha, log_u, accepted = _read_verdict(line)
        correction = _read_optional(line, "log_correction", float, -math.inf if refused else None)
        return Step(
            chain=chain,
            t=t,
            index=index,
            current=last.state if last else proposal,
            proposal=proposal,
            log_alpha=log_alpha,
            log_u=log_u,
            accepted=accepted,
            cost=proposal.cost,
            kept_again=again,
            log_correction=None if correction is None else float(correction),
            refused=NoProposal(refused, index, new, pieces) if refused else None,
            move=_read_optional(line, "move", str, ""),
        )


def _parse_object(text: str) -> Line:
    try:
        line = from_json(text)
    except json.JSONDecodeError:
        raise _unexpected("something that is not JSON", "a JSON object") from None
    except ValueError as error:
        raise _unexpected(f"something that is not JSON ({error})", "a JSON object") from None
    if not isinstance(line, dict):
        raise _unexpected(type(line).__name__, "a JSON object")
    return line


def _parse_header(line: Line) -> TraceHeader:
    version = line.get("version")
    if not is_whole(version, *READABLE):
        raise _unexpected(f"version {short_repr(version)}", f"version {READABLE[0]} or {VERSION}")
    return read_header(TraceHeader, line)


def _read_log_probs(line: Line, n: int) -> tuple[float, ...]:
    """Return the log-probabilities of the line's tokens; empty if it has none."""
    log_probs = _read_list(line, "log_probs", float) if "log_probs" in line else ()
    if log_probs and not (len(log_probs) == n and max(log_probs) <= 0):
        raise _unexpected(
            f"log_probs {short_repr(log_probs)} for {n} tokens", "one <= 0 a token, or none"
        )
    return log_probs


def _read_score(line: Line, response: Response) -> ScoredResponse:
    return ScoredResponse(response, float(read_field(line, "reward", float)), _read_cost(line))


def _read_cost(line: Line) -> Cost:
    costs = _read_list(line, "cost", COUNT)
    if len(costs) not in (2, 3):
        raise _unexpected(f"{len(costs)} costs", "2 or 3")
    return Cost(*costs)


def _read_rewrite(
    line: Line, rest: int, *, may_be_empty: bool
) -> tuple[tuple[int, ...], tuple[str, ...], int]:
    """Return a step's new ids, their pieces, and how many of the `rest` last ids are kept."""
    new = _read_list(line, "tokens", COUNT)
    again = _read_optional(line, "kept_again", COUNT, 0)
    if again > rest:
        raise _unexpected(f"kept_again {again}", f"0 to {rest}")
    if not (new or may_be_empty):
        raise _unexpected("no new tokens", "one at least")
    pieces = _read_list(line, "pieces", str)
    if pieces and len(pieces) != len(new):
        raise _unexpected(f"{len(pieces)} pieces for {len(new)} tokens", "one piece per token")
    return new, pieces, again


def _read_proposal(
    line: Line,
    kept: Response,
    index: int,
    new: tuple[int, ...],
    pieces: tuple[str, ...],
    again: int,
) -> ScoredResponse:
    """Return a step's proposal: `kept` up to `index`, `new`, and the last `again` of `kept`."""
    finished, tail = read_field(line, "finished", bool), slice(len(kept) - again, None)
    all_pieces = kept.pieces[:index] + pieces + kept.pieces[tail] if pieces else ()
    text = _read_optional(line, "text", str, _join(all_pieces, finished))
    log_probs = (*kept.log_probs[:index], *_read_log_probs(line, len(new) + again))
    tokens = kept.tokens[:index] + new + kept.tokens[tail]
    return _read_score(line, Response(tokens, text, finished, all_pieces, log_probs))


def _read_verdict(line: Line) -> tuple[float, float, bool]:
    """Return log alpha, log u and whether the proposal was accepted; `null` is -infinity."""
    log_alpha, log_u = (
        -math.inf if line.get(name) is None else float(read_field(line, name, float))
        for name in ("log_alpha", "log_u")
    )
    accepted: bool = read_field(line, "accepted", bool)
    if log_alpha > 0 or accepted != (log_u < log_alpha):
        raise _unexpected(
            f"accepted = {accepted} with log alpha {log_alpha:.4g} and log u {log_u:.4g}",
            "the verdict of u < alpha",
        )
    return log_alpha, log_u, accepted


def _unexpected(received: str, expected: str) -> ValueError:
    return ValueError(f"{received}; {expected} was expected")


def _read_optional(line: Line, name: str, kind: Any, default: Any) -> Any:
    return read_field(line, name, kind) if name in line else default


def _read_list(line: Line, name: str, kind: Any) -> tuple[Any, ...]:
    """Return a list of values of one kind; the first of another kind is an error."""
    values = read_field(line, name, list)
    for value in filterfalse(KINDS[kind][1], values):
        read_field({name: value}, name, kind)
    return tuple(values)


H = TypeVar("H", bound=Header)


def read_header(cls: type[H], line: Line) -> H:
    """Return a header from its parsed JSON; missing fields get their defaults.

    Raises:
        ValueError: a field has the wrong type.
    """
    line = {"extractor": None} | rename_settings(line)  # open-ended unless it has an extractor
    is_unknown = line.get("beta", 0) is None  # as in a trace put together from steps
    if is_unknown:
        del line["beta"]
    run = Run(**_fields(Run, line))
    return cls(run.with_changes(beta=math.nan) if is_unknown else run, **_fields(cls, line))


def _fields(cls: type, line: Line) -> Line:
    """Return the values of a class's fields that a line has, each of the right type."""
    values = {name: read_field(line, name, kind) for name, kind in _kinds(cls) if name in line}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


@cache
def _kinds(cls: type) -> list[tuple[str, Any]]:
    return [(name, kind) for name, kind in get_type_hints(cls).items() if kind is not Run]


def _join(pieces: tuple[str, ...], finished: bool) -> str:
    return "".join(pieces[:-1] if finished else pieces)
