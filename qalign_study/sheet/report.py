"""A report as one page of HTML: tables and figures, light and dark, without script or network."""

import html
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qalign_core.decide.compared import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.record.command import command_of_problem
from qalign_core.record.dictionary import colours, ideas
from qalign_study.measure.curves import Curve, Difference, Point, is_level, level_n
from qalign_study.measure.intervals import FEW
from qalign_study.measure.landmarks import Crossing, crossing, turn
from qalign_study.measure.own_beta import FACTORS, PARTS
from qalign_study.measure.report import AVERAGE, Evaluated, Group, Report, Row, others
from qalign_study.sets.folder import trace_path
from qalign_study.sheet import chart as svg
from qalign_study.sheet.report_figures import (
    first,
    gains,
    mixtures,
    models_of,
    multiples,
    text,
    waits,
)
from qalign_study.sheet.tables import columns, compared, minus
from qalign_study.sheet.words import (
    COUNTED,
    MARGIN,
    VERDICTS,
    curve_name,
    few,
    gap,
    in_points,
    si,
    target_of,
)

MOST_PROBLEMS = 400
"""Problems of a set that the page lists; those on which the rules differ come first."""
_PAGE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2430; --soft: #545d6b; --line: #dfe3ea }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0f141d; --ink: #e9edf4; --soft: #a9b2c0; --line: #2b3442 }
}
body { margin: 0 auto; padding: 20px 16px 60px; max-width: 1160px; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto, Arial, sans-serif }
h1 { font-size: 26px; margin: 0 }
"""
STYLE = (
    svg.STYLE
    + """
h2 { font-size: 20px; font-weight: 700; margin: 36px 0 4px }
h3 { font-size: 16px; font-weight: 700; margin: 18px 0 2px }
p { margin: 4px 0 10px; max-width: 84ch }
.soft, small, figcaption { color: var(--soft); font-size: 14px }
a { color: inherit } code { font-size: 13px; overflow-wrap: anywhere; unicode-bidi: isolate }
figure { margin: 8px 0 }
.grid-of { display: grid; gap: 14px 26px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)) }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; list-style: none; margin: 6px 0;
  padding: 0; font-size: 14px }
.legend li { display: flex; gap: 6px; align-items: center }
.legend .chart { width: 30px; height: 14px; flex: none }
.table { overflow-x: auto; margin: 8px 0 }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }
th, td { padding: 5px 12px 5px 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap }
td a { text-decoration: none } td a:is(:hover, :focus) { text-decoration: underline }
td:has(code) { white-space: normal; min-width: 28ch }
td small { display: block; white-space: normal; min-width: 12ch }
.mean > * { border-top: 2px solid var(--soft) }
details { margin: 10px 0 } summary { cursor: pointer }
.narrow { display: none }
@media (max-width: 640px) { .broad { display: none } .narrow { display: block } }
"""
)
"""Style sheet of the sections, for a page that has `--ground`, `--ink`, `--soft`, `--line`."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: Report, *, tuning: float | None = None) -> str:
    """The page of a report.

    Args:
        report: what it shows.
        tuning: FLOPs that were spent on finding beta before anything was reported, which the first
            figure marks.

    Raises:
        InvalidSetting: `tuning` is not a number above 0.
    """
    if tuning is not None and not (math.isfinite(tuning) and tuning > 0):
        raise InvalidSetting(f"tuning must be FLOPs above 0, got {tuning}; leave it out if unknown")
    groups = _largest_first(report)
    numbers = {each.name: place for place, each in enumerate(report.sets)}
    body = sections(report, numbers, tuning=tuning) + _problems(groups, numbers) + _how(groups)
    names = dict.fromkeys(each.results.header.task or each.name for each in report.sets)
    shown = ", ".join(f"<bdi>{html.escape(name)}</bdi>" for name in names)
    plain = html.escape("".join(filter(str.isprintable, ", ".join(names))))
    about = f'<p class="soft">{_count(groups[0])}; {models_of(groups[0])}.</p>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>QAlign report: {plain}</title><style>{_variables()}{_PAGE}{STYLE}</style></head>\n"
        f"<body><h1>QAlign report: {shown}</h1>{about}{''.join(body)}</body></html>\n"
    )


