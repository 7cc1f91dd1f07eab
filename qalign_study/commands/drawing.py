"""Draw one run, or one run per problem of a set."""

import argparse
import asyncio
import io
import sys
from collections.abc import Callable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qalign_core.errors import InvalidSetting
from qalign_core.record.format import end_line
from qalign_core.record.runner import Draw, make_header, record
from qalign_core.record.store import TraceFile, open_trace
from qalign_core.record.trace import Trace
from qalign_core.run import Run
from qalign_core.types import ScoredResponse, Step
from qalign_study.commands import shared
from qalign_study.export.command import join_options
from qalign_study.sets.folder import run_set
from qalign_study.sets.tasks import Loaded


async def draw(
    models: shared.Models, run: Run, out: Path | None, on_draw: Callable[[Draw], object]
) -> Trace:
    """Draw a run, into a file if there is one, and tell of each draw; what was there too."""
    header, new = make_header(*models, run), list[Draw]()
    nowhere = nullcontext(TraceFile(Path(), io.BytesIO(), Trace(header)))
    with open_trace(out, header) if out is not None else nowhere as file:
        if file is None:
            raise InvalidSetting(f"{out} is in use by another run; wait for it, or give another")
        recording = record(*models, run, known=file.known)
        try:
            async with aclosing(recording) as lines:  # type: ignore[type-var]
                async for item in lines:
                    file.write(item.line)
                    if item.draw is not None:
                        new.append(item.draw)
                        on_draw(item.draw)
        except asyncio.CancelledError:
            file.write(end_line("stopped"))
            raise
    steps = tuple(each for each in new if isinstance(each, Step))
    pool = tuple(each for each in new if isinstance(each, ScoredResponse))
    return Trace(header, file.known.steps + steps, file.known.pool + pool)


def progress_bar(unit: str, total: int | None = None, **options: Any) -> Any:
    """Return a progress bar on standard error, which draws nothing into a pipe or a file."""
    return tqdm(unit=unit, total=total, file=sys.stderr, disable=None, **options)


def advance(bar: Any, n: int) -> None:
    """Move a progress bar; a run at equal cost may need more draws than were expected."""
    bar.total = max(bar.total, bar.n + n)
    bar.update(n)


async def fill(
    options: argparse.Namespace,
    models: shared.Models,
    run: Run,
    loaded: Loaded,
    bar: Any,
    folder: Path | None = None,
    *,
    by_problem: bool = False,
) -> None:
    """Draw a run for every problem, with a bar that counts draws, or problems if `by_problem`."""

    def progress(n_new: int, n_done: int, n_elsewhere: int) -> None:
        advance(bar, n_done - bar.n if by_problem else n_new)
        if n_elsewhere:
            bar.set_postfix_str(f"{n_elsewhere} with other processes")

    with bar:
        await run_set(
            *models,
            run,
            loaded.problems,
            folder or options.out,
            at_once=options.at_once,
            task=options.task,
            command=_command(options),
            source=loaded.source,
            progress=progress,
        )


def _command(options: argparse.Namespace) -> str:
    """How to run the same again."""
    names = {*Run.kinds(), "problems", "preset", "budget", "states", "samples"}
    names |= {f"{kind}_{name}" for kind in ("lm", "rm") for name in shared.OF_EACH}
    settings = {"prompts" if options.name == "run" else "task": options.task}
    values = ((k, v) for k, v in vars(options).items() if k in names and v not in (None, 0))
    settings |= {name: str(value) for name, value in values}
    if options.data is not None:
        settings["data"] = "PATH"
    return join_options(options.name, {**settings, "out": "FOLDER"})
