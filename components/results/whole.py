"""All results together, as `qalign report` shows them: markup, and files to take home."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from components.common.evaluated import summarise
from qalign_core.errors import QAlignError
from qalign_study.measure.report import Report
from qalign_study.sheet.report import STYLE, sections
from qalign_study.sheet.tables import to_csv, to_latex

_STYLE = f"""
.qr-whole {{ --ink: var(--body-text-color); --soft: var(--body-text-color-subdued);
  --line: var(--border-color-primary); --ground: var(--background-fill-primary);
  {STYLE}
}}
"""
FORMS = {"csv": to_csv, "tex": to_latex}
"""The files of all results, by how their names end."""


def whole_html(files: Sequence[Path]) -> str:
    """Averages, differences, small multiples, where curves turn and cross, gains and waiting."""
    report = _report(files)
    if report is None:
        return '<p class="qc-sub">No results can be read.</p>'
    return f'<style>{_STYLE}</style><div class="qr-whole">{"".join(sections(report, {}))}</div>'


def file_of(files: Sequence[Path], kind: str) -> str:
    """A file of all results, as JSON for the browser: its name and its text."""
    report = _report(files)
    made = "" if report is None else FORMS[kind](report)
    # the browser is told of what changes: a file that is asked for twice is saved twice
    told = {"name": f"qalign-results.{kind}", "text": made, "at": time.monotonic()}
    return json.dumps(told)


def _report(files: Sequence[Path]) -> Report | None:
    return _made(tuple((path, path.stat().st_mtime_ns) for path in files if path.exists()))


@lru_cache(maxsize=2)
def _made(files: tuple[tuple[Path, int], ...]) -> Report | None:
    found = {}
    for path, _ in files:
        try:
            found[path.stem] = summarise(path)
        except QAlignError:  # it is said where that set is chosen
            continue
    if not found:
        return None
    results = {name: summary.draws for name, summary in found.items()}
    return Report(results, known={name: summary.points for name, summary in found.items()})
