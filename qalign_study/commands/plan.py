"""The cost of an evaluation or a training, before anything is loaded or drawn.

Tokens are counted as in docs/method.md ("Compute"): `n` independent samples are `n N` tokens, a
chain of `T` states `(T + 1) N / 2`, and a token costs two operations per parameter of each model
that processes it. The length of responses is unknown before a run, so the assumed `N` is printed.
"""

import argparse
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qalign_core.chain.cost import CostModel
from qalign_core.errors import InvalidSetting
from qalign_core.registry import Entry, entries
from qalign_core.rewards.names import reward_named
from qalign_core.types import Cost
from qalign_study.commands import shared
from qalign_study.sets.tasks import Task, hardware
from qalign_study.sheet.text import format_columns
from qalign_study.train.trainer import Recipe

SHARE = 0.3
"""The share of its peak that a GPU reaches on a batch of many responses; an assumption."""
BANDWIDTH_SHARE = 0.6
"""The share of the bandwidth reached when the weights are read, once per token of a chain."""
Row = tuple[str, str]
"""A line of the plan: what, and how much."""
_BYTES_A_PARAMETER = 2  # bf16
_BYTES_A_TOKEN, _BYTES_A_LINE = 16, 250  # of a trace, as shipped ones have them


@dataclass(frozen=True, slots=True)
class Plan:
    """An evaluation that was not run.

    Attributes:
        problems: how many.
        samples: independent ones a problem.
        states: of the chain; 0 where it may cost as much as the samples.
        response, prompt: mean lengths, tokens.
        meter: the sizes of the models.
        at_once: problems side by side on a GPU.
        reads_on: whether the RM continues from a kept prefix; a served one reads the whole text.
    """

    problems: int
    samples: int
    states: int
    response: float
    prompt: float
    meter: CostModel
    at_once: int
    reads_on: bool = True

    @property
    def pool(self) -> Cost:
        """Tokens of the samples, over all problems."""
        return self._cost(self.samples, self.samples * self.response)

    @property
    def chain(self) -> Cost:
        """Tokens of the chains, over all problems."""
        if not self.states:
            return self.pool
        return self._cost(self.states, (self.states + 1) * self.response / 2)

    def _cost(self, n: int, generated: float) -> Cost:
        scored = generated if self.reads_on else n * (self.prompt + self.response)
        return Cost(round(self.problems * generated), round(self.problems * scored))

    @property
    def flops(self) -> Mapping[str, int]:
        """Count the FLOPs of the chains, of the samples, and of reading every prompt once."""
        read = round(self.problems * self.prompt)
        return {
            "chains": self.meter.price(self.chain),
            "samples": self.meter.price(self.pool),
            "prompts": self.meter.prompt_price(read, read if self.reads_on else 0),
        }

    def hours(self, gpu: Mapping[str, float], n: int = 1) -> float:
        """At least so long on `n` GPUs, each with both models: computing, or waiting for weights.

        A chain's tokens come one after the other, and each waits for the weights to be read; with
        few problems a GPU that is the longer of the two.
        """
        computing = _hours_of(sum(self.flops.values()), gpu) / n
        rounds = math.ceil(self.problems / (n * self.at_once))
        in_a_row = rounds * self.chain.generated / max(self.problems, 1)
        weights = self.meter.lm_parameters * _BYTES_A_PARAMETER / (gpu["bandwidth"] * 1e9)
        return max(computing, in_a_row * weights / BANDWIDTH_SHARE / 3600)

    @property
    def weights(self) -> float:
        """GB of the two models, on the disk and in memory."""
        return (self.meter.lm_parameters + self.meter.rm_parameters) * _BYTES_A_PARAMETER / 1e9

    @property
    def traces(self) -> float:
        """GB of the folder, about."""
        lines = self.samples + (self.states or 2 * self.samples)
        tokens = self.pool.generated + self.chain.generated
        return (self.problems * lines * _BYTES_A_LINE + tokens * _BYTES_A_TOKEN) / 1e9


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A reward model that was not trained, of the language model's size.

    Attributes:
        draws: what is drawn for it.
        pairs: of responses, at most.
        recipe: how they are learned from.
    """

    draws: Plan
    pairs: int
    recipe: Recipe

    @property
    def tokens(self) -> int:
        """Tokens that are learned from, both responses of every pair with its prompt."""
        return round(
            2 * self.pairs * self.recipe.epochs * (self.draws.prompt + self.draws.response)
        )

    @property
    def flops(self) -> int:
        """Two operations a parameter forward, two back to the layer before, two to the weights."""
        return (4 if self.recipe.lora else 6) * self.draws.meter.lm_parameters * self.tokens

    @property
    def memory(self) -> float:
        """GB of the weights in float32, and unless LoRA of gradients and AdamW's two moments."""
        return (4 if self.recipe.lora else 16) * self.draws.meter.lm_parameters / 1e9

    def hours(self, gpu: Mapping[str, float]) -> float:
        """At least so long on one GPU."""
        return _hours_of(self.flops, gpu)


def _hours_of(flops: float, gpu: Mapping[str, float]) -> float:
    """Estimate how long one GPU computes."""
    return flops / (gpu["tflops"] * 1e12 * SHARE) / 3600


def facts_of(kind: str, name: str, size: float = 0) -> tuple[Entry, ...]:
    """The registry's facts of a model or of each part of a sum; nothing is loaded.

    A size that the registry does not have is read from the files of a folder, or else is `size`, in
    millions of parameters.

    Raises:
        InvalidSetting: the size of one is unknown.
    """
    parts = {name: "model"}
    if kind == "rm":
        named = reward_named(name)
        parts = {part.text: part.kind for part in named.members or (named,)}
    facts = []
    for each, what in parts.items():
        known = [e for (k, id), e in entries().items() if k == kind and each in (id, e.source)]
        one = known[0] if known else Entry(each, kind, each, each)
        if not (one.parameters or one.reads_text or what == "code"):
            one = replace(one, parameters=_stored(one.location) or size)
            if not one.parameters:
                raise InvalidSetting(f"the size of {each} is unknown until it is loaded; give it "
                                     "in millions of parameters with --parameters")  # fmt: skip
        facts.append(one)
    return tuple(facts)


def _stored(location: str) -> float:
    """Return the parameters in local files, in millions; 0 for any other source."""
    if not os.path.exists(location):
        return 0.0
    from qalign_core.models.loading import n_stored  # slow to import

    return n_stored(Path(location)) / 1e6


def parameters_in(models: tuple[Entry, ...]) -> int:
    """Parameters of models, together."""
    return round(sum(model.parameters for model in models) * 1e6)


def plan_options(parser: argparse.ArgumentParser) -> None:
    """`--plan`, and what it has to be told."""
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only print models, tokens, FLOPs, hours on named GPUs, and disk space",
    )
    length = "mean length for --plan (half of the limit)"
    parser.add_argument("--response-tokens", type=int, help=length)
    size = "for --plan, millions of parameters of each model whose size is unknown"
    parser.add_argument("--parameters", type=int, help=size)


def print_plan(options: argparse.Namespace, recipe: Recipe | None = None) -> None:
    """The cost of an evaluation or a training; no model is loaded and no hub is contacted."""
    run = shared.settings_of(options)
    lm = facts_of("lm", run.lm, options.parameters or 0)
    if recipe is None and options.rm is None and run.lm != run.rm:
        raise InvalidSetting(
            f"the plan for {run.lm} needs its reward model; give --rm ({run.rm} is the small one "
            "that is included)"
        )
    rm = () if recipe else facts_of("rm", run.rm, options.parameters or 0)
    task = shared.paper_task(options)
    plan = _plan_of(options, lm, rm, task, is_training=recipe is not None)
    learning, what = None, "evaluation"
    if recipe is not None:
        kinds, what = 1 + options.suffix_pairs + options.changed_numbers, "training"
        learning = TrainingPlan(plan, plan.problems * options.each * kinds, recipe)
    print(f"nothing is loaded or drawn; estimates for this {what}:")
    rows: list[Row] = []
    if task is not None:
        rows.append(("set", f"{task.table['title']}, license {task.table['licence']}"))
    rows += [(kind, _describe(each)) for kind, of in (("lm", lm), ("rm", rm)) for each in of]
    rows += _draw_rows(plan, is_assumed=not options.response_tokens)
    rows.append(_total_row(plan) if learning is None else _training_row(learning))
    place = "on the disk and in memory" if learning is None else "for the draws"
    rows.append(("weights", f"{_size(plan.weights)} in bf16, {place}"))
    rows.append(("traces", f"about {_size(plan.traces)}"))
    print(format_columns((), rows))
    print(f"at least, at {SHARE:.0%} of the peak or {BANDWIDTH_SHARE:.0%} of the bandwidth:")
    gpus = [(name, _on_gpu(plan, learning, gpu)) for name, gpu in hardware().items()]
    print(format_columns((), gpus, indent=2))


def _plan_of(
    options: argparse.Namespace,
    lm: tuple[Entry, ...],
    rm: tuple[Entry, ...],
    task: Task | None,
    *,
    is_training: bool,
) -> Plan:
    run = shared.settings_of(options)
    if task is None or options.data is not None:
        problems = shared.load_set(options, options.problems).problems
        n = len(problems)
        prompt = sum(len(problem.prompt) for problem in problems) / (4 * n)
    else:
        n = min(task.n_problems, options.problems or task.n_problems)
        prompt = task.table["prompt_tokens"]
    limit = run.max_new_tokens
    if "max_new_tokens" not in shared.read_settings(options) and lm[0].sampling is not None:
        limit = lm[0].sampling.max_new_tokens
    if (options.response_tokens or 1) > limit:
        raise InvalidSetting(
            f"--response-tokens {options.response_tokens:,}: a response has at most {limit:,} "
            "tokens; give fewer, or more with --max-new-tokens"
        )
    if is_training:
        samples, states = options.samples, run.steps + 1
    else:
        samples, states = options.budget, options.states
    response = options.response_tokens or max(1, limit // 2)
    meter = CostModel(parameters_in(lm), parameters_in(rm))
    return Plan(n, samples, states, response, prompt, meter, options.at_once)


def _describe(model: Entry) -> str:
    gated = ", its license must be accepted on the hub first" if model.gated else ""
    size = f"{model.parameters:,.1f} million parameters" if model.parameters else "no network"
    return f"{model.source}: {size}, license {model.licence or 'unknown'}{gated}"


def _draw_rows(plan: Plan, *, is_assumed: bool) -> list[Row]:
    """Return what is drawn per problem, and the tokens of chains and samples in all."""
    states = f"{plan.states:,} states" if plan.states else "as many states as cost the same"
    source = "assumed: half of the limit" if is_assumed else "--response-tokens"
    per_response = f"{plan.response:,.0f} tokens per response ({source})"
    return [
        (
            "draws",
            f"{plan.problems:,} problems, each {plan.samples:,} samples and a chain of {states}",
        ),
        ("", f"{per_response}, {plan.prompt:,.0f} per prompt"),
        *(
            (name, f"{cost.generated:,} tokens, {plan.flops[name]:.2e} FLOPs")
            for name, cost in (("chains", plan.chain), ("samples", plan.pool))
        ),
    ]


def _training_row(plan: TrainingPlan) -> Row:
    cost = f"{plan.tokens:,} tokens, {plan.flops:.2e} FLOPs"
    memory = f"{plan.memory:.1f} GB plus activations"
    return "training", f"at most {plan.pairs:,} pairs, {cost}, {memory}"


def _total_row(plan: Plan) -> Row:
    """Return the FLOPs of an evaluation, also with a reward model that reads every whole text."""
    anew = replace(plan, reads_on=False)
    total, whole_texts = (sum(each.flops.values()) for each in (plan, anew))
    whole = f"{whole_texts:.2e} if the reward model reads every text in full"
    return "together", f"{total:.2e} FLOPs; {whole}"


def _on_gpu(plan: Plan, learning: TrainingPlan | None, gpu: Mapping[str, float]) -> str:
    needed = max(plan.weights, learning.memory if learning else 0.0)
    if needed > 0.9 * gpu["memory"]:
        return f"too small: {needed:.1f} GB do not fit {gpu['memory']:g} GB"
    if learning is None:
        return f"{_time(plan.hours(gpu))} on one, {_time(plan.hours(gpu, 8))} on eight"
    return f"{_time(plan.hours(gpu) + learning.hours(gpu))} on one"


def _size(gb: float) -> str:
    return f"{gb:.1f} GB" if gb >= 1 else f"{math.ceil(1000 * gb)} MB"


def _time(hours: float) -> str:
    """Hours, or minutes below one hour."""
    minutes = math.ceil(60 * hours)
    return f"{hours:,.1f} h" if minutes >= 60 else f"{minutes} min"
