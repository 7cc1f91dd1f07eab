"""A report of results, as values that every form of it is made from; computed from the draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qalign_core.decide.compared import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.types import SetHeader
from qalign_study.measure.curves import (
    Curve,
    Point,
    averaged,
    best_of,
    curves,
    is_level,
    level_n,
    own_curves,
    paired,
)
from qalign_study.measure.intervals import Difference
from qalign_study.measure.own_beta import at_own_beta
from qalign_study.measure.results import Results
from qalign_study.sets.drawn import N_PROBLEMS, drawn_rows
from qalign_study.sets.folder import digest_of, trace_path
from qalign_study.sets.problem_sets import Problem, load_problems

if TYPE_CHECKING:
    import pandas as pd

OURS: tuple[Curve, ...] = ("qalign", "qalign_own")
AVERAGE = "average"
COLUMNS = (
    *("lm", "rm", "set", "method", "minus", "n", "problems", "flops", "value", "low", "high"),
    *("best", "verdict", "discordant", "p"),
)
"""Of the frame of a report, one row per measurement."""


def others() -> list[Curve]:
    """The comparisons of QAlign: the rules, those of its target first, and their ceiling."""
    rules = sorted((id_ for id_ in RULES if id_ not in OURS), key=lambda id_: not RULES[id_].aims)
    return [*rules, "any", *(own for own in own_curves() if own not in OURS)]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A set under one pair of models, measured.

    Attributes:
        name: what the report calls it.
        results: what was drawn.
        points: every curve at every budget; each method's own beta is with the results whose name
            is the shortest of those of the same set, which has the stated beta.
        stated: whether that is this one.
        folder: where the traces are; None of a packed file, which has numbers only.
    """

    name: str
    results: Results
    points: tuple[Point, ...]
    stated: bool = True
    folder: Path | None = None

    @property
    def level(self) -> int:
        """The largest n at which the chain has spent what n samples cost; 0 if there is none."""
        return level_n(self.points) or 0

    @property
    def listed(self) -> tuple[Problem, ...]:
        """The problems of a folder, or of an embedded set if they are the very ones; else none."""
        header = self.results.header
        return self.results.problems or _embedded(header.task, len(header.problems), header.digest)

    def place(self, k: int) -> int:
        """The number in the set, from 0, of the problem of a record."""
        return self.results.header.problems.index(self.results.records[k].id)

    def trace_path(self, place: int) -> Path:
        """The trace of the problem at a place of the set."""
        return trace_path(self.folder or Path("FOLDER"), place)

    @property
    def problems(self) -> object:
        """What problems these are: the same for results of the same ones."""
        return (self.results.header.digest, tuple(record.id for record in self.results.records))


@cache
def _embedded(task: str, n: int, digest: str) -> tuple[Problem, ...]:
    if task not in N_PROBLEMS and drawn_rows(task) is None:
        return ()
    problems = tuple(load_problems(task)[:n])
    return problems if digest_of(problems) == digest else ()


def evaluated(path: Path, name: str, results: Results) -> Evaluated:
    """The results at a path, measured.

    There are no curves of a folder in which nothing is drawn yet, or nothing says what is right.
    """
    folder = path if path.is_dir() else None
    measured = folder is None or (results.records and all(p.is_graded for p in results.problems))
    return Evaluated(name, results, tuple(curves(results)) if measured else (), folder=folder)


@dataclass(frozen=True)
class Row:
    """A line of a table: one set, or the average, at one budget.

    Attributes:
        name: of the set.
        n: the budget, in samples.
        points: what was measured there; one sample, whatever the budget.
        best: the rule that is ahead of each of the others; None if none is.
        differences: the paired ones at that budget.
    """

    name: str
    n: int
    points: Mapping[Curve, Point]
    best: Curve | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Group:
    """Sets that were run with the same models: what an average may be taken of.

    Attributes:
        sets: in the order in which they came.
    """

    sets: tuple[Evaluated, ...]

    @cached_property
    def different(self) -> tuple[Evaluated, ...]:
        """A result for each set of problems: at its stated beta, and the first of several."""
        stated = {each.problems: each for each in reversed(self.sets) if each.stated}
        return tuple(each for each in self.sets if each in stated.values())

    @cached_property
    def average(self) -> tuple[Point, ...]:
        """Over the different sets; empty if there is one."""
        of_each = [each.points for each in self.different]
        return tuple(averaged(of_each)) if len(of_each) > 1 else ()

    @property
    def header(self) -> SetHeader:
        """What was run over the first set: the models, and the kind of prompt, are those of all."""
        return self.sets[0].results.header

    @property
    def unit(self) -> str:
        """What prices count: FLOPs, or the LM's tokens where the models' sizes are unknown."""
        return self.header.meter.unit

    @property
    def flops(self) -> bool:
        """Whether that is FLOPs."""
        return self.unit == "FLOPs"

    @property
    def points(self) -> tuple[Point, ...]:
        """What stands for these models: the average, or the only set."""
        return self.average or self.different[0].points

    @cached_property
    def lines(self) -> tuple[tuple[str, tuple[Point, ...]], ...]:
        """The sets' points and the average's, by name."""
        sets = tuple((each.name, each.points) for each in self.sets)
        return (*sets, *(((AVERAGE, self.average),) if self.average else ()))

    @cached_property
    def n(self) -> int:
        """The budget of the tables: the largest of the different sets, the chain's if it can."""
        level = min(each.level for each in self.different)
        shared = set.intersection(*({p.n for p in each.points} for each in self.different))
        return max((n for n in shared if n <= level), default=max(shared, default=1))

    def rows(self, n: int | None = None) -> list[Row]:
        """The lines of a table at a budget, by default `n`, or at the largest of a set's."""
        n = self.n if n is None else n
        return [
            row_of(name, points, min(n, max(p.n for p in points))) for name, points in self.lines
        ]

    def label(self, row: Row) -> str:
        """The name of a line: its set, and its budget if that is not the table's."""
        return row.name if row.n == self.n else f"{row.name}, {row.n:,} samples"


