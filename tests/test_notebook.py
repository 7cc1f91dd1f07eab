"""The notebook runs from its first cell to its last, as a kernel runs it."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re

import pytest
from browser import ROOT

from notebooks.__main__ import SOURCES, cells_of, notebook_of

SOURCE = ROOT / "notebooks" / "alignment_by_mcmc.py"


def cells() -> list[str]:
    """The code cells."""
    return [code for kind, code in cells_of(SOURCE.read_text("utf-8")) if kind == "code"]


def run(code: str, names: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, which a notebook shows."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), str(SOURCE), "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), str(SOURCE), "eval"), names)
    return None


@pytest.mark.more
def test_every_cell_runs_and_shows_something():
    names: dict[str, object] = {}
    first, *rest = cells()
    run(first, names)
    for cell in rest:
        code = cell.replace("steps=48", "steps=16")  # which show as much
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            display = run(code, names)
        assert printed.getvalue() or "iframe" in display._repr_html_(), code
    assert len(rest) >= 8


def test_its_text_cells_are_comments_and_its_format_is_named():
    source = SOURCE.read_text("utf-8")
    assert "format_name: percent" in source
    parts = re.split(r"^# %%(.*)$", source, flags=re.MULTILINE)[1:]
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        if "markdown" in kind:
            assert all(line.startswith("#") or not line for line in text.splitlines())


def test_the_notebook_for_jupyter_is_that_of_its_source():
    for path in SOURCES:
        source, shipped = path.read_text("utf-8"), path.with_suffix(".ipynb").read_text("utf-8")
        assert shipped == notebook_of(source), "python -m notebooks"
        assert shipped != notebook_of(source.replace("embedded", "other")), "the control"
        book = json.loads(shipped)
        assert [cell["cell_type"] for cell in book["cells"]][:2] == ["markdown", "code"]
        code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
        assert code == cells()
