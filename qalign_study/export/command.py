"""A run, or that of one problem of a set, as the command that draws it again."""

import shlex
from collections.abc import Mapping

from qalign_core.record.trace import SetHeader
from qalign_core.registry import entries
from qalign_core.run import DEFAULT_SAMPLING, Run, Sampling

COMMAND_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "run": {"pool": 0},  # it prints no samples
    "compare": {"pool": 4096},  # an upper limit: sampling stops at the cost of the chains
    "evaluate": {"pool": 256},
    "train-rm": {"steps": 16},
}
"""Defaults that differ from those of `Run`, by command."""


def command_of(run: Run) -> str:
    """The command line of a run: `qalign compare` where the pool costs what the chain did.

    Options at the command's own defaults are left out; without an entry of the registry, which has
    defaults of its own, a language model is sampled as `Sampling` says.
    """
    return join_options(*_options_of(run))


def command_of_problem(header: SetHeader, place: int, steps: int) -> str:
    """The command line of the chains of one problem of an evaluated set, with so many steps.

    It draws what the evaluation drew for the problem at that place, without the samples.
    """
    run = header.run.with_changes(steps=steps, seed=header.run.seed + place, pool=0, matched="none")
    command, options = _options_of(run)
    for name in ("prompt", "reference", "extractor"):  # the problem's
        options.pop(name, None)
    return join_options(command, {"task": header.task, "problem": str(place), **options})


def _options_of(run: Run) -> tuple[str, dict[str, str]]:
    """The command, and the options that are not what it would do without them."""
    entry = entries().get(("lm", run.lm))
    usual = (entry.sampling if entry is not None else None) or DEFAULT_SAMPLING
    options = run.changes()
    for name in Sampling.settings():
        options.pop(name, None)
        if getattr(run, name) != getattr(usual, name):
            options[name] = str(getattr(run, name))
    command = "compare" if options.pop("matched", "") == "pool" else "run"
    if command == "run":
        options.pop("burn_in", None)  # it changes what is shown, not what is drawn
    options.pop("pool", None)
    if run.pool != COMMAND_DEFAULTS[command]["pool"]:
        options["pool"] = str(run.pool)
    return command, options


def join_options(command: str, options: dict[str, str]) -> str:
    """Return a command with its options, as a shell reads it."""
    words = ["qalign", command]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        words += [f"{option}={value}"] if value.startswith("-") else [option, value]
    return shlex.join(words)
