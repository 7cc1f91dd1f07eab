"""The results of an evaluation, as they are stored; `Results.draws` is what curves read.

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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from qalign_core.analysis.comparisons import METHODS, Meter, Method
from qalign_core.analysis.record import Array, Draws, Record
from qalign_core.errors import InvalidTrace
from qalign_core.types import Sampling

VERSION = 2
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
            values = json.loads(text)
            if values.get("version") not in (1, VERSION):
                raise InvalidTrace(
                    f"{place} has version {values.get('version')!r}, "
                    f"this program reads 1 to {VERSION}"
                )
            values["version"] = VERSION
            values["sampling"] = Sampling(**values["sampling"])
            values["methods"] = tuple(values["methods"])
            values["problems"] = tuple(values["problems"])
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InvalidTrace):
                raise
            raise InvalidTrace(f"{place} has no readable settings: {error}") from error


@dataclass(frozen=True, eq=False)
class Results:
    """Settings of an evaluation, and the records of the problems that are done, in order."""

    settings: Settings
    records: tuple[Record, ...]

    @property
    def draws(self) -> Draws:
        """The records, and what it takes to decide from them."""
        s = self.settings
        return Draws(self.records, s.beta, s.meter, s.methods, s.open_ended)

    @property
    def n_missing(self) -> int:
        """Problems that are not done yet."""
        return len(self.settings.problems) - len(self.records)


def to_bytes(record: Record) -> bytes:
    """A record as the content of an `.npz` file."""
    buffer = io.BytesIO()
    arrays = {f.name: np.asarray(getattr(record, f.name)) for f in fields(record)}
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def from_bytes(content: bytes, place: str) -> Record:
    """Read a record back.

    Raises:
        InvalidTrace: it is not one; the message names `place`.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            values = {f.name: arrays[f.name] for f in fields(Record) if f.name in arrays.files}
            return Record(
                **{**values, "id": str(values["id"]), "n_chains": int(values.get("n_chains", 1))}
            )
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidTrace(f"{place} is not the result of a problem: {error}") from error


def load_results(path: str | Path) -> Results:
    """Read a results folder, finished or not, or a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / SETTINGS).is_file():
            raise InvalidTrace(f"{path} has no {SETTINGS}; it is not a results folder")
        settings = Settings.from_json((path / SETTINGS).read_text("utf-8"), str(path / SETTINGS))
        files = (path / record_name(place) for place in range(len(settings.problems)))
        records = [from_bytes(f.read_bytes(), str(f)) for f in files if f.is_file()]
        return Results(settings, tuple(records))
    try:
        with np.load(path, allow_pickle=False) as arrays:
            settings = Settings.from_json(str(arrays["settings"]), str(path))
            return Results(settings, _unpacked({name: arrays[name] for name in arrays.files}))
    except (OSError, KeyError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(f"cannot read results from {path}: {error}") from error


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
    arrays["n_chains"] = np.array([record.n_chains for record in results.records], dtype=np.int32)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, _narrow(array), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same results, same bytes
            archive.writestr(member, buffer.getvalue(), zipfile.ZIP_LZMA)
    return path


def _unpacked(arrays: dict[str, Array]) -> tuple[Record, ...]:
    pool, chain = arrays["pool_cost"].astype(np.int32), arrays["chain_cost"].astype(np.int32)
    if "chain_length" in arrays:
        arrays["pool_cost"] = _counts(pool, pool[0])
        arrays["chain_cost"] = _counts(chain, arrays["chain_length"])
    else:
        arrays["pool_cost"], arrays["chain_cost"] = pool.T, chain.T
        arrays["chain_length_n"] = arrays["chain_cost_n"]
        arrays["chain_length"] = _lengths(chain.T, arrays["chain_cost_n"])
    chains = arrays.get("n_chains", np.ones(len(arrays["id"])))
    columns = {}
    for name in _COLUMNS:
        ends = np.cumsum(arrays[f"{name}_n"])[:-1]
        columns[name] = np.split(arrays[name], ends) if len(arrays["id"]) else []
    return tuple(
        Record(id=str(id_), n_chains=int(n_chains), **{name: columns[name][k] for name in _COLUMNS})
        for k, (id_, n_chains) in enumerate(zip(arrays["id"], chains, strict=True))
    )


_COLUMNS = tuple(f.name for f in fields(Record) if f.name not in ("id", "n_chains"))


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
