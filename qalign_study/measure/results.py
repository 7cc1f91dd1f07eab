"""Results: a set's draws as numbers, in one file.

Every sample and every step is there as numbers (its reward, its length, which answer, whether it
was accepted, its cost), so that each curve can be computed again at any budget, any number of
samples and any beta; texts are kept of open-ended problems only. Rewards are 32-bit floats.

The file is a zip of arrays, which may come from anybody. Their sizes are checked before memory is
reserved, since `numpy.load` reserves the size in the header, even 745 GiB.
"""

import io
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy

from qalign_core.decide.methods import consensus
from qalign_core.errors import InvalidTrace
from qalign_core.record.store import write_whole
from qalign_core.record.trace import SetHeader, Trace, grows
from qalign_core.run import Run
from qalign_core.types import Array
from qalign_core.validation import first_line, read_file, short_repr
from qalign_study.export.dataframes import to_frame
from qalign_study.measure.diagnostics import acceptance
from qalign_study.measure.record import Draws, Record, record_of
from qalign_study.sets.folder import VERSION, header_json, read_set, read_set_header, traces_of
from qalign_study.sets.problem_sets import Problem

if TYPE_CHECKING:
    import pandas as pd

_Columns = dict[str, tuple[str, float, float]]


@dataclass(frozen=True, eq=False)
class Results(Draws):
    """What was drawn over a set.

    Attributes:
        problems: all of the set; of a folder only.
        texts: by id, a text of each chain: with the answer that most states have, or the last.
    """

    header: SetHeader
    problems: tuple[Problem, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        header, n = self.header, f"{len(self.records)} of {len(self.header.problems)} problems"
        return f"<Results of {header.task or 'a set'}: {n}, {header.run.lm} with {header.run.rm}>"

    @property
    def n_missing(self) -> int:
        """Problems whose numbers are not here yet."""
        return len(self.header.problems) - len(self.records)


def load_results(path: str | Path, *, code: bool = False) -> Results:
    """The numbers of a folder, or of a packed file.

    With `code` the Python files that a folder's extractors name are run.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    return results_in(path, code=code) if os.path.isdir(path) else unpack(path)


def results_in(folder: str | Path, *, code: bool = False) -> Results:
    """The numbers of the finished problems of a folder, or of the begun chains if none is finished.

    An unfinished problem would be compared with samples at a budget that its chain has not reached.
    With `code` the Python files that the extractors name are run.

    Raises:
        InvalidTrace: the folder is not one of a run, or a trace cannot be read.
    """
    header, problems = read_set(Path(folder), code=code)
    begun, finished, texts = [], [], {}
    for k, trace in traces_of(folder, len(problems)):
        if not trace.steps:
            continue
        problem = problems[k]
        record = record_of(trace, problem.extract, problem.is_right, id=problem.id)
        begun.append(record)
        if trace.end and trace.end[0] == "finished" and not grows(trace.header, header):
            finished.append(record)
        if problem.extract:
            texts[problem.id] = answer_of(problem, trace).text
        else:
            texts[problem.id] = trace.steps[-1].state.response.text
    return Results(header, tuple(finished or begun), problems=problems, texts=texts)


def frame_in(folder: str | Path, *, code: bool = False) -> "pd.DataFrame":
    """One row per draw in a folder, with its text and answer, and whether that is right.

    The columns are those of `export.dataframes.to_frame`, after `problem`; `answer` is missing if
    there is none, and `right` where nothing says what is right. With `code` the Python files
    that the extractors name are run.

    Raises:
        InvalidTrace: the folder is not one of a run, or a trace cannot be read.
    """
    import pandas as pd

    _, problems = read_set(Path(folder), code=code)
    parts = []
    for place, trace in traces_of(folder, len(problems)):
        problem, frame = problems[place], to_frame(trace)
        read = cache(problem.extract or str)
        answers = [read(text) for text in frame["text"]]
        is_right = cache(problem.is_right)
        frame.insert(0, "problem", problem.id)
        frame["answer"] = None if problem.extract is None else answers
        frame["right"] = [is_right(answer) for answer in answers]
        parts.append(frame)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def unpack(path: str | Path) -> Results:
    """Read a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    arrays = read_arrays(Path(path))
    try:
        header = read_set_header(str(arrays["header"]), str(path))
        results = Results(header, tuple(_records(arrays, _columns(header))))
        _check_problems(results)
        return results
    except KeyError as error:
        raise InvalidTrace(
            f"{path} has no {error}, as results of version {VERSION} do; evaluate again"
        ) from error
    except InvalidTrace:
        raise
    except (ValueError, IndexError) as error:
        raise InvalidTrace(f"cannot read results from {path}: {first_line(error)}") from error


def pack(results: Results, path: str | Path) -> Path:
    """Write results as one `.npz` file: every field of all records in one compressed array.

    Raises:
        InvalidSetting: it cannot be written.
    """
    arrays: dict[str, Array] = {"header": np.array(header_json(results.header))}
    for name in _columns(results.header):
        parts = [np.asarray(getattr(record, name)) for record in results.records]
        arrays[f"{name}_n"] = np.array([len(part) for part in parts], dtype=np.int32)
        arrays[name] = np.concatenate(parts) if parts else np.zeros(0)
        if name.endswith("_cost") and not arrays[name][..., 2:].any():  # nothing was read again
            arrays[name] = arrays[name][..., :2]
    arrays["id"] = np.array([record.id for record in results.records], dtype=np.str_)
    arrays["n_chains"] = np.array([record.n_chains for record in results.records], dtype=np.int32)
    arrays["prompt"] = np.array([record.prompt for record in results.records], dtype=np.int32)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, _narrow(array), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same results, same bytes
            archive.writestr(member, buffer.getvalue(), zipfile.ZIP_LZMA)
    write_whole(Path(path), content.getvalue())
    return Path(path)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the chains of one prompt came to.

    Attributes:
        id: the problem's.
        answer: the vote of all states, or None (none could be read, or the prompt is open-ended).
        share: the answer's share of the states, 0 without one.
        text: the response that represents it; by minimum Bayes risk if the prompt is open-ended.
        reference: the known right answer, if there is one.
        n_states: of all chains.
        accepted: share of the proposals that differ from the state that were accepted.
    """

    id: str
    answer: str | None
    share: float
    text: str
    reference: str | None
    n_states: int
    accepted: float | None


def answers_in(folder: str | Path, problems: Sequence[Problem]) -> tuple[Answer, ...]:
    """What the chains in a folder came to, for every problem that has begun, in order.

    Raises:
        InvalidTrace: a trace cannot be read.
    """
    traces = traces_of(folder, len(problems))
    return tuple(answer_of(problems[place], trace) for place, trace in traces if trace.steps)


def answer_of(problem: Problem, trace: Trace) -> Answer:
    """What the chains of a problem's trace came to; there has to be a state."""
    states = trace.states
    decision = consensus(states, problem.extract)
    return Answer(
        id=problem.id,
        answer=decision.answer,
        share=decision.shares[0][1] if decision.answer is not None else 0.0,
        text=decision.text or "",
        reference=problem.answer,
        n_states=len(states),
        accepted=acceptance(trace.steps).changed.value,
    )


def _columns(header: SetHeader) -> _Columns:
    """The arrays of such results: log-probabilities only where the target asks for them."""
    optional = {
        "_log_prob": header.run.sharpness != 1.0,
        "_correction": header.run.move != Run.move,
    }
    left_out = tuple(ending for ending, is_stored in optional.items() if not is_stored)
    return {name: columns for name, columns in _COLUMNS.items() if not name.endswith(left_out)}


def _records(arrays: dict[str, Array], specification: _Columns) -> list[Record]:
    """The records, each as `Record` says.

    Raises:
        ValueError: the first array that is not, and of which problem.
    """
    n = arrays["id"].size
    if not n:
        return []
    chains, prompts = arrays["n_chains"], arrays["prompt"]
    whole = chains.dtype.kind == prompts.dtype.kind == "i" and prompts.min(initial=0) >= 0
    if not whole or (arrays["id"].shape, chains.shape, prompts.shape) != ((n,), (n,), (n, 2)):
        raise ValueError(f"chains and prompts are not those of its {n} problems")
    columns = {}
    for name in specification:
        counts, column = arrays[f"{name}_n"], arrays[name]
        whole = counts.shape == (n,) and counts.dtype.kind == "i" and counts.min() >= 0
        if not whole or counts.max() > len(column) or counts.sum() != len(column):
            raise ValueError(f"the counts of {name} are not those of its {len(column)} values")
        if name.endswith("_cost") and column.shape[1:] == (2,):
            column = np.pad(column, ((0, 0), (0, 1)))
        columns[name] = np.split(column, np.cumsum(counts)[:-1])
    records = [
        Record(
            id=str(arrays["id"][k]),
            n_chains=int(chains[k]),
            prompt=(int(prompts[k, 0]), int(prompts[k, 1])),
            **{name: column[k] for name, column in columns.items()},
        )
        for k in range(n)
    ]
    for record in records:
        _check_arrays(record, specification)
    return records


def _check_arrays(record: Record, columns: _Columns) -> None:
    """Refuse a record whose arrays are not what the class says."""
    n = {"answers": record.answers, "right": record.answers,
         "pool": record.pool_reward, "chain": record.chain_reward}  # fmt: skip
    for name, (kind, least, most) in columns.items():
        array = getattr(record, name)
        shape = (len(n[name.partition("_")[0]]), 3)[: 1 + name.endswith("_cost")]
        if array.shape != shape or array.dtype.kind != kind:
            shape_text = f"shape {array.shape} of {array.dtype}"
            raise ValueError(f"{name} of {short_repr(record.id)} has {shape_text}, not {shape}")
        most = len(record.answers) - 1 if name.endswith("_answer") else most
        if kind in "if" and array.size and not (least <= array.min() and array.max() <= most):
            raise ValueError(f"{name} of {short_repr(record.id)} is not {least:g} to {most:g}")
    n_chains, n_steps = record.n_chains, len(record.chain_accepted)
    if n_chains < 1 or n_steps % n_chains or not record.chain_accepted[:n_chains].all():
        raise ValueError(f"the chain of {short_repr(record.id)} has no initial state")


def _check_problems(results: Results) -> None:
    """Refuse records that are not of the problems that the header names, or too long for it."""
    ids, most = [record.id for record in results.records], results.header.run.pool
    if len(set(ids)) < len(ids) or not set(ids) <= set(results.header.problems):
        raise ValueError("results of problems that its settings do not name")
    for record in results.records:
        if (n := len(record.pool_reward)) > most:
            raise ValueError(f"{short_repr(record.id)} has {n} samples, {most} were drawn")


def _narrow(values: Array) -> Array:
    """Floats in 32 bits, whole numbers in 16 if they fit."""
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    fits = values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**15
    return values.astype(np.int16) if fits else values


_FLOAT = float(np.finfo(np.float32).max)
_COLUMNS: _Columns = {  # numpy's kind, and the range; no NaN is in one
    "answers": ("U", 0, 0),
    "right": ("b", 0, 0),
    "pool_reward": ("f", -_FLOAT, _FLOAT),
    "pool_answer": ("i", -1, 0),
    "pool_cost": ("i", 0, 2**31),
    "chain_reward": ("f", -_FLOAT, _FLOAT),
    "chain_answer": ("i", -1, 0),
    "chain_cost": ("i", 0, 2**31),
    "chain_accepted": ("b", 0, 0),
    "chain_changed": ("b", 0, 0),
    "chain_length": ("i", 1, 2**31),
    "pool_log_prob": ("f", -_FLOAT, 0),
    "chain_log_prob": ("f", -_FLOAT, 0),
    "chain_correction": ("f", -_FLOAT, _FLOAT),
}


MAX_BYTES = 512 * 2**20
"""Limit of an unpacked archive; the largest that is shipped has 4 MB."""
_PIECE = 4096  # unpacked whole, 1 MB can become some GB whatever its size is said to be
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of an `.npz` file by its name, read only; no member is unpickled.

    Raises:
        InvalidTrace: it is none, an array is not what its header says, or all are too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(read_file(path, MAX_BYTES))) as archive:
            members = archive.infolist()
            if any(member.flag_bits & 1 for member in members):
                raise ValueError("it is encrypted; save it without a password")
            n_bytes = sum(member.file_size for member in members)
            if n_bytes > MAX_BYTES:
                raise ValueError(f"it unpacks to {n_bytes:,} bytes, {MAX_BYTES:,} at most")
            return {
                member.filename.removesuffix(".npy"): _array(archive, member) for member in members
            }
    except Exception as error:  # zipfile, its unpackers and numpy have a dozen kinds
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InvalidTrace(
            f"cannot read results from {path} ({reason}); give the folder of an evaluation, or a "
            "file of its --pack"
        ) from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as packed:
        content = b"".join(iter(lambda: packed.read(_PIECE), b""))
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"an array of version {version}")
    shape, by_column, dtype = _HEADERS[version](file)
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or n_bytes != len(content) - file.tell():
        raise ValueError(f"an array of {shape} {dtype} in {len(content):,} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell()) if n_bytes else np.empty(0, dtype)
    return array.reshape(shape, order="F" if by_column else "C")
