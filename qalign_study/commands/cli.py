"""The command line: `qalign run|compare|evaluate|report|tune|train-rm|export --help`.

Results go to standard output, progress and errors to standard error. Ctrl-C keeps what was
sampled: a trace is written as the steps arrive, and the same command goes on with it.
"""

import argparse
import asyncio
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting, InvalidTask, QAlignError, on_disk
from qalign_core.models.progress import TOLD
from qalign_core.protocols import AnswerExtractor, LanguageModel, RewardModel
from qalign_core.reading import is_text, shown
from qalign_core.record.player import page
from qalign_core.record.runner import Drawn, header_of, record
from qalign_core.record.trace import TraceFile, end_line, open_trace, trace_text
from qalign_core.registry import (
    is_address,
    load_language_model,
    load_reward_model,
    unload,
)
from qalign_core.run import MAX_STEPS, OPEN, Run, Sampling, check_count
from qalign_core.types import Cost, ScoredResponse, Step, Trace
from qalign_study.commands.plan import (
    BANDWIDTH_SHARE,
    SHARE,
    Plan,
    TrainingPlan,
    facts_of,
    parameters_in,
)
from qalign_study.measure.comparisons import Comparison, full_cut, outcomes
from qalign_study.measure.curves import Difference, Point, curves, difference
from qalign_study.measure.diagnostics import acceptance, acceptance_of
from qalign_study.measure.report import Report, differences
from qalign_study.measure.results import answer_of, answers_in, load_results, pack, results_in
from qalign_study.measure.sharpness import Sharpness, tune_alpha
from qalign_study.measure.tuning import Tuned, tune_beta
from qalign_study.sets.folder import run_set
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sets.tasks import (
    PRESETS,
    Loaded,
    Task,
    departures,
    hardware,
    read_task,
    task_names,
    task_of,
)
from qalign_study.sheet.report import to_html
from qalign_study.sheet.tables import to_csv, to_latex
from qalign_study.train.preferences import Grade, Kinds
from qalign_study.train.reward_training import SAMPLES, base_of, learn
from qalign_study.train.trainer import RECIPES, Recipe, check_installed

Models = tuple[LanguageModel, RewardModel]

