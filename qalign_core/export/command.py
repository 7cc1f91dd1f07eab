"""A run as the command that draws it again."""

import shlex

from qalign_core.registry import entries
from qalign_core.run import Run, Sampling


def command_of(run: Run) -> str:
    """The command line of a run: `qalign compare` where the pool costs what the chain did.

    What the command's own defaults say is left out; without an entry of the registry, which has
    defaults of its own, a language model is sampled as `Sampling` says.
    """
    entry = entries().get(("lm", run.lm))
    usual = (entry.sampling if entry is not None else None) or Sampling()
    said = run.changes()
    for name in Sampling.__slots__:
        said.pop(name, None)
        if getattr(run, name) != getattr(usual, name):
            said[name] = str(getattr(run, name))
    command = "compare" if said.pop("matched", "") == "pool" else "run"
    if command == "run":
        said.pop("burn_in", None)  # it changes what is shown, not what is drawn
        said["pool"] = str(run.pool)
    if said.get("pool") == {"compare": "4096", "run": "0"}[command]:
        del said["pool"]
    words = ["qalign", command]
    for name, value in said.items():
        option = f"--{name.replace('_', '-')}"
        words += [f"{option}={value}"] if value.startswith("-") else [option, value]
    return shlex.join(words)
