"""Run chains on one prompt, or on every prompt of a set.

Examples:
  qalign run --task in_distribution --problem 0 --steps 16
  qalign run --prompts mine.jsonl --chains 2 --steps 64 --out many
"""

import argparse
import json
import math
from dataclasses import asdict

from qalign_core.decide.answers.graders import format_references
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import AnswerExtractor
from qalign_core.record.runner import Draw
from qalign_core.record.trace import Trace
from qalign_core.types import Step
from qalign_study.commands import shared
from qalign_study.commands.drawing import draw, fill, progress_bar
from qalign_study.export.command import COMMAND_DEFAULTS
from qalign_study.measure.diagnostics import acceptance, agreement, ess
from qalign_study.measure.results import Answer, answer_of, answers_in
from qalign_study.sets.problem_sets import Problem
from qalign_study.sheet.words import describe_mixing


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign run`."""
    parser.add_argument(
        "--prompts",
        metavar="SET",
        help="run every problem of this set or file; --out is a folder",
    )
    shared.many_options(parser, 64)
    shared.out_option(parser)
    parser.add_argument("--quiet", action="store_true", help="print the answer only")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    shared.problem_options(parser)
    shared.run_options(parser, leave_out=("burn_in", "matched"), **COMMAND_DEFAULTS["run"])
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Run the chains and print their steps; what is in `--out` is continued."""
    if options.prompts is not None:
        return await _run_many(options)
    if options.problems is not None:
        raise InvalidSetting("--problems is for --prompts SET; --problem N runs one problem")
    run, problem = shared.run_of(options)
    models = shared.models_of(options)
    prints_steps = not (options.quiet or options.json)

    def show(draw_or_step: Draw) -> None:
        if isinstance(draw_or_step, Step) and prints_steps:
            print(_row(draw_or_step, problem.extract), flush=True)

    if prints_steps:
        print(f"{run.prompt}\n\n{_HEAD}", flush=True)
    trace = await draw(models, run, options.out, show)
    print(_dump(answer_of(problem, trace)) if options.json else _summarize(problem, trace))
    if run.chains > 1 and prints_steps:
        print(_agreement(trace))
    shared.print_notes(models)
    return None


async def _run_many(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InvalidSetting("--prompts needs --out FOLDER, where the traces go")
    if options.prompt is not None or options.problem is not None:
        raise InvalidSetting(
            "--prompts runs every problem of a set; leave out --prompt and --problem"
        )
    options.task = options.prompts
    loaded = shared.load_set(options, options.problems)
    problems = loaded.problems
    run = shared.settings_of(options)
    models = shared.models_of(options)
    n = len(problems) * (run.chains * (run.steps + 1) + run.pool)
    await fill(options, models, run, loaded, progress_bar("draw", n))
    answers = answers_in(options.out, problems)
    for answer in answers:
        if options.json:
            print(_dump(answer))
        elif not options.quiet:
            voted = f"{answer.answer} ({answer.share:.0%})"
            if answer.answer is None:  # an open-ended prompt has no answer to read
                voted = answer.text if answer.reference is None else "(none)"
            print(f"{answer.id}: {voted}{_reference(answer)}")
    if not options.json:
        n_states = sum(answer.n_states for answer in answers)
        print(f"{options.out}: {len(answers)} prompts, {n_states} states")
    shared.print_notes(models)


_HEAD = "chain   t    i/|y|   reward  change    ratio    alpha        u  verdict   answer"


def _row(step: Step, extract: AnswerExtractor | None) -> str:
    """One line for a step: index, reward and its change, length ratio, alpha, u, verdict."""
    old, new = step.current, step.proposal
    answer = extract(new.response.text) if extract else None
    return (
        f"{step.chain:5} {step.t:3} {step.index:4}/{len(old.response):<4}"
        f"{new.reward:8.2f} {new.reward - old.reward:+7.2f}"
        f" {_ratio(step):9}"
        f" {math.exp(step.log_alpha):#8.3g} {math.exp(step.log_u):#8.3g}"
        f"  {'accepted' if step.accepted else 'rejected'}  {answer or '-'}"
    )


def _ratio(step: Step) -> str:
    """Format the move's correction: old over new length, or another move's factor itself."""
    old, new = len(step.current.response), len(step.proposal.response)
    correction = step.log_correction
    if correction is None or abs(correction - math.log(old / new)) < 1e-9:
        return f"{old:4}/{new:<4}"
    return f"{math.exp(correction):9.3g}"


def _summarize(problem: Problem, trace: Trace) -> str:
    """Describe the result of the chains in words."""
    answer, rate = answer_of(problem, trace), acceptance(trace.steps).overall.value
    summary = "" if rate is None else f"\nacceptance {rate:.0%} of all proposals"
    if answer.accepted is not None:
        summary += f", {answer.accepted:.0%} of those that differ from the state"
    if problem.extract is None:
        verdict = {True: ", right", False: ", wrong", None: ""}[problem.is_right(answer.text)]
        return (
            f"{summary}\nminimum Bayes risk over {answer.n_states} states{verdict}:\n{answer.text}"
        )
    share = f"{answer.share:.0%} of {answer.n_states} states"
    return f"{summary}\nanswer {answer.answer or '(none)'}, {share}{_reference(answer)}"


def _dump(answer: Answer) -> str:
    return json.dumps(asdict(answer), ensure_ascii=False)


def _reference(answer: Answer) -> str:
    """State the right answer, if it is known."""
    return "" if answer.reference is None else f"; right is {format_references(answer.reference)}"


def _agreement(trace: Trace) -> str:
    """Return R-hat and the effective sample size of the rewards, with the verdict in words."""
    rewards = [[step.state.reward for step in steps] for steps in trace.chains.values()]
    chains, effective = agreement(rewards), ess(rewards)
    size = "–" if effective is None else f"{effective:.0f}"
    return f"R-hat {chains}, effective sample size {size}; {describe_mixing(chains)}"
