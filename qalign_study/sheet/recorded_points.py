"""The curves of the shipped results, recorded: to compute them takes seconds a file.

python -m qalign_study.sheet.recorded_points    # writes assets/results/points.npz
"""

import argparse
from collections.abc import Iterable
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES
from qalign_study.measure.curves import Point, curves
from qalign_study.measure.results import load_results

RESULTS = ASSETS / "results"
RECORD = RESULTS / "points.npz"
NUMBERS = [field.name for field in fields(Point) if field.type in (int, float)]


def recorded_points(path: Path) -> tuple[Point, ...] | None:
    """Return the recorded curves of a results file.

    None if the file or the set of rules has changed, or the record or the file cannot be read.
    """
    try:
        key = _key(path)
        with np.load(RECORD) as record:
            rows, methods = record[key].tolist(), record[f"{key} methods"].tolist()
    except (OSError, ValueError, KeyError, BadZipFile):  # whoever needs the curves computes them
        return None
    return tuple(map(_point, methods, rows))


def _point(method: str, row: list[float]) -> Point:
    n, *numbers = row[: len(NUMBERS)]
    values: dict[str, Any] = dict(zip(NUMBERS[1:], numbers, strict=True))
    return Point(method, int(n), each=tuple(row[len(NUMBERS) :]), **values)


def _key(path: Path) -> str:
    """A name for what the curves are computed from: the draws, and the rules that decide."""
    return sha256(path.read_bytes() + " ".join(RULES).encode()).hexdigest()[:16]


def write_record(paths: Iterable[Path]) -> None:
    """Compute and record the curves of some results files of problem sets."""
    record: dict[str, Any] = {}
    for path in paths:
        points = list(curves(load_results(path)))
        rows = [[*(getattr(point, name) for name in NUMBERS), *point.each] for point in points]
        record[_key(path)] = np.array(rows)
        record[f"{_key(path)} methods"] = np.array([point.method for point in points])
    np.savez_compressed(RECORD, **record)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    write_record(sorted(RESULTS.rglob("*.zip")))
