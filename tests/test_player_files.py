"""The player's files: small, free of dependencies and of markup made from text."""

from __future__ import annotations

from browser import ROOT


def test_script_and_style_fit_in_60_kb():
    sizes = [p.stat().st_size for p in (ROOT / "assets/player").glob("*.*")]
    assert len(sizes) == 2
    assert sum(sizes) <= 60_000


def test_the_script_depends_on_nothing_and_builds_no_markup_from_text():
    for path in ("player/player.js", "shell/shell.js"):
        source = (ROOT / "assets" / path).read_text(encoding="utf-8")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
                          "new Function", "import ", "require(", "</script"):  # fmt: skip
            assert forbidden not in source, f"{forbidden} in {path}"
