"""Certify moves in exact worlds, and measure them on a problem set.

Examples:
  qalign bench-moves suffix 'suffix+block(:)' entropy
  qalign bench-moves suffix mine.py:Mine --task inventory --problems 16 --steps 200 --beta 0.8
"""

import argparse
import inspect
import sys
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np

from qalign_core.chain.cost import meter_of
from qalign_core.chain.moves.mixture import move_of
from qalign_core.chain.moves.move import Choices, Made, Move
from qalign_core.decide.rules import consensus
from qalign_core.errors import InvalidSetting
from qalign_core.mix import read_mix
from qalign_core.protocols import LanguageModel
from qalign_core.rewards.functions import load_name
from qalign_core.run import Run
from qalign_core.types import Response, Step
from qalign_study.commands import shared
from qalign_study.exact.bench import REACHED, in_world, worlds
from qalign_study.measure.diagnostics import acceptance, ess
from qalign_study.measure.intervals import wilson
from qalign_study.measure.tuning import chains_on
from qalign_study.sets.problem_sets import Problem, check_gradable

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
    parser.add_argument(
        "--problems", type=int, metavar="N", help="also measure on the first N of the set"
    )
    shared.set_options(parser)
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
    """Print a line per move and world, where ":" ends a block; the names of those that fail."""
    failed = []
    width = max(map(len, names))
    print(f"{'move':{width}}  world      balance     gap  accepted  distance to the target")
    for name in names:
        for lm in worlds():
            found = in_world(lm, _move(name, lm, ":"))
            gap = "     -" if found.gap is None else f"{abs(found.gap):6.4f}"
            accepted = "      -" if isnan(found.acceptance) else f"{found.acceptance:7.1%}"
            holds = "holds" if found.is_exact else "FAILS"
            print(
                f"{name:{width}}  {found.world:9}  {holds} {found.residual:.0e}  {gap}"
                f"  {accepted}  {found.distance:.1e}"
            )
            if not found.is_exact:
                print(f"  worst pair: {found.worst[0]!r} and {found.worst[1]!r}")
            elif found.distance > REACHED:
                print("  the move cannot reach every response; mix it with suffix")
            if not found.is_exact or found.distance > REACHED:
                failed.append(name)
    return list(dict.fromkeys(failed))


def _is_right(problem: Problem, steps: list[Step]) -> bool:
    decision = consensus([step.state for step in steps], problem.extract)
    answer = decision.answer
    if problem.extract is None and decision.chosen is not None:
        answer = decision.chosen.response.text
    return answer is not None and bool(problem.is_right(answer))


async def _measure(options: argparse.Namespace) -> None:
    """Print, per move, accuracy, acceptance and effective samples of the reward per TFLOP."""
    problems = shared.load_set(options, options.problems).problems
    check_gradable(problems)
    lm, rm = shared.models_of(options)
    run = Run.read({"prompt": "-", **shared.given_in(options)})
    width = max(map(len, options.moves))
    meter = meter_of(lm, rm)
    print(f"{len(problems)} problems, {run.steps} proposals each", file=sys.stderr)
    head = f"{'move':{width}}  {'right, %':>17}  accepted  refused"
    print(f"{head}  {meter.unit}  effective samples per 1e9")
    for name in options.moves:
        move = _move(name, lm)
        how: Any = {"target": run.target, "move": move, "steps": run.steps, "seed": run.seed}
        walks = await chains_on(lm, rm, [problem.prompt for problem in problems], **how)
        right = [_is_right(*each) for each in zip(problems, walks, strict=True)]
        every = [step for steps in walks for step in steps]
        spent = [sum(meter.price(step.cost) for step in steps) for steps in walks]
        effective = [
            1e9 * (ess([[step.state.reward for step in steps]]) or 1.0) / price
            for steps, price in zip(walks, spent, strict=True)
        ]
        accepted = acceptance(every).changed.value
        refused = float(np.mean([step.refused is not None for step in every if step.t]))
        share = f"{100 * np.mean(right):.1f}"
        share += " [{:.1f}, {:.1f}]".format(*(100 * end for end in wilson(sum(right), len(right))))
        print(
            f"{name:{width}}  {share:>17}  {accepted or 0:8.1%}  {refused:7.1%}"
            f"  {np.mean(spent):.2e}  {np.mean(effective):.3g}"
        )
