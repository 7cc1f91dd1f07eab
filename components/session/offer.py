"""Which models this server offers; what a visitor or a program asks for is checked against it."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from components.common.switches import read_switch
from qalign_core.errors import ModelLoadError
from qalign_core.registry import Entry, current_name, entries, entries_of, is_address
from qalign_core.rewards.names import reward_named
from qalign_core.run import Run

SMALL = 700.0
"""Millions of parameters that a free machine of two cores still runs."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@\w[\w.-]*(/\w[\w.-]*)*)?")


@dataclass(frozen=True)
class Offer:
    """The models of a server.

    Attributes:
        names: ids of the registry (`QALIGN_MODELS`, separated by commas), beside the shipped ones
            and those of the operator's own registry; None if those that are small and ask for no
            licence.
        own: any id of the hub may be asked for (`QALIGN_OWN_MODELS=1`), and is looked for there
            only (`VISITOR`); folders and addresses never, since a visitor could look into the
            server or its network with them.
    """

    names: tuple[str, ...] | None = None
    own: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Offer":
        """Return the offer that the environment names.

        Raises:
            InvalidSetting: `QALIGN_OWN_MODELS` is neither 0 nor 1.
        """
        text = environment.get("QALIGN_MODELS")
        names = None if text is None else tuple(name.strip() for name in text.split(","))
        return cls(names, read_switch(environment, "QALIGN_OWN_MODELS"))

    @cached_property
    def models(self) -> dict[str, dict[str, str]]:
        """Title by id, for "lm" and "rm"."""
        return {
            kind: {entry.id: _title(entry) for entry in entries_of(kind) if self._has(entry)}
            for kind in ("lm", "rm")
        }

    def for_any_text(self, kind: str) -> str | None:
        """The first language model ("lm") or reward model ("rm") that was made for any text."""
        candidates = (entries()[kind, id] for id in self.models[kind])
        return next((e.id for e in candidates if not e.finest and (e.parameters or e.own)), None)

    def suits_any_text(self, rm: str) -> bool:
        """True if no model that a reward consists of was made for some texts only."""
        known = [entries().get(part) for part in _parts(Run.lm, rm)][1:]
        return not any(entry and entry.finest for entry in known)

    def check(self, lm: str, rm: str) -> None:
        """Refuse what is not offered; a reward may be a weighted sum, or "judge:LM".

        Raises:
            ModelLoadError: one sentence with what there is.
        """
        for kind, id in _parts(lm, rm):
            hub_id = _HUB_ID.fullmatch(id) is not None
            if current_name(kind, id) not in self.models[kind] and not (self.own and hub_id):
                known = ", ".join(self.models[kind])
                more = " or an id of the hub (owner/name or owner/name@revision)" * self.own
                more += ', or a sum such as "0.7*A + 0.3*B"' * (kind == "rm")
                raise ModelLoadError(f"this server does not offer {id!r:.80}; choose {known}{more}")

    def _has(self, entry: Entry) -> bool:
        if entry.shipped or entry.own:
            return True
        if self.names is not None:
            return entry.id in self.names
        return entry.parameters <= SMALL and not entry.gated


def needs_gpu(lm: str, rm: str) -> bool:
    """Whether a run has a model that neither comes with the project nor runs on another server."""
    candidates = [entries().get(part) for part in _parts(lm, rm)]
    return not all(entry and (entry.shipped or is_address(entry.source)) for entry in candidates)


def _parts(lm: str, rm: str) -> Iterator[tuple[str, str]]:
    """Kind and id of every model that a run asks for; a rule that reads the text alone is none."""
    yield "lm", lm
    reward = reward_named(rm)
    for part in reward.members or (reward,):
        if part.kind != "text":  # any word, any number
            yield ("lm", part.argument) if part.kind == "lm" else ("rm", part.text)


def describe_load(lm: str) -> str:
    """Return what loading a language model takes, such as "SmolLM2 135M (0.5 GB, about 20 s)"."""
    entry = entries().get(("lm", lm))
    if entry is None or not entry.parameters:
        return entry.title if entry else lm
    gigabytes, seconds = entry.load_cost
    return f"{entry.title} ({gigabytes:.1f} GB, about {_duration(seconds)})"


def _title(entry: Entry) -> str:
    """The name of a model in lists, with what a visitor should know before choosing it."""
    if entry.own or entry.shipped:
        return entry.title
    notes = ["gated"] if entry.gated else []
    notes += [entry.status] if entry.status != "tested" else []
    notes += [] if entry.is_present else ["not downloaded"]
    notes += [f"32 steps take about {_duration(entry.run_seconds)}"] if entry.kind == "lm" else []
    return ", ".join([entry.title, *notes])


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds / 5)) * 5} s" if seconds < 90 else f"{seconds / 60:.0f} min"
