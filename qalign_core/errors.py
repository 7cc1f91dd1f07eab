"""Errors for users, one sentence each: what was received, what was expected, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class QAlignError(Exception):
    """Base of all errors for users; `str(error)` is one plain sentence."""


class InvalidSetting(QAlignError, ValueError):
    """A setting is outside its range (beta, steps, a number of samples, a chain's index, ...)."""


class Busy(InvalidSetting):
    """A server already has its maximum number of runs; try again later."""


class InvalidPrompt(QAlignError, ValueError):
    """The prompt is empty, or longer than the model's context allows."""


class InvalidReward(QAlignError, ValueError):
    """A reward model returned something other than one finite number."""


class ModelContractError(QAlignError):
    """A model broke the contract that the chain requires."""


class ModelLoadError(QAlignError):
    """A model cannot be loaded: not found, of the wrong kind, unsafe, or too large."""


class NotEnoughMemory(ModelLoadError):
    """A model is larger than the free memory; unloading another model may help."""


class HubUnreachable(ModelLoadError):
    """The hub does not answer, and the model is not on this machine."""


class EngineError(QAlignError):
    """A model failed while it ran (out of memory, non-finite logits, server gone)."""


class InvalidTrace(QAlignError, ValueError):
    """A trace file cannot be read: wrong version, wrong type, a broken or missing line."""


class InvalidTask(QAlignError, ValueError):
    """A problem-set file cannot be read; the message names the line."""


@contextmanager
def on_disk(path: Path | str, action: str, advice: str, kind: type[QAlignError]) -> Iterator[None]:
    """Turn an OSError into one sentence: `path` cannot be read or written, with the reason."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise kind(f"{path} cannot be {action} ({reason}); {advice}") from error
