"""The command line: `qalign COMMAND --help`.

Results go to standard output, progress and errors to standard error. Ctrl-C keeps what was
sampled: a trace is written as the steps arrive, and the same command continues it.

A command is a module of this package: its docstring has the examples, `options` declares its
options and `command` runs it. Only the module of the chosen command is imported.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from qalign_core.errors import InvalidSetting, QAlignError
from qalign_core.validation import check_count, is_text, short_repr

COMMANDS = {
    "run": "run chains on one prompt, printing every step, or on every prompt of a set",
    "compare": "compare the four methods on one prompt",
    "evaluate": "run the four methods on a problem set, or resume a run",
    "report": "print the accuracy of every method and paired differences, from evaluations",
    "grade": "print the answer that is read from each text, and whether it is right",
    "tune": "find the beta at which a given share of proposals is accepted, for each sharpness",
    "bench-moves": "check moves in enumerated models, and measure them on a problem set",
    "train-rm": "train a reward model on a language model's own right and wrong responses",
    "check": "check that two models meet the conditions of the chain",
    "fetch": "download models, so that later commands work offline",
    "export": "write a trace, or a folder of results, as one page that works offline",
    "lesson": "write a lesson that runs, or report every fault of lessons with its line",
    "serve": "serve the methods to chat clients that use OpenAI's API",
}
COUNTS = {
    **dict.fromkeys(("problems", "last", "at_once", "budget", "each", "response_tokens"), 1),
    **{"states": 0, "samples": 2, "parameters": 1},
}
"""Options that count something, and the least that each may be."""


READS = ("path", "paths", "paired", "file", "files", "task", "prompts", "data", "out")
"""Options that name what a command reads, or draws into."""
WRITES = ("html", "csv", "latex", "outcomes", "pack")
"""Options that name a file to write."""
DATA = (".json", ".jsonl", ".toml")
"""The kinds of files that are read in a folder."""


class Parser(argparse.ArgumentParser):
    """A parser that tells how a value is written that begins like an option."""

    def error(self, message: str) -> NoReturn:
        """Exit with the usage and one sentence."""
        hint = "; write OPTION=VALUE if the value begins with -" if "expected" in message else ""
        super().error(f"{message}{hint}")


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command that is named first."""
    parser = Parser(
        prog="qalign",
        description="Test-time alignment by Markov chain Monte Carlo, from the command line.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        of_command = commands.add_parser(name, help=does, description=does, allow_abbrev=False)
        of_command.formatter_class = argparse.RawDescriptionHelpFormatter
        if name in arguments[:1]:
            module = import_module(f"{__name__}.{name.replace('-', '_')}")
            of_command.usage = f"qalign {name} [OPTIONS]"
            of_command.epilog = (module.__doc__ or "").partition("\n\n")[2]
            module.options(of_command)
            of_command.set_defaults(name=name, command=module.command)
    return parser.parse_args(arguments)


def refuse_overwriting(options: argparse.Namespace) -> None:
    """Raise if a file to write is one that the command reads, or another one that it writes.

    Raises:
        InvalidSetting: it is; the message names the option.
    """
    values = [getattr(options, name, None) or () for name in READS]
    several = [[each] if isinstance(each, str | Path) else each for each in values]
    others = [os.path.realpath(path) for each in several for path in each]
    for name in WRITES:
        value = getattr(options, name, None)
        if value is None:
            continue
        path = Path(os.path.realpath(value))
        folders = [*map(str, path.parents)] if path.suffix in DATA and path.exists() else []
        if any(other in (str(path), *folders) for other in others):
            raise InvalidSetting(
                f"--{name} {value} would replace what this command reads or writes; give another "
                "file"
            )
        others.append(str(path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the status is 0, 1 if a law fails, 2 for bad input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack letters of the texts
            stream.reconfigure(errors="replace")
    if not all(map(is_text, arguments)):
        bad = next(argument for argument in arguments if not is_text(argument))
        print(
            f"qalign: the argument {short_repr(bad)} is not UTF-8 text; use UTF-8", file=sys.stderr
        )
        return 2
    options = read(arguments)
    try:
        for name, least in COUNTS.items():
            if (value := getattr(options, name, None)) is not None:
                check_count(f"--{name.replace('_', '-')}", value, least)
        refuse_overwriting(options)
        status: int | None = asyncio.run(options.command(options))
        sys.stdout.flush()  # a device that is full is noticed here, not behind the last line
    except QAlignError as error:
        print(f"qalign: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; what was sampled is kept" if getattr(options, "out", None) else ""
        print(f"qalign: stopped{kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is None:  # what is left of the output has no place to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = short_repr(error.filename, 80) if error.filename else "standard output"
        reason = error.strerror or type(error).__name__
        print(f"qalign: {what} cannot be used ({reason}); use another", file=sys.stderr)
        return 2
    return status or 0
