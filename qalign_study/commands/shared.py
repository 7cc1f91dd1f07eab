"""Options that several commands share, and the models, the run and the set that they name."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qalign_core.context import PROGRESS
from qalign_core.decide.answers.graders import references
from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import parse_moves
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.registry import is_address, load_grader, load_language_model, load_reward_model
from qalign_core.rewards.kinds import reward_kinds
from qalign_core.run import NO_EXTRACTOR, Run, Sampling
from qalign_core.validation import OLD_NAMES, is_file_name
from qalign_study.sets.problem_sets import Problem, check_readable, load_problems
from qalign_study.sets.tasks import Loaded, Task, read_task, task_names, task_of

Models = tuple[LanguageModel, RewardModel]


TEXTS = ("prompt", "reference", "extractor")
TASK = "in_distribution"
"""The problem set of commands that name none."""


OF_EACH = {
    "device": "device of a local {}, as in torch; default: a GPU if any",
    "dtype": "number type of a local {}: float32 (default on a CPU), bfloat16, float16, int8",
    "window": "longest sequence of a local {}, in tokens",
    "tokenizer": "tokenizer of a served {}: folder or hub id",
}
"""Options that there are for the LM and for the RM, and what they are."""


def out_option(parser: argparse._ActionsContainer) -> None:
    """Declare the option for where draws are written."""
    parser.add_argument(
        "--out", type=Path, help="output file, or folder for a set; the same command continues it"
    )


def html_option(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Declare the option for where a page is written."""
    help_html = "write a page that works offline"
    parser.add_argument("--html", type=Path, metavar="FILE", required=required, help=help_html)


def model_options(parser: argparse.ArgumentParser, kinds: Sequence[str] = ("lm", "rm")) -> None:
    """Where models are found is in `Run`; how they are loaded is a matter of this machine."""
    group = parser.add_argument_group(
        "loading of models",
        "A model is a registry id, a hub id (owner/name or owner/name@revision), a folder,\n  a "
        "GGUF file, or a server's address. A reward may also be "
        f"{', '.join(kind.form for kind in reward_kinds().values() if kind.argument)},\n  "
        "FILE.py:NAME, or a weighted sum.",
    )
    group.add_argument("--rows", type=int, help="requests per model that run at once")
    for kind in kinds:
        for name, help_text in OF_EACH.items():
            read = int if name == "window" else str
            group.add_argument(
                f"--{kind}-{name}",
                type=read,
                metavar=name.upper(),
                help=help_text.format(kind.upper()),
            )
    group.add_argument(
        "--approximate",
        action="store_true",
        help="allow a server that accepts text only; prefixes are re-tokenized and counted",
    )
    group.add_argument(
        "--thinking",
        action="store_true",
        help="let the language model think first, if its chat template has that switch",
    )


def problem_options(parser: argparse.ArgumentParser) -> None:
    """One problem: of a set, by its number; `--prompt` is an option of the run."""
    group = parser.add_argument_group("problem", "a problem of a set, or --prompt")
    set_options(group)
    group.add_argument("--problem", type=int, help="number of the problem in the set, from 0 (0)")


def set_options(parser: argparse._ActionsContainer, **several: Any) -> None:
    """Which problem set, or with `nargs` which several."""
    parser.add_argument(
        "--task",
        **{"default": TASK, **several},
        help="name of an embedded problem set (NAME@SEED: the same set with other problems), a "
        "file of JSON lines or TOML, or one of the paper's sets: " + ", ".join(task_names()),
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="rows of one of the paper's sets, as published by its authors; default: from the hub",
    )


def problems_option(parser: argparse._ActionsContainer) -> None:
    """How much of a set is drawn."""
    parser.add_argument(
        "--problems", type=int, help="only the first N problems of the set", metavar="N"
    )


def many_options(parser: argparse.ArgumentParser, at_once: int) -> None:
    """How much of a set is drawn, and how much of that at the same time."""
    problems_option(parser)
    parser.add_argument(
        "--at-once", type=int, default=at_once, help="problems that run at once", metavar="N"
    )


def run_options(
    parser: argparse.ArgumentParser, *, leave_out: Sequence[str] = (), **defaults: Any
) -> None:
    """An option for each setting of a run; where one is not given, the default holds."""
    group = parser.add_argument_group(
        "run",
        "A registry entry may have its own defaults for temperature, top-p, top-k and length "
        "limit.",
    )
    for name, kind in Run.kinds().items():
        if name in leave_out:
            continue
        setting = Run.settings()[name]
        default = defaults.get(name, setting.default)
        default_note = "" if name in TEXTS[:2] or default is None else f" (default: {default})"
        names = [name, *(old for old, new in OLD_NAMES.items() if new == name)]
        group.add_argument(
            *(f"--{each.replace('_', '-')}" for each in names),
            default=defaults.get(name),
            metavar=kind.__name__.upper(),
            help=f"{setting.metadata['help']}{default_note}".replace("%", "%%"),
        )


