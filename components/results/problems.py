"""From a number of Results to the problems behind it, and from a problem to its chain on Watch."""

from __future__ import annotations

import html
from functools import cache

from qalign_core.decide.compared import RULES
from qalign_core.record.command import command_of_problem
from qalign_core.run import Run
from qalign_core.types import SetHeader
from qalign_study.measure.curves import Curve, Point
from qalign_study.measure.report import Evaluated
from qalign_study.sets.drawn import N_PROBLEMS, drawn_rows
from qalign_study.sets.folder import digest_of, run_of
from qalign_study.sets.problem_sets import Problem, load_problems
from qalign_study.sheet.page import table_html
from qalign_study.sheet.values import Markup, problems
from qalign_study.sheet.words import curve_name, in_a_sentence

MOST = 400
"""Problems in the list, at most."""
MOST_TEXT = 110
"""Characters of a problem in the list."""
WATCH = (
    "These results hold numbers only: “Watch” puts a problem’s settings and seed in place, and "
    "“Run it live” draws that chain again."
)
COMMANDS = (
    "These results hold numbers only, and their problems are not here: the command draws a chain "
    "again, into a file that <code>python app.py chain.jsonl</code> opens on Watch."
)


def problems_html(found: Evaluated, opened: str) -> str:
    """The problems behind a number, those first on which its method does worst.

    Args:
        found: the set.
        opened: the number: a method, "" or the other one of a difference, and a budget, joined by
            colons. Anybody's word: nothing else is shown for.
    """
    method, _, rest = str(opened).partition(":")
    other, _, n = rest.partition(":")
    at: dict[Curve, Point] = {
        p.method: p for p in found.points if str(p.n) == n or p.method == "one"
    }
    if method not in RULES or method not in at or (other and other not in at):
        return ""
    mine, theirs = at[method], at[other] if other else None
    values = [v - (theirs.each[k] if theirs else 0.0) for k, v in enumerate(mine.each)]
    order = sorted(range(len(values)), key=lambda k: values[k])[:MOST]
    listed = problems_of(found.results.header)
    texts = [_begin(listed, _place(found, k)) for k in order]
    made = problems(found, at, order, {"chain": [_chain(found, k, listed) for k in order],
                                       "problem": texts})  # fmt: skip
    is_open = found.results.header.open_ended
    first = in_a_sentence(curve_name(method, is_open)) + " does worst"
    first += f" compared with {in_a_sentence(curve_name(other, is_open))}" if theirs else ""
    return (
        f'<p class="qc-sub">At the compute of {mine.n:,} samples, how often each method is '
        f"right, in percent (a chain ran once); those first on which {html.escape(first)}. "
        f'{WATCH if listed else COMMANDS}</p><div class="qr-problems">{table_html(made)}</div>'
    )


def _place(found: Evaluated, k: int) -> int:
    return found.results.header.problems.index(found.results.records[k].id)


def _chain(found: Evaluated, k: int, listed: tuple[Problem, ...]) -> Markup:
    """What shows the chain of a problem: a link to Watch, or a command."""
    header, record, place = found.results.header, found.results.records[k], _place(found, k)
    steps = len(record.chain_reward) // record.n_chains - 1
    if not listed:
        command = html.escape(command_of_problem(header, place, steps))
        return Markup(f"<code>{command}</code>")
    run = run_of(header.run, listed[place], place)
    run = run.with_changes(steps=steps, pool=Run().pool, matched="none")
    return Markup(f'<a href="?{html.escape(run.query())}">Watch</a>')


def _begin(listed: tuple[Problem, ...], place: int) -> str:
    text = " ".join(listed[place].prompt.split()) if listed else ""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def problems_of(header: SetHeader) -> tuple[Problem, ...]:
    """The problems of an embedded set, if they are the very ones of these results."""
    return _problems_of(header.task, len(header.problems), header.digest)


@cache
def _problems_of(task: str, n: int, digest: str) -> tuple[Problem, ...]:
    if task not in N_PROBLEMS and drawn_rows(task) is None:
        return ()
    problems = tuple(load_problems(task)[:n])
    return problems if digest_of(problems) == digest else ()
