"""A copy of the source in which a test makes the change that a stranger would make."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from browser import ROOT

PACKAGES = ("qalign_core", "qalign_study", "components")


def changed_copy(folder: Path, *edits: tuple[str, str, str]) -> Path:
    """Copy the packages, compiled as they are, and replace a text in some files by another one.

    Args:
        folder: where the copy goes.
        edits: the path of a file, a text that it has once, and the text that replaces it; a new
            file has the text "".
    """
    half_written = shutil.ignore_patterns("*.pyc.*")  # another process compiles the module
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=half_written)
    (folder / "assets").symlink_to(ROOT / "assets")
    for name in ("app.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for path, old, new in edits:
        text = (folder / path).read_text("utf-8") if old else ""
        assert text.count(old) == 1 or not old, (path, old)
        (folder / path).write_text(text.replace(old, new) if old else new, "utf-8")
    return folder


def run_in(folder: Path, code: str, *arguments: str) -> str:
    """Run Python code in a copy, and return what it prints; its error is the test's."""
    script = folder / "stranger_check.py"
    script.write_text(code, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
