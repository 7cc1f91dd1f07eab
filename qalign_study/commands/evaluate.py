"""The four methods on a problem set.

Examples:
  qalign evaluate --task in_distribution --problems 4 --budget 8 --out results
  qalign evaluate --task math500 --preset paper --plan
"""

import argparse
from pathlib import Path

from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.run import MAX_STEPS
from qalign_study.commands import shared
from qalign_study.commands.drawing import fill, progress_bar
from qalign_study.commands.plan import plan_options, print_plan
from qalign_study.export.command import COMMAND_DEFAULTS
from qalign_study.measure.curves import curves
from qalign_study.measure.diagnostics import acceptance_of
from qalign_study.measure.results import pack, results_in
from qalign_study.sets.problem_sets import check_gradable
from qalign_study.sets.tasks import PRESETS, Task, task_of
from qalign_study.sheet.text import format_columns

BUDGET = COMMAND_DEFAULTS["evaluate"]["pool"]


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign evaluate`."""
    shared.set_options(parser)
    parser.add_argument(
        "--preset", choices=PRESETS, help="rows, prompts and settings of the paper or of its code"
    )
    shared.many_options(parser, 128)
    parser.add_argument(
        "--budget",
        type=int,
        help=f"samples per problem ({BUDGET}); the chain gets the same compute",
    )
    parser.add_argument("--states", type=int, help="maximum states of the chain; 0 means no limit")
    shared.out_option(parser)
    parser.add_argument("--pack", type=Path, help="also write the results as one file")
    plan_options(parser)
    shared.run_options(parser, leave_out=(*shared.TEXTS[:2], "steps", "pool", "matched", "burn_in"))
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Draw what is missing of every problem's samples and chain, and print the accuracies."""
    _take_settings(options, task_of(options.task, options.preset or ""))
    shared.settings_of(options, pool=options.budget)
    if options.plan:
        print_plan(options)
        return
    if options.out is None:
        raise InvalidSetting("evaluate needs --out FOLDER, where the traces go")
    loaded = shared.load_set(options, options.problems)
    problems = loaded.problems
    check_gradable(problems)
    models = shared.models_of(options)
    # enough for any pool: each step costs at least one token, a sample at most all of them
    enough = min(options.budget * models[0].max_new_tokens, MAX_STEPS)
    steps = options.states - 1 if options.states else enough
    run = shared.settings_of(options, pool=options.budget, steps=steps)
    run = run.with_changes(matched="chain")
    bar = progress_bar("problem", len(problems))
    await fill(options, models, run, loaded, bar, by_problem=True)
    results = results_in(options.out, code=True)
    if options.pack:
        pack(results, options.pack)
    points, unit = curves(results), results.header.meter.unit
    largest = max(p.n for p in points)
    changed = acceptance_of(results.records).changed.value
    print(f"{len(results.records)} problems, {results.n_missing} not done yet")
    if results.header.run.open_ended:
        votes = ", ".join(id_ for id_, rule in RULES.items() if rule.picks == "vote")
        print(f"open-ended: minimum Bayes risk with ROUGE-1 replaces the vote in {votes}")
    if changed is not None:
        print(f"acceptance {changed:.0%} of proposals that differ from the state")
    at = [(p.method, round(p.used), round(p.tokens), p.spent, p) for p in points if p.n == largest]
    print(format_columns(("method", "n", "tokens", unit, "accuracy, %"), at))


def _take_settings(options: argparse.Namespace, task: Task | None) -> None:
    """Set what a preset says and no option does; then the usual budget."""
    for name, value in (task.settings if task else {}).items():
        if getattr(options, name) is None:
            if value == "":
                raise InvalidSetting(
                    f"the reward model of the paper's {options.task} runs was not published; give "
                    "one of your own with --rm"
                )
            setattr(options, name, value)
    options.budget = BUDGET if options.budget is None else options.budget
    options.states = options.states or 0
