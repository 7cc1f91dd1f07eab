"""A trace as one page that plays offline.

Examples:
  qalign export run.jsonl --html run.html
  qalign export run.jsonl --html run.html --title "A chain" --says "It corrects a sum."
"""

import argparse
from pathlib import Path

from qalign_core.record.player import page
from qalign_core.record.trace import trace_text, write_whole


def options(parser: argparse.ArgumentParser) -> None:
    """Those of `qalign export`."""
    parser.usage = f"{parser.usage} TRACE"
    parser.add_argument("trace", type=Path, help="file of the trace, as run --out writes it")
    parser.add_argument("--html", type=Path, required=True, help="file of the page")
    parser.add_argument("--title", default="", help="of the page")
    parser.add_argument("--says", default="", help="what there is to see, in a sentence or two")
    parser.add_argument(
        "--live",
        action="store_true",
        help="make a page of 5 MB that draws new runs too (embedded models only)",
    )


async def command(options: argparse.Namespace) -> None:
    """Write the page."""
    text = trace_text(options.trace)
    made = page(text, title=options.title, says=options.says, live=options.live).encode()
    write_whole(options.html, made)
    print(f"{options.html}: {len(made):,} bytes")
