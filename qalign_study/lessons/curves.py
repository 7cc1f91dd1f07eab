"""How often each method is right on the sets that lessons show: recorded, because it takes seconds.

python -m qalign_study.lessons.curves [SET ...]    # writes assets/results/curves.json
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from qalign_core.validation import from_json
from qalign_study.sheet.evaluated import FOLDER, summarise

RECORD = FOLDER / "curves.json"


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of a results file.

    Attributes:
        digest: of the file from which they were computed.
        problems: in the set.
        level: samples of the largest budget that every method has spent.
        shares: of each curve (`qalign_study.measure.curves`), (n, share of right answers).
    """

    digest: str
    problems: int
    level: int
    shares: dict[str, list[tuple[int, float]]]


@cache
def curves_of(name: str) -> Curves:
    """Return the curves of a shipped results file: the recorded ones, unless the file changed."""
    path, recorded = FOLDER / f"{name}.zip", _read_record().get(name)
    if recorded is not None and recorded.digest == _digest(path):
        return recorded
    return compute_curves(path)


def compute_curves(path: Path) -> Curves:
    """Compute the curves of a results file."""
    results = summarise(path)
    shares: dict[str, list[tuple[int, float]]] = {}
    for point in sorted(results.points, key=lambda point: point.n):
        shares.setdefault(point.method, []).append((point.n, point.value))
    return Curves(_digest(path), len(results.results.records), results.level, shares)


@cache
def _read_record() -> dict[str, Curves]:
    record = from_json(RECORD.read_text(encoding="utf-8"))
    return {name: Curves(**curves) for name, curves in record.items()}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]


def write_record(names: Iterable[str]) -> None:
    """Compute and record the curves of some shipped results files."""
    record = {name: asdict(compute_curves(FOLDER / f"{name}.zip")) for name in sorted(names)}
    RECORD.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_record(sys.argv[1:] or _read_record())
