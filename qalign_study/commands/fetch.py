"""Download models, so that later commands work offline.

Examples:
  qalign fetch smollm2-135m
  qalign fetch owner/name@main owner/reward-model
"""

import argparse
import sys
from pathlib import Path

from qalign_core.context import PROGRESS
from qalign_core.errors import ModelLoadError
from qalign_core.models.gguf_file import is_gguf
from qalign_core.registry import entries, is_address, suggest_package
from qalign_core.rewards.names import reward_named


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign fetch`."""
    parser.usage = f"{parser.usage} MODEL ..."
    what = "registry id or hub id (owner/name or owner/name@revision)"
    parser.add_argument("models", nargs="+", metavar="MODEL", help=what)


async def command(options: argparse.Namespace) -> None:
    """Download each model and print its size and its folder."""
    from qalign_core.models.loading import model_folder, n_stored

    PROGRESS.set(lambda what: print(what, file=sys.stderr))
    for name in options.models:
        entry = entries().get(("lm", name)) or entries().get(("rm", name))
        source = entry.location if entry is not None else name
        if is_address(source):
            raise ModelLoadError(f"{name} is a server, which has nothing to download")
        if (entry is None or entry.kind == "rm") and reward_named(source).kind != "model":
            raise ModelLoadError(f"{name} is a reward without a network of its own to download")
        with suggest_package(entry):
            folder = Path(source) if is_gguf(Path(source)) else model_folder(source)
        paths = folder.iterdir() if folder.is_dir() else [folder]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        licence = f", license {entry.licence}" if entry is not None and entry.licence else ""
        print(
            f"{name}: {n_stored(folder) / 1e6:,.1f} million parameters, {size / 1e6:,.1f} MB"
            f"{licence}, in {folder}"
        )
