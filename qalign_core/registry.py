"""Names to models: `assets/registry.toml`, a folder, or a hub id; each model is loaded once."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qalign_core.errors import ModelLoadError
from qalign_core.types import Sampling

if TYPE_CHECKING:
    from qalign_core.models.hf import HFLanguageModel
    from qalign_core.rewards.hf import HFRewardModel

ASSETS = Path(__file__).resolve().parent.parent / "assets"

_SETTINGS = [field.name for field in fields(Sampling)]

M = TypeVar("M")

_loaded: dict[tuple[Any, ...], Any] = {}
_lock = threading.Lock()
_locks: dict[tuple[Any, ...], threading.Lock] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the registry.

    Attributes:
        id: its short name.
        kind: "lm" or "rm".
        source: folder below assets/, or hub id.
        title: what people call it.
        parameters: how many, in millions.
        licence: as the model's page names it.
        gated: the hub asks to accept a licence first.
        status: "tested" or "not yet run", by this project.
        beta: the paper's beta, or one that suits the model; 0 if none is known.
        options: passed on when it is loaded (dtype, device, rows, window, score_ids, ...).
        sampling: default settings of an LM.
    """

    id: str
    kind: str
    source: str
    title: str
    parameters: float
    licence: str
    gated: bool = False
    status: str = "not yet run"
    beta: float = 0.0
    options: dict[str, Any] | None = None
    sampling: Sampling | None = None

    @property
    def location(self) -> str:
        """The folder if it is shipped with the project, else the hub id."""
        folder = ASSETS / self.source
        return str(folder) if folder.is_dir() or self.source.startswith("models/") else self.source


@cache
def entries() -> dict[tuple[str, str], Entry]:
    """Every entry of `assets/registry.toml` by (kind, id)."""
    with (ASSETS / "registry.toml").open("rb") as file:
        tables = tomllib.load(file)
    found = {}
    for kind in ("lm", "rm"):
        for table in tables.get(kind, []):
            values = dict(table)
            if "sampling" in values:
                values["sampling"] = Sampling(**values["sampling"])
            entry = Entry(kind=kind, **values)
            found[kind, entry.id] = entry
    return found


def language_models() -> tuple[Entry, ...]:
    """The language models of the registry, in its order."""
    return tuple(entry for entry in entries().values() if entry.kind == "lm")


def reward_models() -> tuple[Entry, ...]:
    """The reward models of the registry, in its order."""
    return tuple(entry for entry in entries().values() if entry.kind == "rm")


def load_language_model(
    id: str = "embedded", *, sampling: Sampling | None = None, **changes: Any
) -> HFLanguageModel:
    """A language model by registry id, folder or hub id; loaded once and shared.

    Args:
        id: which one.
        sampling: how it is sampled; by default the entry's settings.
        changes: single settings to change (temperature, top_p, top_k, max_new_tokens),
            and options that go before the entry's: rows (requests that run at once), window
            (tokens of prompt and response together), revision, dtype, device, threads,
            cache_bytes, max_queue.

    Raises:
        ModelLoadError: one sentence that says what is wrong and what to do.
        InvalidSetting: of the sampling.
    """

    def make(source: str, given: dict[str, Any]) -> HFLanguageModel:
        from qalign_core.models.hf import HFLanguageModel

        return HFLanguageModel.from_pretrained(source, id=id, **given)

    settings = {name: changes.pop(name) for name in _SETTINGS if name in changes}
    lm = _shared("lm", id, changes, make)
    entry = entries().get(("lm", id))
    default = entry.sampling if entry is not None else None
    return lm.with_sampling(replace(sampling or default or Sampling(), **settings))


def load_reward_model(id: str = "embedded", **options: Any) -> HFRewardModel:
    """A reward model by registry id, folder or hub id; loaded once and shared.

    Raises:
        ModelLoadError: one sentence that says what is wrong and what to do.
    """

    def make(source: str, given: dict[str, Any]) -> HFRewardModel:
        from qalign_core.rewards.hf import HFRewardModel

        return HFRewardModel.from_pretrained(source, id=id, **given)

    return _shared("rm", id, options, make)


def unload(id: str) -> bool:
    """Stop and forget every loaded model of that id; False if there was none."""
    with _lock:
        keys = [key for key in _loaded if key[1] == id]
        models = [_loaded.pop(key) for key in keys]
    for model in models:
        model.close()
    return bool(models)


def loaded() -> tuple[str, ...]:
    """Ids of the models that are in memory, least recently used first."""
    with _lock:
        return tuple(dict.fromkeys(key[1] for key in _loaded))


def _shared(
    kind: str, id: str, options: dict[str, Any], make: Callable[[str, dict[str, Any]], M]
) -> M:
    options = {name: value for name, value in options.items() if value is not None}
    key = (kind, id, *sorted(options.items()))
    with _lock:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:  # two users who ask for the same model at once wait for one load
        with _lock:
            if key in _loaded:
                _loaded[key] = _loaded.pop(key)
                return _loaded[key]  # type: ignore[no-any-return]
        entry = entries().get((kind, id))
        source = entry.location if entry is not None else id
        if entry is None and "/" not in id and not Path(id).is_dir():
            known = ", ".join(name for of, name in entries() if of == kind)
            raise ModelLoadError(
                f"there is no model called {id!r}; known are {known}, or give a folder or a hub id "
                "(owner/name)"
            )
        model = make(source, {**((entry.options if entry is not None else None) or {}), **options})
        with _lock:
            _loaded[key] = model
        return model
