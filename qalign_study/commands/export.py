"""A trace, a folder of results, or a lesson as homework, as one page that works offline.

Examples:
  qalign export run.jsonl --html run.html --title "A chain" --says "It corrects a sum."
  qalign export results --html results.html --play 3 7
"""

import argparse
import os
from pathlib import Path

from qalign_core.errors import InvalidSetting
from qalign_core.record.store import naming, trace_text, write_whole
from qalign_study.commands import shared
from qalign_study.export.player import page
from qalign_study.lessons.files import read_lesson
from qalign_study.lessons.homework import homework_page
from qalign_study.lessons.material import add_runs
from qalign_study.measure.report import evaluated
from qalign_study.measure.results import load_results
from qalign_study.sheet.folder import folder_page


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign export`."""
    parser.usage = f"{parser.usage} PATH"
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="trace file of `qalign run`, folder of `qalign evaluate`, or lesson (.toml)",
    )
    shared.html_option(parser, required=True)
    help_play = "problems of the folder whose chains the page plays, from 0"
    parser.add_argument("--play", type=int, nargs="+", default=[], metavar="N", help=help_play)
    old = argparse.SUPPRESS
    parser.add_argument("--problem", dest="play", type=int, nargs="+", help=old)
    group = parser.add_argument_group("page of a trace")
    group.add_argument("--title", default="", help="title of the page")
    group.add_argument(
        "--says",
        dest="caption",
        metavar="SAYS",
        default="",
        help="one or two sentences about the run",
    )
    group.add_argument(
        "--live",
        action="store_true",
        help="make a page of 5 MB that draws new runs too (embedded models only)",
    )


async def command(options: argparse.Namespace) -> None:
    """Write the page."""
    path: Path = options.path
    if path.suffix == ".toml":
        if options.title or options.caption or options.live or options.play:
            raise InvalidSetting(f"{path} is a lesson, whose page has no options; leave them out")
        add_runs(path.parent)
        html = homework_page(read_lesson(path))
    elif os.path.isdir(path):
        if options.title or options.caption or options.live:
            raise InvalidSetting(f"{path} is a folder; --title, --says and --live are for a trace")
        evaluated_set = evaluated(path, path.resolve().name, load_results(path, code=True))
        html = folder_page(evaluated_set, options.play)
    elif options.play:
        raise InvalidSetting(f"{path} is not a folder; --play is for a folder of results")
    else:
        text = trace_text(path)
        with naming(path):
            html = page(text, title=options.title, caption=options.caption, live=options.live)
    content = html.encode()
    write_whole(options.html, content)
    print(f"{options.html}: {len(content):,} bytes")
