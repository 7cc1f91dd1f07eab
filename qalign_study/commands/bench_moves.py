"""Certify moves in exact worlds, and measure them on a problem set.

Examples:
  qalign bench-moves suffix 'suffix+block(:)' entropy
  qalign bench-moves suffix mine.py:Mine --task inventory shifted --problems 16 --beta 0.8
"""

import argparse
import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from tqdm import tqdm

from qalign_core.chain.cost import meter_of
from qalign_core.chain.moves.mixture import move_of
from qalign_core.chain.moves.move import Choices, Made, Move
from qalign_core.errors import InvalidSetting
from qalign_core.mix import read_mix
from qalign_core.protocols import LanguageModel
from qalign_core.rewards.functions import load_name
from qalign_core.run import Run
from qalign_core.types import Meter, Response, Step, Trace
from qalign_study.commands import shared
from qalign_study.exact.bench import REACHED, in_world, worlds
from qalign_study.measure.diagnostics import acceptance, ess
from qalign_study.measure.intervals import share_of
from qalign_study.measure.results import answer_of
from qalign_study.measure.tuning import chains_on
from qalign_study.sets.problem_sets import Problem, check_gradable
from qalign_study.sheet.text import aligned

LEFT_OUT = (*shared.TEXTS, "move", "chains", "pool", "matched", "burn_in")


def options(parser: argparse.ArgumentParser) -> None:
    """Those of `qalign bench-moves`."""
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
        InvalidSetting: a move breaks balance, where the worst pair is printed, or cannot reach
            every response.
    """
    failed = _certify(options.moves)
    if options.problems is not None:
        await _measure(options)
    if failed:
        raise InvalidSetting(f"chains of {', '.join(failed)} do not sample the target")


def _move(name: str, lm: LanguageModel, delimiter: str = "") -> Move:
    """A move for a model, by its setting (with another delimiter) or from a user's own file."""
    if ".py:" not in name:
        parts = read_mix(name)
        return move_of(tuple(replace(p, delimiter=delimiter or p.delimiter) for p in parts), lm)
    found: Any = load_name(name)
    return _Checked(found() if isinstance(found, type) else found, name)


class _Checked:
    """A user's own move, whose mistakes are told in one sentence."""

    def __init__(self, move: Any, name: str) -> None:
        self.move, self.name = move, name
        if not inspect.iscoroutinefunction(getattr(move, "propose", None)):
            raise InvalidSetting(f"{name} needs `async def propose(self, choices, y)`")

    async def propose(self, choices: Choices, y: Response) -> Made:
        made = await self.move.propose(choices, y)
        if not isinstance(made, Made):
            raise InvalidSetting(
                f"{self.name} returned {type(made).__name__}; return a Proposal, or a Refused"
            )
        return made


def _certify(names: list[str]) -> list[str]:
    """Print a table of moves and worlds, where ":" ends a block; the names of those that fail."""
    failed: dict[str, None] = {}
    rows, notes = [], []
    for name in names:
        for lm in worlds():
            found = in_world(lm, _move(name, lm, ":"))
            holds = "holds" if found.is_exact else "FAILS"
            gap = None if found.gap is None else f"{abs(found.gap):.4f}"
            accepted = None if isnan(found.acceptance) else f"{found.acceptance:.1%}"
            balance, distance = f"{holds} {found.residual:.0e}", f"{found.distance:.1e}"
            rows.append((name, found.world, balance, gap, accepted, distance))
            if not found.is_exact:
                worst = " and ".join(map(repr, found.worst))
                notes.append(f"{name} in {found.world}: worst pair: {worst}")
            elif found.distance > REACHED:
                notes.append(f"{name} cannot reach every response; mix it with suffix")
            if not found.is_exact or found.distance > REACHED:
                failed[name] = None
    heads = ("move", "world", "balance", "gap", "accepted", "distance to the target")
    print("\n".join([aligned(heads, rows), *notes]))
    return [*failed]


async def _measure(options: argparse.Namespace) -> None:
    """Print, per set and move, accuracy, acceptance and effective samples of the reward per cost.

    The cost is in 10^9 FLOPs, or tokens if a model's size is unknown.
    """
    lm, rm = shared.models_of(options)
    run = Run.read({"prompt": "-", **shared.given_in(options)})
    meter, rows = meter_of(lm, rm), []
    for task in options.task:
        of_task = argparse.Namespace(**{**vars(options), "task": task})
        problems = shared.load_set(of_task, options.problems).problems
        check_gradable(problems)
        print(f"{task}: {len(problems)} problems, {run.steps} proposals each", file=sys.stderr)
        for name in tqdm(options.moves, unit="move"):
            move = _move(name, lm)
            how: Any = {"target": run.target, "move": move, "steps": run.steps, "seed": run.seed}
            walks = await chains_on(lm, rm, [problem.prompt for problem in problems], **how)
            rows.append((task, name, *_measured(problems, walks, meter)))
    heads = ("set", "move", "right, %", "accepted", "refused", meter.unit)
    print(aligned((*heads, "effective samples per 1e9"), rows))


def _measured(
    problems: Sequence[Problem], walks: Sequence[list[Step]], meter: Meter
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
    refused = float(np.mean([step.refused is not None for step in every if step.t]))
    shares = (f"{share:.1%}" for share in (accepted.value or 0, refused))
    return (right, *shares, float(np.mean(spent)), float(np.mean(effective)))
