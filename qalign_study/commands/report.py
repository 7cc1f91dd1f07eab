"""Accuracy of every method, and paired differences, of evaluations.

Examples:
  qalign report results --csv numbers.csv --latex tables.tex --html report.html
  qalign report --paired results other-results
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting
from qalign_core.record.store import write_whole
from qalign_core.validation import check_real
from qalign_study.commands import shared
from qalign_study.measure.curves import Point, in_order
from qalign_study.measure.intervals import Difference
from qalign_study.measure.paired_runs import Pair, paired_runs
from qalign_study.measure.report import Group, Report
from qalign_study.measure.results import load_results
from qalign_study.sheet.files import check_table, to_csv, to_latex, write_table
from qalign_study.sheet.page import to_html
from qalign_study.sheet.text import format_columns
from qalign_study.sheet.words import curve_name, in_a_sentence, target_of


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign report`."""
    parser.usage = f"{parser.usage} [PATH ...]"
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        default=sorted((ASSETS / "results").glob("*.zip")),
        help="folder or packed file; default: those in the repository",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--paired",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="compare two runs of the same problems: two rewards, moves, models or betas",
    )
    parser.add_argument(
        "--outcomes",
        type=Path,
        metavar="FILE",
        help="write what each method decides on each problem, as .csv or .parquet",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all numbers as CSV")
    parser.add_argument("--latex", type=Path, metavar="FILE", help="write the tables for LaTeX")
    shared.html_option(parser)
    parser.add_argument(
        "--tuning",
        type=float,
        metavar="FLOPS",
        help="compute spent on finding beta, marked on the page",
    )


async def command(options: argparse.Namespace) -> None:
    """Print the tables and write the files that are asked for."""
    if options.tuning is not None:
        check_real("--tuning", options.tuning, 0, above=True)
    if options.outcomes is not None:
        check_table(options.outcomes)
    if options.paired is not None:
        for name in ("csv", "latex", "html", "outcomes", "tuning"):
            if getattr(options, name) is not None:
                raise InvalidSetting(f"--paired prints two runs; leave out --{name}, or use --json")
        _print_paired(*options.paired, as_json=options.json)
        return
    places: dict[str, Path] = {}
    for path in options.paths:
        name = path.name if os.path.isdir(path) else path.stem
        places[name if name not in places else str(path)] = path
    sets = {name: load_results(path, code=True) for name, path in places.items()}
    report = Report(sets, {name: path for name, path in places.items() if os.path.isdir(path)})
    forms: tuple[tuple[Path | None, Callable[[Report], str]], ...] = (
        (options.csv, to_csv),
        (options.latex, to_latex),
        (options.html, lambda whole: to_html(whole, tuning=options.tuning)),
    )
    for path, form in forms:
        if path is not None:
            write_whole(path, form(report).encode(errors="replace"))
    if options.outcomes is not None:
        write_table(report.outcomes(), options.outcomes)
    if options.json:
        print(json.dumps(report.json(), allow_nan=False))
        return
    methods = {p.method for each in report.sets for p in each.points}
    print("; ".join(f"{m}: {in_a_sentence(curve_name(m))}" for m in sorted(methods, key=in_order)))
    print("n: samples, or as many states of the chain as cost the same; intervals are 95%;")
    print("where an exact p is printed, it decides, and not the interval")
    for group in report.groups:
        chains = {each.name: each.results.header.run.chains for each in group.sets}
        print(f"\n{group.header.run.lm} with {group.header.run.rm}, {target_of(group.header.run)}")
        for line in group.lines:
            several = f", {chains[line.name]} chains each" if chains.get(line.name, 1) > 1 else ""
            print(f"{line.name}, {len(line.points[0].each):,} problems{several}")
            at = [(p.method, *_at(p, group), p) for p in line.points]
            print(format_columns(("method", "n", "FLOPs", "accuracy, %"), at, indent=2))
            gaps = [(f"{d.a} - {d.b}", *_at(d, group), d) for d in line.differences]
            heads = ("difference", "n", "FLOPs", "points, paired over problems")
            print(format_columns(heads, gaps, indent=2))


def _print_paired(a: Path, b: Path, *, as_json: bool) -> None:
    """Print every method in two runs, and their differences, paired over problems."""
    one, other = (load_results(path, code=True) for path in (a, b))
    pairs = [*paired_runs(one, other)]
    if as_json:
        print(json.dumps([_as_json(pair) for pair in pairs], allow_nan=False))
        return
    for name, path, run in (("A", a, one), ("B", b, other)):
        settings = run.header.run
        print(
            f"{name}: {path}: {settings.lm} with {settings.rm}, {target_of(settings)}, "
            f"{settings.move}"
        )
    problems = len(pairs[0].a.each)
    unit = one.header.meter.unit if one.header.meter.unit == other.header.meter.unit else "cost"
    print(f"{problems:,} problems; n: samples, or as many states as cost the same in that run; 95%")
    rows = [(p.a.method, p.a.n, p.a.spent, p.b.spent, p.a, p.b, p.difference) for p in pairs]
    heads = ("method", "n", f"{unit} of A", f"{unit} of B", "A, %", "B, %")
    print(format_columns((*heads, "A - B, points, paired over problems"), rows))


def _as_json(pair: Pair) -> dict[str, object]:
    gap = asdict(pair.difference)
    kept = ("value", "low", "high", "problems", "discordant", "p", "verdict")
    return {
        **{"method": pair.a.method, "n": pair.a.n, "a": pair.a.value, "b": pair.b.value},
        **{"spent_a": pair.a.spent, "spent_b": pair.b.spent},
        **{name: gap[name] for name in kept},
    }


def _at(measurement: Point | Difference, group: Group) -> tuple[int, float | None]:
    return measurement.n, measurement.spent if group.unit == "FLOPs" else None
