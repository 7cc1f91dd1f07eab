"""A recorded run as a value: its header and its draws.

    >>> trace = Trace(TraceHeader(Run(prompt="What is 2 + 2?", steps=8)))
    >>> trace.header.run.steps, trace.states
    (8, ())

Two headers are compared here too: a file continues only the run that it began with.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from qalign_core.chain.cost import CostModel
from qalign_core.decide.answers.graders import title_of
from qalign_core.errors import InvalidSetting
from qalign_core.run import Run
from qalign_core.types import ScoredResponse, Step
from qalign_core.validation import short_repr

UNKNOWN = "the settings, other than steps and chains, are not those of the run: none were given"
"""The note of a trace that was made of steps alone."""
_MAY_GROW = ("steps", "chains", "pool")
"""Fields of a header that may grow when a run is resumed: earlier draws stay the same."""
_MAY_DIFFER = ("created", "notes", "task", "command", "source")
"""Fields of a header that may differ when a run is resumed."""


@dataclass(frozen=True)
class Header:
    """The settings of a run, and what its models reported of themselves.

    Attributes:
        run: the run that repeats the same draws, with the models' own names.
        lm_revision, rm_revision: exact versions of the models, with "int8" for rounded weights
            and "thinking" for a template that lets the model think first.
        lm_parameters, rm_parameters: their sizes, for FLOPs; 0 if unknown or none.
        created: time of the start (ISO 8601).
        notes: remarks on the models or the move, for instance that a model is approximate.
        move_revision: hashes of the files of the user's own moves; empty if there are none.
    """

    run: Run = field(default_factory=Run)
    lm_revision: str = ""
    rm_revision: str = ""
    lm_parameters: int = 0
    rm_parameters: int = 0
    created: str = ""
    notes: tuple[str, ...] = ()
    move_revision: str = ""

    @property
    def meter(self) -> CostModel:
        """The cost model of these two models."""
        return CostModel(self.lm_parameters, self.rm_parameters)

    def values(self) -> dict[str, Any]:
        """Return the settings of the run, then the other fields, by name, as files hold them."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "run"}
        return {name: getattr(self.run, name) for name in Run.kinds()} | own


@dataclass(frozen=True)
class TraceHeader(Header):
    """Header of the run of one prompt.

    Attributes:
        prompt_tokens: length of the prompt for the LM, which reads it once per run.
        prompt_scored: tokens of the prompt that the RM reads once per run.
    """

    prompt_tokens: int = 0
    prompt_scored: int = 0


@dataclass(frozen=True)
class SetHeader(Header):
    """Settings of the runs over a problem set; prompt and reference differ per problem.

    Attributes:
        task: name of the set.
        problems: ids of all its problems, finished or not.
        digest: hash of the whole set.
        command: the command that repeats the run.
        source: origin of its rows: preset, and revision on the hub or hash of the file.
    """

    task: str = ""
    problems: tuple[str, ...] = ()
    digest: str = ""
    command: str = ""
    source: str = ""


@dataclass(frozen=True)
class Trace:
    """A recorded run.

    Attributes:
        header: the settings of the run.
        steps: the steps of all chains, in order of arrival.
        pool: independent samples of the model alone, in order of their number.
        end: (reason, message) once the run has ended; the reason is "finished", "stopped" or
            "failed".
    """

    header: TraceHeader
    steps: tuple[Step, ...] = ()
    pool: tuple[ScoredResponse, ...] = ()
    end: tuple[str, str] | None = None

    @classmethod
    def collect(cls, steps: Iterable[Step], header: TraceHeader | None = None) -> Self:
        """Make a trace of steps: `Trace.collect([step async for step in run_chain(...)])`.

        Steps do not know their settings: give the header, such as `TraceHeader(Run(beta=2.0))`, of
        a trace that is to be saved. Without it, a note says that the settings are not known.
        """
        collected = tuple(steps)
        if header is None:
            chains = {step.chain for step in collected}
            last = max((s.t for s in collected), default=0)
            header = TraceHeader(Run(steps=last, chains=max(1, len(chains))), notes=(UNKNOWN,))
        return cls(header, collected)

    @cached_property
    def chains(self) -> dict[int, tuple[Step, ...]]:
        """The steps of each chain by its number, both ascending."""
        chains: dict[int, list[Step]] = {}
        for step in sorted(self.steps, key=lambda step: (step.chain, step.t)):
            chains.setdefault(step.chain, []).append(step)
        return {chain: tuple(steps) for chain, steps in chains.items()}

    @property
    def states(self) -> tuple[ScoredResponse, ...]:
        """The states y^0..y^T with repeats, in order of the steps (chain after chain)."""
        return tuple(step.state for steps in self.chains.values() for step in steps)

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards of the independent samples."""
        return tuple(sample.reward for sample in self.pool)


def check_same_run(path: Path, old: Header, new: Header) -> None:
    """Check that a file or folder holds the same run, which may be extended.

    Raises:
        InvalidSetting: it holds another run; the message names the first setting that differs.
    """
    if differs := difference(old, new):
        raise InvalidSetting(
            f"{path} contains a different run ({differs}); give another path, or the same "
            "settings to continue it (steps, chains, samples and problems may be more)"
        )


def grows(old: Header, new: Header) -> bool:
    """True if a header extends the same run."""
    return any(getattr(old.run, name) < getattr(new.run, name) for name in _MAY_GROW)


def difference(old: Header, new: Header) -> str:
    """Return the first setting that differs and may not, as a text; empty if there is none."""
    # `steps` comes last, since it may follow from another setting
    headers = old.values(), new.values()
    for name in sorted(headers[1], key=lambda name: name == "steps"):
        before, after = (_comparable(values, name) for values in headers)
        may = name in _MAY_DIFFER or (name in _MAY_GROW and before < after)
        if before != after and not may:
            if name in ("problems", "digest"):
                return "other problems, or fewer"
            old_value, new_value = (values[name] for values in headers)
            if old_value == new_value:  # one name, two hashes
                return f"{name}: {short_repr(new_value, 60)} has changed since"
            if name in _MAY_GROW:
                label = "samples" if name == "pool" else name
                return f"{old_value} {label} are in it, and {new_value} were asked for"
            return f"{name}: {short_repr(old_value, 60)}, now {short_repr(new_value, 60)}"
    return ""


def _comparable(values: dict[str, Any], name: str) -> Any:
    """Return the value of a field that two runs must share.

    A file is compared by its name and a model by its hash, if it has one, since the same model or
    grader may have different paths on different machines.
    """
    value = values[name]
    if name == "extractor":
        return value and title_of(value)
    revision = values.get(f"{name}_revision", "")
    return revision if _HASH.fullmatch(revision) else value


_HASH = re.compile(r"[0-9a-f]{12,}")
