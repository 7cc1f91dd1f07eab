"""A site of plain files: Watch that draws in the browser, lessons, the gallery and the glossary.

    python -m components.site FOLDER

Any host of files serves it, and a disk too: each page carries all that it needs. Features that
need Python are missing, as the first page explains.
"""

import html
import json
from itertools import groupby
from pathlib import Path

from components.learn.alone import build_static_lessons
from components.watch.gallery import gallery, write_pages, write_slides
from qalign_core.record.store import write_whole
from qalign_study.export import dictionary
from qalign_study.export.player import FOLLOW, PLAIN, PLAYS, head, page
from qalign_study.export.scripts import WEB, as_data, bundle, sheets

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_INTRODUCTION = (
    "A language model rewrites its own answer from a random place. A reward model scores both "
    "texts, and a weighted coin decides which stays."
)
_MISSING = (
    "This site has no server. Compare, the Lab, Results, rooms and other models need one: install "
    "the project and run python app.py."
)
_LESSONS = """
const { list, ...rest } = JSON.parse(document.getElementById("lessons").textContent);
const [first] = Object.values(rest.lessons);
const player = document.getElementById("watch-player");
QAlign.mount(player, { text: rest.runs.watch, autoplay: false });
QAlignLearn.list(document.querySelector(".learn-list"));
followStops(rest, player, document.getElementById("exhibit"));
// "Run it live": this page plays recorded runs, and Watch draws
window.QAlignShell = { adopt() {}, drawAgain() { location.href = "watch.html"; } };
// the exhibit of a stop is there at once, so nothing has to be waited for
const arrive = (query) => ["lab", "results"].forEach((page) => QAlignLearn.arrived(page, query));
QAlignLearn.mount({ first, list, get value() { return ""; }, set value(query) { arrive(query); } },
  staticServer(rest), () => {});
"""


def write_site(folder: Path) -> list[Path]:
    """Write every page of the site; returns their paths, the first page first."""
    slides = write_slides(folder)
    entry = gallery()["watch"]
    watch = page(entry.path.read_text("utf-8"), title=entry.title, caption=entry.summary, live=True)
    pages = {"index": _index(), "watch": watch, "learn": _learn(), "glossary": _glossary()}
    for name, text in pages.items():
        write_whole(folder / f"{name}.html", text.encode())
    return list(dict.fromkeys([*(folder / f"{name}.html" for name in pages), *slides]))


def _page(title: str, *body: str) -> str:
    return f"{head(title, PLAIN, _POLICY)}<body><main>{''.join(body)}</main></body></html>\n"


def _index() -> str:
    runs = "".join(
        f'<li><a href="{entry.name}.html">{html.escape(entry.title)}</a>: '
        f"{html.escape(entry.summary)}</li>"
        for entry in gallery().values()
        if entry.name != "watch"
    )
    return _page(
        "QAlign Explorer",
        f"<h1>QAlign Explorer</h1><p>{_INTRODUCTION}</p>",
        '<ul><li><a href="watch.html">Watch</a>: a recorded chain, and new ones that your browser '
        "draws (5 MB).</li>",
        '<li><a href="learn.html">Lessons</a>: predict each part of a step before you see it.</li>',
        '<li><a href="glossary.html">Glossary</a></li></ul>',
        f"<h2>Gallery</h2><ul>{runs}</ul><p>{_MISSING}</p>",
    )


def _learn() -> str:
    """The lessons, with the player and the exhibits that they speak of."""
    visible_parts = [WEB / name / name for name in ("player", "inside", "learn", "exhibit")]
    parts = [*visible_parts, WEB / "learn" / "alone"]
    style = PLAIN.replace("80ch", "1240px") + dictionary.style()
    style += sheets(WEB / "learn" / "ask", *visible_parts)
    data = as_data(json.dumps(build_static_lessons()))
    style += ".learn-open .learn-list:not(.room-exhibit), .room-exhibit[hidden] { display: none }"
    style += "#exhibit { max-width: 720px }"
    scripts = [part.with_suffix(".js") for part in parts] + [WEB / "player" / "charts.js"]
    script = dictionary.names() + bundle(*scripts)
    return (
        f"{head('Lessons: QAlign Explorer', style, PLAYS)}<body><main><h1>Lessons</h1>"
        '<p><a href="index.html">QAlign Explorer</a> · <a href="watch.html" id="watch-run">Watch'
        '</a></p><div class="learn-list"></div><div id="watch-player"></div>'
        '<section class="learn-list room-exhibit" id="exhibit" hidden></section></main>'
        f'<script type="application/json" id="lessons">{data}</script>'
        f"<script>{script}</script><script>{FOLLOW}{_LESSONS}</script></body></html>\n"
    )


def _glossary() -> str:
    parts = []
    for part, ideas in groupby(dictionary.ideas().values(), key=lambda idea: idea.part):
        entries = "".join(
            f"<dt><b>{html.escape(idea.word)}</b> <i>{html.escape(idea.symbol)}</i></dt>"
            f"<dd>{html.escape(idea.sentence)}<br><code>{html.escape(idea.formula)}</code></dd>"
            for idea in ideas
        )
        parts.append(f"<h2>{html.escape(part)}</h2><dl>{entries}</dl>")
    back = '<p><a href="index.html">QAlign Explorer</a></p>'
    return _page("Glossary: QAlign Explorer", back, "<h1>Glossary</h1>", *parts)


if __name__ == "__main__":
    write_pages(write_site)
