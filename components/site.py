"""A site of plain files: Watch that draws in the browser, the gallery and the glossary.

    python -m components.site FOLDER

Any host of files serves it, and a disk too: each page carries all that it needs. What needs Python
is not there, and the first page says so.
"""

import html
import sys
from itertools import groupby
from pathlib import Path

from components.watch.gallery import gallery, write_slides
from qalign_core.record import dictionary
from qalign_core.record.player import PLAIN, head, page

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SAYS = (
    "A language model rewrites its own answer from a random place. A reward model scores both, and "
    "a weighted coin decides which one stays."
)
_MISSING = (
    "This site has no server. Compare, the Lab, Results, the lessons and other models need one: "
    "install the project and run python app.py."
)


def write_site(folder: Path) -> list[Path]:
    """Write every page of the site; returns their paths, the first page first."""
    slides = write_slides(folder)
    entry = gallery()["watch"]
    watch = page(entry.path.read_text("utf-8"), title=entry.title, says=entry.says, live=True)
    pages = {"index": _index(), "watch": watch, "glossary": _glossary()}
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return list(dict.fromkeys([*(folder / f"{name}.html" for name in pages), *slides]))


def _page(title: str, *body: str) -> str:
    return f"{head(title, PLAIN, _POLICY)}<body><main>{''.join(body)}</main></body></html>\n"


def _index() -> str:
    runs = "".join(
        f'<li><a href="{entry.name}.html">{html.escape(entry.title)}</a>: '
        f"{html.escape(entry.says)}</li>"
        for entry in gallery().values()
        if entry.name != "watch"
    )
    return _page(
        "QAlign Explorer",
        f"<h1>QAlign Explorer</h1><p>{_SAYS}</p>",
        '<ul><li><a href="watch.html">Watch</a>: a recorded chain, and new ones that your browser '
        "draws (5 MB).</li>",
        '<li><a href="glossary.html">Glossary</a></li></ul>',
        f"<h2>Gallery</h2><ul>{runs}</ul><p>{_MISSING}</p>",
    )


def _glossary() -> str:
    parts = []
    for part, ideas in groupby(dictionary.ideas().values(), key=lambda idea: idea.part):
        entries = "".join(
            f"<dt><b>{html.escape(idea.word)}</b> <i>{html.escape(idea.symbol)}</i></dt>"
            f"<dd>{html.escape(idea.says)}<br><code>{html.escape(idea.formula)}</code></dd>"
            for idea in ideas
        )
        parts.append(f"<h2>{html.escape(part)}</h2><dl>{entries}</dl>")
    back = '<p><a href="index.html">QAlign Explorer</a></p>'
    return _page("Glossary: QAlign Explorer", back, "<h1>Glossary</h1>", *parts)


if __name__ == "__main__":
    print(*write_site(Path(sys.argv[1])), sep="\n")
