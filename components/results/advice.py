"""Which method to use, by what one has: each clause says which of the shown results backs it."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from qalign_core.decide.rules import (
    RULES,
    best_reward,
    chain_vote,
    plain_vote,
    weighted_vote,
)
from qalign_study.export.dictionary import markup_of
from qalign_study.measure.curves import Curve, Point
from qalign_study.measure.differences import difference, pairs
from qalign_study.measure.intervals import Difference
from qalign_study.measure.record import generated
from qalign_study.measure.report import Evaluated
from qalign_study.sheet.words import (
    SURVIVE,
    brief,
    curve_name,
    few,
    in_a_sentence,
    in_points,
    percent,
    standing,
)

RARE = 1 / 300
"""Single samples that are right, below which a chain can be right more often than any rule over as
many samples as fit into the same compute; the Lab's model shows it."""
WITH_REWARD = "; with a good reward model the weighted vote is ahead of it on each of them"
LAB = "#lab-section-worth"
POINTS = "(percentage points, with 95% intervals, at the largest equal compute)"


COMMON, RANKS, AFFORD = QUESTIONS = (
    "Is at least 1 sample in 300 right?",
    "Does the reward rank nearly right answers above other wrong ones?",
    "How many samples can you afford?",
)
"""What decides which method to use."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What to use in a situation, and why.

    Attributes:
        situation: what somebody has.
        use: the method for it.
        because: the results behind it.
        replies: replies to `QUESTIONS` that lead here, by question.
        lab: a section of the Lab.
    """

    situation: str
    use: str
    because: str
    replies: Mapping[str, str]
    lab: str = ""


def clauses(sets: Mapping[str, Evaluated], poor: Mapping[str, Evaluated]) -> list[Clause]:
    """What follows from the results, by what one has.

    Args:
        sets: by their names in a sentence, those with the usual reward model.
        poor: those with a worse one.
    """
    bad = (clause for name, each in poor.items() for clause in _poor(name, each))
    return [*_wait(sets), *_little(sets), *_much(sets), *_none(sets), *bad, *_rare(sets)]


def advice_html(sets: Mapping[str, Evaluated], poor: Mapping[str, Evaluated]) -> str:
    """The questions with their replies, and the clauses with all numbers behind a fold."""
    advised = clauses(sets, poor)
    rows = "".join(
        f"<dt>{html.escape(each.situation)}</dt><dd><strong>{markup_of(each.use)}.</strong> "
        f"{markup_of(each.because)}{_link(each.lab)}</dd>"
        for each in advised
    )
    if not rows:
        return ""
    questions = "".join(_question(question, advised) for question in QUESTIONS)
    return (
        f'<ol class="qr-questions">{questions}</ol><details class="qr-numbers">'
        f'<summary>The numbers behind these answers</summary><dl class="qr-advice">{rows}</dl>'
        "</details>"
    )


def _question(question: str, advised: Sequence[Clause]) -> str:
    """A question, and for each reply what to use."""
    replies = "".join(
        f"<dt>{html.escape(each.replies[question])}</dt><dd>{markup_of(each.use)}</dd>"
        for each in advised
        if question in each.replies
    )
    return f"<li><h3>{html.escape(question)}</h3><dl>{replies}</dl></li>" if replies else ""


def _link(section: str) -> str:
    return f' <a href="{section}">See the Lab’s map.</a>' if section else ""


def at(points: Sequence[Point], method: Curve, n: int) -> Point | None:
    """A method's point at a budget."""
    return next((p for p in points if p.method == method and p.n == n), None)


def between(evaluated: Evaluated, a: Curve, b: Curve, n: int) -> Difference | None:
    """The paired difference of two methods at the largest equal compute up to that of n samples."""
    level = [pair for pair in pairs(evaluated.points, a, b) if pair[0].n <= n]
    return difference(*level[-1]) if level else None


def _on(name: str, gap: Difference) -> str:
    """A difference in points on a set, and the test where few problems are discordant."""
    exact = few(gap)
    return f"{in_points(gap, '+.1f')} on {name}{f' ({exact})' * bool(exact)}"


def waiting(evaluated: Evaluated) -> list[float]:
    """How many times as many tokens a chain writes in a row as the longest sample, per problem."""
    n, ratios = evaluated.level, []
    spent = at(evaluated.points, chain_vote.id, n)
    states = round(spent.used) if spent else 0
    for record in evaluated.results.records:
        longest = generated(record.pool_cost).max()
        ratios.append(float(generated(record.chain_cost)[:states].sum() / longest))
    return ratios


def _wait(sets: Mapping[str, Evaluated]) -> Iterator[Clause]:
    ratios = [ratio for evaluated in sets.values() for ratio in waiting(evaluated)]
    if not ratios:
        return
    yield Clause(
        "You need an answer soon",
        "A vote over samples",
        "Samples can be drawn in parallel; a proposal waits for the previous verdict. At equal "
        f"compute the chain writes {median(ratios):.0f} times as many tokens in a row as the "
        f"longest sample (median of {len(ratios):,} problems).",
        {AFFORD: "No time to wait for a chain"},
    )


