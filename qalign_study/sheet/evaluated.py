"""The shipped evaluations, each read once, for every page that shows whole problem sets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import chain_vote, weighted_vote
from qalign_study.measure.curves import curves
from qalign_study.measure.differences import difference, paired
from qalign_study.measure.intervals import Difference
from qalign_study.measure.report import Evaluated, evaluated
from qalign_study.measure.results import Results, load_results
from qalign_study.sheet.recorded_points import recorded_points

T = TypeVar("T")
FOLDER = ASSETS / "results"
NO_FOLDERS: Mapping[str, Path] = MappingProxyType({})
"""No folders of the user's own, by name."""
TITLES = {
    "in_distribution": "Like the training problems",
    "shifted": "Other wording, more events",
    "long": "Long: right samples are rare",
    "inventory": "Inventories: right samples are very rare",
    "writing": "Short texts with constraints",
}
"""Names of the embedded sets, in the order of the list."""


GROUPS = {
    "in_distribution": "Right samples are common: like the training problems",
    "inventory": "Right samples are very rare, and the chain is ahead: inventories",
    "long": "Right samples are rare: long problems",
    "shifted": "Unfamiliar wording, more events",
    "writing": "No answers to count: short texts with constraints",
    "forms": "Pretrained models: forms of ten separate fields",
    "ifeval": "Pretrained models: IFEval, with its checkers or a weak reward model",
}
"""The shipped sets by what they show, in the order of the Results page."""
AS_IN_THE_PAPER = "The paper’s moves and target"
"""The name of a set's usual run among its variants."""


OTHER_RUNS = {
    "power": "no reward, sharpness 4",
    "sharp": "sharpness 4",
    "beta0.4": "β = 0.4",
    "beta1.6": "β = 1.6",
    "block": "half of the steps rewrite one block",
    "share": "four fifths of the steps rewrite one block",
    "entropy": "cuts where the model is unsure",
    "gemma": "Gemma 3 270M, pretrained",
    "gemma-64": "Gemma 3 270M, pretrained, 64 samples",
    "gemma-trained": "Gemma 3 270M, pretrained, with a trained reward model",
}
"""The endings of files with another target or move, and their names on the page."""
IN_INT8 = ("forms@9001", "ifeval", "forms-gemma", "forms-gemma-64")
"""The sets and files in which a pretrained model ran in int8; in the others it ran in float32."""
OLD_NAMES = {"forms-float32": "forms", "forms-block": "forms@9001-block"}
"""Names of results in older links, with today's."""


def results_files(folder: Path = FOLDER, *, others: bool = False) -> tuple[Path, ...]:
    """The packed results that are shipped: embedded sets first, the usual reward model first.

    Others are files with another target or move, on fresh problems, or of a pretrained model.
    Statements about the methods use the paper's target and move, on one set of problems each.
    """
    files = {path for path in folder.glob("*.zip") if variant_of(path) not in OTHER_RUNS}
    if others:
        parts = ("", "fresh/", "pretrained/")
        files = {path for part in parts for path in folder.glob(f"{part}*.zip")} - files
    return tuple(sorted(files, key=lambda path: (_place(path, TITLES), path.stem)))


def once_per_version(function: Callable[..., T]) -> Callable[..., T]:
    """Cache a function of results files or folders until one of them is written."""
    cached = lru_cache(maxsize=32)(lambda paths, _: function(*paths))

    @wraps(function)
    def compute(*paths: Path) -> T:
        files = [file for path in paths for file in (path, *path.glob("*.json*")) if file.exists()]
        return cached(paths, tuple(file.stat().st_mtime_ns for file in files))

    return compute


@once_per_version
def read(path: Path) -> Results:
    """Read the draws of a results file or folder.

    Raises:
        QAlignError: it cannot be read.
    """
    return load_results(path)


@once_per_version
def summarise(path: Path) -> Evaluated:
    """Measure a results file or a folder; the curves of a shipped file are recorded.

    Raises:
        QAlignError: it cannot be read.
    """
    if path.is_file() and (points := recorded_points(path)) is not None:
        return Evaluated(title_of(path), points, read(path))
    return evaluated(path, title_of(path), read(path))


@once_per_version
def difference_of_votes(path: Path) -> Difference | None:
    """Compare the chain's vote with the weighted vote at the largest equal compute of a file.

    Raises:
        QAlignError: it cannot be read.
    """
    return next(reversed(paired(summarise(path).points, chain_vote.id, weighted_vote.id)), None)


