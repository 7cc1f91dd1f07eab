"""The command line: `python -m qalign_core run|compare|record|tune|evaluate|report --help`.

Results go to standard output, progress and errors to standard error. Ctrl-C keeps what was
sampled: a trace file is written as the steps arrive.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from qalign_core.analysis.comparisons import (
    METHODS,
    Comparison,
    Meter,
    draw_comparison,
    full_cut,
    outcomes,
)
from qalign_core.analysis.diagnostics import acceptance
from qalign_core.analysis.paired import verdict
from qalign_core.analysis.tuning import tune_beta
from qalign_core.assets import ASSETS
from qalign_core.chain.sampling import check_count
from qalign_core.decide.answers.extraction import EXTRACTORS
from qalign_core.decide.rules import chain_states, majority_vote, minimum_bayes_risk
from qalign_core.decide.utilities import rouge1
from qalign_core.errors import InvalidSetting, QAlignError
from qalign_core.models.progress import TOLD
from qalign_core.protocols import AnswerExtractor, LanguageModel, RewardModel
from qalign_core.registry import is_address, load_language_model, load_reward_model
from qalign_core.runs.comparison_file import to_json
from qalign_core.runs.evaluation import evaluate
from qalign_core.runs.many import run_many
from qalign_core.runs.problem_sets import Problem, load_problems
from qalign_core.runs.recording import Recorded, header_of, record
from qalign_core.runs.report import report, summary
from qalign_core.runs.results import Results, load_results, pack
from qalign_core.runs.trace import end_line
from qalign_core.types import ScoredResponse, Step

_TASK_HELP = "name of an embedded problem set, or a file of JSON lines"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 2 for a mistake in the input, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(options.command(options))
    except QAlignError as error:
        print(f"qalign_core: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; what was sampled is kept" if getattr(options, "out", None) else ""
        print(f"qalign_core: stopped{kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qalign_core",
        description="Test-time alignment by Markov chain Monte Carlo, from the command line.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", help="run one or more chains and print every step; or chains of many prompts"
    )
    _model_options(run)
    _chain_options(run)
    run.add_argument(
        "--prompts", help="run every problem of this set or file; goes on where it was stopped"
    )
    run.add_argument("--problems", type=int, help="only the first so many of --prompts")
    run.add_argument("--at-once", type=int, default=64, help="chains side by side of --prompts")
    run.add_argument(
        "--out", type=Path, help="file of the trace (JSON lines); of --prompts, folder of traces"
    )
    run.add_argument("--quiet", action="store_true", help="print the answer only")
    run.set_defaults(command=_run)

    record = commands.add_parser("record", help="record a run for the page or a lesson")
    _model_options(record)
    _chain_options(record)
    record.add_argument("--base", type=int, default=64, help="base samples to show beside it")
    record.add_argument("--out", type=Path, required=True, help="trace file (JSON lines)")
    record.set_defaults(command=_record)

    compare = commands.add_parser("compare", help="QAlign, BoN, MV and WMV on one prompt")
    _model_options(compare)
    _chain_options(compare)
    compare.add_argument(
        "--budget", choices=("flops", "samples"), default="flops", help="what is made equal"
    )
    compare.add_argument("--out", type=Path, help="also write the comparison to this file (JSON)")
    compare.set_defaults(command=_compare)

    evaluate = commands.add_parser(
        "evaluate", help="the four methods over a problem set; goes on where it was stopped"
    )
    _pair_options(evaluate)
    evaluate.add_argument("--task", default="in_distribution", help=_TASK_HELP)
    evaluate.add_argument("--problems", type=int, help="only the first so many")
    evaluate.add_argument(
        "--methods",
        default=",".join(METHODS),
        help="default: %(default)s; open-ended, all but bon are minimum Bayes risk with ROUGE-1",
    )
    evaluate.add_argument(
        "--budget", type=int, default=256, help="samples a problem; the chain may cost as much"
    )
    evaluate.add_argument(
        "--states", type=int, default=0, help="the chain has at most so many states"
    )
    evaluate.add_argument("--beta", type=float, default=1.0)
    evaluate.add_argument("--seed", type=int, default=0)
    evaluate.add_argument("--out", type=Path, required=True, help="folder of the results")
    evaluate.add_argument("--pack", type=Path, help="also write them as one file")
    evaluate.set_defaults(command=_evaluate, rows=128)

    tables = commands.add_parser(
        "report", help="accuracy of every method, and paired differences, of evaluations"
    )
    tables.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folder or packed file")
    tables.add_argument("--json", action="store_true", help="print the numbers as JSON")
    tables.set_defaults(command=_report)

    tune = commands.add_parser("tune", help="the beta at which a share of proposals is accepted")
    _model_options(tune)
    tune.add_argument("--target", type=float, default=0.5, help="share of changed proposals")
    tune.add_argument("--prompts", type=int, default=32, help="problems, from the end of the set")
    tune.add_argument("--steps", type=int, default=64, help="proposals a problem and round")
    tune.add_argument("--start", type=float, default=1.0, help="first beta")
    tune.add_argument("--seed", type=int, default=0)
    tune.set_defaults(command=_tune)
    return parser


_OF_EACH = ("device", "dtype", "window", "tokenizer")
"""Options that there are for the LM and for the RM."""


def _pair_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    known = "registry id, hub id (owner/name or owner/name@revision), folder, or a server's address"
    group.add_argument("--lm", default="embedded", help=known)
    group.add_argument(
        "--rm",
        default="embedded",
        help=f"{known}; judge:LM lets a language model grade, FILE.py:NAME is a function of prompt "
        'and response, "0.7*A + 0.3*B" a weighted sum',
    )
    group.add_argument("--rows", type=int, help="requests that run at once, of each model")
    for kind in ("lm", "rm"):
        name = kind.upper()
        group.add_argument(
            f"--{kind}-device", help=f"of a local {name}, as torch names it; default: a GPU if any"
        )
        group.add_argument(
            f"--{kind}-dtype",
            help=f"of a local {name}: float32 (the default on a CPU), bfloat16 or float16",
        )
        group.add_argument(
            f"--{kind}-window", type=int, help=f"tokens that a local {name} holds of one sequence"
        )
        group.add_argument(f"--{kind}-tokenizer", help=f"of a served {name}: folder or hub id")
    group.add_argument(
        "--approximate",
        action="store_true",
        help="use a server that takes text only: prefixes are re-tokenised, and counted",
    )


def _model_options(parser: argparse.ArgumentParser) -> None:
    _pair_options(parser)
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, help="1 is the model itself")
    group.add_argument("--top-p", type=float, help="1 is off")
    group.add_argument("--top-k", type=int, help="0 is off")
    group.add_argument("--max-new-tokens", type=int, help="length limit of a response")
    group = parser.add_argument_group("prompt")
    group.add_argument("--prompt", help="your own text; instead of --task")
    group.add_argument("--task", default="in_distribution", help=_TASK_HELP)
    group.add_argument("--problem", type=int, default=0, help="its number in the set, from 0")
    group.add_argument(
        "--extractor",
        default="number",
        choices=(*EXTRACTORS, "none"),
        help="how the answers to --prompt are read; 'none' for an open-ended one",
    )


def _chain_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chain")
    group.add_argument("--beta", type=float, default=1.0, help="> 0; smaller is greedier")
    group.add_argument("--steps", type=int, default=64, help="proposals a chain")
    group.add_argument("--chains", type=int, default=1)
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--lookahead", type=int, default=1, help="proposals drawn at once")


def _sampling(options: argparse.Namespace) -> dict[str, Any]:
    names = ("temperature", "top_p", "top_k", "max_new_tokens")
    given = {name: getattr(options, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _models(options: argparse.Namespace) -> tuple[LanguageModel, RewardModel]:
    TOLD.set(lambda what: print(what, file=sys.stderr))
    lm = load_language_model(options.lm, **_of(options, "lm"), **_sampling(options))
    return lm, load_reward_model(options.rm, code=True, **_of(options, "rm"))


def _of(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """What of the options is for the model of a kind, where it is given."""
    given = {name: getattr(options, f"{kind}_{name}") for name in _OF_EACH}
    if kind == "lm":
        given |= {"rows": options.rows, "approximate": options.approximate or None}
    elif is_address(options.rm):
        given["rows"] = options.rows
    return {name: value for name, value in given.items() if value is not None}


def _problem(options: argparse.Namespace) -> Problem:
    if options.prompt is not None:
        extractor = None if options.extractor == "none" else options.extractor
        return Problem(id="prompt", prompt=options.prompt, extractor=extractor)
    problems = load_problems(problem_file(options.task))
    number: int = options.problem
    if not 0 <= number < len(problems):
        raise InvalidSetting(
            f"--problem {number}: {options.task} has problems 0 to {len(problems) - 1}"
        )
    return problems[number]


def _first_problems(task: str, n: int | None) -> tuple[Problem, ...]:
    if n is not None:
        check_count("--problems", n, 1)
    return tuple(load_problems(problem_file(task))[:n])


def problem_file(task: str) -> Path:
    """The file of an embedded problem set by its name, or the file itself."""
    embedded = ASSETS / "tasks" / f"{task}.jsonl"
    return embedded if "/" not in task and embedded.is_file() else Path(task)


async def _run(options: argparse.Namespace) -> None:
    if options.prompts is not None:
        return await _run_many(options)
    lm, rm = _models(options)
    problem = _problem(options)
    steps: list[Step] = []
    with ExitStack() as stack:
        out = stack.enter_context(_trace_file(options.out)) if options.out else None
        lines = _recorded(options, lm, rm, problem, n_base=0, origin="live")
        if not options.quiet:
            print(f"{problem.prompt}\n\n{_HEAD}", flush=True)
        async for item in lines:
            if out is not None:
                out.write(item.line)
            if item.step is not None:
                steps.append(item.step)
                if not options.quiet:
                    print(_row(item.step, problem.extract), flush=True)
    print(_answer(steps, problem))
    _say_notes(lm)
    return None


async def _run_many(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InvalidSetting("--prompts needs --out FOLDER, where the traces go")
    problems = _first_problems(options.prompts, options.problems)
    lm, rm = _models(options)
    n = len(problems) * options.chains * (options.steps + 1)
    with tqdm(total=n, unit="step") as bar:
        answers = await run_many(
            lm,
            rm,
            problems,
            beta=options.beta,
            steps=options.steps,
            seed=options.seed,
            folder=options.out,
            n_chains=options.chains,
            at_once=options.at_once,
            lookahead=options.lookahead,
            progress=bar.update,
        )
    if not options.quiet:
        for answer in answers:
            right = "" if answer.reference is None else f"; right is {answer.reference}"
            said = answer.text if answer.answer is None else f"{answer.answer} ({answer.share:.0%})"
            print(f"{answer.id}: {said}{right}")
    print(f"{options.out}: {len(answers)} prompts, {n} states")
    _say_notes(lm)


def _say_notes(lm: LanguageModel) -> None:
    for note in getattr(lm, "notes", ()):
        print(note, file=sys.stderr)


async def _record(options: argparse.Namespace) -> None:
    lm, rm = _models(options)
    problem = _problem(options)
    with (
        _trace_file(options.out) as out,
        tqdm(total=options.chains * (options.steps + 1), unit="step") as bar,
    ):
        lines = _recorded(options, lm, rm, problem, n_base=options.base, origin="recorded")
        async for item in lines:
            out.write(item.line)
            bar.update(item.step is not None)
    print(f"{options.out}: {options.chains} x {options.steps + 1} states")


def _recorded(
    options: argparse.Namespace,
    lm: LanguageModel,
    rm: RewardModel,
    problem: Problem,
    *,
    n_base: int,
    origin: str,
) -> AsyncIterator[Recorded]:
    return record(
        lm,
        rm,
        problem.prompt,
        beta=options.beta,
        steps=options.steps,
        seed=options.seed,
        n_chains=options.chains,
        n_base=n_base,
        lookahead=options.lookahead,
        reference=problem.answer,
        extractor=problem.extractor,
        origin=origin,
    )


def _writable(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise InvalidSetting(
            f"{path} cannot be written ({error.strerror}); give another path with --out"
        ) from error


@contextmanager
def _trace_file(path: Path) -> Iterator[TextIO]:
    """A trace file that is written line by line; if the run is stopped, its last line says so."""
    with _writable(path) as file:
        try:
            yield file
        except asyncio.CancelledError:
            file.write(end_line("stopped"))
            raise


_HEAD = "chain   t    i/|y|   reward  change    ratio  alpha      u  verdict   answer"


def _row(step: Step, extract: AnswerExtractor | None) -> str:
    """One line for a step: index, reward and its change, length ratio, alpha, u, verdict."""
    old, new = step.current, step.proposal
    answer = extract(new.response.text) if extract else None
    return (
        f"{step.chain:5} {step.t:3} {step.index:4}/{len(old.response):<4}"
        f"{new.reward:8.2f} {new.reward - old.reward:+7.2f}"
        f" {len(old.response):4}/{len(new.response):<4}"
        f"{math.exp(step.log_alpha):6.3f} {math.exp(step.log_u):6.3f}"
        f"  {'accepted' if step.accepted else 'rejected'}  {answer or '-'}"
    )


def _answer(steps: Sequence[Step], problem: Problem) -> str:
    """The chain's decision, in words: the vote over states, or minimum Bayes risk with ROUGE-1."""
    states = chain_states(steps)
    rate = acceptance(steps)
    said = ""
    if rate.overall.value is not None:
        said = f"\nacceptance {rate.overall.value:.0%} of all proposals"
    if rate.changed.value is not None:
        said += f", {rate.changed.value:.0%} of those that differ from the state"
    if problem.extract is None:
        decision = minimum_bayes_risk(states, rouge1)
        assert decision.chosen is not None
        said += f"\nminimum Bayes risk over {len(states)} states:"
        return f"{said}\n{decision.chosen.response.text}"
    decision = majority_vote(states, problem.extract)
    share = decision.shares[0][1] if decision.shares else 0.0
    said += f"\nanswer {decision.answer or '(none)'}, {share:.0%} of {len(states)} states"
    return said + ("" if problem.answer is None else f"; right is {problem.answer}")