def sections(
    report: Report, numbers: Mapping[str, int], *, tuning: float | None = None
) -> list[str]:
    """The figures and tables of a report, as markup.

    Args:
        report: what they show.
        numbers: where a page lists the problems of a set, by its name: `#problems-3`.
        tuning: as for `to_html`.
    """
    main, *rest = groups = _largest_first(report)
    made = first(main, rest, tuning)
    for group in groups:
        made += _tables(group, numbers)
    made += [*multiples(groups), *_landmarks(groups), *gains(main), *waits(main)]
    return [*made, *mixtures(main)]


def _largest_first(report: Report) -> list[Group]:
    """The groups of models, the one with most sets first: the page is about that one."""
    return sorted(report.groups, key=lambda group: -len(group.different))


def _variables() -> str:
    """The dictionary's colours as the page's variables, by what the reader's system prefers."""
    pairs = {id_: colours()[idea.colour] for id_, idea in ideas().items() if idea.colour}
    light, dark = ("".join(f"--c-{id_}:{pair[k]};" for id_, pair in pairs.items()) for k in (0, 1))
    return f":root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n"


def _count(group: Group) -> str:
    n_sets, problems = len(group.different), sum(len(e.results.records) for e in group.different)
    return f"{n_sets} problem set{'s' * (n_sets > 1)}, {problems:,} problems"


