"""A folder of results as one page of HTML: its problems, and whole chains of those one names."""

import html
import shlex
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from qalign_core.errors import InvalidSetting
from qalign_core.record.format import parse_trace, whole_lines
from qalign_core.record.store import trace_text
from qalign_study.export.player import FOLLOW, PLAYS, head, player_parts
from qalign_study.export.scripts import WEB, as_data
from qalign_study.measure.report import Evaluated
from qalign_study.sheet.page import PAGE, STYLE, section_html, table_html
from qalign_study.sheet.problems import COLUMNS, at_level, cut, list_problems, progress
from qalign_study.sheet.report import describe_run
from qalign_study.sheet.values import Markup, Section, Table, text

_STYLE = f"""
body {{ max-width: 1240px }} #player {{ margin: 12px 0 }} .sheet {{ {STYLE} }}
[data-chain] {{ font: inherit; padding: 2px 10px; cursor: pointer }}
"""
_SCRIPT = """
QAlignList.listen();
const host = document.getElementById("player");
let player = null;
document.addEventListener("click", ({ target }) => {
  const pressed = target.closest("[data-chain]");
  if (!pressed) return;
  const { chain, name } = pressed.dataset;
  const text = document.getElementById(chain).textContent;
  if (player) player.open(text, name);
  else player = QAlign.mount(host, { text, name });
  host.scrollIntoView();
});
"""


def folder_page(evaluated: Evaluated, chains: Collection[int] = ()) -> str:
    """The page of a folder.

    Args:
        evaluated: its results.
        chains: the numbers of the problems whose whole chains the page plays.

    Raises:
        InvalidSetting: there is no such problem.
        InvalidTrace: a chain cannot be read.
    """
    header, records, folder = evaluated.results.header, evaluated.results.records, evaluated.folder
    assert folder is not None, "packed results hold numbers only"
    n = len(header.problems)
    if missing := [place for place in chains if not 0 <= place < n]:
        raise InvalidSetting(f"--play {missing[0]}: {folder} has problems 0 to {n - 1}")
    order = range(len(records))
    data = "".join(
        f'<script type="application/x-ndjson" id="chain-{place}">'
        f"{as_data(_trace(evaluated.trace_path(place)))}</script>\n"
        for place in chains
    )

    def chain(k: int) -> str:
        if evaluated.place(k) not in chains:
            return "–"
        name = html.escape(f"{evaluated.name}, problem {evaluated.place(k)}")
        chain = f'data-chain="chain-{evaluated.place(k)}" data-name="{name}"'
        return Markup(f'<button type="button" {chain}>Watch</button>')

    list_html = list_problems(evaluated, order, at_level(evaluated), chain, sorts=True)
    facts = Section(
        "What was run", "", [Table(pd.DataFrame({"": describe_run(evaluated)}), heads=False)], True
    )
    style, script = player_parts(WEB / "list" / "list.js")
    style += PAGE + _STYLE
    body = (
        f'<h1>{text(evaluated.name)}</h1><div id="player"></div><div class="sheet">'
        f"<p>{progress(evaluated)}{cut(len(order))} "
        f"<code>python app.py {html.escape(shlex.quote(str(folder)))}</code> "
        f'plays the chain of each.</p><p class="soft">{COLUMNS}</p>{table_html(list_html)}'
        f"{section_html(facts)}</div>\n{data}<script>{script}</script>"
        f"<script>{FOLLOW}{_SCRIPT}</script>"
    )
    return f"{head(html.escape(evaluated.name), style, PLAYS)}<body>{body}</body></html>\n"


def _trace(path: Path) -> str:
    text = whole_lines(trace_text(path))
    parse_trace(text)
    return text
