"""The curves of the shipped results are recorded: what is recorded, and when it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES
from qalign_study.measure.curves import Point, curves
from qalign_study.measure.results import load_results
from qalign_study.sheet import recorded_points as module
from qalign_study.sheet.evaluated import results_files, summarise
from qalign_study.sheet.recorded_points import NUMBERS, RECORD, recorded_points

SHIPPED = sorted((ASSETS / "results").rglob("*.zip"))
FIRST = ("in_distribution-entropy", "forms@9001-block", "inventory@4-block")
"""Numbers and verdicts, a verifiable reward, and a few problems: the rest are other draws."""


ZEROS = dict.fromkeys(NUMBERS, 0.0)


def numbers(point: Point) -> list[float]:
    return [*(getattr(point, name) for name in NUMBERS), *point.each]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.more] * (path.stem not in FIRST))
        for path in SHIPPED
    ],
)
def test_recorded_points_are_those_of_the_draws(path):
    recorded, computed = recorded_points(path), list(curves(load_results(path)))
    assert recorded is not None
    assert len(recorded) == len(computed)
    for one, other in zip(recorded, computed, strict=True):
        assert replace(one, each=(), **ZEROS) == replace(other, each=(), **ZEROS)
        assert numbers(one) == pytest.approx(numbers(other), rel=1e-9, abs=1e-9, nan_ok=True)


def test_the_record_has_nothing_else():
    with np.load(RECORD) as record:
        assert len(record) == 2 * len(SHIPPED)


def test_another_file_and_another_set_of_rules_are_computed(tmp_path, monkeypatch):
    (path,) = (path for path in results_files(others=True) if path.stem == FIRST[0])
    assert summarise(path).points == recorded_points(path)
    other = tmp_path / path.name
    other.write_bytes(path.read_bytes() + b" ")
    assert recorded_points(other) is None
    with monkeypatch.context() as patch:
        patch.setattr(module, "RULES", {**RULES, "mine": None})
        assert recorded_points(path) is None
    for name in ("absent.npz", "broken.npz", other.name):  # none, none that is one, another
        (tmp_path / "broken.npz").write_bytes(b"PK broken")
        monkeypatch.setattr(module, "RECORD", tmp_path / name)
        assert recorded_points(path) is None