_TASK_HELP = (
    "name of an embedded problem set, a file of JSON lines, or a set of the paper: "
    + ", ".join(task_names())
)
_DATA_HELP = "rows of a set of the paper, as its authors publish them; else they are from the hub"
_TEXTS = ("prompt", "reference", "extractor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 2 for a mistake in the input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not all(map(is_text, arguments)):
        bad = next(argument for argument in arguments if not is_text(argument))
        print(f"qalign: the argument {shown(bad)} is not UTF-8 text; write it so", file=sys.stderr)
        return 2
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(options.command(options))
    except QAlignError as error:
        print(f"qalign: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; what was sampled is kept" if getattr(options, "out", None) else ""
        print(f"qalign: stopped{kept}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qalign",
        description="Test-time alignment by Markov chain Monte Carlo, from the command line.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", help="run one or more chains and print every step; or chains of many prompts"
    )
    _model_options(run)
    _problem_options(run)
    _run_options(run, leave_out=("burn_in", "matched"), pool=0)
    run.add_argument(
        "--prompts", help="run every problem of this set or file; continues where it stopped"
    )
    run.add_argument("--problems", type=int, help="only the first N of --prompts", metavar="N")
    run.add_argument("--at-once", type=int, default=64, help="how many of --prompts run at once")
    run.add_argument(
        "--out",
        type=Path,
        help="file of the trace (JSON lines), continued if it exists; with --prompts, a folder",
    )
    run.add_argument("--quiet", action="store_true", help="print the answer only")
    run.add_argument("--json", action="store_true", help="answers to --prompts as JSON lines")
    run.set_defaults(command=_run)

    compare = commands.add_parser("compare", help="the four methods on one prompt")
    _model_options(compare)
    _problem_options(compare)
    _run_options(compare, leave_out=("matched",), pool=4096)
    compare.add_argument(
        "--budget", choices=("flops", "samples"), default="flops", help="what is made equal"
    )
    compare.add_argument("--out", type=Path, help="trace file, continued if it exists")
    compare.set_defaults(command=_compare)

    evaluate = commands.add_parser(
        "evaluate",
        help="the four methods over a problem set; continues where it stopped",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_departures(),
    )
    _model_options(evaluate)
    evaluate.add_argument("--task", default="in_distribution", help=_TASK_HELP)
    evaluate.add_argument("--data", type=Path, help=_DATA_HELP)
    evaluate.add_argument(
        "--preset", choices=PRESETS, help="rows, prompts and settings of the text, or of its code"
    )
    evaluate.add_argument("--problems", type=int, help="only the first N", metavar="N")
    evaluate.add_argument(
        "--budget", type=int, help="samples per problem (256); the chain may cost as much"
    )
    evaluate.add_argument("--states", type=int, help="most states of the chain; 0 (no limit)")
    _run_options(evaluate, leave_out=(*_TEXTS, "steps", "pool", "matched", "burn_in"))
    evaluate.add_argument("--at-once", type=int, default=128, help="how many problems run at once")
    evaluate.add_argument("--out", type=Path, help="folder of traces; needed but for --plan")
    evaluate.add_argument("--pack", type=Path, help="also write the results as one file")
    _plan_options(evaluate)
    evaluate.set_defaults(command=_evaluate)

    tables = commands.add_parser(
        "report", help="accuracy of every method, and paired differences, of evaluations"
    )
    tables.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        default=sorted((ASSETS / "results").glob("*.zip")),
        help="folder or packed file; by default those that a checkout has",
    )
    tables.add_argument("--json", action="store_true", help="print the numbers as JSON")
    tables.add_argument("--csv", type=Path, metavar="FILE", help="write all numbers as CSV")
    tables.add_argument("--latex", type=Path, metavar="FILE", help="write the tables for LaTeX")
    tables.add_argument("--html", type=Path, metavar="FILE", help="write all as one offline page")
    tables.add_argument(
        "--tuning", type=float, metavar="FLOPS", help="what finding beta cost, marked on the page"
    )
    tables.set_defaults(command=_report)

    tune = commands.add_parser("tune", help="the beta at which a share of proposals is accepted")
    _model_options(tune)
    _problem_options(tune)
    _run_options(tune, leave_out=("alpha", "beta", "chains", "pool", "matched", "burn_in"))
    tune.add_argument(
        "--alpha",
        dest="alphas",
        nargs="+",
        default=["1"],
        metavar="FLOAT",
        help="sharpness; of several, each at its own beta, which is right most often (default: 1)",
    )
    tune.add_argument("--target", type=float, default=0.5, help="share of changed proposals")
    tune.add_argument("--prompts", type=int, default=32, help="problems, from the end of the set")
    tune.add_argument("--start", type=float, default=1.0, help="first beta")
    tune.set_defaults(command=_tune)

    _train_rm_options(commands)

    export = commands.add_parser("export", help="a trace as one page that plays without a network")
    export.add_argument("trace", type=Path, help="file of the trace, as run --out writes it")
    export.add_argument("--html", type=Path, required=True, help="file of the page")
    export.add_argument("--title", default="", help="of the page")
    export.add_argument("--says", default="", help="what there is to see, in a sentence or two")
    export.set_defaults(command=_export)
    return parser


def _train_rm_options(commands: Any) -> None:
    train_rm = commands.add_parser(
        "train-rm",
        help="a reward model from a language model's own right and wrong responses; "
        "continues where it stopped",
    )
    _model_options(train_rm, kinds=("lm",))
    train_rm.add_argument("--task", default="in_distribution", help=_TASK_HELP)
    train_rm.add_argument("--data", type=Path, help=_DATA_HELP)
    train_rm.add_argument("--problems", type=int, help="only the first N", metavar="N")
    left_out = (*_TEXTS, "rm", "chains", "pool", "matched", "burn_in")
    _run_options(train_rm, leave_out=left_out, steps=16)
    train_rm.add_argument("--samples", type=int, default=64, help="responses a problem (64)")
    train_rm.add_argument("--at-once", type=int, default=64, help="how many problems run at once")
    train_rm.add_argument("--out", type=Path, help="folder, which --rm takes then; not for --plan")
    train_rm.add_argument(
        "--only-draw", action="store_true", help="draw and stop: several processes share the work"
    )
    pairs = train_rm.add_argument_group("pairs", "one right against one wrong sample, and")
    pairs.add_argument("--each", type=int, default=1, help="so many of every kind a problem (1)")
    for name, says in _PAIRS.items():
        pairs.add_argument(f"--{name}", action="store_true", help=says)
    pairs.add_argument(
        "--max-length", type=int, default=2048, help="tokens of a conversation that are read (2048)"
    )
    recipe = train_rm.add_argument_group("training", "Bradley-Terry, by TRL")
    recipe.add_argument("--base", help="model to start from; by default --lm")
    recipe.add_argument("--device", help="of the training; by default a GPU if any")
    recipe.add_argument(
        "--preset", dest="recipe", choices=RECIPES, default="small", help="the settings below"
    )
    for each in fields(Recipe):
        if each.name != "seed":
            usual = ", ".join(f"{getattr(r, each.name)} in {name}" for name, r in RECIPES.items())
            recipe.add_argument(
                f"--{each.name.replace('_', '-')}" if each.name != "at_once" else "--pairs-at-once",
                dest=f"recipe_{each.name}",
                type=each.type,
                help=f"{_RECIPE[each.name]} ({usual})",
            )
    _plan_options(train_rm)
    train_rm.set_defaults(command=_train_rm)


def _plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan",
        action="store_true",
        help="load and draw nothing: print models, tokens, FLOPs, hours on named GPUs, and disk",
    )
    parser.add_argument(
        "--response-tokens", type=int, help="mean length that --plan assumes; half of the limit"
    )


