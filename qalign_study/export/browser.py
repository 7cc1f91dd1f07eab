"""Runs that a browser can draw by itself, and a page that carries the engine and the models."""

import base64
import json
from pathlib import Path

from qalign_core.assets import ASSETS
from qalign_core.decide.answers.graders import canonical_references
from qalign_core.errors import InvalidSetting
from qalign_core.messages import is_conversation
from qalign_core.record.format import to_dict
from qalign_core.record.trace import TraceHeader
from qalign_core.run import Run
from qalign_core.validation import from_json
from qalign_study.export.scripts import WEB, as_data, bundle

WORKER = WEB / "engine" / "worker.js"
"""The script of the worker that draws."""
REWARDS = {"embedded": "rm", "embedded-weak": "rm-weak"}
"""Folders below `assets/models` by the reward models that a browser has."""
_ITS_OWN = ("created", "notes", "prompt_tokens", "prompt_scored")  # the engine fills these in
_READ = (None, "number", "amounts")
APPLIES = frozenset(
    (
        *("prompt", "reference", "extractor", "lm", "rm", "beta", "steps", "chains", "seed"),
        *("temperature", "max_new_tokens", "burn_in", "pool"),
    )
)
"""The settings that the browser's engine applies."""


def unsupported_reason(run: Run) -> str:
    """Why a browser cannot draw a run, as the end of a sentence; "" if it can."""
    if run.lm != "embedded" or run.rm not in REWARDS:
        return "a browser has the embedded models only"
    if run.extractor not in _READ:
        return f"a browser does not read answers of the kind {run.extractor!r}"
    if is_conversation(run.prompt):
        return "a browser reads one message only"
    other = run.first_unapplied(APPLIES)
    return f"a browser does not know the setting {other}" if other else ""


def files(rm: str) -> dict[str, Path]:
    """The files that the engine reads for a reward model, by their addresses."""
    parts = ("config.json", "model.safetensors")
    names = [f"models/{folder}/{part}" for folder in ("lm", REWARDS[rm]) for part in parts]
    models = {name: ASSETS / name for name in ["models/lm/tokenizer.json", *names]}
    return {"engine/net.wasm": WEB / "engine" / "net.wasm", **models}


def engine_header(header: TraceHeader) -> str:
    """A run, and the facts of its models, as the engine takes them: JSON.

    The browser compares texts, so the right answer has the form of the answers that it reads.
    """
    values = {k: value for k, value in to_dict(header).items() if k not in _ITS_OWN}
    if header.run.reference is not None:
        values["reference"] = canonical_references(header.run.reference)
    return json.dumps(values)


POLICY = "script-src 'unsafe-inline' 'wasm-unsafe-eval'; worker-src blob:"
"""The permissions of a page that draws, beyond those for its styles."""
_SETS = ("in_distribution", "shifted", "inventory")
_PROBLEMS = 12  # of each set


def embedded_data(header: TraceHeader) -> str:
    """Return the elements of a page that draws: the engine, its models and some problems.

    Raises:
        InvalidSetting: a browser cannot draw this run.
    """
    if why := unsupported_reason(header.run):
        raise InvalidSetting(
            f"this run cannot be drawn in a page: {why}; save a page that plays it instead"
        )
    encoded = {
        name: base64.b64encode(path.read_bytes()).decode()
        for name, path in files(header.run.rm).items()
    }
    data = {"run": engine_header(header), "problems": json.dumps(_problems()),
            "files": json.dumps(encoded)}  # fmt: skip
    elements = [
        f'<script type="application/json" id="{name}">{as_data(text)}</script>\n'
        for name, text in data.items()
    ]
    return "".join(elements) + f'<script type="text/plain" id="worker">{bundle(WORKER)}</script>\n'


def _problems() -> list[tuple[str, str]]:
    """Problems of each set in turn, each with its answer."""
    sets = []
    for name in _SETS:
        with (ASSETS / "tasks" / f"{name}.jsonl").open(encoding="utf-8") as file:
            rows = [from_json(next(file)) for _ in range(_PROBLEMS)]
        sets.append([(row["prompt"], row["answer"]) for row in rows])
    return [problem for each in zip(*sets, strict=True) for problem in each]
