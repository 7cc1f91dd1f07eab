"""A report of results, as values that every form of it is made from; computed from the draws."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qalign_core.decide.rules import RULES, chain_vote
from qalign_core.errors import InvalidSetting
from qalign_study.measure.cross_validated_beta import cross_validated
from qalign_study.measure.curves import Curve, Point, averaged, curves, is_level, own_curves
from qalign_study.measure.differences import best_of, level_n, paired
from qalign_study.measure.intervals import Difference
from qalign_study.measure.results import Results
from qalign_study.sets.folder import digest_of, trace_path
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sets.seeded import N_PROBLEMS, generate_rows

if TYPE_CHECKING:
    import pandas as pd

CHAIN_CURVES: tuple[Curve, ...] = (chain_vote.id, f"{chain_vote.id}_own")
AVERAGE = "average"
COLUMNS = (
    *("lm", "rm", "set", "method", "minus", "n", "problems", "flops", "value", "low", "high"),
    *("best", "verdict", "discordant", "p"),
)
"""Columns of a report's frame, which has one row per measurement."""


def others() -> list[Curve]:
    """The comparisons of QAlign: the rules, those of its target first, and their ceiling."""
    rules = sorted(
        (id_ for id_ in RULES if id_ not in CHAIN_CURVES), key=lambda id_: not RULES[id_].aims
    )
    return [*rules, "any", *(own for own in own_curves() if own not in CHAIN_CURVES)]


@dataclass(frozen=True)
class Row:
    """A line of a table: one set, or the average, at one budget.

    Attributes:
        name: of the set.
        label: of the line.
        n: the budget, in samples.
        points: what was measured there; one sample, whatever the budget.
        best: the rule that is ahead of each of the others; None if none is.
        differences: the paired ones at that budget, or at the largest below at which both cost the
            same: a rule that reads no reward may run out of samples.
    """

    name: str
    label: str
    n: int
    points: Mapping[Curve, Point]
    best: Curve | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True, eq=False)
