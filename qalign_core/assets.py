"""Locate the project's data: next to the package in a checkout, inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

ASSETS = next(
    folder
    for folder in (_PACKAGE / "assets", _PACKAGE.parent / "assets")
    if (folder / "registry.toml").is_file()
)
"""The folder of the embedded models, the registry, problem sets and recorded runs."""
