"""The sheet as HTML without a script: tables by pandas, figures as SVG.

Every name is escaped and has an element of its own (`<bdi>`), so that it does not reverse the text
next to it.
"""

import html
import math
from collections.abc import Iterable

from qalign_core.errors import InvalidSetting
from qalign_study.export.dictionary import variables
from qalign_study.export.player import NO_SCRIPT, head
from qalign_study.export.scripts import WEB
from qalign_study.measure.report import Report
from qalign_study.sheet.chart import Figure, chart, legend
from qalign_study.sheet.report import largest_first, sections
from qalign_study.sheet.values import Cell, Markup, Section, Table, text
from qalign_study.sheet.words import models_of

PAGE = (WEB / "sheet" / "page.css").read_text("utf-8")
"""Style of a page that is a sheet and nothing else."""
STYLE = (WEB / "sheet" / "sheet.css").read_text("utf-8")
"""Style sheet of a sheet, for a page that has `--ground`, `--ink`, `--soft`, `--line`."""

_SORTS = '<button type="button">{}</button>'
_FILTER = (
    '<p class="filter"><input type="search" aria-label="Filter the rows" '
    'placeholder="Filter: wrong, not mixed, a word, an id"><output></output></p>'
)


def table_html(table: Table) -> str:
    """A table, which scrolls where its place is too narrow."""
    import pandas as pd

    frame = table.frame.map(_cell)
    frame.index, frame.columns = frame.index.map(text), frame.columns.map(html.escape)
    head = "<td></td>"
    if table.sorts:
        head = f"<th>{_SORTS.format('id')}</th>"
        frame.columns = frame.columns.map(_SORTS.format)
    with pd.option_context("display.max_colwidth", None):
        markup = frame.to_html(escape=False, border=0, header=table.heads, justify="unset")
    # pandas gives the corner a head of its own, which would name nothing
    whole = markup.replace("<th></th>", head, 1)
    before, kind = (_FILTER, "table list") if table.sorts else ("", "table")
    return (
        f'{before}<div class="{kind}" tabindex="0" role="group" aria-label="numbers">{whole}</div>'
    )


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, Markup):
        return str(cell)
    if not isinstance(cell, Cell):
        return text(str(cell))
    value, *notes = cell.texts
    markup = f"<strong>{value}</strong>" if cell.bold else value
    opens = html.escape(cell.opens)
    if opens.startswith("#"):
        markup = f'<a href="{opens}">{markup}</a>'
    elif opens:
        markup = f'<button type="button" class="qr-cell" data-opens="{opens}">{markup}</button>'
    return " ".join([markup, *(f"<small>{note}</small>" for note in notes if note)])


def figure_html(figure: Figure) -> str:
    """A figure in two widths: text in an SVG shrinks with it, and a phone's would be unreadable."""
    return (
        f'<figure>{legend(figure.lines)}<div class="broad">{chart(figure, 1000, 430)}</div>'
        f'<div class="narrow">{chart(figure, 360, 320)}</div></figure>'
    )


def panels_html(figures: Iterable[Figure]) -> str:
    """Small figures side by side, under one legend."""
    figures = tuple(figures)
    cells = "".join(
        f"<figure><h3>{text(each.title)}</h3>{chart(each, 360, 250)}"
        f"<figcaption>{text(each.note)}</figcaption></figure>"
        for each in figures
    )
    key = legend([line for each in figures for line in each.lines])
    return f'{key}<div class="grid-of">{cells}</div>'


def _item_html(item: Table | Figure | tuple[Figure, ...]) -> str:
    if isinstance(item, Table):
        return table_html(item)
    return figure_html(item) if isinstance(item, Figure) else panels_html(item)


def section_html(section: Section) -> str:
    """A section with all that is in it."""
    under = f'<p class="soft">{section.intro}</p>' if section.intro else ""
    content = under + "".join(map(_item_html, section.items))
    if section.fold:
        body = f'<div id="{section.id}">{content}</div>' if section.id else content
        return f"<details><summary>{section.title}</summary>{body}</details>"
    return f"<h2>{section.title}</h2>{content}"


def to_html(report: Report, *, tuning: float | None = None) -> str:
    """The page of a report; no script, no network.

    Args:
        report: what it shows.
        tuning: FLOPs that were spent on finding beta, as `sections` has them.

    Raises:
        InvalidSetting: `tuning` is not a number above 0.
    """
    if tuning is not None and not (math.isfinite(tuning) and tuning > 0):
        raise InvalidSetting(f"tuning must be FLOPs above 0, got {tuning}; leave it out if unknown")
    content = "".join(map(section_html, sections(report, whole=True, tuning=tuning)))
    main = largest_first(report)[0]
    n = sum(len(each.results.records) for each in main.different)
    count = f"{len(main.different)} problem set{'s' * (len(main.different) > 1)}, {n:,} problems"
    names = dict.fromkeys(each.results.header.task or each.name for each in report.sets)
    plain = html.escape("".join(filter(str.isprintable, ", ".join(names))))
    light, dark = variables()
    colours = f":root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n"
    return (
        head(f"QAlign report: {plain}", colours + PAGE + STYLE, NO_SCRIPT)
        + f'<body><h1>QAlign report: {", ".join(map(text, names))}</h1><p class="soft">{count}; '
        f"{text(models_of(main.header.run))}.</p>{content}</body></html>\n"
    )
