"""The results of an evaluation, as they are stored; `results_curves` computes from them.

Every sample and every step is kept as numbers (its reward, its length, which answer, whether it was
accepted, its cost), so that each curve can be computed again at any budget, any number of samples
and any beta without sampling anything; texts are kept of open-ended problems only. A folder holds
`settings.json` and one `.npz` a problem while a run goes on; `pack` makes one file of them. Rewards
are kept as 32-bit floats.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qalign_core.analysis.comparisons import METHODS, Method
from qalign_core.chain.cost import Meter
from qalign_core.decide.arrays import minimum_bayes_risk, vote
from qalign_core.decide.utilities import rouge1
from qalign_core.errors import InvalidTrace
from qalign_core.models.checks import check_sampling
from qalign_core.reading import from_json, is_finite, is_whole, shown
from qalign_core.run import Sampling, check_beta
from qalign_core.runs.npz import read_arrays

Array = NDArray[Any]
Rule = Callable[[Array, Array, Array], Array]

VERSION = 3
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What was run: enough to label results, to check them and to run them again.

    Attributes:
        lm, rm: ids of the models; with `lm_revision`, `rm_revision` their exact versions.
        sampling: how the LM was sampled.
        beta: of the chain and of the importance weights, raw RM units.
        seed: address of the randomness.
        budget: independent samples a problem; the chain has spent as much when it ends.
        methods: of "qalign", "bon", "mv", "wmv"; what they need was drawn.
        task: name of the problem set.
        problems: ids of all problems of the set, done or not.
        digest: hash of the whole problem set.
        lm_parameters, rm_parameters: sizes for FLOPs; 0 if unknown.
        created: date of the start (ISO 8601).
        command: how to run it again.
        states: the chain has at most so many states; 0 if only the budget ends it.
        open_ended: minimum Bayes risk with ROUGE-1 over texts takes the place of the votes.
    """

    lm: str
    rm: str
    beta: float
    seed: int
    budget: int
    methods: tuple[Method, ...] = METHODS
    task: str = ""
    problems: tuple[str, ...] = ()
    digest: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    lm_parameters: int = 0
    rm_parameters: int = 0
    lm_revision: str = ""
    rm_revision: str = ""
    created: str = ""
    command: str = ""
    states: int = 0
    open_ended: bool = False
    version: int = VERSION

    @property
    def meter(self) -> Meter:
        """What prices a draw."""
        return Meter(self.lm_parameters, self.rm_parameters)

    def to_json(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, place: str) -> Settings:
        """Read settings.

        Raises:
            InvalidTrace: they are not settings of this version; the message names `place`.
        """
        try:
            values = from_json(text)
            version = values.get("version")
            if not is_whole(version, VERSION, VERSION):
                raise InvalidTrace(
                    f"{place} has version {shown(version)}, this program reads {VERSION}; "
                    "evaluate again"
                )
            values["sampling"] = check_sampling(Sampling(**values["sampling"]))
            values["methods"] = tuple(values["methods"])
            values["problems"] = tuple(values["problems"])
            settings = cls(**values)
            settings._check()
        except InvalidTrace:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            said = str(error).splitlines()[0][:200]
            raise InvalidTrace(f"{place} has no readable settings: {said}") from error
        return settings

    def _check(self) -> None:
        """Raise `ValueError` for a value that is not of its field's kind."""
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "sampling" and not _KINDS[str(item.type)](value):
                raise ValueError(f"{item.name} is {shown(value)}")
        check_beta(self.beta)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: is_whole(value, 0),
    "float": is_finite,
    "bool": lambda value: isinstance(value, bool),
    "tuple[str, ...]": lambda values: all(isinstance(value, str) for value in values),
    "tuple[Method, ...]": lambda values: all(value in METHODS for value in values),
}
"""What a setting may be, by how its field is written."""


