"""The paper's data sets as problem sets: rows, prompts, settings, and where text and code part.

`assets/tasks/paper.toml` defines each set, and `rows` reads its rows. The result is a problem set
like any other.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting, InvalidTask
from qalign_core.validation import first_line
from qalign_study.sets.problem_sets import Problem, parse_problems
from qalign_study.sets.rows import Row, problem_of, rows_of

PRESETS = ("paper", "published-code")
"""The origin of each preset: the paper's text, or the scripts published with it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A set of the paper, in one of its variants and as one of the presets has it.

    Attributes:
        name: as people write it, "gsm-symbolic:p1".
        preset: of `PRESETS`; "" is the paper's rows and prompts without its settings.
        table: the set's facts.
        settings: what the preset sets, by the names of options; "" stands for a model that was not
            published.
    """

    name: str
    preset: str
    table: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def n_problems(self) -> int:
        """How many rows the official set has, or the preset takes."""
        return int(min(self.table["n_rows"], self.table.get("first", self.table["n_rows"])))

    def to_learn_from(self) -> "Task":
        """The rows of the set that are not those it is evaluated on.

        Raises:
            InvalidSetting: the set has no others.
        """
        if "training" not in self.table:
            raise InvalidSetting(
                f"{self.name} has only the rows that models are evaluated on; give others with "
                "--data PATH"
            )
        return replace(self, table={**self.table, **self.table["training"]})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Problems, and where they are from.

    Attributes:
        problems: in order.
        source: preset, and the hub's revision or the hash of the file; "" for a set of JSON lines.
        n_left_out: rows that the set's rule leaves out.
    """

    problems: tuple[Problem, ...]
    source: str = ""
    n_left_out: int = 0


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((ASSETS / "tasks" / "paper.toml").read_text("utf-8"))


def task_names() -> tuple[str, ...]:
    """The sets, each with the variants that it has: "gsm-symbolic[:main|p1|p2]"."""
    variants = {
        name: "|".join(table.get("variants", ())) for name, table in _data()["sets"].items()
    }
    return tuple(name + (f"[:{variant}]" if variant else "") for name, variant in variants.items())


def hardware() -> Mapping[str, Mapping[str, float]]:
    """GPUs by name: `tflops`, `bandwidth` in GB/s, `memory` in GB."""
    table: Mapping[str, Mapping[str, float]] = _data()["hardware"]
    return table


def task_of(name: str, preset: str = "") -> Task | None:
    """The set of the paper that a name says, None if it says none.

    Raises:
        InvalidSetting: there is no such variant, or no such preset.
    """
    set, _, variant = name.partition(":")
    base = _data()["sets"].get(set)
    if base is None:
        if preset:
            raise InvalidSetting(
                f"--preset is for the paper's sets, {', '.join(task_names())}; got {name!r}"
            )
        return None
    variants = base.get("variants", {})
    if variant and variant not in variants:
        known = ", ".join(f"{set}:{each}" for each in variants) or "no variants"
        raise InvalidSetting(f"{set} has no variant {variant!r}; it has {known}")
    if preset and preset not in PRESETS:
        raise InvalidSetting(f"--preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    table = {**base, **base.get(preset, {}), **variants.get(variant, {})}
    settings = _data()["settings"][preset][table["settings"]] if preset else {}
    return Task(name, preset, table, settings)


def read_task(
    task: Task, data: Path | None = None, *, n: int | None = None, seed: int = 0
) -> Loaded:
    """The problems of a set: from a file or folder in its official format, else from the hub.

    Args:
        task: which set.
        data: the file or folder.
        n: only the first so many.
        seed: of the order of options, where they are shuffled.

    Raises:
        InvalidTask: the rows cannot be had or read; one sentence.
    """
    table, subjects = task.table, task.table.get("subjects", ())
    if data is not None:
        rows, hash = rows_of(data, subjects)
        source, named = f"{data.name} sha256:{hash}", str(data)
    else:
        rows, source = _from_hub(table)
        named = source
    rows = rows[: table.get("first")]
    lines = [
        problem_of(row, k, table, seed=seed, place=f"{named}, row {k}")
        for k, row in enumerate(rows)
    ]
    kept = [{"extractor": table.get("extractor"), **line} for line in lines if line]
    problems = parse_problems(map(json.dumps, kept), named)
    source = f"{task.preset or 'paper'}: {source}"
    return Loaded(tuple(problems[:n]), source, len(lines) - len(kept))


def _from_hub(table: Mapping[str, Any]) -> tuple[list[Row], str]:
    """The rows of a data set on the hub, at the revision that it has now."""
    hub = table["hub"]
    advice = "give the official file or folder with --data PATH"
    try:
        from datasets import disable_progress_bars, load_dataset
        from huggingface_hub import HfApi
    except ImportError as error:
        raise InvalidTask(
            f"{hub['id']} needs a package that is not installed ({first_line(error)}); pip "
            f"install 'qalign-explorer[tasks]', or {advice}"
        ) from error

    if not sys.stderr.isatty():
        disable_progress_bars()

    def load(config: str) -> Iterable[Row]:
        rows: Iterable[Row] = load_dataset(hub["id"], config, split=hub["split"], revision=revision)
        return rows

    try:
        revision = str(HfApi().dataset_info(hub["id"]).sha)
        if subjects := table.get("subjects"):
            rows: list[Row] = [{**r, "subject": each} for each in subjects for r in load(each)]
        else:
            rows = list(load(hub["config"]))
        if "categories" in hub and "<{subject}>" in table["template"]:  # in a config of its own
            category = {row["question"]: row["category"] for row in load(hub["categories"])}
            rows = [{**row, "category": category.get(row["question"])} for row in rows]
    except Exception as error:  # the network, the hub and the reader of its files have dozens
        raise InvalidTask(
            f"{hub['id']} cannot be read from the hub ({first_line(error)}); {advice}"
        ) from error
    config = hub.get("config", f"{len(subjects or ())} configs")
    return rows, f"{hub['id']} {config} {hub['split']} @{revision}"