_PAIRS = {
    "suffix-pairs": "a state and a proposal, as a chain compares them",
    "solutions": "the set's own solution is one of the right samples",
    "changed-numbers": "a right sample against itself with its number changed",
}
_RECIPE = {
    "learning_rate": "highest rate of AdamW; it falls linearly",
    "warmup": "share of the steps in which it rises",
    "weight_decay": "of AdamW",
    "epochs": "passes over the pairs",
    "batch": "pairs a step",
    "at_once": "pairs in memory at once",
    "lora": "rank of LoRA; 0 trains the weights themselves",
    "precision": "bfloat16 or float32",
    "validation": "share of the problems that is held out",
}

_OF_EACH = {
    "device": "of a local {}, as torch names it; default: a GPU if any",
    "dtype": "of a local {}: float32 (the default on a CPU), bfloat16 or float16",
    "window": "tokens that a local {} holds of one sequence",
    "tokenizer": "of a served {}: folder or hub id",
}
"""Options that there are for the LM and for the RM, and what they are."""


def _model_options(parser: argparse.ArgumentParser, kinds: Sequence[str] = ("lm", "rm")) -> None:
    """Where models are found is in `Run`; how they are loaded is a matter of this machine."""
    group = parser.add_argument_group(
        "loading of models",
        "A model is a registry id, a hub id (owner/name or owner/name@revision), a folder, or a "
        "server's address. A reward may also be judge:LM, FILE.py:NAME, or a weighted sum.",
    )
    group.add_argument("--rows", type=int, help="requests that run at once, of each model")
    for kind in kinds:
        for name, says in _OF_EACH.items():
            read = int if name == "window" else str
            group.add_argument(f"--{kind}-{name}", type=read, help=says.format(kind.upper()))
    group.add_argument(
        "--approximate",
        action="store_true",
        help="use a server that takes text only: prefixes are re-tokenised, and counted",
    )


def _problem_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("problem", "one of a set, or --prompt")
    group.add_argument("--task", default="in_distribution", help=_TASK_HELP)
    group.add_argument("--data", type=Path, help=_DATA_HELP)
    group.add_argument("--problem", type=int, default=0, help="its number in the set, from 0")


def _run_options(
    parser: argparse.ArgumentParser, *, leave_out: Sequence[str] = (), **defaults: Any
) -> None:
    """An option for each setting of a run; where one is not given, the default holds."""
    group = parser.add_argument_group("run")
    for name, kind in Run.kinds().items():
        if name in leave_out:
            continue
        told = Run.__dataclass_fields__[name]
        default = defaults.get(name, told.default)
        shown = "" if name in _TEXTS[:2] or default is None else f" (default: {default})"
        group.add_argument(
            f"--{name.replace('_', '-')}",
            default=defaults.get(name),
            metavar=kind.__name__.upper(),
            help=f"{told.metadata['says']}{shown}".replace("%", "%%"),
        )


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """What of a run's settings the options say."""
    said = {name: getattr(options, name, None) for name in Run.kinds()}
    return {name: value for name, value in said.items() if value is not None}


def _models(options: argparse.Namespace, rm: RewardModel | None = None) -> Models:
    """The models; how the LM is sampled is its registry entry's unless the options say."""
    TOLD.set(lambda what: print(what, file=sys.stderr))
    given = _given(options)
    run = Run.read({"prompt": "-", **given})
    sampling = {name: getattr(run, name) for name in Sampling.__slots__ if name in given}
    lm = load_language_model(run.lm, **_of(options, "lm"), **sampling)
    if rm is not None:
        return lm, rm
    return lm, load_reward_model(run.rm, code=True, **_of(options, "rm"))


