"""The notebook runs from its first cell to its last, as a kernel runs it."""

from __future__ import annotations

import ast
import contextlib
import io
import re

import pytest
from browser import ROOT

SOURCE = ROOT / "notebooks" / "alignment_by_mcmc.py"


def cells() -> list[str]:
    """The code cells of the percent format; text cells are comments."""
    parts = re.split(r"^# %%(.*)$", SOURCE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [
        code for kind, code in zip(parts[::2], parts[1::2], strict=True) if "markdown" not in kind
    ]


def run(code: str, names: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, which a notebook shows."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), str(SOURCE), "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), str(SOURCE), "eval"), names)
    return None


@pytest.mark.slow
def test_every_cell_runs_and_shows_something():
    names: dict[str, object] = {}
    first, *rest = cells()
    run(first, names)
    for code in rest:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            shown = run(code, names)
        assert said.getvalue() or "iframe" in shown._repr_html_(), code
    assert len(rest) >= 8


def test_its_text_cells_are_comments_and_its_format_is_named():
    source = SOURCE.read_text("utf-8")
    assert "format_name: percent" in source
    parts = re.split(r"^# %%(.*)$", source, flags=re.MULTILINE)[1:]
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        if "markdown" in kind:
            assert all(line.startswith("#") or not line for line in text.splitlines())
