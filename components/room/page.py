"""The page of a room: one file with its style, scripts and settings."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from components.common.new_problem import new_problem
from components.room.limits import Caps
from qalign_core.assets import ASSETS
from qalign_core.record.store import load_trace
from qalign_core.run import NO_EXTRACTOR, Run
from qalign_core.validation import is_file_name
from qalign_study.export import dictionary
from qalign_study.export.scripts import WEB, bundle, sheets
from qalign_study.sets.problem_sets import Problem

RECORDED = ("watch", "stuck", "climb")
"""The recorded runs whose problems and betas are on offer."""
NEW = ("in_distribution", "in_distribution", "shifted", "long")
"""The kinds of the new problems on offer."""
MOST = 100
"""The most problems of the operator's sets that are on offer."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)


@cache
def _usual_problems() -> tuple[dict[str, Any], ...]:
    runs = [load_trace(ASSETS / "runs" / f"{name}.jsonl").header.run for name in RECORDED]
    rng = random.Random(0)
    new = (new_problem(kind, rng) for kind in NEW)
    runs += [Run(prompt=prompt, reference=reference) for prompt, reference in new]
    keys = ("prompt", "reference", "extractor", "beta")
    return tuple({key: getattr(run, key) for key in keys} for run in runs)


def problems(own: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return the problems on offer, each with its right answer and a suitable beta.

    Args:
        own: the operator's, of which those are offered whose answers a built-in grader reads, and
            those without answers.
    """
    mine = [{"prompt": e.prompt, "reference": e.answer or "", "beta": 1.0,
             "extractor": e.extractor or NO_EXTRACTOR}
            for e in own if not is_read_by_file(e)]  # fmt: skip
    return [*mine[:MOST], *_usual_problems()]


def is_read_by_file(problem: Problem) -> bool:
    """True for a problem whose answers a Python file reads, which no request may run."""
    return is_file_name(problem.extractor or "")


@cache
def _page_ends() -> tuple[str, str]:
    parts = [WEB / name for name in ("exhibit/exhibit", "learn/ask", "room/room")]
    style = dictionary.style() + sheets(*parts)
    script = dictionary.script() + bundle(WEB / "room" / "room.js")
    before = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>QAlign Explorer: a room</title><style>{style}</style></head>"
        '<body><main id="room" aria-live="off"></main>'
        '<script type="application/json" id="offered">'
    )
    return before, f"</script><script>{script}QAlignRoom.open();</script></body></html>\n"


def page(
    caps: Caps,
    lessons: Sequence[Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Any]],
    own: Sequence[Problem] = (),
) -> str:
    """Return the page.

    Args:
        caps: of rooms.
        lessons: the entries of the lessons that a class may take.
        models: on offer, as `RoomService.describe_models` returns them.
        own: the operator's problems.
    """
    offered = {
        "lessons": lessons,
        "problems": problems(own),
        "left_out": sum(map(is_read_by_file, own)),
        "models": models,
        "members": caps.members,
    }
    before, behind = _page_ends()
    return before + json.dumps(offered, ensure_ascii=False).replace("<", "\\u003c") + behind
