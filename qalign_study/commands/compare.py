"""The four methods on one prompt.

Examples:
  qalign compare --task shifted --problem 3 --steps 16
  qalign compare --prompt "Tom has 3 pens and buys 2. How many?" --match samples
"""

import argparse
import json

from qalign_core.types import Step
from qalign_study.commands import shared
from qalign_study.commands.drawing import advance, draw, progress_bar
from qalign_study.export.command import COMMAND_DEFAULTS
from qalign_study.measure.comparisons import Comparison, Outcome, full_cut, matched_run, outcomes
from qalign_study.sheet.text import format_columns


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign compare`."""
    budgets = ("flops", "samples")
    parser.add_argument(
        "--match",
        choices=budgets,
        default="flops",
        help="the quantity that is equal for all methods",
    )
    parser.add_argument("--budget", dest="match", choices=budgets, help=argparse.SUPPRESS)  # old
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    shared.out_option(parser)
    shared.problem_options(parser)
    shared.run_options(parser, leave_out=("matched",), **COMMAND_DEFAULTS["compare"])
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Draw a chain and samples at equal cost and print what each method decides."""
    run, problem = shared.run_of(options)
    run = matched_run(run, options.match, run.pool)
    models = shared.models_of(options)
    with progress_bar("step", run.chains * (run.steps + 1)) as bar:
        trace = await draw(
            models, run, options.out, lambda step: advance(bar, isinstance(step, Step))
        )
    comparison, unit = Comparison(trace, problem.check), trace.header.meter.unit
    decided = outcomes(comparison, full_cut(comparison, options.match))
    if options.json:
        rows = [_to_dict(outcome, trace.header.run.reference, unit) for outcome in decided]
        print(json.dumps(rows, ensure_ascii=False, allow_nan=False))
        return
    print(f"{run.prompt}\n")
    right = {True: "right", False: "wrong", None: ""}
    table = [
        (o.method, o.decision.answer, right[o.correct], o.n, o.cost.generated, o.spent)
        for o in decided
    ]
    print(format_columns(("method", "answer", "", "samples", "tokens", unit), table))
    if run.extractor is None:  # open-ended: a text is the answer
        for o in decided:
            print(f"\n{o.method}: {o.decision.text or '-'}")


def _to_dict(outcome: Outcome, reference: object, unit: str) -> dict[str, object]:
    """Return one method's decision for JSON; `right` is null where the right answer is unknown."""
    decision = outcome.decision
    return {
        **{"method": outcome.method, "answer": decision.answer, "right": outcome.correct},
        **{"reference": reference, "votes": dict(decision.shares)},
        "text": decision.text,
        **{"samples": outcome.n, "tokens": outcome.cost.generated},
        **{"spent": outcome.spent, "unit": unit},
    }
