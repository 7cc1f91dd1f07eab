"""The four methods on one prompt.

Examples:
  qalign compare --task shifted --problem 3 --steps 16
  qalign compare --prompt "Tom has 3 pens and buys 2. How many?" --match samples
"""

import argparse

from tqdm import tqdm

from qalign_core.run import OF_COMMAND
from qalign_core.types import Step
from qalign_study.commands import shared
from qalign_study.commands.drawing import advance, draw
from qalign_study.measure.comparisons import Comparison, full_cut, outcomes
from qalign_study.sheet.text import aligned


def options(parser: argparse.ArgumentParser) -> None:
    """Those of `qalign compare`."""
    budgets = ("flops", "samples")
    parser.add_argument(
        "--match",
        choices=budgets,
        default="flops",
        help="the quantity that is equal for all methods",
    )
    parser.add_argument("--budget", dest="match", choices=budgets, help=argparse.SUPPRESS)  # old
    shared.out_option(parser)
    shared.problem_options(parser)
    shared.run_options(parser, leave_out=("matched",), **OF_COMMAND["compare"])
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Draw a chain and samples at equal cost and print what each method decides."""
    run = shared.run_of(options)
    if options.match == "flops":
        run = run.with_changes(matched="pool")
    else:  # as many samples as states
        run = run.with_changes(pool=min(run.pool, run.chains * (run.steps + 1)))
    models = shared.models_of(options)
    with tqdm(total=run.chains * (run.steps + 1), unit="step") as bar:
        trace = await draw(
            models, run, options.out, lambda drawn: advance(bar, isinstance(drawn, Step))
        )
    comparison, unit = Comparison(trace), trace.header.meter.unit
    print(f"{run.prompt}\n")
    right = {True: "right", False: "wrong", None: ""}
    rows = [
        (o.method, o.decision.answer, right[o.correct], o.n, o.cost.generated, o.spent)
        for o in outcomes(comparison, full_cut(comparison, options.match))
    ]
    print(aligned(("method", "answer", "", "samples", "tokens", unit), rows))