class Report:
    """Results of any number of sets, each measured once; every form of the report is made of it.

    Args:
        sets: results by the name of their set.
        folders: of those that were read from a folder of traces.
        known: curves that were computed before, by name.

    Raises:
        InvalidSetting: there are no results, or no problem of a set is done.
    """

    def __init__(
        self,
        sets: Mapping[str, Results],
        folders: Mapping[str, Path] | None = None,
        known: Mapping[str, Sequence[Point]] | None = None,
    ) -> None:
        if not sets:
            raise InvalidSetting("there are no results to report; give a folder or a packed file")
        families: dict[object, list[str]] = {}
        for name in sorted(sets, key=lambda name: (len(name), name)):
            families.setdefault(_family(sets[name]), []).append(name)
        groups: dict[object, list[Evaluated]] = {}
        papers_first = sorted(sets.items(), key=lambda item: item[1].header.sharpness != 1)
        for name, results in papers_first:
            at_betas = families[_family(results)]
            stated = at_betas[0] == name
            points = [*((known or {}).get(name) or curves(results))]
            if stated:
                points += at_own_beta(points, [sets[other] for other in at_betas])
            one = Evaluated(name, results, tuple(points), stated, (folders or {}).get(name))
            groups.setdefault(_models(results), []).append(one)
        self.groups = tuple(Group(tuple(each)) for each in groups.values())
        self.sets = tuple(each for group in self.groups for each in group.sets)

    def to_frame(self) -> "pd.DataFrame":
        """One row per measurement: every set and the averages, every budget, differences too.

        A difference has the other method in `minus`, its verdict, how many problems are discordant,
        and `p` of the exact test where these are few. `best` is 1 where a rule is ahead of each
        other one. `flops` is empty where the models' sizes are unknown. Shares are in 0..1.
        """
        import pandas as pd

        rows: list[dict[str, object]] = []
        for group in self.groups:
            for name, points in group.lines:
                best = {n: row_of(name, points, n).best for n in {p.n for p in points}}
                measured: list[Point | Difference] = [*points, *differences(points)]
                for found in measured:
                    row = {"lm": group.header.lm, "rm": group.header.rm, "set": name, "n": found.n}
                    row |= {"flops": found.spent if group.flops else None}
                    row |= {"value": found.value, "low": found.low, "high": found.high}
                    if isinstance(found, Point):
                        marked = int(found.method == best[found.n])
                        row |= {"method": found.method, "problems": len(found.each)}
                        row |= {"best": marked if found.method in RULES else None}
                    else:
                        row |= {"method": found.a, "minus": found.b, "problems": found.problems}
                        row |= {"verdict": found.verdict, "discordant": found.discordant}
                        row |= {"p": found.p}
                    rows.append(row)
        frame = pd.DataFrame(rows, columns=COLUMNS)
        return frame.astype({"best": "Int64"})

    def json(self) -> dict[str, list[dict[str, Any]]]:
        """Every method on every set and budget, and the paired differences at equal FLOPs.

        Returns:
            `rows` {set, method, n, flops, accuracy, low, high} and `paired` {set, a, b, n, flops,
            difference, low, high, discordant, p, verdict}, as in `to_frame`, without the averages;
            None where the frame is empty. A budget at which the chain had ended before it spent as
            much is left out of `paired`.
        """
        frame = self.to_frame()
        frame = frame[frame["set"].isin([each.name for each in self.sets])].astype(object)
        is_pair, told = frame["minus"].notna(), frame.where(frame.notna(), None)
        band = ["n", "flops", "value", "low", "high"]
        rows = told.loc[~is_pair, ["set", "method", *band]].rename(columns={"value": "accuracy"})
        names = {"method": "a", "minus": "b", "value": "difference"}
        columns = ["set", "method", "minus", *band, "discordant", "p", "verdict"]
        pairs = told.loc[is_pair, columns].rename(columns=names)
        return {"rows": rows.to_dict("records"), "paired": pairs.to_dict("records")}


def differences(points: Sequence[Point]) -> list[Difference]:
    """The paired differences that a report tells of, at every budget of equal compute."""
    return [each for a in OURS for b in others() for each in paired(points, a, b)]


def row_of(name: str, points: Sequence[Point], n: int) -> Row:
    """The line of a table for a set or an average at a budget."""
    samples = [p for p in points if p.n == n and p.method == "any"]
    at = {p.method: p for p in points if p.n == n or p.method == "one"}
    rules = [
        at[method]
        for method in RULES
        if method in at and all(is_level(at[method], other) for other in samples)
    ]
    best = best_of(rules) if rules else None
    compared = tuple(each for each in differences(list(at.values())) if each.n == n)
    return Row(name, n, at, best, compared)


def _models(results: Results) -> object:
    """What the sets of a group share, so that an average means something.

    How long a response may be is a matter of the set; a right answer and a text as it was asked for
    are two matters.
    """
    header, base = results.header, replace(results.header.sampling, max_new_tokens=0)
    models = header.lm, header.lm_revision, header.rm, header.rm_revision
    return (*models, base, header.sharpness, header.move, header.open_ended)


def _family(results: Results) -> object:
    """What results of one set share that differ in the chain's beta, and in how far they went."""
    header = results.header
    return (_models(results), header.sampling, header.chains, header.digest)