async def _compare(options: argparse.Namespace) -> None:
    lm, rm = _models(options)
    problem = _problem(options)
    steps: list[Step] = []
    pool: list[ScoredResponse] = []
    header = header_of(
        lm,
        rm,
        problem.prompt,
        beta=options.beta,
        seed=options.seed,
        steps=options.steps,
        n_chains=options.chains,
        reference=problem.answer,
        extractor=problem.extractor,
        origin="recorded",
    )
    drawn = draw_comparison(
        lm,
        rm,
        problem.prompt,
        beta=options.beta,
        steps=options.steps,
        seed=options.seed,
        n_chains=options.chains,
        budget=options.budget,
    )
    with ExitStack() as stack:
        out = stack.enter_context(_writable(options.out)) if options.out else None
        bar = stack.enter_context(tqdm(total=options.chains * (options.steps + 1), unit="step"))
        try:
            async for item in drawn:
                if isinstance(item, Step):
                    steps.append(item)
                    bar.update()
                else:
                    pool.append(item)
        finally:  # stopped and failed ones too
            comparison = Comparison(header, tuple(steps), tuple(pool), Meter.of(lm, rm))
            if out is not None and (steps or pool):
                out.write(to_json(comparison))
    print(f"{problem.prompt}\n")
    print(f"{'method':8}{'answer':>8}{'':8}{'samples':>8}{'tokens':>9}{comparison.meter.unit:>18}")
    for outcome in outcomes(comparison, full_cut(comparison, options.budget)):
        right = {True: "right", False: "wrong", None: ""}[outcome.correct]
        answer = outcome.decision.answer or "-"
        print(
            f"{outcome.method:8}{answer:>8} {right:7}{outcome.n:8}{outcome.cost.generated:9,}"
            f"{outcome.spent:18,}"
        )