def task_of(path: Path) -> str:
    """Return a results file's problem set: `in_distribution` for `in_distribution-weak.zip`."""
    return path.stem.partition("-")[0]


def _set_of(path: Path) -> str:
    """Return a file's problem set without the seed of fresh problems."""
    return task_of(path).partition("@")[0]


def _place(path: Path, order: Iterable[str]) -> int:
    """Return the place of a file's problem set in an order of sets; others are last."""
    sets, task = [*order], _set_of(path)
    return sets.index(task) if task in sets else len(sets)


def variant_of(path: Path) -> str:
    """Return the part of a file's name after its set: another reward model, or target."""
    return path.stem.partition("-")[2]


def title_of(path: Path) -> str:
    """Return the name of a results file: its problem set, with its marks.

    `in_distribution.zip` is the set with the usual reward model, `in_distribution-weak.zip` the
    same with another one, `inventory@2.zip` fresh inventories. A folder has its own name.
    """
    if path.is_dir():
        return path.name
    task = _set_of(path)
    return "; ".join([TITLES.get(task, task.replace("_", " ")), *_marks(path), *_precision(path)])


def _marks(path: Path) -> list[str]:
    """Return what tells a results file from the usual one on its set."""
    seed, variant = task_of(path).partition("@")[2], variant_of(path)
    marks = [f"fresh problems, seed {seed}"] * bool(seed)
    return marks + [OTHER_RUNS.get(variant, f"{variant} reward model")] * bool(variant)


def _precision(path: Path) -> list[str]:
    """Return the precision in which a pretrained model ran."""
    precision = "int8" if {task_of(path), path.stem} & {*IN_INT8} else "float32"
    return [f"model in {precision}"] * (path.parent.name == "pretrained")


def groups_of(files: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Group results by what they show: from a group's title to its names, by their titles.

    Args:
        files: the results by name; folders come first, each as a group of its own.
    """
    groups: dict[str, dict[str, str]] = {}
    for name, path in files.items():
        if path.is_dir():
            groups[path.name] = {AS_IN_THE_PAPER: name}
    packed = ((name, path) for name, path in files.items() if not path.is_dir())
    for name, path in sorted(packed, key=lambda item: _place(item[1], GROUPS)):
        task = _set_of(path)
        label = "; ".join([*(_marks(path) or [AS_IN_THE_PAPER]), *_precision(path)])
        group = groups.setdefault(GROUPS.get(task, task.replace("_", " ")), {})
        first = label[0] if label[0] == "β" else label[0].upper()  # its capital reads as a B
        group[first + label[1:]] = name
    return groups


def beside(path: Path) -> dict[str, Path]:
    """Find the shipped runs over the same problem set, by reward model, the usual one first."""
    alike = () if path.is_dir() or variant_of(path) in OTHER_RUNS else results_files(path.parent)
    paths = [p for p in alike if task_of(p) == task_of(path)]
    return {f"{variant_of(p) or 'usual'} reward model": p for p in paths}


def beside_the_papers(path: Path) -> Difference | None:
    """Compute QAlign minus the paper's QAlign, on the same problems at the same compute.

    It is None unless the set has a reward, and a sharper target or another move, and unless a chain
    of sharpness 1 and suffix moves exists with these models and this beta. The budget is the
    largest that both have spent.

    Raises:
        QAlignError: a results file cannot be read.
    """
    evaluated, plain = summarise(path), path.with_name(f"{task_of(path)}.zip")
    n = 0 if path.is_dir() else evaluated.level
    header = evaluated.results.header
    as_in_paper = (header.run.sharpness, header.run.move) == (1, "suffix")
    if as_in_paper or not (header.run.has_reward and plain.exists() and n):
        return None
    usual, ids = read(plain), [record.id for record in evaluated.results.records]
    same = replace(usual, records=tuple(r for r in usual.records if r.id in ids))
    one, other = ((h.run.lm, h.run.rm, h.run.beta, h.task) for h in (usual.header, header))
    if one != other or [record.id for record in same.records] != ids:
        return None
    chain, papers_chain = (
        next(p for p in points if (p.method, p.n) == (chain_vote.id, n))
        for points in (evaluated.points, curves(same, ns=[n]))
    )
    return difference(chain, papers_chain)
