"""The gallery: recorded runs that play at one click and need no model, an entry a trace.

`assets/runs/gallery.toml` has title and sentence of each; models, settings and the command that
draws it again are read off the trace's own header. `python -m components.watch.gallery FOLDER`
writes each as a page that plays from a disk.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

from components.common.evaluated import NO_FOLDERS
from components.common.rpc import server_functions
from qalign_core.assets import ASSETS
from qalign_core.record.trace import load_trace, parse_header, trace_text, whole_lines, write_whole
from qalign_core.registry import entries
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_study.export.command import command_of
from qalign_study.export.player import page, page_around
from qalign_study.sets.folder import trace_path
from qalign_study.sheet.words import target_of

FOLDER = ASSETS / "runs"
WATCH = FOLDER / "watch.jsonl"
"""The run that plays before any click."""

SCRIPT = """
window.QAlignGallery.mount(element.querySelector(".qg-host"), props.entries, server);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded run, as the page tells of it.

    Attributes:
        name: of its trace's file, and in links.
        title: a few words.
        summary: what there is to see.
        facts: its models and settings.
        command: what draws it again.
        query: of a link that puts its settings in place.
        page: where it is shown, "watch" or "compare".
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
        return FOLDER / f"{self.name}.jsonl"


@cache
def gallery() -> dict[str, Entry]:
    """The entries by name, in the order in which they are shown."""
    with (FOLDER / "gallery.toml").open("rb") as file:
        tables = tomllib.load(file)["run"]
    return {table["name"]: _entry(summary=table.pop("says"), **table) for table in tables}


def _entry(name: str, title: str, summary: str, page: str = "watch") -> Entry:
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as file:
        run = parse_header(next(file)).run
    link = run.query() if page == "watch" else f"tab={page}&{run.query()}"
    chains = f", {run.chains} chains" if run.chains > 1 else ""
    settings = f"{target_of(run)}, {run.steps} steps{chains}"
    facts = f"{_title('lm', run.lm)}. Reward: {_title('rm', run.rm)}. {settings}."
    return Entry(name, title, summary, facts, command_of(run), link, page)


def _title(kind: str, id: str) -> str:
    """The name of a model; a sum of rewards is its own name."""
    entry = entries().get((kind, id))
    return entry.title if entry is not None else id


def recorded_text(name: str, folders: Mapping[str, Path] = NO_FOLDERS) -> dict[str, str]:
    """The trace of an entry, or of a problem of a folder of results, for a browser.

    Args:
        name: of the entry, or "FOLDER/00003" with the name of one of the folders.
        folders: those that may be read, by name.

    Returns:
        {"text", "title", "summary"}, or {"error": one sentence} for a name that there is not.

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
    """The whole lines of a recorded trace, and the run that would draw it again.

    Raises:
        InvalidTrace: the file is no trace.
        InvalidSetting: it was put together from several betas.
    """
    run = load_trace(path).header.run
    Target(run.beta)
    return whole_lines(trace_text(path)), run


def page_parts(asked: dict[str, Any]) -> dict[str, str]:
    """What stands around a trace in a page that plays it without this server.

    Args:
        asked: {"header": the trace's first line, "run": its name in the gallery, or "", "live":
            whether the page draws new runs too}.

    Returns:
        {"before": ..., "behind": ...}.

    Raises:
        QAlignError: the line is no header, or the run none that a browser can draw.
    """
    entry = gallery().get(str(asked.get("run")))
    told = {"title": entry.title, "caption": entry.summary} if entry is not None else {}
    header = parse_header(asked["header"])
    before, behind = page_around(header, live=asked.get("live") is True, **told)
    return {"before": before, "behind": behind}


def gallery_list(folders: Mapping[str, Path] = NO_FOLDERS) -> gr.HTML:
    """The list of recorded runs, which `QAlignGallery.open()` opens over the page.

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
        apply_default_css=False,
        padding=False,
    )


def write_slides(folder: Path) -> list[Path]:
    """Every run of the gallery as a page that plays, with its title and sentence."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for entry in gallery().values():
        made = page(entry.path.read_text(encoding="utf-8"), title=entry.title, caption=entry.summary)
        written.append(folder / f"{entry.name}.html")
        write_whole(written[-1], made.encode())
    return written


if __name__ == "__main__":
    print(*write_slides(Path(sys.argv[1])), sep="\n")