@dataclass(frozen=True, eq=False)
class Record:
    """What was drawn for one problem: N independent samples, T + 1 steps of one chain.

    Attributes:
        id: of the problem.
        answers: the distinct answers, in canonical form; of an open-ended problem the texts.
        right: whether each is the right one, shape [answers].
        pool_reward, chain_reward: rewards of samples and of proposals, shapes [N], [T + 1].
        pool_answer, chain_answer: which of `answers` each has, -1 for none.
        pool_cost, chain_cost: the counts of `Cost` for each, shapes [N, 2], [T + 1, 2].
        chain_accepted, chain_changed: of each proposal; True for the initial draw, t = 0.
        chain_length: of each proposal, |y'| in tokens, shape [T + 1].
    """

    id: str
    answers: Array
    right: Array
    pool_reward: Array
    pool_answer: Array
    pool_cost: Array
    chain_reward: Array
    chain_answer: Array
    chain_cost: Array
    chain_accepted: Array
    chain_changed: Array
    chain_length: Array

    @cached_property
    def state_of(self) -> Array:
        """The step at which the state of step t was proposed, shape [T + 1]."""
        steps = np.arange(len(self.chain_accepted))
        return np.maximum.accumulate(np.where(self.chain_accepted, steps, 0))

    def is_right(self, answer: Array) -> Array:
        """Whether answers (by number, -1 for none) are right, same shape."""
        return np.append(self.right, False)[answer]

    def rule(self, settings: Settings) -> Rule:
        """How many votes are decided at once: (answers, weights, rewards [k, n]) -> winners [k]."""
        if settings.open_ended:
            utility = rouge1.matrix(self.answers.tolist())
            return lambda answer, weight, reward: minimum_bayes_risk(
                answer, weight, reward, utility
            )
        return lambda answer, weight, reward: vote(answer, weight, reward, len(self.answers))

    def to_bytes(self) -> bytes:
        """The record as the content of an `.npz` file."""
        buffer = io.BytesIO()
        arrays = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Record:
        """Read a record.

        Raises:
            InvalidTrace: it is not one; the message names `place`.
        """
        arrays = read_arrays(content, place)
        if missing := [f.name for f in fields(cls) if f.name not in arrays]:
            raise InvalidTrace(f"{place} is not the result of a problem: it has no {missing[0]}")
        columns = {name: arrays[name] for name in _COLUMNS}
        return _checked(cls(id=str(arrays["id"]), **columns), place)


@dataclass(frozen=True, eq=False)
class Results:
    """Settings of an evaluation, and the records of the problems that are done, in order."""

    settings: Settings
    records: tuple[Record, ...]

    @property
    def n_missing(self) -> int:
        """Problems that are not done yet."""
        return len(self.settings.problems) - len(self.records)


def load_results(path: str | Path) -> Results:
    """Read a results folder, finished or not, or a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    path = Path(path)
    try:
        if path.is_dir():
            if not (path / SETTINGS).is_file():
                raise InvalidTrace(f"{path} has no {SETTINGS}; it is not a results folder")
            text, place = (path / SETTINGS).read_text("utf-8"), str(path / SETTINGS)
            settings = Settings.from_json(text, place)
            files = (path / record_name(k) for k in range(len(settings.problems)))
            records = [Record.from_bytes(f.read_bytes(), str(f)) for f in files if f.is_file()]
        else:
            arrays = read_arrays(path, str(path))
            settings = Settings.from_json(str(arrays["settings"]), str(path))
            records = _unpacked(arrays, str(path))
    except InvalidTrace:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise InvalidTrace(f"cannot read results from {path}: {error}") from error
    return _whole(Results(settings, tuple(records)), str(path))


def pack(results: Results, path: str | Path) -> Path:
    """Write results as one `.npz` file: every field of all records in one compressed array."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {"settings": np.array(results.settings.to_json())}
    for name in _COLUMNS:
        parts = [np.asarray(getattr(record, name)) for record in results.records]
        arrays[f"{name}_n"] = np.array([len(part) for part in parts], dtype=np.int32)
        arrays[name] = np.concatenate(parts) if parts else np.zeros(0)
    pool, chain = (arrays[name].reshape(-1, 5) for name in ("pool_cost", "chain_cost"))
    arrays["pool_cost"] = _differences(pool, pool[:, 0])
    arrays["chain_cost"] = _differences(chain, arrays["chain_length"])
    arrays["id"] = np.array([record.id for record in results.records], dtype=np.str_)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, _narrow(array), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same results, same bytes
            archive.writestr(member, buffer.getvalue(), zipfile.ZIP_LZMA)
    return path


