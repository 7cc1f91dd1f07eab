"""A copy of the source in which a test makes the change that a stranger would make."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryFile

from browser import ROOT
from forks import Program

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


START = f"""import os, runpy, sys
for name, module in [*sys.modules.items()]:
    file = getattr(module, "__file__", None) or ""
    if file.startswith({tuple(f"{ROOT}/{each}" for each in (*PACKAGES, "app.py", "tests"))!r}):
        del sys.modules[name]
folder, script = sys.argv[1:3]
os.chdir(folder)
sys.path.insert(0, folder)
del sys.argv[:2]
"""
"""How a fork of the tests begins to run a script of a copy: it has other packages only."""


def run_in(folder: Path, code: str, *arguments: str) -> str:
    """Run Python code in a copy, and return what it prints; its error is the test's."""
    script = folder / "stranger_check.py"
    script.write_text(code, "utf-8")
    return run_script(folder, script, *arguments)


def run_script(folder: Path, script: Path, *arguments: str, first: str = "") -> str:
    """Run a script in a copy, as `run_in`; `first` is code that runs before it."""
    code = f"{START}{first}\nrunpy.run_path(script, run_name='__main__')"
    with TemporaryFile("w+") as errors:
        with Program(str(folder), str(script), *arguments, code=code, stderr=errors.fileno()) as it:
            text, status = it.stdout.read(), it.wait()
        errors.seek(0)
        assert status == 0, errors.read()[-4000:]
    return text
