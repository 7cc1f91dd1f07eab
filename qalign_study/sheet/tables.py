"""A report's tables as files: CSV for programs and spreadsheets, LaTeX for a paper.

Names come from folders and models, so they are text and nothing else: no spreadsheet takes them for
a formula, and LaTeX's own signs are escaped.
"""

import csv
import io
import unicodedata
from collections.abc import Sequence

from qalign_core.decide.compared import RULES
from qalign_study.measure.curves import Curve, Difference, Point, own_curves
from qalign_study.measure.report import AVERAGE, Group, Report, Row, differences, row_of
from qalign_study.sheet.files import cell
from qalign_study.sheet.words import VERDICTS, curve_name, few, in_points

COLUMNS = (
    *("lm", "rm", "set", "method", "minus", "n", "flops", "value", "low", "high", "best"),
    *("verdict", "p"),
)


def to_csv(report: Report) -> str:
    """One row a measurement: every set and the averages, every budget, differences too.

    A difference has the other method in `minus`, its verdict, and the p-value of the exact test
    where discordant problems are few; `best` is 1 where a method is ahead of each other rule.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for group in report.groups:
        for name, points in group.lines:
            best = {n: row_of(name, points, n).best for n in {p.n for p in points}}
            models = [cell(group.lm), cell(group.rm), cell(name)]
            for p in points:
                marked = "" if p.method not in RULES else int(p.method == best[p.n])
                rows.writerow([*models, p.method, "", *_numbers(p, group), marked, "", ""])
            for d in differences(points):
                rows.writerow([*models, d.a, d.b, *_numbers(d, group), "", d.verdict, d.p])
    return out.getvalue()


def _numbers(found: Point | Difference, group: Group) -> list[object]:
    return [found.n, found.spent if group.flops else "", found.value, found.low, found.high]


def columns(rows: Sequence[Row]) -> list[Curve]:
    """What any of the rows has, in the order in which it is read: the chain after the samples."""
    rules = sorted(RULES, key=lambda id_: RULES[id_].draws == "chain")
    shown = ["one", *rules, "any", *reversed(own_curves())]
    return [method for method in shown if any(method in row.points for row in rows)]


def compared(rows: Sequence[Row]) -> list[tuple[Curve, Curve]]:
    """The pairs of methods whose difference is in any of the rows."""
    return list(dict.fromkeys((d.a, d.b) for row in rows for d in row.differences))


def minus(pair: tuple[Curve, Curve]) -> str:
    """A difference's name."""
    return f"{curve_name(pair[0])} − {curve_name(pair[1])}"


def to_latex(report: Report) -> str:
    """Two tables a group of models, accuracy and differences, for `booktabs`."""
    said = [
        "% \\usepackage{booktabs}; accuracy in %, differences in points, with 95% intervals:",
        "% Wilson for outcomes 0 or 1, else bootstrap over problems; few: fewer than ten",
        "% discordant problems, with the exact test's p; bold: ahead of each other rule, paired.",
    ]
    for group in report.groups:
        rows = group.rows()
        caption = f"{latex(group.lm)} with {latex(group.rm)}, at the compute of {group.n:,} samples"
        methods = columns(rows)
        said += _table(
            caption + ": right answers in \\%.",
            [curve_name(method) for method in methods],
            [(group.label(row), [_accuracy(row, method) for method in methods]) for row in rows],
        )
        pairs = compared(rows)
        if pairs:
            said += _table(
                caption + ": paired differences in points.",
                [minus(pair) for pair in pairs],
                [(group.label(row), [_gap(row, pair) for pair in pairs]) for row in rows],
            )
    return "\n".join(said) + "\n"


def _table(
    caption: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    lines = [
        "\\begin{table}",
        "\\centering",
        f"\\begin{{tabular}}{{l{'c' * len(heads)}}}",
        "\\toprule",
        " & ".join(["Set", *map(latex, heads)]) + r" \\",
        "\\midrule",
    ]
    for name, cells in rows:
        if name == AVERAGE:
            lines.append("\\midrule")
        lines.append(" & ".join([latex(name), *cells]) + r" \\")
    return [*lines, "\\bottomrule", "\\end{tabular}", f"\\caption{{{caption}}}", "\\end{table}"]


def _accuracy(row: Row, method: Curve) -> str:
    point = row.points.get(method)
    if point is None:
        return "--"
    value, ends = latex(in_points(point)).split(" ", 1)
    bold = f"\\textbf{{{value}}}" if method == row.best else value
    return f"{bold} {{\\scriptsize {ends}}}"


def _gap(row: Row, pair: tuple[Curve, Curve]) -> str:
    found = next((d for d in row.differences if (d.a, d.b) == pair), None)
    if found is None:
        return "--"
    value, ends = latex(in_points(found, "+.1f")).split(" ", 1)
    notes = "; ".join(filter(None, (VERDICTS[found.verdict], few(found))))
    return f"{value} {{\\scriptsize {ends}, {latex(notes)}}}"


_SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"−": "$-$", "β": r"$\beta$", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}"},
    **{"`": r"\textasciigrave{}", '"': r"\textquotedbl{}", "|": r"\textbar{}"},
}


def latex(text: str) -> str:
    """A text as LaTeX shows it: its signs escaped, line breaks and control characters left out."""
    plain = "".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in text)
    return "".join(_SIGNS.get(sign, sign) for sign in plain)
