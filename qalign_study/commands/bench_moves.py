"""Certify moves in exact worlds, and measure them on a problem set.

Examples:
  qalign bench-moves suffix 'suffix+block(:)' entropy
  qalign bench-moves suffix mine.py:Mine --task inventory shifted --problems 16 --beta 0.8
"""

import argparse
import sys
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from qalign_core.chain.cost import CostModel, meter_of
from qalign_core.errors import InvalidSetting
from qalign_core.record.trace import Trace
from qalign_core.run import Run
from qalign_core.types import Step
from qalign_study.commands import shared
from qalign_study.commands.drawing import progress_bar
from qalign_study.exact.bench import InWorld
from qalign_study.exact.certify import certify
from qalign_study.exact.pairs import Pairs
from qalign_study.measure.diagnostics import acceptance, ess
from qalign_study.measure.intervals import share_of
from qalign_study.measure.results import answer_of
from qalign_study.measure.tuning import chains_on
from qalign_study.sets.problem_sets import Problem, check_gradable, check_prompts
from qalign_study.sheet.text import format_columns

LEFT_OUT = (*shared.TEXTS, "move", "chains", "pool", "matched", "burn_in")


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign bench-moves`."""
    parser.usage = f"{parser.usage} MOVE ..."
    parser.add_argument(
        "moves",
        nargs="+",
        metavar="MOVE",
        help="suffix, entropy, a mix such as suffix+block(:), or your own as FILE.py:NAME",
    )
    group = parser.add_argument_group("problem sets", "with --problems, also measure on sets")
    shared.problems_option(group)
    shared.set_options(group, nargs="+", default=["in_distribution"])
    shared.run_options(parser, leave_out=LEFT_OUT)
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Print a table of the exact worlds, and one of the problem set if it is asked for.

    Raises:
        InvalidSetting: a move is not certified; the table is followed by the reasons.
    """
    run = shared.settings_of(options)
    failed = _certify(options.moves, run.max_new_tokens)
    if options.problems is not None:
        await _measure(options, run)
    if failed:
        raise InvalidSetting(f"not certified: {', '.join(failed)}; the reasons are listed above")


def _certify(names: list[str], limit: int) -> list[str]:
    """Print a table of moves and worlds; the names of those that fail."""
    failed, rows, notes = list[str](), list[tuple[object, ...]](), list[str]()
    for name in names:
        certificate = certify(name, limit=limit)
        for world in certificate.worlds:
            gap = None if world.gap is None else f"{abs(world.gap):.4f}"
            acceptance = None if isnan(world.acceptance) else f"{world.acceptance:.1%}"
            balance, distance = _balance(world, world.residual), f"{world.distance:.1e}"
            rows.append((name, world.world, _range(world), balance, gap, acceptance, distance))
        pairs = certificate.pairs
        balance = _balance(pairs, pairs.difference)
        rows.append((name, f"{pairs.n} long pairs", _range(pairs), balance, None, None, None))
        if certificate.faults:
            failed.append(name)
            notes += [f"{name}: {fault}" for fault in certificate.faults]
        else:
            notes.append(f"{name}: {certificate.verdict}")
    heads = ("move", "world", "tokens", "balance", "gap", "accepted", "distance to the target")
    print("\n".join([format_columns(heads, rows), *notes]))
    return failed


def _balance(checked: InWorld | Pairs, difference: float) -> str:
    return f"{'holds' if checked.is_exact else 'FAILS'} {difference:.0e}"


def _range(checked: InWorld | Pairs) -> str:
    low, high = checked.lengths
    return f"{low}-{high}"


async def _measure(options: argparse.Namespace, run: Run) -> None:
    """Print, per set and move, accuracy, acceptance and effective samples of the reward per cost.

    The cost is in 10^9 FLOPs, or tokens if a model's size is unknown.
    """
    lm, rm = shared.models_of(options)
    meter, rows = meter_of(lm, rm), []
    for task in options.task:
        of_task = argparse.Namespace(**{**vars(options), "task": task})
        problems = shared.load_set(of_task, options.problems).problems
        check_gradable(problems)
        check_prompts(lm, problems)
        print(f"{task}: {len(problems)} problems, {run.steps} proposals each", file=sys.stderr)
        for name in progress_bar("move", iterable=options.moves):
            prompts = [problem.prompt for problem in problems]
            walks = await chains_on(lm, rm, prompts, run.with_changes(move=name))
            rows.append((task, name, *_measure_move(problems, walks, meter)))
    heads = ("set", "move", "right, %", "accepted", "refused", meter.unit)
    print(format_columns((*heads, "effective samples per 1e9"), rows))


def _measure_move(
    problems: Sequence[Problem], walks: Sequence[list[Step]], meter: CostModel
) -> tuple[Any, ...]:
    """A row's numbers, from a chain per problem."""
    every = [step for steps in walks for step in steps]
    spent = [sum(meter.price(step.cost) for step in steps) for steps in walks]
    effective = [
        1e9 * (ess([[step.state.reward for step in steps]]) or 1.0) / price
        for steps, price in zip(walks, spent, strict=True)
    ]
    solved = [
        problem.solved_by(answer_of(problem, Trace.collect(steps)).text)
        for problem, steps in zip(problems, walks, strict=True)
    ]
    right, accepted = share_of(solved), acceptance(every).changed
    proposed = [step.refused is not None for step in every if step.t]
    refused = float(np.mean(proposed)) if proposed else None
    shares = (None if each is None else f"{each:.1%}" for each in (accepted.value, refused))
    return (right, *shares, float(np.mean(spent)), float(np.mean(effective)))
