"""Results: a set's draws as numbers, in one file.

Every sample and every step is there as numbers (its reward, its length, which answer, whether it
was accepted, its cost), so that each curve can be computed again at any budget, any number of
samples and any beta; texts are kept of open-ended problems only. Rewards are 32-bit floats.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from qalign_core.analysis.comparisons import METHODS, Method
from qalign_core.analysis.record import Array, Draws, Record
from qalign_core.errors import InvalidTrace
from qalign_core.reading import first_line, from_json, is_whole, shown
from qalign_core.runs.npz import read_arrays
from qalign_core.runs.store import write_whole
from qalign_core.runs.trace import read_header
from qalign_core.types import SetHeader

VERSION = 3


@dataclass(frozen=True, eq=False)
class Results:
    """What was run over a set, and the records of the problems that have begun, in order."""

    header: SetHeader
    records: tuple[Record, ...]

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that there are draws for."""
        of_pool = METHODS[1:] if self.header.pool else ()
        return (*(METHODS[:1] if self.header.chains else ()), *of_pool)

    @property
    def draws(self) -> Draws:
        """The records, and what it takes to decide from them."""
        header = self.header
        return Draws(self.records, header.beta, header.meter, self.methods, header.open_ended)

    @property
    def n_missing(self) -> int:
        """Problems that have not begun."""
        return len(self.header.problems) - len(self.records)


def header_json(header: SetHeader) -> str:
    """What was run over a set, as JSON text."""
    return json.dumps({"version": VERSION, **asdict(header)}, indent=1, ensure_ascii=False)


def read_set_header(text: str, place: str) -> SetHeader:
    """Read back what `header_json` wrote.

    Raises:
        InvalidTrace: it is not that, or of another version; the message names `place`.
    """
    try:
        values = from_json(text)
        version = values.get("version") if isinstance(values, dict) else None
        if not is_whole(version, VERSION, VERSION):
            raise InvalidTrace(
                f"{place} has version {shown(version)}, this program reads {VERSION}; "
                "evaluate again"
            )
        return read_header(SetHeader, values)
    except ValueError as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(f"{place} has no readable settings: {first_line(error)}") from error


def unpack(path: str | Path) -> Results:
    """Read a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    place = str(path)
    try:
        arrays = read_arrays(Path(path), place)
        header = read_set_header(str(arrays["header"]), place)
        results = Results(header, tuple(_records(arrays, place)))
    except KeyError as error:
        raise InvalidTrace(
            f"{place} has no {error}, as results of version {VERSION} do; evaluate again"
        ) from error
    except (OSError, IndexError) as error:
        raise InvalidTrace(f"cannot read results from {place}: {first_line(error)}") from error
    return _whole(results, place)


def pack(results: Results, path: str | Path) -> Path:
    """Write results as one `.npz` file: every field of all records in one compressed array.

    Raises:
        InvalidSetting: it cannot be written.
    """
    arrays: dict[str, Array] = {"header": np.array(header_json(results.header))}
    for name in _COLUMNS:
        parts = [np.asarray(getattr(record, name)) for record in results.records]
        arrays[f"{name}_n"] = np.array([len(part) for part in parts], dtype=np.int32)
        arrays[name] = np.concatenate(parts) if parts else np.zeros(0)
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


def _records(arrays: dict[str, Array], place: str) -> list[Record]:
    n = arrays["id"].size
    if not n:
        return []
    chains, prompts = arrays["n_chains"], arrays["prompt"]
    whole = chains.dtype.kind == prompts.dtype.kind == "i" and prompts.min(initial=0) >= 0
    if not whole or (arrays["id"].shape, chains.shape, prompts.shape) != ((n,), (n,), (n, 2)):
        raise InvalidTrace(f"{place}: chains and prompts are not those of its {n} problems")
    columns = {}
    for name in _COLUMNS:
        counts, column = arrays[f"{name}_n"], arrays[name]
        _check_counts(counts, n, len(column), name, place)
        columns[name] = np.split(column, np.cumsum(counts)[:-1])
    return [
        _checked(
            Record(
                id=str(arrays["id"][k]),
                n_chains=int(chains[k]),
                prompt=(int(prompts[k, 0]), int(prompts[k, 1])),
                **{name: columns[name][k] for name in _COLUMNS},
            ),
            place,
        )
        for k in range(n)
    ]


def _check_counts(counts: Array, n_records: int, n: int, name: str, place: str) -> None:
    """Refuse counts that do not divide n values among the records."""
    right = counts.shape == (n_records,) and counts.dtype.kind == "i" and counts.min(initial=0) >= 0
    if not right or counts.max(initial=0) > n or counts.sum() != n:
        raise InvalidTrace(f"{place}: the counts of {name} are not those of its {n} values")


def _checked(record: Record, place: str) -> Record:
    """The record, if its arrays are what the class says.

    Raises:
        InvalidTrace: the first that is not, and of which problem.
    """
    n = {"answers": record.answers, "right": record.answers,
         "pool": record.pool_reward, "chain": record.chain_reward}  # fmt: skip
    for name, (kind, least, most) in _COLUMNS.items():
        array = getattr(record, name)
        shape = (len(n[name.partition("_")[0]]), 2)[: 1 + name.endswith("_cost")]
        if array.shape != shape or array.dtype.kind != kind:
            came = f"shape {array.shape} of {array.dtype}"
            raise InvalidTrace(f"{place}: {name} of {shown(record.id)} has {came}, not {shape}")
        most = len(record.answers) - 1 if name.endswith("_answer") else most
        if kind in "if" and array.size and not (least <= array.min() and array.max() <= most):
            raise InvalidTrace(
                f"{place}: {name} of {shown(record.id)} is not {least:g} to {most:g}"
            )
    n_chains, n_steps = record.n_chains, len(record.chain_accepted)
    if n_chains < 1 or n_steps % n_chains or not record.chain_accepted[:n_chains].all():
        raise InvalidTrace(f"{place}: the chain of {shown(record.id)} has no initial state")
    return record


def _whole(results: Results, place: str) -> Results:
    """The results, if they are of the problems that the header names, in parts that fit."""
    ids = [record.id for record in results.records]
    if len(set(ids)) < len(ids) or not set(ids) <= set(results.header.problems):
        raise InvalidTrace(f"{place} has results of problems that its settings do not name")
    for record in results.records:
        if len(record.pool_reward) > results.header.pool:
            raise InvalidTrace(
                f"{place}: {shown(record.id)} has {len(record.pool_reward)} samples, "
                f"{results.header.pool} were drawn"
            )
    return results


def _narrow(values: Array) -> Array:
    """Floats in 32 bits, whole numbers in 16 if they fit."""
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    fits = values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**15
    return values.astype(np.int16) if fits else values


_FLOAT = float(np.finfo(np.float32).max)
_COLUMNS = {  # numpy's kind, and the range; no NaN is in one
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
}
