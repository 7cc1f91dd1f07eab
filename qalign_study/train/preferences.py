"""Preference pairs from a model's own responses, and how well a reward model orders them.

The paper's: of the samples of a prompt one right and one wrong. Its published code adds the set's
own solution to the right ones, and right responses with another number at the end to the wrong
ones; a chain compares neither, but a state and a proposal that share a beginning. All are read off
the traces of a folder (`folder`): samples in their pools, states and proposals in their chains.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from qalign_core.decide.answers.equality import same_answer
from qalign_core.decide.answers.numerals import whole_number
from qalign_core.errors import InvalidTask
from qalign_core.record.trace import Trace
from qalign_core.rewards.functions import FunctionReward
from qalign_study.measure.intervals import Measured, share_of
from qalign_study.sets.problem_sets import Problem

SOLUTION = "solution"
"""The field of a problem that has its worked solution."""
MOST = 8
"""Right, and wrong, samples of a problem that its pair accuracy is measured on."""

Render = Callable[[str, str], Sequence[int]]
"""From prompt and response to the ids that a reward model reads."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Which pairs are made; of every kind up to `each` a problem.

    Attributes:
        each: pairs of samples a problem.
        suffix: pairs too of a state and a proposal that share a beginning.
        solution: the set's own solution joins the right samples.
        number: pairs too of a right response and itself with its number changed.
    """

    each: int = 1
    suffix: bool = False
    solution: bool = False
    number: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Two responses to a prompt, of which one is right."""

    prompt: str
    better: str
    worse: str

    @property
    def texts(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The better and the worse response, each with the prompt."""
        return (self.prompt, self.better), (self.prompt, self.worse)


@dataclass(frozen=True, slots=True)
class GradedTexts:
    """The texts that were drawn for a problem, sorted by kind.

    Attributes:
        problem: the problem.
        right, wrong: distinct texts of samples.
        near: (right, wrong) of states and proposals that share a beginning, each pair once.
    """

    problem: Problem
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    near: tuple[tuple[str, str], ...]


class Grade(FunctionReward):
    """The set's own scorer as a reward: 1 for a right response, else 0.

    Under it a chain moves between right and wrong responses, which is where its near misses are.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        by_prompt = {problem.prompt: problem for problem in problems}
        super().__init__(lambda prompt, text: float(by_prompt[prompt].solved_by(text)), id="right")


def grade_trace(problem: Problem, trace: Trace) -> GradedTexts:
    """Tell the samples of a trace, and the states and proposals of its chains, apart."""
    texts = dict.fromkeys(sample.response.text for sample in trace.pool if sample.response.text)
    near: dict[tuple[str, str], None] = {}
    for step in trace.steps:
        old, new = step.current.response.text, step.proposal.response.text
        if step.index and (better := problem.solved_by(new)) != problem.solved_by(old):
            near[(new, old) if better else (old, new)] = None
    right = {text: problem.solved_by(text) for text in texts}
    return GradedTexts(
        problem,
        tuple(text for text in texts if right[text]),
        tuple(text for text in texts if not right[text]),
        tuple(near),
    )


def pairs_of(group: GradedTexts, kinds: Kinds, *, seed: int) -> Iterator[Pair]:
    """The pairs that a problem gives; the same seed gives the same ones."""
    rng = random.Random(f"pairs {seed} {group.problem.id}")
    right, prompt = list(group.right), group.problem.prompt
    if kinds.solution and (solution := group.problem.extra.get(SOLUTION)):
        right.append(str(solution))
    chosen = _some([*product(right, group.wrong)], kinds.each, rng)
    if kinds.suffix:
        chosen += _some(group.near, kinds.each, rng)
    if kinds.number:
        changed = ((text, other_number(group.problem, text, rng)) for text in group.right)
        chosen += _some([(text, other) for text, other in changed if other], kinds.each, rng)
    for better, worse in chosen:
        yield Pair(prompt, better, worse)


def _some(pairs: Sequence[tuple[str, str]], most: int, rng: random.Random) -> list[tuple[str, str]]:
    return rng.sample(pairs, min(most, len(pairs)))


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def other_number(problem: Problem, text: str, rng: random.Random) -> str | None:
    """A right response with another whole number where it says its own last; else None."""
    places = [
        match
        for match in _NUMBER.finditer(text)
        if problem.answer and same_answer(whole_number(match[0]), problem.answer)
    ]
    if not places or not problem.answer or not problem.answer.isdecimal():
        return None
    start, end = places[-1].span()
    other = abs(int(problem.answer) + rng.choice([-10, -2, -1, 1, 2, 10]))
    changed = f"{text[:start]}{other}{text[end:]}"
    return None if problem.solved_by(changed) else changed


def split(
    groups: Sequence[GradedTexts], share: float, *, seed: int, solutions: bool = False
) -> Sequence[list[GradedTexts]]:
    """The problems to learn from, and those that are held out: a share of them, at least one.

    With `solutions` a problem without a right sample is learned from too; accuracy is measured on
    the model's own samples alone.

    Raises:
        InvalidTask: fewer than two problems have a right and a wrong sample.
    """
    mixed = [group for group in groups if group.right and group.wrong]
    if len(mixed) < 2:
        none = sum(not group.right for group in groups)
        raise InvalidTask(
            f"{len(mixed)} of {len(groups)} problems have a right and a wrong sample, and two are "
            f"needed ({none} have no right one); give more --problems, more --samples, or a set "
            "that the model sometimes solves"
        )
    random.Random(f"held out {seed}").shuffle(mixed)
    n = max(1, round(share * len(mixed)))
    others = [g for g in groups if g.wrong and not g.right and SOLUTION in g.problem.extra]
    return [*mixed[n:], *(others if solutions else ())], mixed[:n]


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Pairs as ids, and what cutting them did.

    Attributes:
        pairs: better first.
        n_cut: pairs of which a conversation was cut.
        n_equal: pairs that the cut made equal, which are not among `pairs`.
    """

    pairs: tuple[tuple[Sequence[int], Sequence[int]], ...]
    n_cut: int
    n_equal: int


def encode_pairs(pairs: Sequence[Pair], render: Render, most: int) -> EncodedPairs:
    """Pairs as a reward model reads them, cut at the end to `most` ids.

    Raises:
        InvalidTask: none is left.
    """
    kept, n_cut, n_equal = [], 0, 0
    for pair in pairs:
        whole = [render(pair.prompt, text) for text in (pair.better, pair.worse)]
        n_cut += any(len(ids) > most for ids in whole)
        better, worse = (tuple(ids[:most]) for ids in whole)
        if better == worse:
            n_equal += 1
        else:
            kept.append((better, worse))
    if not kept:
        raise InvalidTask(
            f"all {len(pairs)} pairs are equal within the first {most:,} tokens; raise "
            "--max-length, so that tokens in which the two differ are read"
        )
    return EncodedPairs(tuple(kept), n_cut, n_equal)


def held_out_pairs(groups: Sequence[GradedTexts]) -> Mapping[str, list[list[Pair]]]:
    """The texts for measuring accuracy, per problem: samples and near misses."""
    kinds: dict[str, list[list[Pair]]] = {"pair": [], "near_miss": []}
    for group in groups:
        samples = product(group.right[:MOST], group.wrong[:MOST])
        for name, texts in (("pair", samples), ("near_miss", group.near)):
            kinds[name].append([Pair(group.problem.prompt, *each) for each in texts])
    return kinds


def in_order(problems: Iterable[Sequence[tuple[float, float]]]) -> Measured | None:
    """The share of pairs whose better response has the higher reward; a tie counts half.

    Averaged over the problems that have a pair; None if none has.

    Args:
        problems: the rewards of each problem's pairs, of the better response first.
    """
    shares = [fmean((a > b) + 0.5 * (a == b) for a, b in pairs) for pairs in problems if pairs]
    return share_of(shares) if shares else None