def read_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a run that the options give."""
    values = {name: getattr(options, name, None) for name in Run.kinds()}
    settings = {name: value for name, value in values.items() if value is not None}
    if is_file_name(settings.get("extractor", "")):
        settings["extractor"] = load_grader(settings["extractor"]).name
    return settings


def settings_of(options: argparse.Namespace, **more: object) -> Run:
    """The run that the options ask for, whatever its problem is."""
    return Run.read({"prompt": "-", **read_settings(options), **more}).check()


def models_of(options: argparse.Namespace, rm: RewardModel | None = None) -> Models:
    """The models; how the LM is sampled is its registry entry's unless the options say."""
    PROGRESS.set(lambda what: print(what, file=sys.stderr))
    settings, run = read_settings(options), settings_of(options)
    sampling = {name: getattr(run, name) for name in Sampling.settings() if name in settings}
    if any(part.is_own for part in parse_moves(run.move)):
        from qalign_study.exact.certify import certify

        verdict = certify(run.move, limit=run.max_new_tokens).verdict
        print(f"the move {run.move} is {verdict}", file=sys.stderr)
    lm = load_language_model(run.lm, **loading_of(options, "lm"), **sampling)
    if rm is not None:
        return lm, rm
    return lm, load_reward_model(run.rm, code=True, **loading_of(options, "rm"))


def loading_of(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """The given options that concern the model of a kind."""
    values = {name: getattr(options, f"{kind}_{name}") for name in OF_EACH}
    if kind == "lm":
        switches = ("approximate", "thinking")
        values |= {name: getattr(options, name) or None for name in switches}
        values["rows"] = options.rows
    elif is_address(options.rm or ""):
        values["rows"] = options.rows
    return {name: value for name, value in values.items() if value is not None}


def run_of(options: argparse.Namespace) -> tuple[Run, Problem]:
    """The run that the options ask for: of a text of one's own, or of a problem of a set."""
    settings, check = read_settings(options), None
    for name, default in (("problem", None), ("task", TASK)):
        if "prompt" in settings and getattr(options, name) != default:
            raise InvalidSetting(f"--prompt and --{name} are two problems; leave one of them out")
    if "prompt" not in settings:
        problems = load_set(options).problems
        number: int = options.problem or 0
        if not 0 <= number < len(problems):
            raise InvalidSetting(
                f"--problem {number}: {options.task} has problems 0 to {len(problems) - 1}"
            )
        problem = problems[number]
        settings |= {"prompt": problem.prompt, "reference": problem.answer or ""}
        settings.setdefault("extractor", problem.extractor or NO_EXTRACTOR)
        check = problem.check
    run = Run.read(settings).check()
    if run.extractor is not None:
        for each in references(run.reference) if run.reference else ():
            check_readable("the right answer", each, run.extractor)
    return run, Problem("", run.prompt, run.reference, run.extractor, check)


def load_set(options: argparse.Namespace, n: int | None = None) -> Loaded:
    """The problems of `--task`, or its first `n`."""
    task = paper_task(options)
    extractor = getattr(options, "extractor", None)  # not every command has this option
    if task is None:
        if options.data is not None:
            known = ", ".join(task_names())
            raise InvalidSetting(
                f"--data has rows of the paper's sets, {known}; got {options.task!r}"
            )
        problems = load_problems(options.task, code=True)[:n]
        return Loaded(with_grader(extractor, problems))
    seed = settings_of(options).seed
    loaded = read_task(task, options.data, n=n, seed=seed)
    out = f", {loaded.n_left_out:,} rows left out" if loaded.n_left_out else ""
    print(
        f"{task.table['title']}: {len(loaded.problems):,} problems{out}; {loaded.source}; "
        f"license {task.table['licence']}",
        file=sys.stderr,
    )
    return replace(loaded, problems=with_grader(extractor, loaded.problems))


def with_grader(extractor: str | None, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The same problems, their answers read and compared by another grader, if one is given.

    Raises:
        InvalidSetting: there is no such grader, or the problems have no answers to grade.
    """
    if extractor is None:
        return tuple(problems)
    if is_file_name(extractor):
        extractor = load_grader(extractor).name
    if extractor == NO_EXTRACTOR:
        raise InvalidSetting(
            "--extractor none is for a --prompt; leave it out for the problems of a set, which is "
            "open-ended if they have no answers"
        )
    if any(problem.answer is None for problem in problems):
        raise InvalidSetting(
            f"--extractor {extractor} is for problems with answers, read from a text; leave it out "
            "for open-ended problems"
        )
    for problem in problems:
        for each in references(problem.answer or ""):
            check_readable(f"the right answer of problem {problem.id!r}", each, extractor)
    return tuple(replace(problem, extractor=extractor) for problem in problems)


def paper_task(options: argparse.Namespace) -> Task | None:
    """The set of the paper that is meant, if one is; for a training its rows to learn from."""
    task = task_of(options.task, getattr(options, "preset", None) or "")
    learns = options.name == "train-rm" and options.data is None
    return task.to_learn_from() if task is not None and learns else task


def print_notes(models: Models) -> None:
    """Print what the language model notes of its own draws."""
    for note in getattr(models[0], "notes", ()):
        print(note, file=sys.stderr)
