"""The sections of a report: its figures and tables as values, and what is said of them."""

import html
from collections.abc import Sequence
from functools import partial

import numpy as np

from qalign_core.decide.answers.graders import title_of
from qalign_core.decide.rules import RULES, chain_vote
from qalign_core.validation import is_file_name
from qalign_study.measure.cross_validated_beta import FACTORS, PARTS
from qalign_study.measure.diagnostics import acceptance_of
from qalign_study.measure.intervals import FEW
from qalign_study.measure.landmarks import Crossing, Turn, crossing, turn
from qalign_study.measure.report import Evaluated, Group, Report, Row, others
from qalign_study.measure.results import Results
from qalign_study.measure.subsets import MOST as MOST_SUBSETS
from qalign_study.measure.subsets import SHUFFLES, UNWEIGHTED
from qalign_study.sheet.figures import first, gains, mixtures, multiples, waits
from qalign_study.sheet.problems import COLUMNS, MOST, list_problems, opens
from qalign_study.sheet.values import Markup, Section, Table, tables, text
from qalign_study.sheet.words import (
    COMPUTE_NOTE,
    MARGIN,
    curve_name,
    gap,
    in_a_sentence,
    models_of,
    number,
    percent,
    si,
    target_of,
)

OWN = (
    f"The problems are dealt into {PARTS} parts by a hash of their ids. At each budget the "
    "problems of a part are decided at the β that is best over the other parts: β is "
    f"cross-validated. Weights are tried at {len(FACTORS)} β’s, from {min(FACTORS):g} to "
    f"{max(FACTORS):g} times the stated one; a different β needs no new samples. A chain must be "
    "drawn again for each β, so its own β is chosen from those that have results. "
    "Intervals are over problems, with these β’s held fixed."
)
"""How a method's own beta is found, for people."""
VOTES = (
    f"Votes are exact for two samples, and where there are at most {MOST_SUBSETS:,} subsets; "
    f"elsewhere they are averages over at least {SHUFFLES} N / n random subsets of the N samples "
    f"({UNWEIGHTED} N / n for the majority vote), which adds less than a tenth of each interval. "
    "Of tied answers, each counts equally. The majority vote uses no reward and is not charged for "
    "the reward model: it has as many samples as cost the same without rewards, up to all N."
)
"""How votes over samples are averaged and charged, for people."""
INTERVALS = (
    "Intervals are 95%. A share of outcomes that are right or wrong has a Wilson interval; an "
    "average over subsets or over sets has a bootstrap interval over problems, resampled within "
    f"each set, or Wilson’s where fewer than {FEW} problems have the rarer outcome; all sets "
    "count equally. Differences are paired over problems, with bootstrap intervals. Where "
    f"fewer than {FEW} problems are discordant this interval is too narrow: the "
    "difference is marked “few”, and the exact test of the discordant problems decides (McNemar; "
    "for averages over subsets, a paired permutation test). Equivalent means that the whole "
    f"interval lies within {MARGIN}. Intervals are not widened for the number of comparisons."
)
"""How intervals and verdicts are computed, for people."""


def sections(report: Report, *, whole: bool = False, tuning: float | None = None) -> list[Section]:
    """The figures and tables of a report.

    Args:
        report: what they show.
        whole: also list the problems of each set, to which its numbers lead, and what was run.
        tuning: FLOPs that were spent on finding beta before anything was reported, which the first
            figure marks.
    """
    main, *rest = groups = largest_first(report)
    numbers = {each.name: place for place, each in enumerate(report.sets)} if whole else {}
    tables = [section for group in groups for section in _tables(group, numbers)]
    last = [gains(main), waits(main), mixtures(main)]
    parts = [first(main, rest, tuning), *tables, multiples(groups), _landmarks(groups), *last]
    parts += [*_problems(groups, numbers), _how(groups)] if whole else []
    return [section for section in parts if section is not None]


def largest_first(report: Report) -> list[Group]:
    """The groups of models, the one with most sets first: the page is about that one."""
    return sorted(report.groups, key=lambda group: -len(group.different))


def _tables(group: Group, numbers: dict[str, int]) -> list[Section]:
    """Accuracy of every method on every set, and what QAlign has more than each other."""
    open_ended = group.header.run.open_ended
    whole = (row for row in group.rows[::-1] if "any" in row.points and row.n == group.n)
    spent = next((row.points["any"].spent for row in whole), None)
    at = f"{group.n:,} samples" + (f" ({si(spent, group.unit)} per problem)" if spent else "")
    intro = (
        f"{text(models_of(group.header.run))}. Right answers in percent, with 95% intervals over "
        f"problems, at the compute of {at}. Bold: ahead of each of the other rules by its paired "
        "difference."
        f"{' A cell links to its problems.' if numbers else ''} Below: QAlign minus each other "
        "rule, in points, paired over problems."
    )

    def opens(row: Row, key: str) -> str:
        return f"#problems-{numbers[row.name]}" if row.name in numbers and ":" not in key else ""

    parts = [
        Section("Sets and methods", intro, tables(group.rows, open_ended=open_ended, opens=opens))
    ]
    if own := tables(group.rows, own=True, open_ended=open_ended, opens=opens):
        title = "Each method at its own best β, found on other problems"
        parts.append(Section(title, OWN, own, fold=True))
    return parts


