"""The evaluations that are shipped, read once: what any page says of whole problem sets."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from qalign_core.assets import ASSETS
from qalign_study.measure.curves import curves, difference
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import Evaluated, evaluated
from qalign_study.measure.results import Results, load_results

T = TypeVar("T")
FOLDER = ASSETS / "results"
NO_FOLDERS: Mapping[str, Path] = MappingProxyType({})
"""Of the user's own, by name: none."""
TITLES = {
    "in_distribution": "Like the training problems",
    "shifted": "Other wording, more events",
    "long": "Long: right samples are rare",
    "inventory": "Inventories: right samples are very rare",
    "writing": "Short texts with constraints",
}
"""Names of the embedded sets, in the order of the list."""


OTHER_RUNS = {
    "power": "no reward, sharpness 4",
    "sharp": "sharpness 4",
    "beta0.4": "β = 0.4",
    "beta1.6": "β = 1.6",
    "block": "half of the steps rewrite one block",
    "share": "four fifths of the steps rewrite one block",
    "entropy": "cuts where the model is unsure",
}
"""The endings of files with a different target or move, and their names on the page."""


def results_files(folder: Path = FOLDER, *, others: bool = False) -> tuple[Path, ...]:
    """The packed results that are shipped: embedded sets first, the usual reward model first.

    Others are those with another target or move, and those on fresh problems: what is said of the
    methods is of the paper's target and move, on one set of problems each.
    """
    order = list(TITLES)

    def place(path: Path) -> tuple[int, str]:
        task = task_of(path).partition("@")[0]
        return order.index(task) if task in order else len(order), path.stem

    usual = {path for path in folder.glob("*.zip") if variant_of(path) not in OTHER_RUNS}
    found = {*folder.glob("*.zip"), *folder.glob("fresh/*.zip")} - usual if others else usual
    return tuple(sorted(found, key=place))


def once_per_version(function: Callable[..., T]) -> Callable[..., T]:
    """Compute something of results files or folders again only when one of them was written."""
    kept = lru_cache(maxsize=32)(lambda paths, _: function(*paths))

    @wraps(function)
    def found(*paths: Path) -> T:
        files = [file for path in paths for file in (path, *path.glob("*.json*")) if file.exists()]
        return kept(paths, tuple(file.stat().st_mtime_ns for file in files))

    return found


@once_per_version
def read(path: Path) -> Results:
    """The draws of a results file or folder.

    Raises:
        QAlignError: it cannot be read.
    """
    return load_results(path)


@once_per_version
def summarise(path: Path) -> Evaluated:
    """Curves and counts of a results file or a folder.

    Raises:
        QAlignError: it cannot be read.
    """
    return evaluated(path, title_of(path), read(path))


def task_of(path: Path) -> str:
    """The problem set of a results file: `in_distribution-weak.zip` is of `in_distribution`."""
    return path.stem.partition("-")[0]


def variant_of(path: Path) -> str:
    """What the name of a results file says behind its set: another reward model, or target."""
    return path.stem.partition("-")[2]


def title_of(path: Path) -> str:
    """The name of a results file in the list: its problem set, with its marks.

    `in_distribution.zip` is the set with the usual reward model, `in_distribution-weak.zip` the
    same with another one, `inventory@2.zip` fresh inventories. A folder has its own name.
    """
    if path.is_dir():
        return path.name
    (task, _, seed), variant = task_of(path).partition("@"), variant_of(path)
    said = [TITLES.get(task, task.replace("_", " "))]
    said += [f"fresh problems, seed {seed}"] * bool(seed)
    said += [OTHER_RUNS.get(variant, f"{variant} reward model")] * bool(variant)
    return "; ".join(said)


def beside(path: Path) -> dict[str, Path]:
    """The shipped runs over the same problem set, by their reward model: the usual one first."""
    alike = () if path.is_dir() or variant_of(path) in OTHER_RUNS else results_files(path.parent)
    found = [p for p in alike if task_of(p) == task_of(path)]
    return {f"{variant_of(p) or 'usual'} reward model": p for p in found}


def beside_the_papers(path: Path) -> Difference | None:
    """QAlign minus the paper's QAlign, on the same problems at the same compute.

    Of a set with a reward whose target is sharper or whose move is another; None of others, and
    where there is no chain of sharpness 1 and suffix moves with these models and this beta. At the
    largest budget that both have spent.

    Raises:
        QAlignError: a results file cannot be read.
    """
    found, plain = summarise(path), path.with_name(f"{task_of(path)}.zip")
    n = 0 if path.is_dir() else found.level
    header = found.results.header
    as_in_paper = (header.sharpness, header.move) == (1, "suffix")
    if as_in_paper or not (header.rewarded and plain.exists() and n):
        return None
    usual, ids = read(plain), [record.id for record in found.results.records]
    same = replace(usual, records=tuple(r for r in usual.records if r.id in ids))
    one, other = ((h.lm, h.rm, h.beta, h.task) for h in (usual.header, header))
    if one != other or [record.id for record in same.records] != ids:
        return None
    ours, theirs = (
        next(p for p in points if (p.method, p.n) == ("qalign", n))
        for points in (found.points, curves(same, ns=[n]))
    )
    return difference(ours, theirs)