# --- tables ----------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A table of markup: the first cell of a row is its head; the average stands apart."""
    top = "".join(f'<th scope="col">{head}</th>' if head else "<td></td>" for head in heads)
    body = "".join(
        f'<tr{" class=mean" * (name == AVERAGE)}><th scope="row">{text(name)}</th>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for name, cells in rows
    )
    return (
        '<div class="table" tabindex="0" role="group" aria-label="numbers"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _tables(group: Group, numbers: Mapping[str, int]) -> list[str]:
    """Accuracy of every method on every set, and what QAlign has more than each other."""
    rows, unit = group.rows(), group.unit
    own = [method for method in columns(rows) if method.endswith("_own")]
    methods = [method for method in columns(rows) if method not in own]
    pairs = [pair for pair in compared(rows) if not set(pair) & set(own)]
    own_pairs = [pair for pair in compared(rows) if pair not in pairs]
    whole = (row for row in rows[::-1] if "any" in row.points and row.n == group.n)
    spent = next((row.points["any"].spent for row in whole), None)
    at = f"{group.n:,} samples" + (f" ({si(spent, unit)} a problem)" if spent else "")
    return [
        "<h2>Sets and methods</h2>",
        f'<p class="soft">{models_of(group)}. Right answers in percent, with 95% intervals over '
        f"problems, at the compute of {at}. Bold: ahead of each of the other rules by its "
        f"paired difference.{' A cell leads to its problems.' if numbers else ''}</p>",
        _table(
            ["", *_heads(methods)],
            [(group.label(r), _accuracies(r, methods, numbers)) for r in rows],
        ),
        '<p class="soft">What QAlign has more, in points: paired differences over problems.</p>'
        + _table(
            ["", *(html.escape(minus(pair)) for pair in pairs)],
            [(group.label(row), _gaps(row, pairs)) for row in rows],
        )
        if pairs
        else "",
        _own(group, rows, own, own_pairs, numbers),
    ]


def _heads(methods: Sequence[Curve]) -> list[str]:
    return [html.escape(curve_name(method)) for method in methods]


def _own(
    group: Group,
    rows: Sequence[Row],
    methods: Sequence[Curve],
    pairs: Sequence[tuple[Curve, Curve]],
    numbers: Mapping[str, int],
) -> str:
    """Each method at its own beta, folded: how it was found takes a paragraph."""
    if not methods:
        return ""
    heads = ["", *_heads(methods), *(html.escape(minus(pair)) for pair in pairs)]
    cells = [(group.label(r), _accuracies(r, methods, numbers) + _gaps(r, pairs)) for r in rows]
    return (
        "<details><summary>Each method at its own best β, found on other problems</summary>"
        f"<p>{OWN}</p>{_table(heads, cells)}</details>"
    )


OWN = (
    f"The problems are dealt into {PARTS} parts by a hash of their ids. At each budget the "
    "problems of a part are decided at the β that is best over the other parts, so no problem has "
    f"a say in the β that decides it. Weights are tried at {len(FACTORS)} β’s, from "
    f"{min(FACTORS):g} to {max(FACTORS):g} times the stated one; another β costs no new sample. A "
    "chain has to be drawn again for each: its own β is looked for among those that there are "
    "results of, and not shown where there is one. Intervals are over problems, with the β’s held "
    "as they were found."
)
"""How a method's own beta is found, for people."""


def _accuracies(row: Row, methods: Sequence[Curve], numbers: Mapping[str, int]) -> list[str]:
    made = []
    for method in methods:
        point = row.points.get(method)
        if point is None:
            made.append("–")
            continue
        value, ends = in_points(point).split(" ", 1)
        said = f"<strong>{value}</strong>" if method == row.best else value
        place = numbers.get(row.name)
        linked = said if place is None else f'<a href="#problems-{place}">{said}</a>'
        samples = row.points.get("any")
        level = method == "one" or samples is None or is_level(point, samples)
        ended = "" if level else "<small>its chain ended before</small>"
        made.append(f"{linked} <small>{ends[1:-1]}</small>{ended}")
    return made


def _gaps(row: Row, pairs: Sequence[tuple[Curve, Curve]]) -> list[str]:
    found = {(d.a, d.b): d for d in row.differences}
    return [_gap(found.get(pair)) for pair in pairs]


def _gap(found: Difference | None) -> str:
    if found is None:
        return "–"
    value, ends = in_points(found, "+.1f").split(" ", 1)
    notes = "".join(f"<small>{note}</small>" for note in (few(found),) if note)
    return f"{value} <small>{ends[1:-1]}, {VERDICTS[found.verdict]}</small>{notes}"


def _landmarks(groups: Sequence[Group]) -> list[str]:
    """Where best-of-n turns, and from where on QAlign or another method stays ahead."""
    unit = groups[0].unit
    against = [other for other in others() if not other.endswith("_own")]
    rows = []
    for name, points in (line for group in groups for line in group.lines):
        found = turn(points)
        turned = "–"
        if found is not None:
            turned = (
                f"best at {found.n:,} sample{'s' * (found.n > 1)}"
                f"<small>{found.low:,} to {found.high:,}</small>"
                f"<small>{gap(found.lost)} more than at {found.last:,}"
                f"{'' if found.seen else ': no turn is seen'}</small>"
            )
        crossings = [_crossed(crossing(points, "qalign", other), unit) for other in against]
        rows.append((name, [turned, *crossings]))
    heads = ["", "Best-of-n turns", *(f"QAlign and {n.lower()}" for n in _heads(against))]
    return [
        "<h2>Where curves turn and cross</h2>",
        '<p class="soft">From which compute on one method stays ahead of the other, up to the '
        "largest equal compute; between two budgets on the logarithmic scale. 95% intervals: the "
        "place is looked for again each time problems are drawn again.</p>",
        _table(heads, rows),
    ]


def _crossed(found: Crossing | None, unit: str) -> str:
    if found is None:
        return "–"

    def place(spent: float) -> str:
        return "the start" if spent == 0 else si(spent, unit)

    said = f"{html.escape(curve_name(found.ahead))} from {place(found.spent)}"
    if not found.seen:
        return f"{said}<small>no significant difference at {si(found.last, unit)}</small>"
    return f"{said}<small>{place(found.low)} to {place(found.high)}</small>"


# --- from a cell to a problem, and to its chain ----------------------------------------------


def _problems(groups: Sequence[Group], numbers: Mapping[str, int]) -> list[str]:
    """Every set's problems: what each rule makes of them, and what shows the chain."""
    made = [
        "<h2>Problem by problem</h2>",
        '<p class="soft">How often each rule is right, in percent of the subsets of the samples '
        "(the chain ran once). The command at the end opens the chain of a problem on Watch; where "
        "the report was made from a packed file, which holds numbers only, it draws that very "
        "chain again first.</p>",
    ]
    for group in groups:
        for each in group.sets:
            at = {p.method: p for p in each.points if p.n == (level_n(each.points) or group.n)}
            shown = [method for method in columns(group.rows()) if method in at]
            records = each.results.records
            order = sorted(range(len(records)), key=lambda k: _spread(at, k), reverse=True)
            rows = [
                (records[k].id, [*(f"{100 * at[m].each[k]:.0f}" for m in shown), _opens(each, k)])
                for k in sorted(order[:MOST_PROBLEMS])
            ]
            left = len(records) - len(rows)
            note = f" ({left:,} on which the rules agree are left out)" if left else ""
            made.append(
                f"<details><summary>{text(each.name)}, {len(rows):,} problems{note}</summary>"
                f'<div id="problems-{numbers[each.name]}">'
                f"{_table(['', *_heads(shown), 'its chain'], rows)}</div></details>"
            )
    return made


def _spread(at: dict[Curve, Point], k: int) -> float:
    """How far the rules are apart on a problem."""
    values = [p.each[k] for method, p in at.items() if method in RULES]
    return max(values, default=0.0) - min(values, default=0.0)


def _opens(each: Evaluated, k: int) -> str:
    record = each.results.records[k]
    place = each.results.header.problems.index(record.id)
    header, folder = each.results.header, each.folder or Path("FOLDER")
    command = f"python app.py {shlex.quote(str(trace_path(folder, place)))}"
    if each.folder is None and header.source:  # whose rows are elsewhere, and put in order by seed
        command = f"{header.command} && {command}"
    elif each.folder is None:
        steps = len(record.chain_reward) // record.n_chains - 1
        drawn = command_of_problem(header, place, steps)
        command = f"{drawn} --out chain.jsonl && python app.py chain.jsonl"
    return f"<code>{html.escape(command)}</code>"


INTERVALS = (
    "Intervals are 95%. A share of outcomes that are right or wrong has a Wilson interval; an "
    "average over subsets or over sets has a bootstrap interval over problems, resampled within "
    "each set, and each set counts the same. Differences are paired over problems, with bootstrap "
    f"intervals. Where fewer than {FEW} problems are discordant this interval is too narrow: the "
    "difference is marked “few”, and the exact test of the discordant problems decides (McNemar; "
    "for averages over subsets, a paired permutation test). Equivalent means that the whole "
    f"interval lies within {MARGIN}. Intervals are not widened for how many comparisons there are."
)
"""How intervals and verdicts are computed, for people."""


def _how(groups: Sequence[Group]) -> list[str]:
    """What was run, and what the numbers mean."""
    rows = []
    for each in (each for group in groups for each in group.sets):
        header = each.results.header
        missing = f", {each.results.n_missing:,} not done" if each.results.n_missing else ""
        rows.append(
            (
                each.name,
                [
                    f"{len(each.results.records):,}{missing}",
                    target_of(header),
                    f"{header.pool:,}",
                    f"{text(header.lm)}<small>{text(header.lm_revision[:12])}</small>",
                    f"{text(header.rm)}<small>{text(header.rm_revision[:12])}</small>",
                    str(header.seed),
                    f"<code>{html.escape(header.command)}</code>"
                    f"<small>{text(header.source)}</small>",
                ],
            )
        )
    heads = [
        "",
        "problems",
        "target",
        "samples",
        "language model",
        "reward model",
        "seed",
        "command",
    ]
    return [
        "<h2>What was run</h2>",
        _table(heads, rows),
        f"<p>{html.escape(COUNTED)}</p>",
        f"<p>{INTERVALS}</p>",
        "<p>Best-of-n and any of n are averages over all subsets of n of the samples, exactly; "
        "votes over 32 random ones; QAlign is the beginning of the chain that costs what n samples "
        "do. Best-of-n’s best budget is chosen on the problems that it is reported for, which "
        "flatters it a little.</p>",
    ]
