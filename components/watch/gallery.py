"""The gallery: recorded runs that play at one click and need no model, one entry per trace.

`assets/runs/gallery.toml` has title and sentence of each; models, settings and the command that
draws it again are read off the trace's own header. `python -m components.watch.gallery FOLDER`
writes each as a page that plays from a disk.
"""

import argparse
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

from components.common.options import PLAIN
from components.common.rpc import server_functions
from qalign_core.assets import ASSETS
from qalign_core.messages import question_of
from qalign_core.record.format import parse_header, whole_lines
from qalign_core.record.store import load_trace, trace_text, write_whole
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_study.export.command import command_of
from qalign_study.export.player import page, page_around
from qalign_study.lessons.facts import RUNS
from qalign_study.serve.limits import read_limits
from qalign_study.sets.folder import trace_path
from qalign_study.sheet.evaluated import NO_FOLDERS
from qalign_study.sheet.words import model_title, target_of

FOLDER = ASSETS / "runs"
WATCH = FOLDER / "watch.jsonl"
"""The run that plays before any click."""

SCRIPT = """
window.QAlignGallery.mount(element.querySelector(".qg-host"), props.entries, server);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded run, as the page describes it.

    Attributes:
        name: the name of its trace file and in links.
        title: a few words.
        summary: one or two sentences about what it shows.
        facts: its models and settings.
        command: the shell command that draws it again.
        query: the query of a link that opens its settings, within this server's limits.
        page: the page that shows it, "watch" or "compare".
    """

    name: str
    title: str
    summary: str
    facts: str
    command: str
    query: str
    page: str = "watch"

    @property
    def path(self) -> Path:
        """The file of its trace."""
        return RUNS[self.name]


def gallery() -> dict[str, Entry]:
    """Return the entries by name, in the gallery's order; the operator's own are last."""
    own = [name for name, path in RUNS.items() if path.parent != FOLDER]
    return {**_shipped(), **{name: _entry(name, name, RUNS[name]) for name in own}}


@cache
def _shipped() -> dict[str, Entry]:
    with (FOLDER / "gallery.toml").open("rb") as file:
        tables = tomllib.load(file)["run"]
    return {
        table["name"]: _entry(path=RUNS[table["name"]], summary=table.pop("says"), **table)
        for table in tables
    }


@cache
def _entry(name: str, title: str, path: Path, summary: str = "", page: str = "watch") -> Entry:
    with path.open(encoding="utf-8") as file:
        run = parse_header(next(file)).run
    here = run.within(read_limits())
    link = here.query() if page == "watch" else f"tab={page}&{here.query()}"
    chains = f", {run.chains} chains" if run.chains > 1 else ""
    settings = f"{target_of(run)}, {run.steps} steps{chains}"
    facts = f"{model_title('lm', run.lm)}. Reward: {model_title('rm', run.rm)}. {settings}."
    return Entry(
        name, title, summary or question_of(run.prompt), facts, command_of(run), link, page
    )


def recorded_text(name: str, folders: Mapping[str, Path] = NO_FOLDERS) -> dict[str, str]:
    """Return the trace of an entry, or of a problem in a folder of results, for a browser.

    Args:
        name: an entry's name, or "FOLDER/00003" with the name of one of the folders.
        folders: the folders that may be read, by name.

    Returns:
        {"text", "title", "summary"}, or {"error": one sentence} for an unknown name.

    Raises:
        QAlignError: as `recorded_run`.
    """
    entry = gallery().get(str(name))
    if entry is not None:
        text = entry.path.read_text(encoding="utf-8")
        return {"text": text, "title": entry.title, "summary": entry.summary}
    folder, _, place = str(name).rpartition("/")
    if folder not in folders or not re.fullmatch(r"[0-9]{5,7}", place):
        return {"error": f"There is no recorded run called “{str(name)[:40]}”."}
    text, _ = recorded_run(trace_path(folders[folder], int(place)))
    return {"text": text, "title": f"{folder}, problem {int(place)}", "summary": ""}


def recorded_run(path: Path = WATCH) -> tuple[str, Run]:
    """Return the complete lines of a recorded trace, and the run that would draw it again.

    Raises:
        InvalidTrace: the file is no trace.
        InvalidSetting: it was assembled from several betas.
    """
    run = load_trace(path).header.run
    Target(run.beta)
    return whole_lines(trace_text(path)), run


def page_parts(request: dict[str, Any]) -> dict[str, str]:
    """Return the markup around a trace in a page that plays it without this server.

    Args:
        request: {"header": the trace's first line, "run": its name in the gallery, or "", "live":
            whether the page draws new runs too}.

    Returns:
        {"before": ..., "behind": ...}.

    Raises:
        QAlignError: the line is no header, or the run none that a browser can draw.
    """
    entry = gallery().get(str(request.get("run")))
    words = {"title": entry.title, "caption": entry.summary} if entry is not None else {}
    header = parse_header(request["header"])
    before, behind = page_around(header, live=request.get("live") is True, **words)
    return {"before": before, "behind": behind}


def gallery_list(folders: Mapping[str, Path]) -> gr.HTML:
    """Build the list of recorded runs, which `QAlignGallery.open()` opens over the page.

    Args:
        folders: as for `recorded_text`.
    """

    def recorded(name: str) -> dict[str, str]:
        return recorded_text(name, folders)

    return gr.HTML(
        html_template='<div class="qg-host"></div>',
        js_on_load=SCRIPT,
        entries=[asdict(entry) for entry in gallery().values()],
        server_functions=server_functions(recorded),
        **PLAIN,
    )


def write_slides(folder: Path) -> list[Path]:
    """Write every run of the gallery as a page that plays, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for entry in gallery().values():
        html = page(
            entry.path.read_text(encoding="utf-8"), title=entry.title, caption=entry.summary
        )
        paths.append(folder / f"{entry.name}.html")
        write_whole(paths[-1], html.encode())
    return paths


def write_pages(write: Callable[[Path], list[Path]]) -> None:
    """Have `write` fill the folder that the command line names, and print the paths."""
    parser = argparse.ArgumentParser(description=write.__doc__)
    parser.add_argument("folder", type=Path, help="the folder, which is made if it is missing")
    print(*write(parser.parse_args().folder), sep="\n")


if __name__ == "__main__":
    write_pages(write_slides)