def _landmarks(groups: Sequence[Group]) -> Section:
    """List where best-of-n turns, and from which compute QAlign or another method stays ahead."""
    import pandas as pd

    against = [other for other in others() if not other.endswith("_own")]
    rows = {}
    for group in groups:
        for line in group.lines:
            crossings = (crossing(line.points, chain_vote.id, other) for other in against)
            crossed = [_format_crossing(each, group.unit) for each in crossings]
            rows[line.name] = [_format_turn(turn(line.points)), *crossed]
    heads = ["Best-of-n turns", *(f"QAlign and {in_a_sentence(curve_name(o))}" for o in against)]
    frame = pd.DataFrame(rows.values(), columns=heads, index=[*rows])
    intro = (
        "The compute from which one method stays ahead of the other, up to the largest equal "
        "compute, interpolated between two budgets on the logarithmic scale. For the 95% "
        "intervals, it is computed again on each resample of the problems."
    )
    return Section("Where curves turn and cross", intro, [Table(frame)])


def _format_turn(best: Turn | None) -> str:
    if best is None or not best.seen:
        return "–" if best is None else "no turn is seen"
    at = f"best at {best.n:,} ({best.low:,} to {best.high:,})"
    return f"{at}, {gap(best.lost)} more than at {best.last:,}"


def _format_crossing(crossing: Crossing | None, unit: str) -> str:
    if crossing is None:
        return "–"

    def place(spent: float) -> str:
        return "the start" if spent == 0 else si(spent, unit)

    words = f"{curve_name(crossing.ahead)} from {place(crossing.spent)}"
    if not crossing.seen:
        return f"{words}; no significant difference at {si(crossing.last, unit)}"
    return f"{words} ({place(crossing.low)} to {place(crossing.high)})"


def _problems(groups: Sequence[Group], numbers: dict[str, int]) -> list[Section]:
    """Every set's problems, in order; of a large set those on which the rules differ."""
    intro = (
        f"{COLUMNS} The command at the end opens the chain of a problem on Watch; where the report "
        "was made from a packed file, which holds numbers only, it draws the same chain again "
        "first."
    )
    parts = [Section("Problem by problem", intro, [])]
    for group in groups:
        for each in group.sets:
            at = {p.method: p for p in each.points if p.n == (each.level or group.n)}
            values = [p.each for method, p in at.items() if method in RULES]
            apart = [max(accuracies) - min(accuracies) for accuracies in zip(*values, strict=True)]
            order = sorted(np.argsort(apart)[::-1][:MOST].tolist())
            left = len(each.results.records) - len(order)
            note = f" ({left:,} on which the rules agree are left out)" if left else ""
            title = f"{text(each.name)}, {len(order):,} problems{note}"
            rows = list_problems(each, order, at, partial(opens, each))
            id_ = f"problems-{numbers[each.name]}"
            parts.append(Section(title, "", [rows], fold=True, id=id_))
    return parts


def short_revision(revision: str) -> str:
    """The start of a commit, and all that follows it, such as "int8"."""
    return " ".join(part[:12] for part in revision.split())


def describe_run(each: Evaluated) -> dict[str, str]:
    """Describe what was run, so that a reader can run it again."""
    header, acceptance = each.results.header, acceptance_of(each.results.records)
    overall, changed = acceptance.overall.value, acceptance.changed.value
    accepted = "–"
    if overall is not None and changed is not None:
        accepted = f"{percent(overall)} of all, {percent(changed)} of those that change the state"
    missing = f", {each.results.n_missing:,} not done" if each.results.n_missing else ""
    longest = max((len(record.chain_reward) for record in each.results.records), default=0)
    chain = f"chains of up to {longest // max(1, header.run.chains):,} states"
    return {
        "Problems": f"{len(each.results.records):,} of {header.task or 'a set'}{missing}",
        "What is right": _describe_grading(each.results),
        "Language model": f"{header.run.lm} {short_revision(header.lm_revision)}".strip(),
        "Reward model": f"{header.run.rm} {short_revision(header.rm_revision)}".strip(),
        "Target, temperature": f"{target_of(header.run)}; {number(header.run.temperature)}",
        "Accepted proposals": accepted,
        "Samples per problem": f"{header.run.pool:,}; {chain}",
        "Seed, date": f"{header.run.seed}, {header.created[:10]}",
        "Command": Markup(f"<code>{html.escape(header.command)}</code> {text(header.source)}"),
    }


def _describe_grading(results: Results) -> str:
    header = results.header
    if header.run.extractor is not None and is_file_name(header.run.extractor):
        return f"an answer that {title_of(header.run.extractor)} calls right"
    if not header.run.open_ended:
        return "an answer that means the same as the known one"
    rules = {getattr(problem.check, "right", CONSTRAINTS) for problem in results.problems}
    return " or ".join(sorted(rules)) or CONSTRAINTS


CONSTRAINTS = "a text that meets all constraints, which the program checks"


def _how(groups: Sequence[Group]) -> Section:
    """Describe what was run, and what the numbers mean."""
    import pandas as pd

    sets = [each for group in groups for each in group.sets]
    frame = pd.DataFrame([describe_run(each) for each in sets], index=[each.name for each in sets])
    intro = (
        f"{html.escape(COMPUTE_NOTE)}</p><p>{INTERVALS}</p><p>Best-of-n and any of n are exact "
        f"averages over all subsets of n samples. {VOTES} QAlign uses the first states of the "
        "chain, up to the cost of n samples. Best-of-n’s best budget is chosen on the problems "
        "that it is reported for, which flatters it a little."
    )
    return Section("What was run", intro, [Table(frame)])