def _of(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """What of the options is for the model of a kind, where it is given."""
    given = {name: getattr(options, f"{kind}_{name}") for name in _OF_EACH}
    if kind == "lm":
        given |= {"rows": options.rows, "approximate": options.approximate or None}
    elif is_address(options.rm or ""):
        given["rows"] = options.rows
    return {name: value for name, value in given.items() if value is not None}


def _run_of(options: argparse.Namespace) -> Run:
    """The run that the options ask for: of a text of one's own, or of a problem of a set."""
    given = _given(options)
    if "prompt" not in given:
        problems = _set(options, options.task).problems
        number: int = options.problem
        if not 0 <= number < len(problems):
            raise InvalidSetting(
                f"--problem {number}: {options.task} has problems 0 to {len(problems) - 1}"
            )
        problem = problems[number]
        given |= {"prompt": problem.prompt, "reference": problem.answer or ""}
        given["extractor"] = problem.extractor or OPEN
    return Run.read(given).check()


def _set(options: argparse.Namespace, name: str) -> Loaded:
    """The problems of a set by its name, the first `--problems` of them where that is given."""
    n: int | None = getattr(options, "problems", None)
    if n is not None:
        check_count("--problems", n, 1)
    task = _paper_task(options, name)
    if task is None:
        if options.data is not None:
            known = ", ".join(task_names())
            raise InvalidSetting(f"--data has rows of the paper's sets, {known}; got {name!r}")
        return Loaded(tuple(load_problems(problem_file(name))[:n]))
    seed = Run.read({"prompt": "-", **_given(options)}).seed
    loaded = read_task(task, options.data, n=n, seed=seed)
    out = f", {loaded.n_left_out:,} rows left out" if loaded.n_left_out else ""
    print(
        f"{task.table['title']}: {len(loaded.problems):,} problems{out}; {loaded.source}; "
        f"licence {task.table['licence']}",
        file=sys.stderr,
    )
    return loaded


def _paper_task(options: argparse.Namespace, name: str) -> Task | None:
    """The set of the paper that is meant, if one is; for a training its rows to learn from."""
    task = task_of(name, getattr(options, "preset", None) or "")
    learns = options.command is _train_rm and options.data is None
    return task.to_learn_from() if task is not None and learns else task


def _departures() -> str:
    """Where the paper's text and its published code part, for the help."""
    said = ["--preset paper is what the text says, --preset published-code what its scripts do:"]
    for each in departures():
        about = f"{each.what} ({', '.join(each.sets) or 'all'})"
        said.append(f"  {about}\n    paper           {each.paper}\n    published-code  {each.code}")
    return "\n".join(said)


def problem_file(task: str) -> Path:
    """The file of an embedded problem set by its name, or the file itself."""
    embedded = ASSETS / "tasks" / f"{task}.jsonl"
    return embedded if "/" not in task and embedded.is_file() else Path(task)


async def _run(options: argparse.Namespace) -> None:
    if options.prompts is not None:
        return await _run_many(options)
    run = _run_of(options)
    models = _models(options)
    problem = Problem("", run.prompt, run.reference, run.extractor)

    def show(drawn: Drawn) -> None:
        if isinstance(drawn, Step) and not options.quiet:
            print(_row(drawn, problem.extract), flush=True)

    if not options.quiet:
        print(f"{run.prompt}\n\n{_HEAD}", flush=True)
    print(_said(problem, await _drawn(models, run, options.out, show)))
    _say_notes(models)
    return None


async def _drawn(
    models: Models, run: Run, out: Path | None, told: Callable[[Drawn], object]
) -> Trace:
    """Draw a run, into a file if there is one, and tell of each draw; what was there too."""
    header, new = header_of(*models, run), list[Drawn]()
    nowhere = nullcontext(TraceFile(Path(), io.BytesIO(), Trace(header)))
    with open_trace(out, header) if out is not None else nowhere as file:
        if file is None:
            raise InvalidSetting(f"{out} is in use by another run; wait for it, or give another")
        drawn = record(*models, run, known=file.known)
        try:
            async with aclosing(drawn) as lines:  # type: ignore[type-var]
                async for item in lines:
                    file.write(item.line)
                    if item.drawn is not None:
                        new.append(item.drawn)
                        told(item.drawn)
        except asyncio.CancelledError:
            file.write(end_line("stopped"))
            raise
    steps = tuple(each for each in new if isinstance(each, Step))
    pool = tuple(each for each in new if isinstance(each, ScoredResponse))
    return Trace(header, file.known.steps + steps, file.known.pool + pool)


async def _run_many(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InvalidSetting("--prompts needs --out FOLDER, where the traces go")
    loaded = _set(options, options.prompts)
    problems = loaded.problems
    run = Run.read({"prompt": "-", **_given(options)})
    models = _models(options)
    n = len(problems) * (run.chains * (run.steps + 1) + run.pool)
    await _fill(options, models, run, loaded, tqdm(total=n, unit="draw"))
    answers = answers_in(options.out, problems)
    for answer in answers:
        if options.json:
            print(json.dumps(asdict(answer), ensure_ascii=False))
        elif not options.quiet:
            right = "" if answer.reference is None else f"; right is {answer.reference}"
            said = answer.text if answer.answer is None else f"{answer.answer} ({answer.share:.0%})"
            print(f"{answer.id}: {said}{right}")
    if not options.json:
        n_states = sum(answer.n_states for answer in answers)
        print(f"{options.out}: {len(answers)} prompts, {n_states} states")
    _say_notes(models)


async def _fill(
    options: argparse.Namespace,
    models: Models,
    run: Run,
    loaded: Loaded,
    bar: Any,
    folder: Path | None = None,
) -> None:
    """Draw a run for every problem, with a bar that counts draws or problems."""

    def progress(n_new: int, n_done: int, n_elsewhere: int) -> None:
        bar.update(n_done - bar.n if bar.unit == "problem" else n_new)
        if n_elsewhere:
            bar.set_postfix_str(f"{n_elsewhere} with other processes")

    with bar:
        await run_set(
            *models,
            run,
            loaded.problems,
            folder or options.out,
            at_once=options.at_once,
            task=_task(options),
            command=_command(options),
            source=loaded.source,
            progress=progress,
        )


def _task(options: argparse.Namespace) -> str:
    prompts = getattr(options, "prompts", None)  # of `tune` a number: how many
    return prompts if isinstance(prompts, str) else str(options.task)


def _command(options: argparse.Namespace) -> str:
    """How to run the same again."""
    said = {*Run.kinds(), "problems", "preset", "budget", "states", "samples"}
    said |= {f"{kind}_{name}" for kind in ("lm", "rm") for name in _OF_EACH}
    given = [(k.replace("_", "-"), v) for k, v in vars(options).items() if k in said]
    flags = [f"--{name} {value}" for name, value in given if value not in (None, 0)]
    flags += ["--data PATH"] if options.data is not None else []
    names = {_evaluate: "evaluate --task", _train_rm: "train-rm --task"}
    name = names.get(options.command, "run --prompts")
    return f"qalign {name} {' '.join([_task(options), *flags])} --out FOLDER"


def _say_notes(models: Models) -> None:
    for note in getattr(models[0], "notes", ()):
        print(note, file=sys.stderr)


_HEAD = "chain   t    i/|y|   reward  change    ratio    alpha        u  verdict   answer"


def _row(step: Step, extract: AnswerExtractor | None) -> str:
    """One line for a step: index, reward and its change, length ratio, alpha, u, verdict."""
    old, new = step.current, step.proposal
    answer = extract(new.response.text) if extract else None
    return (
        f"{step.chain:5} {step.t:3} {step.index:4}/{len(old.response):<4}"
        f"{new.reward:8.2f} {new.reward - old.reward:+7.2f}"
        f" {len(old.response):4}/{len(new.response):<4}"
        f" {math.exp(step.log_alpha):#8.3g} {math.exp(step.log_u):#8.3g}"
        f"  {'accepted' if step.accepted else 'rejected'}  {answer or '-'}"
    )


def _said(problem: Problem, trace: Trace) -> str:
    """What the chains came to, in words."""
    answer, rate = answer_of(problem, trace), acceptance(trace.steps).overall.value
    said = "" if rate is None else f"\nacceptance {rate:.0%} of all proposals"
    if answer.accepted is not None:
        said += f", {answer.accepted:.0%} of those that differ from the state"
    if problem.extract is None:
        return f"{said}\nminimum Bayes risk over {answer.n_states} states:\n{answer.text}"
    share = f"{answer.share:.0%} of {answer.n_states} states"
    right = "" if answer.reference is None else f"; right is {answer.reference}"
    return f"{said}\nanswer {answer.answer or '(none)'}, {share}{right}"


async def _compare(options: argparse.Namespace) -> None:
    run = _run_of(options)
    if options.budget == "flops":
        run = run.with_changes(matched="pool")
    else:  # as many samples as states
        run = run.with_changes(pool=min(run.pool, run.chains * (run.steps + 1)))
    models = _models(options)
    with tqdm(total=run.chains * (run.steps + 1), unit="step") as bar:
        trace = await _drawn(
            models, run, options.out, lambda drawn: bar.update(isinstance(drawn, Step))
        )
    comparison, unit = Comparison(trace), trace.header.meter.unit
    print(f"{run.prompt}\n")
    print(f"{'method':8}{'answer':>8}{'':8}{'samples':>8}{'tokens':>9}{unit:>18}")
    for outcome in outcomes(comparison, full_cut(comparison, options.budget)):
        right = {True: "right", False: "wrong", None: ""}[outcome.correct]
        answer = outcome.decision.answer or "-"
        print(
            f"{outcome.method:8}{answer:>8} {right:7}{outcome.n:8}{outcome.cost.generated:9,}"
            f"{outcome.spent:18,}"
        )


async def _evaluate(options: argparse.Namespace) -> None:
    _take_settings(options, task_of(options.task, options.preset or ""))
    check_count("--budget", options.budget, 1)
    check_count("--states", options.states, 0)
    if options.plan:
        _print_plan(options)
        return
    if options.out is None:
        raise InvalidSetting("evaluate needs --out FOLDER, where the traces go")
    loaded = _set(options, options.task)
    problems = loaded.problems
    _check_gradable(problems)
    models = _models(options)
    # enough for any pool: each step costs at least one token, a sample at most all of them
    enough = min(options.budget * models[0].max_new_tokens, MAX_STEPS)
    steps = options.states - 1 if options.states else enough
    run = Run.read({"prompt": "-", **_given(options), "pool": options.budget, "steps": steps})
    run = run.with_changes(matched="chain")
    bar = tqdm(total=len(problems), unit="problem")
    await _fill(options, models, run, loaded, bar)
    results = results_in(options.out)
    if options.pack:
        pack(results, options.pack)
    points, unit = curves(results), results.header.meter.unit
    largest = max(p.n for p in points)
    changed = acceptance_of(results.records).changed.value
    print(f"{len(results.records)} problems, {results.n_missing} not done yet")
    if results.header.open_ended:
        print("open-ended: qalign, mv and wmv are minimum Bayes risk with ROUGE-1")
    if changed is not None:
        print(f"acceptance {changed:.0%} of proposals that differ from the state")
    print(f"{'method':8}{'n':>7}{'tokens':>9}{unit:>10}  accuracy")
    for p in (p for p in points if p.n == largest):
        print(
            f"{p.method:8}{p.used:7.0f}{p.tokens:9,.0f}{p.spent:10.2e}"
            f"  {p.value:.3f} [{p.low:.3f}, {p.high:.3f}]"
        )


async def _train_rm(options: argparse.Namespace) -> None:
    paper = task_of(options.task) and task_of(options.task, "paper")
    if paper is not None and options.recipe == "paper":  # drawn as its evaluations are
        for name in ("lm", "temperature", "max_new_tokens"):
            if getattr(options, name) is None:
                setattr(options, name, paper.settings[name])
    check_count("--samples", options.samples, 2)
    given = {
        each.name: value
        for each in fields(Recipe)
        if (value := getattr(options, f"recipe_{each.name}", None)) is not None
    }
    run = Run.read({"prompt": "-", **_given(options), "pool": options.samples})
    recipe = replace(RECIPES[options.recipe], **given, seed=run.seed).check()
    if options.plan:
        _print_plan(options, recipe)
        return
    if options.out is None:
        raise InvalidSetting("train-rm needs --out FOLDER, where draws and model go")
    if not options.only_draw:
        check_installed()
    base = base_of(run.lm, options.base)
    loaded = _set(options, options.task)
    _check_gradable(loaded.problems)
    models = _models(options, Grade(loaded.problems))
    bar = tqdm(total=len(loaded.problems) * (run.steps + 1 + run.pool), unit="draw")
    await _fill(options, models, run, loaded, bar, options.out / SAMPLES)
    if options.only_draw:
        return
    unload(models[0].id)  # its memory is the trainer's now
    report = await learn(
        loaded.problems,
        options.out,
        Kinds(options.each, options.suffix_pairs, options.solutions, options.changed_numbers),
        recipe,
        base=base,
        max_length=options.max_length,
        device=options.device,
        told=lambda said: print(said, file=sys.stderr),
    )
    trained = report["training"]
    print(f"{report['pairs']} pairs of {report['learned_from']} problems")
    print(
        f"{trained['steps']} steps, {trained['seconds']:,.0f} s, {trained['memory']:.1f} GB on "
        f"{trained['device']}; loss {trained['loss']:.3f}"
    )
    for name, of in (("pair", "pairs of samples"), ("near_miss", "near misses")):
        found = report[name]
        said = "nothing to measure on"
        if found["value"] is not None:
            said = f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
        print(f"held-out {of}: {said}, {found['pairs']} of {found['problems']} problems")
    print(f"--rm {options.out}")


def _print_plan(options: argparse.Namespace, recipe: Recipe | None = None) -> None:
    """What an evaluation, or a training, would take; no model is loaded, no hub is asked."""
    run = Run.read({"prompt": "-", **_given(options)})
    lm, rm = facts_of("lm", run.lm), () if recipe else facts_of("rm", run.rm)
    task = _paper_task(options, options.task)
    if task is None or options.data is not None:
        problems = _set(options, options.task).problems
        n = len(problems)
        prompt = sum(len(problem.prompt) for problem in problems) / (4 * n)
    else:
        n = min(task.n_problems, options.problems or task.n_problems)
        prompt = task.table["prompt_tokens"]
    limit = run.max_new_tokens
    if "max_new_tokens" not in _given(options) and lm[0].sampling is not None:
        limit = lm[0].sampling.max_new_tokens
    if options.response_tokens is not None:
        check_count("--response-tokens", options.response_tokens, 1)
    plan = Plan(
        n,
        options.samples if recipe else options.budget,
        run.steps + 1 if recipe else options.states,
        options.response_tokens or max(1, limit // 2),
        prompt,
        parameters_in(lm),
        parameters_in(rm),
        at_once=options.at_once,
    )
    print(
        f"nothing is loaded or drawn: what this {'training' if recipe else 'evaluation'} would take"
    )
    if task is not None:
        print(f"set      {task.table['title']}, licence {task.table['licence']}")
    for kind, models in (("lm", lm), ("rm", rm)):
        for each in models:
            gated = ", its licence has to be accepted on the hub first" if each.gated else ""
            size = f"{each.parameters:,.1f} million parameters" if each.parameters else "no network"
            print(f"{kind}       {each.source}: {size}, licence {each.licence or 'unknown'}{gated}")
    states = f"{plan.states:,} states" if plan.states else "as many states as cost the same"
    source = "--response-tokens" if options.response_tokens else "assumed: half of the limit"
    print(f"draws    {n:,} problems, each {plan.samples:,} samples and a chain of {states}")
    print(f"         {plan.response:,.0f} tokens a response ({source}), {prompt:,.0f} a prompt")
    for name, cost in (("chains", plan.chain), ("samples", plan.pool)):
        print(f"{name:8} {cost.generated:,} tokens, {plan.flops[name]:.2e} FLOPs")
    learning = None
    if recipe is not None:
        pairs = n * options.each * (1 + options.suffix_pairs + options.changed_numbers)
        learning = TrainingPlan(plan, pairs, recipe.epochs, recipe.lora > 0)
        print(
            f"training at most {pairs:,} pairs, {learning.tokens:,} tokens, "
            f"{learning.flops:.2e} FLOPs, {learning.memory:.1f} GB beside what is computed"
        )
        print(f"weights  {plan.weights:.1f} GB in bf16 for the draws")
    else:
        total, anew = (sum(each.flops.values()) for each in (plan, plan.anew()))
        print(
            f"together {total:.2e} FLOPs; {anew:.2e} with a reward model that reads every text anew"
        )
        print(f"weights  {plan.weights:.1f} GB in bf16, on the disk and in memory")
    print(f"traces   about {plan.traces:.1f} GB")
    print(f"at least, at {SHARE:.0%} of the peak or {BANDWIDTH_SHARE:.0%} of the bandwidth:")
    for name, gpu in hardware().items():
        if learning is not None:
            tight = "" if learning.memory < 0.9 * gpu["memory"] else "; too large for one"
            print(f"  {name:10}{plan.hours(gpu) + learning.hours(gpu):8.1f} h on one{tight}")
            continue
        hours = f"{plan.hours(gpu):8.1f} h on one, {plan.hours(gpu, 8):8.1f} h on eight"
        tight = "" if plan.weights < 0.9 * gpu["memory"] else "; too large for one"
        print(f"  {name:10}{hours}{tight}")


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
    options.budget = 256 if options.budget is None else options.budget
    options.states = options.states or 0


def _check_gradable(problems: Sequence[Problem]) -> None:
    """Refuse a set of which nothing, or not the same thing, says what is right."""
    for problem in problems:
        if problem.instructions is not None:  # what cannot be checked is said before the first draw
            problem.instructions.followed("")
        elif problem.answer is None and problem.writing is None:
            raise InvalidTask(
                f"problem {problem.id!r} has neither an answer to compare with nor constraints to "
                "check; one of them is needed"
            )
    if len({problem.extractor is None for problem in problems}) > 1:
        raise InvalidTask(
            "some problems are open-ended and some are not; put them in two files and evaluate each"
        )


async def _report(options: argparse.Namespace) -> None:
    places: dict[str, Path] = {}
    for path in options.paths:
        name = path.name if path.is_dir() else path.stem
        places[name if name not in places else str(path)] = path
    sets = {name: load_results(path) for name, path in places.items()}
    made = Report(sets, {name: path for name, path in places.items() if path.is_dir()})
    forms: tuple[tuple[Path | None, Callable[[Report], str]], ...] = (
        (options.csv, to_csv),
        (options.latex, to_latex),
        (options.html, lambda report: to_html(report, tuning=options.tuning)),
    )
    for path, form in forms:
        if path is not None:
            with on_disk(path, "written", "give the path of a new file", InvalidSetting):
                path.write_bytes(form(made).encode(errors="replace"))
    if options.json:
        print(json.dumps(made.json(), allow_nan=False))
        return
    for group in made.groups:
        for name, points in group.lines:
            print(f"{name}\n  {'method':11}{'n':>6}{'FLOPs':>10}  accuracy, %")
            for p in points:
                print(f"  {p.method:11}{_at(p, group.flops)}  {_percent(p, '.1f')}")
            print("  difference, points, paired over problems")
            for d in differences(points):
                at = _at(d, group.flops)
                print(f"  {f'{d.a} - {d.b}':21}{at}  {_percent(d, '+.1f')}  {d.verdict}")


def _at(found: Point | Difference, flops: bool) -> str:
    return f"{found.n:6}" + (f"{found.spent:10.2e}" if flops else f"{'-':>10}")


def _percent(found: Point | Difference, form: str) -> str:
    value, low, high = (format(100 * x, form) for x in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


async def _tune(options: argparse.Namespace) -> None:
    said = {"prompt": "-", **_given(options)}
    given, *others = [Run.read({**said, "alpha": alpha}) for alpha in options.alphas]
    if options.prompt is not None:
        problems = [Problem("prompt", options.prompt, given.reference, given.extractor)]
    else:
        check_count("--prompts", options.prompts, 1)
        # from the end: an evaluation of the first problems is not tuned on them
        problems = [*_set(options, options.task).problems[-options.prompts :]]
    models = _models(options)
    print(f"tuning on {len(problems)} prompts, {given.steps} proposals each", file=sys.stderr)
    how: Any = {name: getattr(options, name) for name in ("target", "start")}
    how |= {"steps": given.steps, "seed": given.seed}
    meter = header_of(*models, given).meter
    if others:
        alphas = [run.alpha for run in (given, *others)]
        tried = await tune_alpha(*models, problems, alphas, **how)
        spent = _print_alphas(tried)
    else:
        prompts = [each.prompt for each in problems]
        tuned = await tune_beta(*models, prompts, alpha=given.alpha, **how)
        spent = tuned.cost
        _print_beta(tuned)
    print(f"cost {meter.price(spent):.3g} {meter.unit}, the prompts not counted")


def _print_beta(tuned: Tuned) -> None:
    print(f"beta {tuned.beta:.3g}, 95% band {tuned.low:.3g} to {tuned.high:.3g}")
    print(
        f"acceptance {tuned.acceptance:.0%} of proposals that differ from the state, "
        f"{tuned.overall:.0%} of all; rounds at {', '.join(f'{b:.3g}' for b in tuned.rounds)}"
    )


def _print_alphas(tried: Sequence[Sharpness]) -> Cost:
    """A line a sharpness, and the one that is right most often; the tokens spent on all."""
    right = {each.alpha: each.right for each in tried if each.right}
    for each in tried:
        beta = f"beta {each.tuned.beta:.3g}, " if each.tuned else ""
        said = f"right {_percent(each.right, '.1f')}" if each.right else "no beta accepts enough"
        print(f"alpha {each.alpha:g}: {beta}{said}")
    if right:
        best = max(right, key=lambda alpha: right[alpha].value)  # the least sharp among equals
        for alpha in right:
            if alpha != best:
                gap = _percent(difference(right[best], right[alpha]), "+.1f")
                print(f"alpha {best:g} - alpha {alpha:g}: {gap} points, paired")
        print(f"best: alpha {best:g}")
    return sum((each.cost for each in tried), Cost())


async def _export(options: argparse.Namespace) -> None:
    made = page(trace_text(options.trace), title=options.title, says=options.says)
    with on_disk(options.html, "written", "give the path of a new file", InvalidSetting):
        options.html.write_text(made, encoding="utf-8")
    print(f"{options.html}: {len(made.encode()):,} bytes")
