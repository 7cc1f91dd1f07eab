"""The models in memory, as one object: each is loaded once and shared by all who ask for it."""

import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any

from qalign_core.errors import NotEnoughMemory

IN_USE = 30.0
"""Seconds after its last request during which a model is not unloaded for another."""

Key = tuple[Any, ...]
"""Kind and id of a model, and the options it was loaded with."""


class LoadedModels:
    """Models by key, least recently used first; a test can put its own instead of `LOADED`."""

    def __init__(self, models: Mapping[Key, Any] | None = None) -> None:
        self._models = dict(models or {})
        self._lock = threading.Lock()
        self._loading: dict[Key, threading.Lock] = {}

    def get(self, key: Key, load: Callable[[], Any]) -> Any:
        """The model of that key; if it is not in memory, it is loaded, and idle ones make room.

        Raises:
            NotEnoughMemory: all others are in use.
        """
        with self._lock:
            lock = self._loading.setdefault(key, threading.Lock())
        with lock:  # two users who ask for the same model at once wait for one load
            with self._lock:
                if key in self._models:
                    self._models[key] = self._models.pop(key)
                    return self._models[key]
            while True:
                try:
                    model = load()
                    break
                except NotEnoughMemory:
                    if not self._unload_idle():
                        raise
            with self._lock:
                self._models[key] = model
            return model

    def ids(self) -> tuple[str, ...]:
        """Ids of the models, least recently used first."""
        with self._lock:
            return tuple(dict.fromkeys(key[1] for key in self._models))

    def unload(self, id: str) -> bool:
        """Stop and forget every model of that id; False if there was none."""
        with self._lock:
            keys = [key for key in self._models if key[1] == id]
            models = [self._models.pop(key) for key in keys]
        for model in models:
            model.close()
        return bool(models)

    def _unload_idle(self) -> bool:
        """Unload the model that has been idle longest; False if all are in use."""
        with self._lock:
            idle = {key: getattr(model, "idle_seconds", 0.0) for key, model in self._models.items()}
            key = max(idle, key=lambda key: idle[key], default=None)
            if key is None or idle[key] < IN_USE:
                return False
            model = self._models.pop(key)
        model.close()
        del model
        gc.collect()  # its tensors hang in cycles, and the next check asks what is free
        return True