async def _evaluate(options: argparse.Namespace) -> None:
    problems = _first_problems(options.task, options.problems)
    lm, rm = _models(options)
    said = {"lm", "rm", "task", "problems", "methods", "budget", "states", "beta", "seed"}
    said |= {f"{kind}_{name}" for kind in ("lm", "rm") for name in _OF_EACH}
    given = [(k.replace("_", "-"), v) for k, v in vars(options).items() if k in said]
    flags = [f"--{name} {value}" for name, value in given if value is not None]
    with tqdm(total=len(problems), unit="problem") as bar:

        def progress(n_done: int, n: int) -> None:
            bar.update(n_done - bar.n)

        await evaluate(
            lm,
            rm,
            problems,
            beta=options.beta,
            folder=options.out,
            methods=options.methods.split(","),
            budget=options.budget,
            states=options.states,
            seed=options.seed,
            task=options.task,
            command=f"python -m qalign_core evaluate {' '.join(flags)} --out FOLDER",
            concurrency=options.rows,
            progress=progress,
        )
    results = load_results(options.out)
    if options.pack:
        pack(results, options.pack)
    made = summary(results)
    changed = made["acceptance"]["changed"]
    print(f"{made['done']} problems, {made['missing']} not done yet")
    if results.settings.open_ended:
        print("open-ended: qalign, mv and wmv are minimum Bayes risk with ROUGE-1")
    if changed is not None:
        print(f"acceptance {changed:.0%} of proposals that differ from the state")
    print(f"{'method':8}{'n':>7}{'tokens':>9}{made['unit']:>10}  accuracy")
    for row in made["table"]:
        print(
            f"{row['method']:8}{row['used']:7.0f}{row['tokens']:9,.0f}{row['spent']:10.2e}"
            f"  {row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        )


async def _report(options: argparse.Namespace) -> None:
    sets: dict[str, Results] = {}
    for path in options.paths:
        name = path.stem if path.stem not in sets else str(path)
        sets[name] = load_results(path)
    made = report(sets)
    if options.json:
        print(json.dumps(made, allow_nan=False))
        return
    for name in sets:
        print(f"{name}\n  {'method':8}{'n':>6}{'FLOPs':>10}  accuracy, %")
        for row in (row for row in made["rows"] if row["set"] == name):
            print(f"  {row['method']:8}{_at(row)}  {_percent(row, 'accuracy', '.1f')}")
        print("  difference, points, paired over problems")
        for row in (row for row in made["paired"] if row["set"] == name):
            said = verdict(row["low"], row["high"])
            pair = f"{row['a']} - {row['b']}"
            print(f"  {pair:14}{_at(row)}  {_percent(row, 'difference', '+.1f')}  {said}")


def _at(row: dict[str, Any]) -> str:
    return f"{row['n']:6}" + (f"{'-':>10}" if row["flops"] is None else f"{row['flops']:10.2e}")


def _percent(row: dict[str, Any], name: str, form: str) -> str:
    value, low, high = (format(100 * row[key], form) for key in (name, "low", "high"))
    return f"{value} [{low}, {high}]"


async def _tune(options: argparse.Namespace) -> None:
    if options.prompt is not None:
        prompts = [options.prompt]
    else:
        check_count("--prompts", options.prompts, 1)
        # from the end: an evaluation of the first problems is not tuned on them
        problems = load_problems(problem_file(options.task))[-options.prompts :]
        prompts = [problem.prompt for problem in problems]
    lm, rm = _models(options)
    print(f"tuning on {len(prompts)} prompts, {options.steps} proposals each", file=sys.stderr)
    tuned = await tune_beta(
        lm,
        rm,
        prompts,
        target=options.target,
        start=options.start,
        steps=options.steps,
        seed=options.seed,
    )
    print(f"beta {tuned.beta:.3g}, 95 % band {tuned.low:.3g} to {tuned.high:.3g}")
    print(
        f"acceptance {tuned.acceptance:.0%} of proposals that differ from the state, "
        f"{tuned.overall:.0%} of all; rounds at {', '.join(f'{b:.3g}' for b in tuned.rounds)}"
    )
