"""A trace as one page of HTML: the player, the steps and a caption; it plays without a network.

The page contains the trace as data, with every `<` written as JSON's escape: nothing in a text can
end the element around it. Title and caption are escaped as markup.
"""

import html
from dataclasses import dataclass
from pathlib import Path

from qalign_core.messages import question_of
from qalign_core.record.format import parse_trace, trace_lines, whole_lines
from qalign_core.record.trace import Trace, TraceHeader
from qalign_study.export import dictionary
from qalign_study.export.browser import POLICY, embedded_data
from qalign_study.export.command import command_of
from qalign_study.export.scripts import WEB, as_data, bundle, sheets

MAX_TITLE = 100
"""Characters of a prompt that the window's title shows."""

PLAIN = """
:root { color-scheme: light dark }
body { margin: 0; padding: 12px 16px; background: #f6f7f9; color: #1d2430;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, Arial, sans-serif }
main { max-width: 80ch; margin: 0 auto }
a { color: inherit }
@media (prefers-color-scheme: dark) { body { background: #0f141d; color: #e9edf4 } }
"""
"""The style of a page of text."""
_STYLE = (
    PLAIN
    + """
figure { margin: 0 auto; max-width: 1240px }
@media (min-width: 1600px) { figure { max-width: 1760px } }
h1 { font-size: 22px; margin: 0 }
header p { margin: 4px 0 12px; max-width: 80ch }
figcaption { font-size: 14px; opacity: .85; margin-top: 8px; overflow-wrap: anywhere }
"""
)
FOLLOW = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", follow);
follow();
"""
"""A script: the page is as dark as the reader's system."""
_SCRIPT = """
const data = (name) => document.getElementById(name).textContent;
const player = QAlign.mount(document.getElementById("player"), {
  text: data("trace"), name: "Recorded run", run: () => live.draw(),
});
"""
_DRAWS = """
const live = QAlignLive.mount(document.getElementById("live"), () => player, {
  run: JSON.parse(data("run")), problems: JSON.parse(data("problems")),
  files: JSON.parse(data("files")), worker: data("worker"),
});
"""
NO_SCRIPT = "default-src 'none'; style-src 'unsafe-inline'"
PLAYS = f"{NO_SCRIPT}; script-src 'unsafe-inline'"
"""Policies of pages that fetch nothing, without scripts and with their own."""


def head(title: str, style: str, policy: str) -> str:
    """The beginning of a page that may do no more than its policy says, up to its body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{style}</style></head>\n"
    )


def player_parts(*more: Path) -> tuple[str, str]:
    """Return the style sheet and the script of a page with the player, and with more modules."""
    modules = [*(WEB / name / f"{name}.js" for name in ("player", "inside")), *more]
    script = bundle(*modules, WEB / "player" / "charts.js")
    return dictionary.style() + sheets(*modules), dictionary.names() + script


def page_around(
    header: TraceHeader, *, title: str = "", caption: str = "", live: bool = False
) -> tuple[str, str]:
    """Return the text before and after a trace's lines (`as_data`) in a page that plays it.

    Args:
        header: of the trace.
        title: of the page; by default the prompt is the window's, and the page has none.
        caption: what there is to see, in a sentence or two.
        live: whether the page draws new runs too; it then carries the engine and the models.

    Raises:
        InvalidSetting: `live`, and a browser cannot draw this run.
    """
    style, script = player_parts(*[WEB / "engine" / "live.js"] * live)
    policy = f"{NO_SCRIPT}; {POLICY}" if live else PLAYS
    window = html.escape(title or question_of(header.run.prompt)[:MAX_TITLE] or "QAlign Explorer")
    heading = f"<h1>{html.escape(title)}</h1>" * bool(title)
    sentence = f"<p>{html.escape(caption)}</p>" * bool(caption)
    settings = '<div id="live"></div>' * live
    again = f"<code>{html.escape(command_of(header.run))}</code>"
    data = embedded_data(header) if live else ""
    starts = FOLLOW + _SCRIPT + _DRAWS * live
    before = (
        f"{head(window, style + _STYLE, policy)}<body><figure><header>{heading}{sentence}</header>"
        f'{settings}<div id="player"></div>'
        f"<figcaption>QAlign Explorer. It is drawn again by {again}</figcaption></figure>\n"
        '<script type="application/x-ndjson" id="trace">'
    )
    behind = f"</script>\n{data}<script>{script}</script><script>{starts}</script></body></html>\n"
    return before, behind


def page(text: str, *, title: str = "", caption: str = "", live: bool = False) -> str:
    """The page that plays a trace.

    Args:
        text: the trace, JSON lines.
        title, caption, live: as for `page_around`.

    Raises:
        InvalidTrace: it is none.
        InvalidSetting: as for `page_around`.
    """
    header = parse_trace(text).header
    before, behind = page_around(header, title=title, caption=caption, live=live)
    return before + as_data(whole_lines(text)) + behind


@dataclass(frozen=True, slots=True)
class Cell:
    """The output of a notebook's cell: markup that Jupyter, VS Code, Colab and marimo display."""

    markup: str

    def _repr_html_(self) -> str:
        return self.markup


def show(trace: Trace, *, height: int = 900) -> Cell:
    """Show a trace in a notebook, in a frame with a player; `height` in pixels."""
    document = html.escape(page("".join(trace_lines(trace))))
    return Cell(
        f'<iframe srcdoc="{document}" sandbox="allow-scripts" title="QAlign Explorer" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )
