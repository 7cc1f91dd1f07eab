"""The core's numbers for the texts and checks of a lesson, at the place of each stop.

The public methods of a page's class are its facts. The text after a colon in a lesson
(`alpha:2`) is a fact's argument; a share of one is a `Share`, which is shown in percent.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, takewhile
from pathlib import Path
from statistics import fmean

from qalign_core.assets import ASSETS
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.decide.answers.graders import get_grader
from qalign_core.decide.methods import (
    Decision,
    best_of_n,
    chain_states,
    effective_sample_size,
    importance_weights,
    majority_vote,
    weighted_majority_vote,
)
from qalign_core.decide.rules import RULES, best_reward, chain_vote, plain_vote
from qalign_core.record.store import load_trace
from qalign_core.record.trace import Trace
from qalign_core.target import Target, log_acceptance
from qalign_core.types import ScoredResponse
from qalign_study.exact.convergence import AtBeta, at_beta
from qalign_study.exact.mistakes import MISTAKES, SHARP_MISTAKES, Broken, broken
from qalign_study.exact.world import preset
from qalign_study.exact.wrong_reward import Example
from qalign_study.exact.wrong_reward import Outcome as Way
from qalign_study.exact.wrong_reward import outcomes as exact_outcomes
from qalign_study.export.dictionary import ideas
from qalign_study.measure.comparisons import Comparison, Outcome, full_cut, outcomes
from qalign_study.measure.diagnostics import acceptance, agreement, ess
from qalign_study.measure.differences import level_n, paired
from qalign_study.measure.intervals import Difference
from qalign_study.sheet.convergence import trust
from qalign_study.sheet.evaluated import FOLDER, summarise
from qalign_study.sheet.recorded_points import recorded_points
from qalign_study.sheet.words import gap, number, percent

RUNS = {path.stem: path for path in sorted((ASSETS / "runs").glob("*.jsonl"))}
"""The files of recorded runs by name; an operator's own are added to those of the project."""
LEARNERS: dict[str, Trace] = {}
"""The runs of learners by name, while they are graded."""


class Share(float):
    """A share of one."""


class Reward(float):
    """The reward of a text on Watch, which shows two decimals."""


class Tied(str):
    """One of several values that are equally right, such as the better of two equal texts."""

    __slots__ = ()


Value = Share | Reward | float | int | str


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a stop: a page and its state.

    Attributes:
        page: watch, compare, lab or results.
        run: a recorded run's name, a key of `RUNS`.
        step, phase, chain: the player's position in it.
        tab: which of the player's tabs is open; "" for none.
        lab: names (without "lab-") and values of the Lab's controls that a lesson sets.
        set: the problem set that Results shows.
    """

    page: str
    run: str = "watch"
    step: int = 0
    phase: int = 5
    chain: int = 0
    tab: str = ""
    lab: tuple[tuple[str, str], ...] = ()
    set: str = "in_distribution"

    def problem(self) -> str:
        """Return why the place cannot be shown, in a few words; "" if it can."""
        if self.page == "watch":
            if self.run not in RUNS:
                return f"there is no recorded run {self.run!r}; choose from {', '.join(RUNS)}"
            last = run_of(self.run).header.run.steps
            if self.chain not in run_of(self.run).chains:
                return f"'chain' is {self.chain}; this run has {len(run_of(self.run).chains)}"
            if not 0 <= self.step <= last:
                return f"'step' is {self.step}; this run has steps 0 to {last}"
        if self.page == "results" and not (FOLDER / f"{self.set}.zip").is_file():
            names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.zip")))
            return f"there are no results {self.set!r}; choose from {names}"
        return ""


def value_of(fact: str, place: Place) -> Value:
    """Return the value of a fact.

    Args:
        fact: its name, with its argument after a colon if it takes one.
        place: the place that it describes.
    """
    name, colon, argument = fact.partition(":")
    method = getattr(FACTS[place.page](place), name)
    value: Value = method(argument) if colon else method()
    return value


def format_value(value: Value) -> str:
    """Format the value of a fact for people."""
    if isinstance(value, Share):
        return percent(value)
    if isinstance(value, Reward):
        return f"{value:.2f}".replace("-", "−")
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value)


def facts_of(page: str) -> list[str]:
    """Return the names of a page's facts."""
    return [name for name in vars(FACTS[page]) if not name.startswith("_")]


def run_of(name: str) -> Trace:
    """Return a recorded run by its name.

    Raises:
        InvalidTrace: its file is not a trace.
    """
    return LEARNERS[name] if name in LEARNERS else _read_run(RUNS[name])


@cache
def _read_run(path: Path) -> Trace:
    return load_trace(path)


SAMPLES = 64
"""Samples of the model alone that the lessons speak of: so many decided which run is shown."""


def _winner(vote: Decision) -> str:
    """Return the answer of a vote; `Tied` if another one has as many votes."""
    (_, most), *others = vote.shares or (("", 0.0),)
    is_tied = any(math.isclose(share, most, rel_tol=1e-9) for _, share in others)
    return Tied(vote.answer) if vote.answer and is_tied else vote.answer or "none"


class ChainFacts:
    """The facts of one chain of a recorded run, up to a step."""

    def __init__(self, place: Place) -> None:
        self._trace = run_of(place.run)
        self._beta = self._trace.header.run.beta
        self._steps = self._trace.chains[place.chain][: place.step + 1]
        self._step = self._steps[-1]
        self._read = get_grader(self._trace.header.run.extractor or "number").extract
        self._pool = self._trace.pool[:SAMPLES]
        self._base = [sample.reward for sample in self._pool]

    def _answer(self, of: ScoredResponse) -> str:
        return self._read(of.response.text) or "none"

    def _share(self, of: list[ScoredResponse], answer: str) -> Share:
        return Share(Counter(map(self._answer, of))[answer] / len(of))

    @property
    def _rewards(self) -> list[list[float]]:
        chains = self._trace.chains.values()
        return [[each.state.reward for each in steps[: len(self._steps)]] for steps in chains]

    def step(self) -> int:
        """Number of the step."""
        return self._step.t

    def steps(self) -> int:
        """Steps of the whole run."""
        return self._trace.header.run.steps

    def chain_says(self, chain: str) -> str:
        """The answer with most votes of one of several chains."""
        steps = self._trace.chains[int(chain)][: self.states()]
        return _winner(majority_vote(chain_states(steps), self._read))

    def states(self) -> int:
        """States that have voted."""
        return len(self._steps)

    def beta(self) -> float:
        """The run's beta."""
        return self._beta

    def right_answer(self) -> str:
        """The right answer."""
        return self._trace.header.run.reference or "unknown"

    def cut_chance(self) -> Share:
        """Probability of each place of the cut."""
        return Share(1 / self.length())

    def kept(self) -> int:
        """Tokens before the cut."""
        return self._step.index

    def length(self) -> int:
        """Tokens of the text before the step, which are its places for a cut."""
        return len(self._step.current.response)

    def new_length(self) -> int:
        """Tokens of the proposal."""
        return len(self._step.proposal.response)

    def reward(self) -> Reward:
        """Reward of the text before the step."""
        return Reward(self._step.current.reward)

    def new_reward(self) -> Reward:
        """Reward of the proposal."""
        return Reward(self._step.proposal.reward)

    def better(self) -> str:
        """Which text the reward model likes better: old or new."""
        if self.new_reward() == self.reward():
            return Tied("old")
        return "new" if self.new_reward() > self.reward() else "old"

    def reward_factor(self) -> float:
        """The factor of the rewards in the acceptance ratio: exp((r' - r) / beta)."""
        return math.exp((self.new_reward() - self.reward()) / self._beta)

    def alpha(self, times: str = "1") -> Share:
        """The acceptance probability of the proposal, at a multiple of beta."""
        log_alpha = log_acceptance(
            Target(self._beta * float(times)),
            new=self._step.proposal,
            old=self._step.current,
            log_correction=length_ratio(new=self.new_length(), old=self.length()),
        )
        return Share(math.exp(log_alpha))

    def probability(self, times: str = "1") -> float:
        """The acceptance probability as a number between 0 and 1, to compare with `u`."""
        return float(self.alpha(times))

    def u(self) -> float:
        """The uniform draw of the step."""
        return math.exp(self._step.log_u)

    def taken(self, times: str = "1") -> str:
        """Whether this draw accepts the proposal, at a multiple of beta: yes or no."""
        return "yes" if self.u() < self.alpha(times) else "no"

    def answer(self) -> str:
        """The answer of the text before the step."""
        return self._answer(self._step.current)

    def new_answer(self) -> str:
        """The answer of the proposal."""
        return self._answer(self._step.proposal)

    def state_answer(self) -> str:
        """The answer of the text after the step."""
        return self._answer(self._step.state)

    def counted(self) -> int:
        """How often the text has been counted when the step is over."""
        stays = takewhile(lambda s: not (s.accepted and s.changed), reversed(self._steps[1:]))
        return 1 + sum(1 for _ in stays)

    def since(self) -> int:
        """The step at which the chain reached the text that it has after this step."""
        return self.states() - self.counted()

    def leader(self) -> str:
        """The answer with most votes."""
        return _winner(majority_vote(chain_states(self._steps), self._read))

    def share(self, answer: str = "") -> Share:
        """Share of the votes of an answer, by default of the leader."""
        return self._share(chain_states(self._steps), answer or self.leader())

    def later_share(self, answer: str = "") -> Share:
        """Share of the votes of the later half of the states, by default of the leader."""
        states = chain_states(self._steps)
        return self._share(states[len(states) // 2 :], answer or self.leader())

    def votes(self, answer: str = "") -> int:
        """Votes of an answer, by default of the leader."""
        return round(self.share(answer) * self.states())

    def trust(self) -> str:
        """Whether the chains may be trusted so far, and what to do next."""
        verdict = trust(self._rewards)
        return f"{verdict.sentence} {verdict.next}"

    def mean_reward(self) -> float:
        """Mean reward of the states."""
        return fmean(self._rewards[0])

    def rate(self) -> Share:
        """Share of changed proposals that were accepted."""
        return Share(acceptance(self._steps).changed.value or 0.0)

    def tokens(self) -> int:
        """Tokens that the chain has written."""
        return sum(each.cost.generated for each in self._steps)

    def sample_tokens(self) -> int:
        """Tokens of the samples of the model alone."""
        return sum(each.cost.generated for each in self._pool)

    def worth(self) -> float:
        """Independent samples that the states are worth; 0 if that cannot be said."""
        return ess(self._rewards) or 0.0

    def rhat(self, chain: str = "") -> float:
        """Split R-hat of the rewards, of all chains or of one; infinite if it is undefined."""
        rhat = agreement([self._rewards[int(chain)]] if chain else self._rewards).rhat
        return math.inf if rhat is None else rhat

    def limit(self, chain: str = "") -> float:
        """The limit of split R-hat, for all chains or for one; infinite if it is undefined."""
        return agreement([self._rewards[int(chain)]] if chain else self._rewards).limit

    def rhat_order(self, chain: str) -> str:
        """How a chain's own R-hat compares with the other chains': lowest, between or highest."""
        own = [self.rhat(str(k)) for k in range(len(self._trace.chains))]
        mine = own[int(chain)]
        if own.count(mine) > 1 and mine in (min(own), max(own)):
            return Tied("lowest" if mine == min(own) else "highest")
        return "lowest" if mine == min(own) else "highest" if mine == max(own) else "between"

    def mixed(self) -> str:
        """Whether the halves, or the chains, agree: yes or no."""
        return "yes" if agreement(self._rewards).is_mixed else "no"

    def samples(self) -> int:
        """Samples of the model alone."""
        return len(self._base)

    def model_says(self, n: str = "") -> str:
        """The answer that the model alone gives most often, in all or in the first n samples."""
        pool = self._pool[: int(n)] if n else self._pool
        return _winner(majority_vote(pool, self._read))

    def rewarded(self, answer: str) -> float:
        """Mean reward of the model's own samples that give an answer."""
        return fmean(each.reward for each in self._pool if self._answer(each) == answer)

    def model_share(self, answer: str = "") -> Share:
        """Share of an answer among the model's own samples, by default the most frequent."""
        return self._share(list(self._pool), answer or self.model_says())

    def even_samples(self) -> int:
        """Samples of the model alone that cost no more tokens than the chain so far."""
        return len(self._even_pool())

    def even_share(self, answer: str) -> Share:
        """Share of an answer among the samples that cost no more tokens than the chain so far."""
        return self._share(self._even_pool(), answer)

    def _even_pool(self) -> list[ScoredResponse]:
        spent = accumulate(sample.cost.generated for sample in self._trace.pool)
        limit = sum(step.cost.generated for step in self._steps)
        return [sample for sample, n in zip(self._trace.pool, spent, strict=False) if n <= limit]

    def model_reward(self) -> float:
        """Mean reward of the model's own samples."""
        return fmean(self._base)

    def best_says(self) -> str:
        """The answer of best-of-n, from all the model's own samples."""
        best = best_of_n(self._pool, self._read).answer or "none"
        highest = (each for each in self._pool if each.reward == self.best_reward())
        return best if {self._answer(each) for each in highest} == {best} else Tied(best)

    def best_reward(self) -> float:
        """The highest reward among the model's own samples."""
        return max(self._base)

    def weighted_says(self) -> str:
        """The answer of the weighted vote of the model's own samples."""
        target = Target(self._beta)
        return _winner(weighted_majority_vote(self._pool, self._read, target=target))

    def weights_worth(self) -> float:
        """How many equally weighted samples the weighted vote rests on."""
        return effective_sample_size(importance_weights(self._base, Target(self._beta)))


class LabFacts:
    """The facts of the exact world that the Lab's controls describe."""

    def __init__(self, place: Place) -> None:
        self._settings = dict(place.lab)
        self.beta = float(self._settings.get("beta", 1))
        names = {"lm": "language_model", "reward": "reward"}
        world = preset(**{names[k]: v for k, v in self._settings.items() if k in names})
        self._world = replace(world, sharpness=float(self._settings.get("sharpness", 1)))

    def _at(self, beta: str) -> AtBeta:
        return at_beta(self._world, float(beta) if beta else self.beta)

    def _broken(self, title: str = "") -> Broken:
        mistake = self._settings.get("mistake", next(iter(MISTAKES)))
        return broken(self._world, self.beta, {**MISTAKES, **SHARP_MISTAKES}[title or mistake])

    def _way(self, rule: str, n: str | int) -> Way:
        mass, reward, beta = (
            float(self._settings.get(f"hack-{name}", first))
            for name, first in (("mass", 1), ("reward", 3), ("beta", 1))
        )
        ways = exact_outcomes(Example(mass / 100, reward, beta))
        return next(way for way in ways if way.method == rule and way.n == int(n))

    def rate(self, beta: str = "") -> Share:
        """Share of the proposals that the exact chain accepts."""
        return Share(self._at(beta).acceptance)

    def distance(self, beta: str = "") -> float:
        """How far the target is from the model: KL, nats."""
        return self._at(beta).kl

    def reward(self, beta: str = "") -> float:
        """Mean reward of the target, in standard deviations above the model's."""
        return self._at(beta).mean_reward

    def patience(self, beta: str = "") -> int:
        """Steps until the chain is within 1% of the target; 0 if it never is."""
        return self._at(beta).steps or 0

    def lost(self, mistake: str = "") -> float:
        """Distance from the target at which a broken rule ends: total variation."""
        return self._broken(mistake).distance

    def wrong_length(self) -> float:
        """Mean length under a broken rule."""
        return self._broken().mean_length[0]

    def right_length(self) -> float:
        """Mean length under the target."""
        return self._broken().mean_length[1]

    def wrong_reward(self) -> float:
        """Mean reward under a broken rule, in standard deviations."""
        return self._broken().mean_reward[0]

    def best_of_n(self, n: str) -> Share:
        """How often best-of-n is right where the reward can be hacked."""
        return Share(self._way(best_reward.id, n).accuracy)

    def majority(self, n: str) -> Share:
        """How often a majority vote of n samples is right there."""
        return Share(self._way(plain_vote.id, n).accuracy)

    def chain(self, n: str) -> Share:
        """How often a vote of n states of a chain is right there."""
        return Share(self._way(chain_vote.id, n).accuracy)

    def hack_reward(self, n: str) -> float:
        """Mean reward of what best-of-n chooses there."""
        return self._way(best_reward.id, n).proxy


@cache
def _compared() -> dict[str, Outcome]:
    comparison = Comparison(run_of("compare"))
    by_method = outcomes(comparison, full_cut(comparison))
    return {str(outcome.method): outcome for outcome in by_method}


class CompareFacts:
    """The facts of the recorded comparison, at the full budget.

    A method is the id of a deciding rule.
    """

    def __init__(self, place: Place) -> None:
        self._outcomes = _compared()

    def says(self, method: str) -> str:
        """The answer of a method."""
        return self._outcomes[method].decision.answer or "none"

    def right_answer(self) -> str:
        """The right answer."""
        return run_of("compare").header.run.reference or "unknown"

    def draws(self, method: str) -> int:
        """States or samples that a method decided from."""
        return self._outcomes[method].n

    def waiting(self, method: str) -> int:
        """Tokens that had to be drawn one after another."""
        return self._outcomes[method].sequential


class ResultFacts:
    """The facts of a problem set: the share that each method gets right."""

    def __init__(self, place: Place) -> None:
        path = FOLDER / f"{place.set}.zip"
        self._points = recorded_points(path) or summarise(path).points

    def _of(self, method: str) -> list[tuple[int, float]]:
        points = sorted(self._points, key=lambda point: point.n)
        return [(p.n, p.value) for p in points if p.method == method and p.n <= self.budget()]

    def budget(self) -> int:
        """Samples of the largest budget that every method has spent."""
        return level_n(self._points) or 0

    def right(self, method: str) -> Share:
        """At the largest budget that every method has spent."""
        return Share(self._of(method)[-1][1])

    def problems(self) -> int:
        """Problems of the set."""
        return len(self._points[0].each)

    def count(self, method: str) -> int:
        """Problems that a method gets right at the largest budget."""
        return sum(self._verdicts(method))

    def both(self, methods: str) -> int:
        """Problems that two methods both get right."""
        return self._cell(methods, (True, True))

    def only(self, methods: str) -> int:
        """Problems that only the first of two methods gets right."""
        return self._cell(methods, (True, False))

    def neither(self, methods: str) -> int:
        """Problems that none of two methods gets right."""
        return self._cell(methods, (False, False))

    def _verdicts(self, method: str) -> list[bool]:
        """Return for each problem whether a method is right, at the largest budget.

        Raises:
            ValueError: its values are averages over subsets of the samples.
        """
        each = next(p.each for p in self._points if (p.method, p.n) == (method, self.budget()))
        if not set(each) <= {0.0, 1.0}:
            raise ValueError(
                f"the values of {method!r} are averages over sets of samples, and counts need one "
                "decision per problem; name a method that decides from all samples"
            )
        return [value == 1 for value in each]

    def _cell(self, methods: str, verdicts: tuple[bool, bool]) -> int:
        first, second = map(self._verdicts, methods.split(","))
        return list(zip(first, second, strict=True)).count(verdicts)

    def _difference(self, methods: str) -> Difference:
        return paired(self._points, *methods.split(","))[-1]

    def more(self, methods: str) -> str:
        """What the first of two methods has more, in points, with its paired 95% interval."""
        return gap(self._difference(methods))

    def margin(self, methods: str) -> float:
        """Half of the width of that interval, in points."""
        difference = self._difference(methods)
        return 50 * (difference.high - difference.low)

    def verdict(self, methods: str) -> str:
        """The verdict on that difference: ahead, behind, equivalent or not significant."""
        return self._difference(methods).verdict

    def at_budget(self, methods: str) -> int:
        """Samples of the largest budget at which two methods cost the same."""
        return self._difference(methods).n

    def at_first(self, method: str) -> Share:
        """At the smallest budget."""
        return Share(self._of(method)[0][1])

    def at_best(self, method: str) -> Share:
        """At the budget that suits it best."""
        return Share(max(share for _, share in self._of(method)))

    def first(self) -> str:
        """The method that is right most often at the largest budget."""
        return max(RULES, key=self.right)

    def sentence(self, term: str) -> str:
        """The dictionary's sentence on a term."""
        return ideas()[term].sentence


FACTS: dict[str, type] = {
    "watch": ChainFacts,
    "lab": LabFacts,
    "compare": CompareFacts,
    "results": ResultFacts,
}
"""The class of each page."""