def _little(sets: Mapping[str, Evaluated]) -> Iterator[Clause]:
    """How far best-of-n keeps up with the weighted vote."""
    limit = min((_keeps_up(evaluated) for evaluated in sets.values()), default=0)
    if not limit:
        return
    ends = [
        _on(name, d)
        for name, evaluated in sets.items()
        if (d := between(evaluated, best_reward.id, weighted_vote.id, evaluated.level)) is not None
        and d.verdict == "behind"
    ]
    later = (
        " With more samples it finds the reward model’s mistakes: best-of-n minus weighted vote is "
        f"{', '.join(ends)} {POINTS}."
        if ends
        else ""
    )
    yield Clause(
        "A few samples, a good reward model",
        "Best-of-n or the weighted vote",
        f"With up to {limit} sample{'s' * (limit > 1)} best-of-n is not significantly behind the "
        f"weighted vote on any of these sets, and it needs no extracted answers.{later}",
        {AFFORD: f"At most {limit}"},
    )


def _keeps_up(evaluated: Evaluated) -> int:
    """The largest n up to which best-of-n is nowhere behind the weighted vote."""
    limit = 0
    for n in sorted({p.n for p in evaluated.points}):
        d = between(evaluated, best_reward.id, weighted_vote.id, n)
        if d is not None and d.verdict == "behind":
            break
        limit = n
    return limit


def _much(sets: Mapping[str, Evaluated]) -> Iterator[Clause]:
    differences = {
        name: d
        for name, each in sets.items()
        if (one := at(each.points, "any", 1)) is not None
        and one.value >= RARE
        and (d := between(each, chain_vote.id, weighted_vote.id, each.level)) is not None
    }
    if not differences:
        return
    ahead = [name for name, d in differences.items() if d.verdict == "ahead"]
    listing = ", ".join(_on(name, d) for name, d in differences.items())
    yield Clause(
        "Many samples, a good reward model, right answers among them",
        "The weighted vote" if not ahead else f"QAlign on {', '.join(ahead)}",
        "The chain has the same target but takes longer. QAlign minus weighted vote "
        f"is {listing} {POINTS}.",
        {
            COMMON: "Yes",
            RANKS: "Yes, and at least 1 sample in 300 is right",
            AFFORD: "Many, with right ones among them",
        },
    )


def _none(sets: Mapping[str, Evaluated]) -> Iterator[Clause]:
    rates = [
        f"{percent(point.value)} of the {name}"
        for name, evaluated in sets.items()
        if (point := at(evaluated.points, plain_vote.id, evaluated.level)) is not None
    ]
    if not rates:
        return
    differences = [
        between(each, weighted_vote.id, plain_vote.id, each.level) for each in sets.values()
    ]
    better = all(d is not None and d.verdict == "ahead" for d in differences)
    yield Clause(
        "No reward model",
        "Majority vote",
        "It is the only rule here without a reward, so a sample costs less. With at most the "
        f"largest equal compute it is right on {', '.join(rates)}{WITH_REWARD * better}.",
        {RANKS: "There is no reward model"},
    )


def _poor(name: str, evaluated: Evaluated) -> Iterator[Clause]:
    """The clause on methods that are not behind the majority vote although the reward is poor."""
    n = evaluated.level
    of_samples = sorted(RULES, key=lambda id_: RULES[id_].draws == "chain")
    differences = {
        in_a_sentence(curve_name(method)): d
        for method in sorted(of_samples, key=lambda id_: not RULES[id_].aims)
        if method != plain_vote.id
        and (d := between(evaluated, method, plain_vote.id, n)) is not None
    }
    if not differences:
        return
    ahead = [title for title, d in differences.items() if d.verdict == "ahead"]
    level = [title for title, d in differences.items() if d.verdict not in ("ahead", "behind")]
    use = " or ".join(ahead or ["majority vote", *level])
    lost = [title for title, d in differences.items() if d.verdict == "behind"]
    listing = ", ".join(f"{brief(d)} for {title}" for title, d in differences.items())
    yield Clause(
        "A poor reward model",
        use[0].upper() + use[1:],
        f"On {name} the difference from majority vote, which uses no reward, is {listing} {POINTS}."
        + (f" In this case, avoid {' and '.join(lost)}." if lost else ""),
        {RANKS: "Poorly"},
    )


def _rare(sets: Mapping[str, Evaluated]) -> Iterator[Clause]:
    rates = {
        name: (one.value, evaluated.level, ceiling.value)
        for name, evaluated in sets.items()
        if (one := at(evaluated.points, "any", 1)) is not None
        and (ceiling := at(evaluated.points, "any", evaluated.level)) is not None
    }
    if not rates:
        return
    rare = {name: sets[name] for name, (one, _, _) in rates.items() if one < RARE}
    sentences = [
        f"on {name} QAlign {standing(d)} every choice among the samples, {brief(d)}"
        for name, evaluated in rare.items()
        if (d := between(evaluated, chain_vote.id, "any", evaluated.level)) is not None
    ]
    common = ", ".join(
        f"1 in {1 / one:.0f} on {name} ({percent(ceiling)} of the problems have one among {n})"
        for name, (one, n, ceiling) in rates.items()
        if name not in rare and one > 0
    )
    text = f"Shown here: {', '.join(sentences)} {POINTS}."
    seen = text if sentences else "No set here shows this."
    rest = f" Elsewhere, right samples are less rare: {common}." if common else ""
    yield Clause(
        "Right answers rarer than one in 300 samples, and a reward model that detects near misses",
        "QAlign",
        f"A vote can only choose among its samples. {SURVIVE}. {seen}{rest}",
        {
            COMMON: "No",
            RANKS: "Yes, and fewer are right",
            AFFORD: "Many, and still none is right",
        },
        LAB,
    )
