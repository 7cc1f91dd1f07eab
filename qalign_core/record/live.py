"""Runs that a browser can draw by itself (assets/engine), and the files that it needs for them."""

import json
from pathlib import Path

from qalign_core.assets import ASSETS
from qalign_core.record.trace import told
from qalign_core.run import Run
from qalign_core.types import TraceHeader

WORKER = ASSETS / "engine" / "worker.js"
"""The script of the worker that draws."""
REWARDS = {"embedded": "rm", "embedded-weak": "rm-weak"}
"""Folders below `assets/models` by the reward models that a browser has."""
_ITS_OWN = ("created", "notes", "prompt_tokens", "prompt_scored")  # the engine fills these in
_READ = (None, "number", "amounts")
_OFF = {"alpha": 1.0, "top_p": 1.0, "top_k": 0, "matched": "none"}


def obstacle(run: Run) -> str:
    """Why a browser cannot draw a run, as the end of a sentence; "" if it can."""
    if run.lm != "embedded" or run.rm not in REWARDS:
        return "a browser has the embedded models only"
    if run.extractor not in _READ:
        return f"a browser does not read answers of the kind {run.extractor!r}"
    other = [name for name, value in _OFF.items() if getattr(run, name) != value]
    return f"a browser does not know the setting {other[0]}" if other else ""


def files(rm: str) -> dict[str, Path]:
    """The files that the engine reads for a reward model, by their places below `assets/`."""
    folders = ["lm", REWARDS[rm]]
    names = [
        f"models/{folder}/{name}"
        for folder in folders
        for name in ("config.json", "model.safetensors")
    ]
    return {name: ASSETS / name for name in ["engine/net.wasm", "models/lm/tokenizer.json", *names]}


def header_given(header: TraceHeader) -> str:
    """A run, and the facts of its models, as the engine takes them: JSON."""
    return json.dumps({k: value for k, value in told(header).items() if k not in _ITS_OWN})
