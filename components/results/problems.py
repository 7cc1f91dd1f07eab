"""From a number of Results to the problems behind it, and from a problem to its chain on Watch."""

import html
from urllib.parse import urlencode

from qalign_core.decide.rules import RULES
from qalign_core.run import Run
from qalign_study.measure.report import Evaluated
from qalign_study.serve.limits import read_limits
from qalign_study.sets.folder import run_of
from qalign_study.sheet.page import table_html
from qalign_study.sheet.problems import COLUMNS, at_level, cut, list_problems, opens, steps_of
from qalign_study.sheet.values import Markup
from qalign_study.sheet.words import curve_name, in_a_sentence

NUMBERS_ONLY = "These results contain only numbers"
WATCH = (
    f"{NUMBERS_ONLY}. “Watch” opens a problem’s settings and seed, and “Run it live” draws that "
    "chain again."
)
COMMANDS = (
    f"{NUMBERS_ONLY}, without the problems. The command draws a chain again, into a file that "
    "opens on Watch."
)


def problems_html(evaluated: Evaluated, opened: str = "") -> str:
    """The problems of a set in their order, or behind a number: the method's worst first.

    Args:
        found: the set.
        opened: the number: a method, "" or the other one of a difference, and a budget, joined by
            colons. Anybody's word: nothing is shown for another one.
    """
    method, _, rest = str(opened).partition(":")
    other, _, n = rest.partition(":")
    at = at_level(evaluated, n if opened else None)
    order, first = [*range(len(evaluated.results.records))], ""
    if opened:
        if method not in RULES or method not in at or (other and other not in at):
            return ""
        mine, theirs = at[method], at[other] if other else None
        values = [v - (theirs.each[k] if theirs else 0.0) for k, v in enumerate(mine.each)]
        order.sort(key=lambda k: values[k])
        is_open = evaluated.results.header.run.open_ended
        first = f", starting where {in_a_sentence(curve_name(method, is_open))} does worst"
        first += f" compared with {in_a_sentence(curve_name(other, is_open))}" if theirs else ""
    n_samples = max((p.n for p in at.values()), default=0)
    at_compute = f" at the compute of {n_samples:,} samples" if at else ""
    leads = "" if evaluated.folder else WATCH if evaluated.listed else COMMANDS
    table = list_problems(evaluated, order, at, lambda k: _chain(evaluated, k), sorts=True)
    return (
        f'<p class="soft">The problems{at_compute}{html.escape(first)}.{cut(len(order))} {COLUMNS} '
        f"{leads}</p>"
        f"{table_html(table)}"
    )


def _chain(evaluated: Evaluated, k: int) -> Markup:
    """What shows the chain of a problem: a link to Watch, or a command."""
    header, place = evaluated.results.header, evaluated.place(k)
    if evaluated.folder is not None:
        query = urlencode({"run": f"{evaluated.folder.name}/{evaluated.trace_path(place).stem}"})
    elif evaluated.listed:
        run = run_of(header.run, evaluated.listed[place], place)
        steps, pool = steps_of(evaluated.results.records[k]), Run().pool
        run = run.with_changes(steps=steps, pool=pool, matched="none").within(read_limits())
        query = run.query()
    else:
        return opens(evaluated, k)
    return Markup(f'<a href="?{html.escape(query)}">Watch</a>')
