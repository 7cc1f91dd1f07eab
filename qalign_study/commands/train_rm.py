"""A reward model from a language model's own right and wrong responses.

Examples:
  qalign train-rm --task gsm8k:task --lm smollm2-135m --problems 500 --out my-rm
  qalign train-rm --task gsm8k:task --recipe paper --plan
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from qalign_core.errors import InvalidSetting
from qalign_core.registry import unload
from qalign_core.run import Run
from qalign_study.commands import shared
from qalign_study.commands.drawing import fill, progress_bar
from qalign_study.commands.plan import plan_options, print_plan
from qalign_study.export.command import COMMAND_DEFAULTS
from qalign_study.measure.intervals import Measured
from qalign_study.sets.problem_sets import check_gradable
from qalign_study.sets.tasks import task_of
from qalign_study.sheet.text import format_value
from qalign_study.train.preferences import Grade, Kinds
from qalign_study.train.reward_training import (
    SAMPLES,
    base_of,
    check_unchanged,
    learn,
    settings_of,
)
from qalign_study.train.trainer import RECIPES, Recipe, check_installed

_PAIRS = {
    "suffix-pairs": "a state of a chain and its proposal",
    "solutions": "add the solutions of the set to the right samples",
    "changed-numbers": "a right sample and a copy with a changed number",
}


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign train-rm`."""
    shared.set_options(parser)
    shared.many_options(parser, 64)
    pool = Run().pool
    parser.add_argument("--samples", type=int, default=pool, help=f"responses per problem ({pool})")
    shared.out_option(parser)
    parser.add_argument(
        "--only-draw",
        action="store_true",
        help="only draw responses; several processes can share the work",
    )
    plan_options(parser)
    pairs = parser.add_argument_group(
        "pairs", "one right and one wrong sample of a problem, and also:"
    )
    pairs.add_argument("--each", type=int, default=1, help="pairs of each kind per problem (1)")
    for name, help_text in _PAIRS.items():
        pairs.add_argument(f"--{name}", action="store_true", help=help_text)
    recipe = parser.add_argument_group("training", "Bradley-Terry, with TRL")
    recipe.add_argument("--base", help="model to start from; default: --lm")
    recipe.add_argument("--device", help="device of the training; default: a GPU if any")
    recipe.add_argument(
        "--recipe", choices=RECIPES, default="small", help="default values of the options below"
    )
    recipe.add_argument("--preset", dest="recipe", choices=RECIPES, help=argparse.SUPPRESS)  # old
    for each in (each for each in fields(Recipe) if each.metadata):
        usual = ", ".join(f"{getattr(r, each.name)} in {name}" for name, r in RECIPES.items())
        recipe.add_argument(
            f"--{each.name.replace('_', '-')}",
            dest=f"recipe_{each.name}",
            type=each.type,
            metavar=each.name.upper(),
            help=f"{each.metadata['help']} ({usual})",
        )
    left_out = (*shared.TEXTS, "rm", "chains", "pool", "matched", "burn_in")
    shared.run_options(parser, leave_out=left_out, **COMMAND_DEFAULTS["train-rm"])
    shared.model_options(parser, kinds=("lm",))


async def command(options: argparse.Namespace) -> None:
    """Draw what is missing, grade it, train, and print what was learned."""
    paper = task_of(options.task) and task_of(options.task, "paper")
    if paper is not None and options.recipe == "paper":  # drawn as its evaluations are
        for name in ("lm", "temperature", "max_new_tokens"):
            if getattr(options, name) is None:
                setattr(options, name, paper.settings[name])
    changes = {
        each.name: value
        for each in fields(Recipe)
        if (value := getattr(options, f"recipe_{each.name}", None)) is not None
    }
    run = shared.settings_of(options, pool=options.samples)
    recipe = replace(RECIPES[options.recipe], **changes, seed=run.seed).check()
    if options.plan:
        print_plan(options, recipe)
        return
    if options.out is None:
        raise InvalidSetting("train-rm needs --out FOLDER, where draws and model go")
    if not options.only_draw:
        check_installed()
    base = base_of(run.lm, options.base)
    loaded = shared.load_set(options, options.problems)
    check_gradable(loaded.problems)
    kinds = Kinds(options.each, options.suffix_pairs, options.solutions, options.changed_numbers)
    n_draws = len(loaded.problems) * (run.steps + 1 + run.pool)
    if not options.only_draw:  # not after hours of drawing
        from qalign_core.models.loading import load_text  # and torch with it

        load_text(base)
        settings = settings_of(loaded.problems, kinds, recipe, base=base, draws=n_draws)
        check_unchanged(options.out, settings)
    models = shared.models_of(options, Grade(loaded.problems))
    bar = progress_bar("draw", n_draws)
    await fill(options, models, run, loaded, bar, options.out / SAMPLES)
    if options.only_draw:
        return
    unload(models[0].id)  # its memory is the trainer's now
    report = await learn(
        loaded.problems,
        options.out,
        kinds,
        recipe,
        base=base,
        device=options.device,
        notify=lambda sentence: print(sentence, file=sys.stderr),
    )
    _print_report(report)
    print(f"--rm {options.out}")


def _print_report(report: Mapping[str, Any]) -> None:
    """Print the pairs, the cost of the training, and its accuracy on held-out pairs."""
    trained = report["training"]
    print(f"{report['pairs']} pairs of {report['learned_from']} problems")
    print(
        f"{trained['steps']} steps, {trained['seconds']:,.0f} s, {trained['memory']:.1f} GB on "
        f"{trained['device']}; loss {trained['loss']:.3f}"
    )
    for name, of in (("pair", "pairs of samples"), ("near_miss", "near misses")):
        accuracy = report[name]
        ends = accuracy["value"], accuracy["low"], accuracy["high"]
        share = "none" if None in ends else format_value(Measured(*ends, accuracy["problems"]))
        count = f"{accuracy['pairs']:,} pairs of {accuracy['problems']:,} problems"
        print(f"held-out {of} in order, %: {share}, {count}")