def _unpacked(arrays: dict[str, Array], place: str) -> list[Record]:
    if not arrays["id"].size:
        return []
    pool, chain = (_rows_of(arrays, name, place) for name in ("pool_cost", "chain_cost"))
    if "chain_length" in arrays:
        arrays["pool_cost"] = _counts(pool, pool[0])
        arrays["chain_cost"] = _counts(chain, arrays["chain_length"])
    else:
        arrays["pool_cost"], arrays["chain_cost"] = pool.T, chain.T
        arrays["chain_length_n"] = arrays["chain_cost_n"]
        arrays["chain_length"] = _lengths(chain.T, arrays["chain_cost_n"])
    columns = {}
    for name in _COLUMNS:
        counts, column = arrays[f"{name}_n"], arrays[name]
        _check_counts(counts, len(arrays["id"]), len(column), name, place)
        columns[name] = np.split(column, np.cumsum(counts)[:-1])
    return [
        _checked(Record(id=str(id_), **{name: columns[name][k] for name in _COLUMNS}), place)
        for k, id_ in enumerate(arrays["id"])
    ]


def _rows_of(arrays: dict[str, Array], name: str, place: str) -> Array:
    """Costs as they are stored, shape [5, n]."""
    stored = arrays[name]
    if stored.ndim != 2 or len(stored) != 5 or stored.dtype.kind != "i":
        raise InvalidTrace(f"{place}: {name} is {stored.shape} {stored.dtype}, not five rows")
    _check_counts(arrays[f"{name}_n"], len(arrays["id"]), stored.shape[1], name, place)
    return stored.astype(np.int32)


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
        shape = (len(n[name.partition("_")[0]]), 5)[: 1 + name.endswith("_cost")]
        if array.shape != shape or array.dtype.kind != kind:
            came = f"shape {array.shape} of {array.dtype}"
            raise InvalidTrace(f"{place}: {name} of {shown(record.id)} has {came}, not {shape}")
        most = len(record.answers) - 1 if name.endswith("_answer") else most
        if kind in "if" and array.size and not (least <= array.min() and array.max() <= most):
            raise InvalidTrace(
                f"{place}: {name} of {shown(record.id)} is not {least:g} to {most:g}"
            )
    if not record.chain_accepted[:1].all():
        raise InvalidTrace(f"{place}: the chain of {shown(record.id)} has no initial state")
    return record


def _whole(results: Results, place: str) -> Results:
    """The results, if they are of the problems that the settings name, each with what was drawn."""
    settings, ids = results.settings, [record.id for record in results.records]
    if len(set(ids)) < len(ids) or not set(ids) <= set(settings.problems):
        raise InvalidTrace(f"{place} has results of problems that its settings do not name")
    n = settings.budget if set(settings.methods) - {"qalign"} else 0
    for record in results.records:
        if len(record.pool_reward) != n or ("qalign" in settings.methods) > len(
            record.chain_reward
        ):
            raise InvalidTrace(
                f"{place}: {shown(record.id)} has {len(record.pool_reward)} samples and "
                f"{len(record.chain_reward)} steps, {n} samples were drawn"
            )
    return results


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


def _differences(cost: Array, length: Array) -> Array:
    """The counts of n draws of so many tokens as five rows, small or alike: easy to compress."""
    generated, lm, lm_reused, rm, rm_reused = cost.T
    lm_all, rm_all = lm + lm_reused, rm + rm_reused
    return np.stack([generated, lm - generated, lm_all - length, rm - generated, rm_all - lm_all])


def _counts(rows: Array, length: Array) -> Array:
    """The inverse of `_differences`, shape [n, 5]."""
    generated, lm, lm_all, rm, rm_all = rows
    lm, rm, lm_all = lm + generated, rm + generated, lm_all + length
    return np.stack([generated, lm, lm_all - lm, rm, rm_all + lm_all - rm], axis=1)


def _lengths(cost: Array, n_steps: Array) -> Array:
    """The lengths that files of version 1 lack: an RM reads the prompt, alike for all, and y'."""
    read = cost[:, 3] + cost[:, 4]
    initial = np.repeat(np.cumsum(n_steps) - n_steps, n_steps)
    lengths: Array = read - read[initial] + cost[initial, 0]
    return lengths


def _narrow(values: Array) -> Array:
    """Whole numbers in 16 bits if they fit."""
    fits = values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**15
    return values.astype(np.int16) if fits else values


def record_name(place: int) -> str:
    """Name the file of a problem's record by its place in the set: an id may be any text."""
    return f"{place:05d}.npz"