class Compared:
    """The curves of a set, or averaged over sets, and their paired differences.

    Attributes:
        name: what the report calls it.
        points: every curve at every budget.
    """

    name: str
    points: tuple[Point, ...]

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Those that a report tells of, at every budget of equal compute."""
        return tuple(
            each for a in CHAIN_CURVES for b in others() for each in paired(self.points, a, b)
        )

    def row(self, n: int, label: str = "") -> Row:
        """The line of a table at a budget."""
        at = {p.method: p for p in self.points if p.n == n or p.method == "one"}
        ceiling = at.get("any")
        rules = [at[id_] for id_ in RULES if id_ in at]
        level = [rule for rule in rules if ceiling is None or is_level(rule, ceiling)]
        best = best_of(level) if level else None
        latest = {(d.a, d.b): d for d in self.differences if d.n <= n}  # by n, ascending
        return Row(self.name, label or self.name, n, at, best, tuple(latest.values()))


@dataclass(frozen=True, eq=False)
class Evaluated(Compared):
    """A set under one pair of models, measured.

    Attributes:
        results: what was drawn.
        stated: whether its beta is the stated one, that of the results whose name is the shortest
            of those of the same set; these have the points of each method's own beta too.
        folder: where the traces are; None of a packed file, which has numbers only.
    """

    results: Results
    stated: bool = True
    folder: Path | None = None

    @cached_property
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
    if task not in N_PROBLEMS and generate_rows(task) is None:
        return ()
    problems = tuple(load_problems(task)[:n])
    return problems if digest_of(problems) == digest else ()


def evaluated(path: Path, name: str, results: Results) -> Evaluated:
    """The results at a path, measured.

    There are no curves of a folder in which nothing is drawn yet, or nothing says what is right.
    """
    folder = path if os.path.isdir(path) else None
    measured = folder is None or (results.records and all(p.is_graded for p in results.problems))
    return Evaluated(name, tuple(curves(results)) if measured else (), results, folder=folder)


class Group:
    """Sets that were run with the same models and beta: what an average may be taken of.

    Attributes:
        sets: in the order in which they came.
        different: a result for each set of problems: at its stated beta, and the first of several.
        average: over the different sets; None if there is one.
        lines: the sets, and their average.
        points: what stands for these models: the average's, or those of the only set.
        header: what was run over the first set: the models, and the kind of prompt, are all sets'.
        unit: what prices count: FLOPs, or the LM's tokens where the models' sizes are unknown.
        n: the budget of the tables: the largest of the different sets, the chain's if it can.
        rows: the lines of a table at that budget, or at the largest of a set's.
    """

    def __init__(self, sets: Sequence[Evaluated]) -> None:
        self.sets = tuple(sets)
        stated = {each.problems: each for each in reversed(self.sets) if each.stated}
        self.different = tuple(each for each in self.sets if each in stated.values())
        of_each = [each.points for each in self.different]
        self.average = Compared(AVERAGE, tuple(averaged(of_each))) if len(of_each) > 1 else None
        self.lines: tuple[Compared, ...] = (*self.sets, *([self.average] if self.average else []))
        self.points = (self.average or self.different[0]).points
        self.header = self.sets[0].results.header
        self.unit = self.header.meter.unit
        level = min(each.level for each in self.different)
        shared = set.intersection(*({p.n for p in points} for points in of_each))
        self.n = max((n for n in shared if n <= level), default=max(shared, default=1))
        largest = [(each, max((p.n for p in each.points), default=0)) for each in self.lines]
        self.rows = tuple(
            each.row(self.n) if n >= self.n else each.row(n, f"{each.name}, {n:,} samples")
            for each, n in largest
        )


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
        at = {name: (known or {}).get(name) or curves(results) for name, results in sets.items()}
        papers_first = sorted(sets.items(), key=lambda item: item[1].header.run.sharpness != 1)
        for name, results in papers_first:
            at_betas = families[_family(results)]
            stated = at_betas[0] == name
            points = [*at[name]]
            if stated:
                runs = [sets[other] for other in at_betas]
                points += cross_validated([at[other] for other in at_betas], runs)
            folder = (folders or {}).get(name)
            one = Evaluated(name, tuple(points), results, stated, folder)
            stated_beta = sets[at_betas[0]].header.run.beta
            groups.setdefault((_models(results), stated_beta), []).append(one)
        self.groups = tuple(map(Group, groups.values()))
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
            models = {"lm": group.header.run.lm, "rm": group.header.run.rm}
            for line in group.lines:
                best = {n: line.row(n).best for n in {p.n for p in line.points}}
                measured: list[Point | Difference] = [*line.points, *line.differences]
                for result in measured:
                    row: dict[str, object] = {**models, "set": line.name, "n": result.n}
                    row |= {"flops": result.spent if group.unit == "FLOPs" else None}
                    row |= {"value": result.value, "low": result.low, "high": result.high}
                    if isinstance(result, Point):
                        marked = int(result.method == best[result.n])
                        row |= {"method": result.method, "problems": len(result.each)}
                        row |= {"best": marked if result.method in RULES else None}
                    else:
                        tested = ("problems", "verdict", "discordant", "p")
                        row |= {"method": result.a, "minus": result.b}
                        row |= {name: getattr(result, name) for name in tested}
                    rows.append(row)
        frame = pd.DataFrame(rows, columns=COLUMNS)
        return frame.astype({"best": "Int64"})

    def outcomes(self) -> "pd.DataFrame":
        """One row per problem, method and budget: what statistics of one's own are computed from.

        `value` is 1 where the method decides rightly and 0 where it does not; of a method that
        decides from samples, the share of their subsets of n. `spent` is the mean over problems.
        """
        import pandas as pd

        parts = []
        for each in self.sets:
            run = each.results.header.run
            shared = {"lm": run.lm, "rm": run.rm, "beta": run.beta, "move": run.move}
            shared |= {"set": each.name, "problem": [r.id for r in each.results.records]}
            for p in each.points:
                columns = {"method": p.method, "n": p.n, "value": p.each, "spent": p.spent}
                parts.append(pd.DataFrame(shared | columns))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

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
        is_pair, cells = frame["minus"].notna(), frame.where(frame.notna(), None)
        band = ["n", "flops", "value", "low", "high"]
        rows = cells.loc[~is_pair, ["set", "method", *band]].rename(columns={"value": "accuracy"})
        names = {"method": "a", "minus": "b", "value": "difference"}
        columns = ["set", "method", "minus", *band, "discordant", "p", "verdict"]
        pairs = cells.loc[is_pair, columns].rename(columns=names)
        return {"rows": rows.to_dict("records"), "paired": pairs.to_dict("records")}


def _models(results: Results) -> object:
    """What the sets of a group share, so that an average means something.

    How long a response may be is a matter of the set; a right answer and a text as it was asked for
    are two matters.
    """
    header, base = results.header, replace(results.header.run.sampling, max_new_tokens=0)
    models = header.run.lm, header.lm_revision, header.run.rm, header.rm_revision
    return (*models, base, header.run.sharpness, header.run.move, header.run.open_ended)


def _family(results: Results) -> object:
    """What results of one set share that differ in the chain's beta, and in how far they went."""
    header = results.header
    return (_models(results), header.run.sampling, header.run.chains, header.digest)
