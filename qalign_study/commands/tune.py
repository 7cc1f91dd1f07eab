"""The beta at which a given share of proposals is accepted, or the best of several sharpnesses.

Examples:
  qalign tune --task in_distribution --last 4 --steps 16
  qalign tune --task shifted --sharpness 1 2 4
"""

import argparse
import sys
from collections.abc import Sequence

from qalign_core.record.runner import make_header
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_core.types import Cost
from qalign_study.commands import shared
from qalign_study.measure.differences import difference
from qalign_study.measure.tuning import Tried, Tuned, check_tuning, tune_beta, tune_sharpness
from qalign_study.sets.problem_sets import Problem, check_prompts
from qalign_study.sheet.text import format_value

_OWN = ("sharpness", "beta", "chains", "pool", "matched", "burn_in")


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign tune`."""
    parser.description = (
        f"{parser.description}\n\n"
        "The first quarter of each chain is left out; evaluate counts every state."
    )
    parser.add_argument(
        "--sharpness",
        "--alpha",
        dest="sharpnesses",
        nargs="+",
        default=["1"],
        metavar="FLOAT",
        help=f"{Run.settings()['sharpness'].metadata['help']} (default: 1)",
    )
    parser.add_argument(
        "--target",
        type=float,
        default=0.5,
        help="share of changed proposals to accept (default: %(default)s)",
    )
    parser.add_argument(
        "--last",
        type=int,
        default=32,
        help="only the last N problems of the set (default: %(default)s)",
        metavar="N",
    )
    for old in ("--problems", "--prompts"):
        parser.add_argument(old, dest="last", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--start", type=float, default=1.0, help="first beta to try (default: %(default)s)"
    )
    shared.set_options(parser)
    shared.run_options(parser, leave_out=_OWN)
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Find the beta of each sharpness, and compare them if there are several."""
    each, *others = [shared.settings_of(options, sharpness=k) for k in options.sharpnesses]
    check_tuning(options.target, each.steps)
    run = each.with_changes(beta=Target(options.start).beta)
    if options.prompt is not None:
        problems = [Problem("prompt", options.prompt, each.reference, each.extractor)]
    else:
        # from the end: an evaluation of the first problems is not tuned on them
        problems = [*shared.load_set(options).problems[-options.last :]]
    models = shared.models_of(options)
    check_prompts(models[0], problems)
    print(f"tuning on {len(problems)} prompts, {each.steps} proposals each", file=sys.stderr)
    meter = make_header(*models, each).meter
    if others:
        sharpnesses = [each.sharpness for each in (each, *others)]
        tried = await tune_sharpness(*models, problems, sharpnesses, run, acceptance=options.target)
        spent = _print_tried(tried)
    else:
        prompts = [problem.prompt for problem in problems]
        tuned = await tune_beta(*models, prompts, run, acceptance=options.target)
        spent = tuned.cost
        _print_beta(tuned)
    print(f"cost {meter.price(spent):.3g} {meter.unit}, not counting prompts")


def _print_beta(tuned: Tuned) -> None:
    print(f"beta {tuned.beta:.3g}, 95% band {tuned.low:.3g} to {tuned.high:.3g}")
    print(
        f"acceptance {tuned.acceptance:.0%} of proposals that differ from the state, "
        f"{tuned.overall:.0%} of all; rounds at {', '.join(f'{b:.3g}' for b in tuned.rounds)}"
    )


def _print_tried(tried: Sequence[Tried]) -> Cost:
    """A line a sharpness, and the one that is right most often; the tokens spent on all."""
    right = {each.sharpness: each.right for each in tried if each.right}
    for each in tried:
        beta = f"beta {each.tuned.beta:.3g}, " if each.tuned else ""
        accuracy = (
            f"right in % {format_value(each.right)}" if each.right else "no beta accepts enough"
        )
        print(f"sharpness {each.sharpness:g}: {beta}{accuracy}")
    if right:
        best = max(right, key=lambda each: right[each].value)  # the least sharp among equals
        for other in right:
            if other != best:
                gap = difference(right[best], right[other])
                print(
                    f"sharpness {best:g} - sharpness {other:g}, points, paired: {format_value(gap)}"
                )
        print(f"best: sharpness {best:g}")
    return sum((each.cost for each in tried), Cost())
