"""Two runs over the same problems, compared problem by problem: rewards, moves, models, betas."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from qalign_core.errors import InvalidSetting
from qalign_study.measure.curves import Curve, Point, curves
from qalign_study.measure.differences import difference
from qalign_study.measure.intervals import Difference
from qalign_study.measure.results import Results


@dataclass(frozen=True, slots=True)
class Pair:
    """One method at one number of samples in both runs.

    Attributes:
        a, b: what was measured in each, over the shared problems only.
        difference: a minus b, paired over problems.
    """

    a: Point
    b: Point
    difference: Difference


def paired_runs(a: Results, b: Results) -> Iterator[Pair]:
    """Compare every method at every number of samples that both runs have.

    The two may cost different amounts: equal numbers of samples, and of states that cost as much
    within each run. Problems that only one of the runs has finished are left out.

    Raises:
        InvalidSetting: they share no problem, or one problem is not the same in both.
    """
    _check_same_problems(a, b)
    ids = [record.id for record in a.records]
    shared = [id for id in ids if id in {record.id for record in b.records}]
    if not shared:
        raise InvalidSetting("the two runs have finished no problem in common; continue one")
    of_each = [_measured(run, shared) for run in (a, b)]
    for key in of_each[0]:
        if key in of_each[1]:
            one, other = (points[key] for points in of_each)
            yield Pair(one, other, replace(difference(one, other), a="A", b="B"))


def _measured(run: Results, ids: list[str]) -> dict[tuple[Curve, int], Point]:
    records = {record.id: record for record in run.records}
    points = curves(replace(run, records=tuple(records[id] for id in ids)))
    return {(p.method, p.n): p for p in points}


def _check_same_problems(a: Results, b: Results) -> None:
    if a.header.digest == b.header.digest:
        return
    contents = [{p.id: (p.prompt, p.answer) for p in run.problems} for run in (a, b)]
    shared = contents[0].keys() & contents[1].keys()
    if other := sorted(id for id in shared if contents[0][id] != contents[1][id]):
        raise InvalidSetting(
            f"problem {other[0]!r} is not the same in the two runs; compare runs of one set"
        )
    if not shared:  # a packed file has no prompts
        raise InvalidSetting(
            "the two runs are not of the same problems; compare runs of one set, with equally many "
            "problems where one is a packed file"
        )
